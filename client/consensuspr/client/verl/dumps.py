"""verl's own dumps of what was generated: JSON lines, one file ``STEP.jsonl`` a step.

A line has ``input``, ``output``, ``gts``, ``score`` and ``step``, and the figures of the reward
(``problem_id``, ``rollout_id``, ``status``, ``overlong_penalty``, …).  verl's own V1 trainers leave
the figures out of training dumps; ours add them (:mod:`consensuspr.client.verl.trainer`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from consensuspr.client.training.rows import ground_truth_text
from consensuspr.errors import DataError, InputError
from consensuspr.scoring.types import Rollout

_SUFFIX = ".jsonl"
_ALWAYS = frozenset(("input", "output", "gts", "score", "step"))


@dataclass(frozen=True, slots=True)
class DumpedSample:
    """One line of a dump; a value that the line lacks is None.

    Attributes:
        place: file and line.
        response: text that verl decoded, without special tokens.
        ground_truth: as verl has it, of any type.
        reward: before the penalty.
        penalty: that was added to it.
    """

    place: str
    response: str
    ground_truth: Any
    reward: float
    step: int
    problem_id: str | None
    rollout_id: str | None
    group_id: str | None
    status: str | None
    penalty: float

    @property
    def final_score(self) -> float:
        """The number that the policy was trained on."""
        return self.reward + self.penalty

    def rollout(self) -> Rollout:
        """Return it to be scored again.

        Raises:
            InputError: the line names no problem, or its ground truth is not a text.
        """
        if self.problem_id is None:
            raise InputError(
                f"{self.place}: names no problem (problem_id): verl's own trainer leaves it out;"
                " train with trainer.v1.trainer_mode=consensuspr_sync, or explain the run's score"
                " log"
            )
        truth = ground_truth_text(self.ground_truth, f"{self.place}: gts")
        return Rollout(self.problem_id, self.response, truth, rollout_id=self.rollout_id)


def is_dump(path: Path) -> bool:
    """Return whether a path is a dump of verl, by the names of its files or its first line."""
    if path.is_dir():
        return bool(_files(path)) and not (path / "scores").is_dir()
    if path.suffix != _SUFFIX:
        return False
    try:
        with path.open(encoding="utf-8") as file:
            first = json.loads(file.readline())
    except (OSError, ValueError):
        return False  # the reader of rollouts names the fault
    return isinstance(first, dict) and first.keys() >= _ALWAYS and "response" not in first


def read_dump(path: Path, step: int | None = None) -> Iterator[DumpedSample]:
    """Yield the samples of a dump, a file or a folder of them, by step.

    A last line without its end, which verl is writing, is left out.

    Args:
        path: of it.
        step: only this one; None: all.

    Raises:
        DataError: a line is not one of a dump.
        InputError: a file cannot be read.
    """
    for file in _files(path) if path.is_dir() else [path]:
        if step is not None and file.stem.isdecimal() and int(file.stem) != step:
            continue
        try:
            with file.open("rb") as lines:
                for number, line in enumerate(lines, start=1):
                    if line.endswith(b"\n"):
                        sample = _sample(line, str(file), number)
                        if step in (None, sample.step):
                            yield sample
        except OSError as error:
            raise InputError(f"cannot read {file}: {error.strerror}") from None


def _files(folder: Path) -> list[Path]:
    found = [path for path in folder.glob(f"*{_SUFFIX}") if path.stem.isdecimal()]
    return sorted(found, key=lambda path: int(path.stem))


def _sample(line: bytes, file: str, number: int) -> DumpedSample:
    try:
        row = json.loads(line)
        # verl's keys: GROUP_SESSION_OUTPUT; each output of a loop has the rollout's score.
        group, *session = str(row.get("uid") or "").rsplit("_", 2)
        named = f"{group}_{session[0]}" if len(session) == 2 else None
        rollout_id = row.get("rollout_id") or named
        if named is None:
            group = (rollout_id or "").rpartition("_")[0]
        for name in ("output", "problem_id", "rollout_id", "status"):
            kind = str if name == "output" else str | None
            if not isinstance(row.get(name), kind):
                raise DataError(file, number, f"{name} must be a text, got {row[name]!r:.80}")
        return DumpedSample(
            place=f"{file}:{number}",
            response=row["output"],
            ground_truth=row["gts"],
            reward=float(row["score"]),
            step=int(row["step"]),
            problem_id=row.get("problem_id"),
            rollout_id=rollout_id,
            group_id=group or None,
            status=row.get("status"),
            penalty=float(row.get("overlong_penalty") or 0.0),
        )
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        reason = f"lacks {error}" if isinstance(error, KeyError) else str(error)
        raise DataError(file, number, f"is not a line of verl's dumps: {reason}") from None
