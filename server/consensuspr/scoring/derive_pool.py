"""Deriving spread over processes, once a set has proven large.

The children are ordinary processes that run this module, not a :mod:`multiprocessing`
pool: that would import the caller's main script a second time (a training script without
a main guard would start over) or fork a process that may hold threads.

Each child reads a line of expressions, answers with a line of forms, and ends when its
input does.  It reads a whole line before it writes, so that writing to all and then
reading from all cannot block.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from consensuspr.core import derive_forms

_log = logging.getLogger(__name__)

# Deriving for this long alone comes first; it is several times what children take to start.
ALONE_S = 1.0

# Children by default at most: each takes some 30 MB and a fifth of a second to start.
MAX_CHILDREN = 16


class DerivePool:
    """Derives in this process, and after a while with children."""

    def __init__(self, processes: int | None = None) -> None:
        """Start nothing yet.

        Args:
            processes: children at most; None for the cores that this process may use, but
                no more than :data:`MAX_CHILDREN`; 0 or 1 for none.
        """
        self._wanted = _default_children() if processes is None else processes
        self._children: list[subprocess.Popen[bytes]] = []
        self._alone_s = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop()

    def derive(self, expressions: Sequence[str]) -> dict[str, list[str]]:
        """Return the derived forms by expression; the same whoever makes them."""
        if self._wanted > 1 and self._alone_s >= ALONE_S and sys.executable:
            try:
                return self._derive_in_children(expressions)
            except (OSError, ValueError) as error:
                # This process can do the same, only later; a defect that ended the child
                # shows here with its traceback.
                _log.warning("deriving without child processes, since one failed: %s", error)
                self._stop()
                self._wanted = 0
        start = time.monotonic()
        forms = {text: derive_forms(text) for text in expressions}
        self._alone_s += time.monotonic() - start
        return forms

    def _derive_in_children(self, expressions: Sequence[str]) -> dict[str, list[str]]:
        if not self._children:
            self._start()
        parts = [expressions[at :: len(self._children)] for at in range(len(self._children))]
        for child, part in zip(self._children, parts, strict=True):
            assert child.stdin is not None
            child.stdin.write(json.dumps(list(part)).encode() + b"\n")
            child.stdin.flush()
        forms: dict[str, list[str]] = {}
        for child, part in zip(self._children, parts, strict=True):
            assert child.stdout is not None
            forms.update(zip(part, json.loads(child.stdout.readline()), strict=True))
        return forms

    def _start(self) -> None:
        # A child sees the packages that this process sees, however they came onto the path.
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        for _ in range(self._wanted):
            child = subprocess.Popen(
                [sys.executable, "-m", "consensuspr.scoring.derive_pool"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env=environment,
            )
            self._children.append(child)

    def _stop(self) -> None:
        for child in self._children:
            child.kill()
            child.communicate()
        self._children.clear()


def _default_children() -> int:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return min(cores or 1, MAX_CHILDREN)


def _serve() -> None:
    for line in sys.stdin:
        print(json.dumps([derive_forms(text) for text in json.loads(line)]), flush=True)


if __name__ == "__main__":
    _serve()
