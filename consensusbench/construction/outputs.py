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
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from consensusbench import Tally, check_outputs
from consensusbench.construction.budgets import budget_of
from consensusbench.construction.store import Disagreement
from consensusbench.construction.types import (
    REASON_WORDS,
    BuildItem,
    BuildRecord,
    Excluded,
    ExclusionReason,
)
from consensusbench.construction.worth import Judge
from consensusbench.extraction.types import Dropped, Extraction, Refiner
from consensusbench.quality.probes import cheap_notes
from consensuspr.console import count_of
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

# Of the layout of ``metadata.construction``.
LAYOUT = 1
RECORD: TypeAdapter[BuildRecord] = TypeAdapter(BuildRecord)
EXTRACTION: TypeAdapter[Extraction] = TypeAdapter(Extraction)
_EXCLUDED: TypeAdapter[Excluded] = TypeAdapter(Excluded)


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


@dataclass(slots=True)
class RolloutCounts:
    """What became of the rollouts; all but ``skipped`` and ``used`` add up to ``read``.

    Attributes:
        read: good rows.
        skipped: bad rows.
        other_model: left out by model.
        unknown_problem: of problems that are not listed.
        oversize: longer than the limit.
        unusable_problem: of problems without ground truth, or whose rows conflict.
        repeated: the same text for the same problem once more.
        incorrect: verified as wrong, without an answer, or labelled so.
        undecided: the answer was not decided within its limits, or the label is missing.
        correct: distinct and correct.
        used: correct ones that were compared.
    """

    read: int = 0
    skipped: int = 0
    other_model: int = 0
    unknown_problem: int = 0
    oversize: int = 0
    unusable_problem: int = 0
    repeated: int = 0
    incorrect: int = 0
    undecided: int = 0
    correct: int = 0
    used: int = 0


@dataclass(slots=True)
class ProblemCounts:
    """What became of the problems.

    Attributes:
        written, nodes: problems in the output and their nodes, by data source.
        dropped: conclusions that became no node, by stage and reason.
    """

    written: Counter[str] = field(default_factory=Counter)
    nodes: Counter[str] = field(default_factory=Counter)
    excluded: Tally[ExclusionReason] = field(default_factory=Tally)
    dropped: Counter[tuple[str, str]] = field(default_factory=Counter)

    def write(self, data_source: str, num_nodes: int) -> None:
        """Count a problem of the output."""
        self.written[data_source] += 1
        self.nodes[data_source] += num_nodes

    def to_json(self) -> Row:
        """Return the counts as plain values."""
        written, nodes = self.written.total(), self.nodes.total()
        dropped: dict[str, dict[str, int]] = {}
        for (stage, reason), count in sorted(self.dropped.items()):
            dropped.setdefault(stage, {})[reason] = count
        return {
            "read": written + self.excluded.total(),
            "written": written,
            "excluded": dict(sorted(self.excluded.items())),
            "examples": dict(sorted(self.excluded.examples.items())),
            "nodes": nodes,
            "nodes_per_problem": nodes / written if written else None,
            "by_data_source": {
                source: {"problems": count, "nodes": self.nodes[source]}
                for source, count in sorted(self.written.items())
            },
            "dropped": dropped,
        }


