"""What others decide answers with: math-verify inline, and verl's ``math_dapo``.

verl lives in an environment of its own, so its rule runs in a process of its own: this file is
that process's program too, and then needs nothing but the standard library.  It answers each
line of its input by judging all responses once; the pipe costs some 50 microseconds a round.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self


class MathVerify:
    """math-verify as reward functions call it: parse both, then verify, at its defaults."""

    def __init__(self) -> None:
        import logging

        from math_verify import parse, verify  # type: ignore[import-untyped]

        logging.getLogger("math_verify").setLevel(logging.CRITICAL)
        self._parse, self._verify = parse, verify

    def judge(self, truths: Sequence[str], responses: Sequence[str]) -> list[bool]:
        """Return the verdict on each response."""
        return [
            bool(self._verify(self._parse(f"\\boxed{{{truth}}}"), self._parse(response)))
            for truth, response in zip(truths, responses, strict=True)
        ]


class MathDapo:
    """verl's ``math_dapo`` in a process of the environment that has verl.

    Raises RuntimeError where that process does not answer.
    """

    def __init__(
        self, python: Path, truths: Sequence[str], responses: Sequence[str], scratch: Path
    ) -> None:
        cases = scratch / "answers-of-verl.json"
        cases.write_text(json.dumps([list(truths), list(responses)]), encoding="utf-8")
        self._process = subprocess.Popen(
            [str(python), __file__, str(cases)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def judge(self) -> list[bool]:
        """Judge all responses once; return the verdict on each."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write("judge\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("the process with verl's math_dapo ended without an answer")
        return [character == "1" for character in line.strip()]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(timeout=10)
        self._process.stdout.close()


def _math_dapo() -> Any:
    """Load the one file of verl: the package itself takes seconds and is not needed."""
    package = importlib.util.find_spec("verl")
    if package is None or not package.submodule_search_locations:
        raise ModuleNotFoundError("this environment has no verl")
    path = Path(package.submodule_search_locations[0], "utils", "reward_score", "math_dapo.py")
    spec = importlib.util.spec_from_file_location("math_dapo", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _serve(cases: Path) -> None:
    rule = _math_dapo().compute_score
    truths, responses = json.loads(cases.read_text(encoding="utf-8"))
    pairs = list(zip(responses, truths, strict=True))
    for _ in sys.stdin:
        verdicts = ["1" if rule(response, truth)["acc"] else "0" for response, truth in pairs]
        print("".join(verdicts), flush=True)


if __name__ == "__main__":
    _serve(Path(sys.argv[1]))
