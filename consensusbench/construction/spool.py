"""Rollouts in any order, put on disk and given back problem by problem.

The texts go to one nameless file in the folder of the build, one behind the other; what stays
in memory is some 60 bytes a rollout (where it lies, whose it is, a digest of its text), so that a
hundred thousand rollouts take 6 MB whatever their length.  A partition by hash was weighed and
dropped: it bounds memory by the largest partition, gives problems back in the order of hashes,
and has to read rollouts that are not wanted.
"""

from __future__ import annotations

import hashlib
import os
import struct
import tempfile
from array import array
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

import numpy as np

from consensuspr.errors import ConsensusPRError

# Lengths of the rollout's name and of what is known of its sampling, which stand before the text.
_HEAD = struct.Struct("<II")
_NO_NAME = 0xFFFFFFFF
_LABELS = {None: -1, False: 0, True: 1}


class Spooled(NamedTuple):
    """A rollout as it lies on disk.

    Attributes:
        name: its id, None where it has none.
        sampling: how it was sampled, as JSON text; empty where unknown.
        response: its text.
    """

    name: str | None
    sampling: str
    response: str


@dataclass(frozen=True, slots=True)
class Stored:
    """A distinct text among the rollouts of a problem.

    Attributes:
        at: number of the rollout in the spool; where a text is repeated, of the one whose
            model and name come first, so that the order of rows does not matter.
        digest: of the text.
        num_bytes: of the text and what stands before it.
        model: who wrote it, empty where unknown.
        label: its label; of a repeated text, False where one is, and None before True.
        repeats: further rollouts with the same text.
    """

    at: int
    digest: bytes
    num_bytes: int
    model: str
    label: bool | None
    repeats: int


class RolloutSpool:
    """Takes rollouts one by one; after :meth:`finish`, gives back those of a problem.

    Args:
        folder: where the file lies; it has no name there and vanishes with the process.
    """

    def __init__(self, folder: Path) -> None:
        self._file = tempfile.TemporaryFile(prefix="rollouts-", dir=folder)  # noqa: SIM115
        self._end = 0
        self._models: dict[str, int] = {}
        # One element a rollout each.
        self._problem = array("i")
        self._model = array("i")
        self._label = array("b")
        self._offset = array("q")
        self._size = array("i")
        self._digest = bytearray()
        self._order: Any = None
        self._sorted_problem: Any = None
        self._names_of_models: list[str] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._file.close()

    def __len__(self) -> int:
        return len(self._problem)

    def add(self, problem: int, model: str, rollout: Spooled, label: bool | None = None) -> None:
        """Take one rollout of a problem.

        Args:
            problem: number of the problem.
            model: who wrote the rollout, empty where unknown.
            rollout: name, sampling and text.
            label: whether its row says that it is correct.

        Raises:
            ConsensusPRError: the disk is full.
        """
        name, sampling, text = ((part or "").encode("utf-8", "surrogatepass") for part in rollout)
        head = _HEAD.pack(_NO_NAME if rollout.name is None else len(name), len(sampling))
        try:
            self._file.write(head + name + sampling + text)
        except OSError as error:
            raise ConsensusPRError(
                f"the rollouts cannot be put on disk beside the output: {error.strerror}"
            ) from error
        size = len(head) + len(name) + len(sampling) + len(text)
        self._problem.append(problem)
        self._model.append(self._models.setdefault(model, len(self._models)))
        self._label.append(_LABELS[label])
        self._offset.append(self._end)
        self._size.append(size)
        self._digest += hashlib.blake2b(text, digest_size=16).digest()
        self._end += size

    def finish(self) -> None:
        """Take no more, and sort what there is by problem and text."""
        self._file.flush()
        self._names_of_models = list(self._models)
        problem = np.frombuffer(self._problem, np.int32)
        digest = np.frombuffer(self._digest, np.dtype(">u8")).reshape(-1, 2)
        self._order = np.lexsort((digest[:, 1], digest[:, 0], problem))
        self._sorted_problem = problem[self._order]

    def of_problem(self, problem: int) -> list[Stored]:
        """Return the distinct texts of a problem, ordered by digest."""
        first, last = np.searchsorted(self._sorted_problem, [problem, problem + 1])
        same: dict[bytes, list[int]] = {}
        for at in self._order[first:last].tolist():
            same.setdefault(bytes(self._digest[16 * at : 16 * at + 16]), []).append(at)
        return [self._stored(digest, rollouts) for digest, rollouts in same.items()]

    def read(self, at: int) -> Spooled:
        """Return a rollout."""
        raw = os.pread(self._file.fileno(), self._size[at], self._offset[at])
        name_size, sampling_size = _HEAD.unpack_from(raw)
        first = _HEAD.size + (0 if name_size == _NO_NAME else name_size)
        second = first + sampling_size
        name, sampling, text = (
            part.decode("utf-8", "surrogatepass")
            for part in (raw[_HEAD.size : first], raw[first:second], raw[second:])
        )
        return Spooled(None if name_size == _NO_NAME else name, sampling, text)

    def _stored(self, digest: bytes, rollouts: list[int]) -> Stored:
        at = rollouts[0]
        if len(rollouts) > 1:
            at = min(rollouts, key=self._rank)
        return Stored(
            at,
            digest,
            self._size[at],
            self._names_of_models[self._model[at]],
            _merged([self._label[one] for one in rollouts]),
            len(rollouts) - 1,
        )

    def _rank(self, at: int) -> tuple[str, str, str]:
        rollout = self.read(at)
        return self._names_of_models[self._model[at]], rollout.name or "", rollout.sampling


def _merged(labels: list[int]) -> bool | None:
    if 0 in labels:
        return False
    return None if -1 in labels else True
