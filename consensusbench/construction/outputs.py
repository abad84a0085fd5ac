"""The file between ``extract`` and ``refine``: every problem with what stage 2 made of it.

A row is that of a problem without nodes, with one more key: ``extraction`` (candidates, what was
dropped, rollouts, provenance) or ``excluded`` (stage, reason, detail).  So stage 3 runs again
with other thresholds and without extracting, which a model is paid for, and its audit is whole.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast, get_args

from consensusbench.construction.selection import SelectionSettings
from consensusbench.construction.store import (
    Disagreements,
    dropped_to_row,
    extraction_from_row,
    extraction_to_row,
)
from consensusbench.construction.types import (
    Excluded,
    Finished,
    Group,
    Item,
    ProblemCounts,
    Reason,
    Refiner,
    Result,
    RolloutCounts,
    Sampled,
    Stage,
    Task,
)
from consensusbench.extraction.types import Dropped, Extraction
from consensusbench.outputs import check_outputs, check_row_outputs
from consensuspr.core import NORMAL_FORM_VERSION
from consensuspr.data import (
    DataError,
    Node,
    OnError,
    Problem,
    ReadReport,
    Row,
    RowWriter,
    open_writer,
    problem_to_row,
    read_problem_rows,
)
from consensuspr.errors import InputError
from consensuspr.scoring.answers import ANSWER_VERSION
from consensuspr.version import VERSION

_KEYS = ("extraction", "excluded")


def extracted_row(group: Group, extraction: Extraction) -> Row:
    """Return the row of a problem that has candidates, possibly none."""
    return problem_to_row(group.problem) | {
        "extraction": {
            "correct_rollouts": group.correct,
            "rollouts": sampled_rows(group),
            "inputs": group.inputs,
            "provenance": group.provenance,
            **extraction_to_row(extraction),
        },
        "excluded": None,
    }


def excluded_row(excluded: Excluded) -> Row:
    """Return the row of a problem that has no extraction."""
    return problem_to_row(excluded.problem) | {
        "extraction": None,
        "excluded": {
            "stage": excluded.stage,
            "reason": excluded.reason,
            "detail": excluded.detail,
        },
    }


def read_candidates(
    path: str | os.PathLike[str], on_error: OnError, report: ReadReport
) -> Iterator[Item]:
    """Yield the problems of a file of candidates in order.

    Args:
        path: JSONL, gzip'd JSONL or Parquet.
        on_error: what a bad row does.
        report: filled with counts and reasons.

    Raises:
        DataError: a bad row with ``"stop"``; a bad file always.
    """
    name = os.fspath(path)
    for problem, row in read_problem_rows(name, on_error, report):
        try:
            yield _item(problem, row)
        except InputError as error:
            fault = DataError(name, None, f"problem {problem.problem_id[:80]!r}: {error}")
            if on_error == "stop":
                raise fault from None
            report.rows -= 1
            report.skip(fault)


def _item(problem: Problem, row: Row) -> Item:
    extra = {key: value for key, value in problem.extra.items() if key not in _KEYS}
    problem = replace(problem, nodes=(), extra=extra)
    excluded, extraction = row.get("excluded"), row.get("extraction")
    if isinstance(excluded, dict):
        return _excluded(problem, excluded)
    if not isinstance(extraction, dict):
        raise InputError("has neither extraction nor excluded; files of candidates are made by "
                         "consensusbench extract")  # fmt: skip
    for key, kind in (("correct_rollouts", int), ("inputs", str), ("provenance", dict)):
        if not isinstance(extraction.get(key), kind):
            raise InputError(f"extraction.{key} is missing or of a wrong type")
    group = Group(
        problem,
        _sampled(extraction.get("rollouts")),
        extraction["correct_rollouts"],
        extraction["inputs"],
        extraction["provenance"],
    )
    return Task(group, extraction=extraction_from_row(extraction))


def _excluded(problem: Problem, row: Row) -> Excluded:
    reason, stage, detail = row.get("reason"), row.get("stage"), row.get("detail")
    if reason not in get_args(Reason) or stage not in get_args(Stage) or type(detail) is not str:
        raise InputError(f"excluded has stage {stage!r}, reason {reason!r}, detail {detail!r}")
    return Excluded(problem, cast(Reason, reason), detail, cast(Stage, stage))


def _sampled(rows: Any) -> tuple[Sampled, ...]:
    if not isinstance(rows, list) or not rows:
        raise InputError("extraction.rollouts must be a list, and not empty")
    sampled = []
    for at, row in enumerate(rows):
        name, model = (row.get("rollout_id"), row.get("model")) if isinstance(row, dict) else (0, 0)
        if not isinstance(name, str) or not isinstance(model, str):
            raise InputError(f"extraction.rollouts[{at}] must have rollout_id and model")
        sampled.append(Sampled(name, model, row.get("sampling") or {}))
    return tuple(sampled)


# MERGED How a dataset was made, recorded in each of its rows.
#
# In each row and not beside the file: a file beside is lost with the first copy, and rows of
# several builds end up in one dataset.  What is the same in all rows (versions, thresholds,
# prompts; some 2 KB) compresses to nothing in ``.gz`` and Parquet, and the server does not
# keep it.  The layout is told in ``docs/design/construction.md``.

# Of the layout of ``metadata.construction``.
LAYOUT = 1


def extraction_provenance(
    selection: SelectionSettings, extractor: Row, sampling: Sequence[Row]
) -> Row:
    """Return what stages 1 and 2 of a build have in common for all problems.

    Args:
        selection: which rollouts were looked at.
        extractor: name, version and thresholds.
        sampling: how the rollouts were made, as far as that is known.
    """
    return {
        "consensuspr": VERSION,
        "normal_form": NORMAL_FORM_VERSION,
        "answers": ANSWER_VERSION,
        "sampling": list(sampling),
        "selection": selection.provenance(),
        "extraction": extractor,
    }


def construction_row(group: Group, refinement: Row) -> Row:
    """Return ``metadata.construction`` of a problem."""
    return {
        "layout": LAYOUT,
        "correct_rollouts": group.correct,
        "rollouts": sampled_rows(group),
        "inputs": group.inputs,
        "provenance": {**group.provenance, "refinement": refinement},
    }


def sampled_rows(group: Group) -> list[Row]:
    """Return the rollouts that were looked at, with how they were sampled where that is known."""
    return [
        {"rollout_id": one.rollout_id, "model": one.model}
        | ({"sampling": one.sampling} if one.sampling else {})
        for one in group.sampled
    ]


# MERGED What a build did, in numbers.


@dataclass(slots=True)
class Seconds:
    """How long what took.

    Attributes:
        reading: of the inputs, on the clock.
        verifying: of answers, on the clock; overlaps with the work on problems.
        extracting: of all problems together, in whatever process.
        refining: of all problems together, in whatever process.
        total: on the clock.
    """

    reading: float = 0.0
    verifying: float = 0.0
    extracting: float = 0.0
    refining: float = 0.0
    total: float = 0.0

    def to_json(self) -> Row:
        """Return the times as plain values."""
        names = ("reading", "verifying", "extracting", "refining", "total")
        return {name: round(getattr(self, name), 3) for name in names}


@dataclass(slots=True)
class BuildReport:
    """Counts, times and outputs of one command.

    Attributes:
        paths: what was written.
        problems: what became of problems and nodes.
        rollouts: what became of rollouts; None where none were read.
        skipped_rows: bad rows of the file of problems or candidates.
        disagreements: of rollouts with the problems; None where none were read.
        resumed: problems whose extraction an earlier run had left.
        digest: of the dataset, None where none was written.
        provenance: how; the same for all problems of this command.
        seconds: how long.
    """

    paths: OutputPaths
    problems: ProblemCounts = field(default_factory=ProblemCounts)
    rollouts: RolloutCounts | None = None
    skipped_rows: int = 0
    disagreements: Disagreements | None = None
    resumed: int = 0
    digest: str | None = None
    provenance: Row = field(default_factory=dict)
    seconds: Seconds = field(default_factory=Seconds)

    def warnings(self) -> list[str]:
        """Return sentences on what a person should look at."""
        said = self.disagreements
        found = []
        if said is not None and said.ground_truths.count:
            who = _many(said.ground_truths.count, "rollout names", "rollouts name")
            found.append(
                f"{who} another ground truth than the file of problems, which counts "
                f"(first: {said.ground_truths.first})"
            )
        if said is not None and said.data_sources.count:
            who = _many(said.data_sources.count, "problem has", "problems have")
            found.append(
                f"{who} rollouts of several data sources, of which the first in the alphabet is "
                f"taken (first: {said.data_sources.first})"
            )
        if self.skipped_rows:
            who = _many(self.skipped_rows, "bad row", "bad rows")
            found.append(f"{who} of problems {_was(self.skipped_rows)} skipped")
        if self.rollouts is not None and self.rollouts.skipped:
            skipped = self.rollouts.skipped
            who = _many(skipped, "bad row", "bad rows")
            found.append(f"{who} of rollouts {_was(skipped)} skipped")
        return found

    def to_json(self) -> Row:
        """Return everything as plain values."""

        def named(path: Path | None) -> str | None:
            return None if path is None else str(path)

        return {
            "output": named(self.paths.dataset),
            "audit": named(self.paths.audit),
            "candidates": named(self.paths.candidates),
            "digest": self.digest,
            "problems": self.problems.to_json(),
            "rollouts": None if self.rollouts is None else self.rollouts.to_json(),
            "skipped_rows": self.skipped_rows,
            "resumed": self.resumed,
            "warnings": self.warnings(),
            "provenance": self.provenance,
            "seconds": self.seconds.to_json(),
        }


def _many(count: int, one: str, many: str) -> str:
    return f"{count:,} {one if count == 1 else many}"


def _was(count: int) -> str:
    return "was" if count == 1 else "were"


# MERGED What a build writes: dataset, audit, candidates; all of them appear, or none.
#
# Takes what became of each problem, in order, and counts it.


@dataclass(frozen=True, slots=True)
class OutputPaths:
    """Where a build writes; None: not at all.

    Attributes:
        dataset: problems with nodes.
        audit: what is not in it, and why.
        candidates: the problems as stage 2 left them.

    Raises:
        InputError: two of them are one file, or a name or folder cannot be meant.
    """

    dataset: Path | None = None
    audit: Path | None = None
    candidates: Path | None = None

    def __post_init__(self) -> None:
        check_row_outputs(self.all())
        check_outputs(self.all(), ())

    def all(self) -> list[Path]:
        """Return those that are written."""
        return [path for path in (self.dataset, self.audit, self.candidates) if path is not None]

    def refuse_inputs(self, *inputs: Path | None) -> None:
        """Raise InputError where an output is one of the files that are read."""
        check_outputs(self.all(), inputs)


class Outputs:
    """Writes and counts; made by :func:`open_outputs`."""

    def __init__(
        self,
        dataset: RowWriter | None,
        audit: RowWriter | None,
        candidates: RowWriter | None,
        refiner: Refiner | None,
    ) -> None:
        self._dataset = dataset
        self._audit = audit
        self._candidates = candidates
        self._refiner = refiner
        self.counts = ProblemCounts()

    def take(self, finished: Finished) -> None:
        """Write what became of one problem."""
        if isinstance(finished, Excluded):
            self._write_candidates(excluded_row(finished))
            self._exclude(finished)
            return
        group, result = finished
        if result.extraction is not None:
            self._write_candidates(extracted_row(group, result.extraction))
            self._drop(group.problem, result.extraction.dropped)
        self._drop(group.problem, result.dropped)
        if result.failure is not None:
            stage: Stage = "extract" if result.extraction is None else "refine"
            failure = result.failure
            failed = Excluded(group.problem, failure.reason, failure.detail, stage)
            if result.extraction is None:
                self._write_candidates(excluded_row(failed))
            self._exclude(failed)
        elif self._refiner is not None:
            self._refined(group, result, self._refiner)
        else:
            assert result.extraction is not None, "a result without failure has an extraction"
            num_candidates = len(result.extraction.candidates)
            self.counts.write(group.problem.data_source, num_candidates)

    def _refined(self, group: Group, result: Result, refiner: Refiner) -> None:
        nodes = result.nodes
        assert nodes is not None, "stage 3 was done"
        if len(nodes) < refiner.min_nodes:
            left = "1 node is" if len(nodes) == 1 else f"{len(nodes)} nodes are"
            detail = f"{left} left, the least is {refiner.min_nodes}"
            self._drop(group.problem, [_too_few(node, detail) for node in nodes])
            self._exclude(Excluded(group.problem, "few_nodes", detail, "refine"))
            return
        self.counts.write(group.problem.data_source, len(nodes))
        if self._dataset is not None:
            self._dataset.write(dataset_row(group, nodes, refiner.provenance()))

    def _exclude(self, excluded: Excluded) -> None:
        problem = excluded.problem
        self.counts.exclude(excluded.reason, problem.problem_id, excluded.detail)
        if self._audit is not None:
            self._audit.write(
                _audit_row(problem, "problem")
                | {
                    "stage": excluded.stage,
                    "reason": excluded.reason,
                    "detail": excluded.detail,
                    "label": None,
                    "expressions": [],
                    "support": None,
                }
            )

    def _drop(self, problem: Problem, dropped: tuple[Dropped, ...] | list[Dropped]) -> None:
        for one in dropped:
            self.counts.dropped[one.stage, one.reason] += 1
            if self._audit is not None:
                self._audit.write(_audit_row(problem, "node") | dropped_to_row(one))

    def _write_candidates(self, row: Row) -> None:
        if self._candidates is not None:
            self._candidates.write(row)


@contextlib.contextmanager
def open_outputs(paths: OutputPaths, refiner: Refiner | None) -> Iterator[Outputs]:
    """Open the outputs; they are replaced when the block ends without an error.

    Args:
        paths: which are written.
        refiner: of stage 3; None where a build ends with stage 2.

    Raises:
        InputError: one cannot be written, or not one problem is left.
    """
    with contextlib.ExitStack() as stack:
        # The one opened first appears last: who sees the dataset finds its audit beside it.
        dataset, audit, candidates = (
            None if path is None else stack.enter_context(open_writer(path))
            for path in (paths.dataset, paths.audit, paths.candidates)
        )
        outputs = Outputs(dataset, audit, candidates, refiner)
        yield outputs
        counts = outputs.counts
        if not counts.written.total():
            reasons = "; ".join(
                f"{count:,} {reason} (first: {counts.examples[reason]})"
                for reason, count in counts.excluded.most_common()
            )
            reasons = reasons or "no rollout that counts names one"
            raise InputError(f"no problem is left, nothing was written: {reasons}")


def dataset_row(group: Group, nodes: tuple[Node, ...], refinement: Row) -> Row:
    """Return the row of a problem in the dataset."""
    problem = group.problem
    metadata = {**problem.metadata, "construction": construction_row(group, refinement)}
    return problem_to_row(replace(problem, nodes=nodes, metadata=metadata))


def _audit_row(problem: Problem, what: str) -> Row:
    return {"problem_id": problem.problem_id, "data_source": problem.data_source, "what": what}


def _too_few(node: Node, detail: str) -> Dropped:
    return Dropped("refine", "few_nodes", detail, node.label, node.expressions, node.support)