@dataclass(slots=True)
class BuildReport:
    """Counts, time and outputs of one command.

    Attributes:
        rollouts: None if none were read.
        skipped_rows: bad rows of the file of problems or candidates.
        disagreements: see :class:`~consensusbench.construction.store.Inputs`.
        resumed: problems whose extraction an earlier run had left.
        usage: requests, tokens, cost and refusals of the model; None if none was asked.
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
    usage: Row | None = None
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
            sentences.append(
                f"{count_of(count, 'rollout names', 'rollouts name')} another ground truth than "
                f"the problems, whose ground truth is used (first: {examples['ground_truth']})"
            )
        if count := found["data_source"]:
            sentences.append(
                f"{count_of(count, 'problem has', 'problems have')} rollouts of several data "
                "sources; the alphabetically first one is used (first: "
                f"{examples['data_source']})"
            )
        skipped = self.rollouts.skipped if self.rollouts is not None else 0
        for count, kind in ((self.skipped_rows, "problems"), (skipped, "rollouts")):
            if count:
                sentences.append(f"{count_of(count, 'bad row')} of {kind} skipped")
        return [*sentences, *(() if self.judge is None else cheap_notes(self.judge.cheap()))]

    def to_json(self) -> Row:
        """Return everything as plain values."""
        paths = {"output": self.paths.dataset, "audit": self.paths.audit}
        paths["candidates"] = self.paths.candidates
        return {
            **{name: None if path is None else str(path) for name, path in paths.items()},
            "digest": self.digest,
            "budgets": self.budgets,
            "weighted": 0 if self.judge is None else self.judge.weighted,
            "separation": None if self.judge is None else self.judge.separation(),
            "problems": self.problems.to_json(),
            "rollouts": None if self.rollouts is None else asdict(self.rollouts),
            "skipped_rows": self.skipped_rows,
            "resumed": self.resumed,
            "usage": self.usage,
            "warnings": self.warnings(),
            "provenance": self.provenance,
            "seconds": round(self.seconds, 3),
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

    def take(self, item: BuildItem) -> None:
        """Write one problem."""
        problem, extraction, excluded = item.problem, item.extraction, item.excluded
        if extraction is not None:
            assert item.record is not None, "extracted problems have a record"
            row = asdict(item.record) | asdict(extraction)
            self._write_candidates(problem, {"extraction": row, "excluded": None})
            self._drop(problem, extraction.dropped)
        elif excluded is not None and excluded.stage != "refine":
            self._write_candidates(problem, {"extraction": None, "excluded": asdict(excluded)})
        self._drop(problem, item.dropped)
        if excluded is not None:
            self._exclude(problem, excluded)
        elif self._refiner is not None:
            self._take_refined(item, self._refiner)
        else:
            assert extraction is not None, "a problem that is not excluded was extracted"
            self._counts.write(problem.data_source, len(extraction.candidates))

    def _take_refined(self, item: BuildItem, refiner: Refiner) -> None:
        problem, record, nodes = item.problem, item.record, item.nodes
        assert nodes is not None and record is not None, "stage 3 was done"
        if len(nodes) < refiner.min_nodes:
            left = count_of(len(nodes), "node is", "nodes are")
            detail = f"{left} left, at least {refiner.min_nodes} are needed"
            for node in nodes:
                conclusion = (node.label, node.expressions, node.support)
                self._drop(problem, [Dropped("refine", "few_nodes", detail, *conclusion)])
            self._exclude(problem, Excluded("refine", "few_nodes", detail))
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

    def _exclude(self, problem: Problem, excluded: Excluded) -> None:
        self._counts.excluded.note(excluded.reason, f"{problem.problem_id!r}: {excluded.detail}")
        no_node: Row = {"label": None, "expressions": [], "support": None}
        self._write_audit(problem, "problem", asdict(excluded) | no_node)

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
                f"{count_of(count, 'problem')} {REASON_WORDS[reason]} "
                f"(first: {counts.excluded.examples[reason]})"
                for reason, count in counts.excluded.most_common()
            )
            reasons = reasons or "no usable rollout has one"
            raise NothingBuilt(f"all problems were left out, nothing was written: {reasons}")


def read_candidates(
    path: str | os.PathLike[str], on_error: OnError, report: ReadReport
) -> Iterator[BuildItem]:
    """Yield the problems of a file of candidates in order; counts go into the report."""
    name = os.fspath(path)
    for problem, row in read_problem_rows(name, on_error, report):
        keys = ("extraction", "excluded")
        extra = {key: value for key, value in problem.extra.items() if key not in keys}
        problem = replace(problem, nodes=(), extra=extra)
        try:
            if row.get("excluded"):
                yield BuildItem(problem, excluded=_EXCLUDED.validate_python(row["excluded"]))
            else:
                made = row.get("extraction")
                record, extraction = RECORD.validate_python(made), EXTRACTION.validate_python(made)
                yield BuildItem(problem, record, extraction=extraction)
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
