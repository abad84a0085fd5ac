"""What a build writes: dataset, audit, candidates, and its report.  All files appear, or none.

Each row of a dataset records its construction (``metadata.construction``), because a file beside it
is lost with the first copy.

Candidates are the file between ``extract`` and ``refine``: the row of a problem without nodes, and
one more key, ``extraction`` (candidates, what was dropped, rollouts, provenance) or ``excluded``
(stage, reason, detail).
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from consensusbench.construction.budgets import budget_of
from consensusbench.construction.selection import SelectionSettings
from consensusbench.construction.store import Disagreement
from consensusbench.construction.types import (
    BuildRecord,
    Excluded,
    ExclusionReason,
    Finished,
    Item,
    Outcome,
    ProblemCounts,
    ProblemTask,
    RolloutCounts,
    Stage,
)
from consensusbench.construction.worth import Judge
from consensusbench.extraction.types import Dropped, Extraction, Refiner
from consensusbench.outputs import check_outputs, check_row_outputs
from consensusbench.quality.probes import cheap_notes
from consensusbench.tally import Tally
from consensuspr.console import count_of
from consensuspr.core import NORMAL_FORM_VERSION
from consensuspr.data import (
    DataError,
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
from consensuspr.scoring.derive import FORMS_VERSION
from consensuspr.version import VERSION

# Of the layout of ``metadata.construction``.
LAYOUT = 1


@dataclass(frozen=True, slots=True)
class OutputPaths:
    """Where a build writes; None: not at all.

    Attributes:
        dataset: problems with nodes.
        audit: conclusions and problems that are left out, with the reason.
        candidates: the problems as stage 2 left them.

    Raises:
        InputError: two of them are one file, or a name or folder is wrong.
    """

    dataset: Path | None = None
    audit: Path | None = None
    candidates: Path | None = None

    def __post_init__(self) -> None:
        check_row_outputs(self.all())
        check_outputs(self.all(), ())

    @property
    def main(self) -> Path:
        """The dataset, else the candidates."""
        main = self.dataset or self.candidates
        assert main is not None, "a build writes something"
        return main

    def all(self) -> list[Path]:
        """Return those that are written."""
        return [path for path in (self.dataset, self.audit, self.candidates) if path is not None]

    def refuse_inputs(self, *inputs: Path | None) -> None:
        """Raise InputError where an output is one of the files that are read."""
        check_outputs(self.all(), inputs)


def extraction_provenance(
    selection: SelectionSettings, extractor: Row, sampling: Sequence[Row]
) -> Row:
    """Return what stages 1 and 2 of a build have in common for all problems."""
    return {
        "consensuspr": VERSION,
        "normal_form": NORMAL_FORM_VERSION,
        "forms": FORMS_VERSION,
        "answers": ANSWER_VERSION,
        "sampling": list(sampling),
        "selection": selection.provenance(),
        "extraction": extractor,
    }


class NothingBuilt(InputError):
    """No problem is left, so that nothing was written."""


class Outputs:
    """Writes problems, in order, and counts them; see :func:`open_outputs`."""

    def __init__(
        self, writers: Sequence[RowWriter | None], report: BuildReport, refiner: Refiner | None
    ) -> None:
        self._dataset, self._audit, self._candidates = writers
        self._counts = report.problems
        self._judge = report.judge
        self._refiner = refiner

    def take(self, finished: Finished) -> None:
        """Write one problem."""
        if isinstance(finished, Excluded):
            self._exclude(finished)
            return
        problem, extraction = finished.problem, finished.extraction
        if extraction is not None:
            row = asdict(finished.record) | asdict(extraction)
            self._write_candidates(problem, {"extraction": row, "excluded": None})
            self._drop(problem, extraction.dropped)
        self._drop(problem, finished.dropped)
        if finished.failure is not None:
            self._exclude(finished.failure)
        elif self._refiner is not None:
            self._take_refined(finished, self._refiner)
        else:
            assert extraction is not None, "an outcome without failure has an extraction"
            self._counts.write(problem.data_source, len(extraction.candidates))

    def _take_refined(self, outcome: Outcome, refiner: Refiner) -> None:
        problem, record, nodes = outcome.problem, outcome.record, outcome.nodes
        assert nodes is not None, "stage 3 was done"
        if len(nodes) < refiner.min_nodes:
            left = count_of(len(nodes), "node is", "nodes are")
            detail = f"{left} left, the least is {refiner.min_nodes}"
            dropped = [
                Dropped("refine", "few_nodes", detail, node.label, node.expressions, node.support)
                for node in nodes
            ]
            self._drop(problem, dropped)
            self._exclude(Excluded(problem, "few_nodes", detail, "refine"))
            return
        self._counts.write(problem.data_source, len(nodes))
        if self._dataset is not None:
            provenance = record.provenance | {"refinement": refiner.provenance()}
            construction = {"layout": LAYOUT, **asdict(record), "provenance": provenance}
            budget = None if record.stated is None else budget_of(record.stated, len(nodes))
            metadata = {**problem.metadata, "construction": construction}
            problem = replace(problem, nodes=nodes, budget=budget, metadata=metadata)
            if self._judge is not None:
                problem = self._judge.weigh(problem)
            self._dataset.write(problem_to_row(problem))

    def _exclude(self, excluded: Excluded) -> None:
        problem_id = excluded.problem.problem_id
        self._counts.excluded.note(excluded.reason, f"{problem_id!r}: {excluded.detail}")
        no_node: Row = {"label": None, "expressions": [], "support": None}
        self._write_audit(excluded.problem, "problem", excluded.why() | no_node)
        if excluded.stage != "refine":  # what stage 3 leaves out is a candidate
            row = {"extraction": None, "excluded": excluded.why()}
            self._write_candidates(excluded.problem, row)

    def _drop(self, problem: Problem, dropped: Sequence[Dropped]) -> None:
        for conclusion in dropped:
            self._counts.dropped[conclusion.stage, conclusion.reason] += 1
            self._write_audit(problem, "node", asdict(conclusion))

    def _write_audit(self, problem: Problem, kind: str, row: Row) -> None:
        if self._audit is not None:
            about = {"problem_id": problem.problem_id, "data_source": problem.data_source}
            self._audit.write({**about, "what": kind, **row})

    def _write_candidates(self, problem: Problem, row: Row) -> None:
        if self._candidates is not None:
            self._candidates.write(problem_to_row(problem) | row)


@contextlib.contextmanager
def open_outputs(report: BuildReport, refiner: Refiner | None) -> Iterator[Outputs]:
    """Open the outputs of a report; they are replaced when the block ends without an error.

    Raises:
        InputError: one cannot be written.
        NothingBuilt: no problem is left.
    """
    paths = report.paths
    with contextlib.ExitStack() as stack:
        # The one opened first appears last: a reader who sees the dataset finds its audit.
        writers = [
            None if path is None else stack.enter_context(open_writer(path))
            for path in (paths.dataset, paths.audit, paths.candidates)
        ]
        yield Outputs(writers, report, refiner)
        counts = report.problems
        if not counts.written:
            reasons = "; ".join(
                f"{count:,} {reason} (first: {counts.excluded.examples[reason]})"
                for reason, count in counts.excluded.most_common()
            )
            reasons = reasons or "no usable rollout names one"
            raise NothingBuilt(f"no problem is left, nothing was written: {reasons}")


@dataclass(frozen=True, slots=True)
class _Left:
    """The key ``excluded`` of a row of candidates."""

    stage: Stage
    reason: ExclusionReason
    detail: str


_LEFT = TypeAdapter(_Left)
_RECORD = TypeAdapter(BuildRecord)
_EXTRACTION = TypeAdapter(Extraction)


def extraction_from_row(row: Row) -> Extraction:
    """Return the extraction that was written as ``asdict``."""
    return _EXTRACTION.validate_python(row)


def read_candidates(
    path: str | os.PathLike[str], on_error: OnError, report: ReadReport
) -> Iterator[Item]:
    """Yield the problems of a file of candidates in order; counts go into the report."""
    name = os.fspath(path)
    for problem, row in read_problem_rows(name, on_error, report):
        keys = ("extraction", "excluded")
        extra = {key: value for key, value in problem.extra.items() if key not in keys}
        problem = replace(problem, nodes=(), extra=extra)
        try:
            if row.get("excluded"):
                left = _LEFT.validate_python(row["excluded"])
                yield Excluded(problem, left.reason, left.detail, left.stage)
            else:
                made = row.get("extraction")
                record = _RECORD.validate_python(made)
                yield ProblemTask(problem, record, extraction=_EXTRACTION.validate_python(made))
        except ValidationError as error:
            [fault, *_] = error.errors(include_url=False)
            place = ".".join(map(str, fault["loc"])) or "extraction"
            reason = f"problem {problem.problem_id[:80]!r}: {place}: {fault['msg']}"
            hint = "files of candidates are made by consensusbench extract"
            bad_row = DataError(name, None, f"{reason}; {hint}")
            if on_error == "stop":
                raise bad_row from None
            report.rows -= 1
            report.skip(bad_row)


@dataclass(slots=True)
class BuildReport:
    """Counts, time and outputs of one command.

    Attributes:
        rollouts: None if none were read.
        skipped_rows: bad rows of the file of problems or candidates.
        disagreements: see :class:`~consensusbench.construction.store.Inputs`.
        resumed: problems whose extraction an earlier run had left.
        budgets: problems that got a budget, of a build that adds only budgets; else None.
        judge: the weights and the separation of the nodes; None without nodes or rollouts.
        digest: of the dataset; None if none was written.
        provenance: versions and settings, the same for all problems.
        seconds: in all.
    """

    paths: OutputPaths
    problems: ProblemCounts = field(default_factory=ProblemCounts)
    rollouts: RolloutCounts | None = None
    skipped_rows: int = 0
    disagreements: Tally[Disagreement] = field(default_factory=Tally)
    resumed: int = 0
    budgets: int | None = None
    judge: Judge | None = None
    digest: str | None = None
    provenance: Row = field(default_factory=dict)
    seconds: float = 0.0

    def warnings(self) -> list[str]:
        """Return sentences on what a person should look at."""
        sentences = []
        found, examples = self.disagreements, self.disagreements.examples
        if count := found["ground_truth"]:
            counted = count_of(count, "rollout names", "rollouts name")
            sentences.append(
                f"{counted} another ground truth than the file of problems, which counts "
                f"(first: {examples['ground_truth']})"
            )
        if count := found["data_source"]:
            counted = count_of(count, "problem has", "problems have")
            sentences.append(
                f"{counted} rollouts of several data sources, of which the first in the alphabet "
                f"is taken (first: {examples['data_source']})"
            )
        skipped = self.rollouts.skipped if self.rollouts is not None else 0
        for count, kind in ((self.skipped_rows, "problems"), (skipped, "rollouts")):
            if count:
                bad = f"bad row of {kind} was", f"bad rows of {kind} were"
                sentences.append(f"{count_of(count, *bad)} skipped")
        if self.judge is not None:
            sentences += cheap_notes(self.judge.cheap())
        return sentences

    def to_json(self) -> Row:
        """Return everything as plain values."""
        paths = {"output": self.paths.dataset, "audit": self.paths.audit}
        paths["candidates"] = self.paths.candidates
        return {
            **{name: None if path is None else str(path) for name, path in paths.items()},
            "digest": self.digest,
            "budgets": self.budgets,
            "weighted": 0 if self.judge is None else self.judge.weighted,
            "separation": None if self.judge is None else self.judge.separation.to_json(),
            "problems": self.problems.to_json(),
            "rollouts": None if self.rollouts is None else asdict(self.rollouts),
            "skipped_rows": self.skipped_rows,
            "resumed": self.resumed,
            "warnings": self.warnings(),
            "provenance": self.provenance,
            "seconds": round(self.seconds, 3),
        }
