"""What a build writes: dataset, audit, candidates, and its report.

All files appear, or none.  The dataset says in each of its rows how it was made
(``metadata.construction``) and not in a file beside it: that is lost with the first copy, and rows
of several builds end up in one dataset.  What is the same in all rows (versions, thresholds,
prompts; some 2 KB) compresses to nothing in ``.gz`` and Parquet, and the server does not keep it.

Candidates are the file between ``extract`` and ``refine``: every problem with what stage 2 made
of it.  A row is that of a problem without nodes, with one more key: ``extraction`` (candidates,
what was dropped, rollouts, provenance) or ``excluded`` (stage, reason, detail).  So stage 3 runs
again with other thresholds and without extracting, which a model is paid for, and its audit is
whole.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, cast, get_args

from consensusbench.construction.budgets import Stated, budget_of
from consensusbench.construction.selection import SelectionSettings
from consensusbench.construction.store import Disagreements, extraction_from_row, extraction_to_row
from consensusbench.construction.types import (
    Excluded,
    ExclusionReason,
    Finished,
    Item,
    Outcome,
    ProblemCounts,
    ProblemRollouts,
    ProblemTask,
    RolloutCounts,
    Stage,
    UsedRollout,
)
from consensusbench.construction.worth import Judge
from consensusbench.extraction.types import Dropped, Refiner
from consensusbench.outputs import check_outputs, check_row_outputs
from consensusbench.quality.probes import cheap_notes
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
    """Not one problem is left, so that nothing was written."""


class Outputs:
    """Writes what became of the problems, in order, and counts it; see :func:`open_outputs`."""

    def __init__(
        self,
        writers: Sequence[RowWriter | None],
        refiner: Refiner | None,
        judge: Judge | None,
    ) -> None:
        self._dataset, self._audit, self._candidates = writers
        self._refiner = refiner
        self._judge = judge
        self.counts = ProblemCounts()

    def take(self, finished: Finished) -> None:
        """Write what became of one problem."""
        if isinstance(finished, Excluded):
            self._exclude(finished)
            return
        problem, extraction = finished.chosen.problem, finished.extraction
        if extraction is not None:
            row = finished.chosen.to_row() | extraction_to_row(extraction)
            self._write_candidates(problem, {"extraction": row, "excluded": None})
            self._drop(problem, extraction.dropped)
        self._drop(problem, finished.dropped)
        if finished.failure is not None:
            self._exclude(finished.failure)
        elif self._refiner is not None:
            self._take_refined(finished, self._refiner)
        else:
            assert extraction is not None, "an outcome without failure has an extraction"
            self.counts.write(problem.data_source, len(extraction.candidates))

    def _take_refined(self, outcome: Outcome, refiner: Refiner) -> None:
        problem, nodes = outcome.chosen.problem, outcome.nodes
        assert nodes is not None, "stage 3 was done"
        if len(nodes) < refiner.min_nodes:
            left = count_of(len(nodes), "node is", "nodes are")
            detail = f"{left} left, the least is {refiner.min_nodes}"
            self._drop(
                problem,
                [
                    Dropped("refine", "few_nodes", detail, one.label, one.expressions, one.support)
                    for one in nodes
                ],
            )
            self._exclude(Excluded(problem, "few_nodes", detail, "refine"))
            return
        self.counts.write(problem.data_source, len(nodes))
        if self._dataset is not None:
            made = outcome.chosen.to_row()
            made["provenance"] = made["provenance"] | {"refinement": refiner.provenance()}
            metadata = {**problem.metadata, "construction": {"layout": LAYOUT, **made}}
            stated = outcome.chosen.stated
            budget = None if stated is None else budget_of(stated, len(nodes))
            made_of = replace(problem, nodes=nodes, budget=budget, metadata=metadata)
            weighed = made_of if self._judge is None else self._judge.weigh(made_of)
            self._dataset.write(problem_to_row(weighed))

    def _exclude(self, excluded: Excluded) -> None:
        if self._judge is not None:
            self._judge.forget(excluded.problem.problem_id)
        self.counts.exclude(excluded)
        no_node: Row = {"label": None, "expressions": [], "support": None}
        self._write_audit(excluded.problem, "problem", excluded.why() | no_node)
        if excluded.stage != "refine":  # what stage 3 leaves out is a candidate
            row = {"extraction": None, "excluded": excluded.why()}
            self._write_candidates(excluded.problem, row)

    def _drop(self, problem: Problem, dropped: Sequence[Dropped]) -> None:
        for one in dropped:
            self.counts.dropped[one.stage, one.reason] += 1
            self._write_audit(problem, "node", asdict(one))

    def _write_audit(self, problem: Problem, what: str, row: Row) -> None:
        if self._audit is not None:
            about = {"problem_id": problem.problem_id, "data_source": problem.data_source}
            self._audit.write({**about, "what": what, **row})

    def _write_candidates(self, problem: Problem, row: Row) -> None:
        if self._candidates is not None:
            self._candidates.write(problem_to_row(problem) | row)


@contextlib.contextmanager
def open_outputs(
    paths: OutputPaths, refiner: Refiner | None, judge: Judge | None = None
) -> Iterator[Outputs]:
    """Open the outputs; they are replaced when the block ends without an error.

    Raises:
        InputError: one cannot be written.
        NothingBuilt: not one problem is left.
    """
    with contextlib.ExitStack() as stack:
        # The one opened first appears last: who sees the dataset finds its audit beside it.
        writers = [
            None if path is None else stack.enter_context(open_writer(path))
            for path in (paths.dataset, paths.audit, paths.candidates)
        ]
        outputs = Outputs(writers, refiner, judge)
        yield outputs
        counts = outputs.counts
        if not counts.written.total():
            reasons = "; ".join(
                f"{count:,} {reason} (first: {counts.examples[reason]})"
                for reason, count in counts.excluded.most_common()
            )
            reasons = reasons or "no rollout that counts names one"
            raise NothingBuilt(f"no problem is left, nothing was written: {reasons}")


def read_candidates(
    path: str | os.PathLike[str], on_error: OnError, report: ReadReport
) -> Iterator[Item]:
    """Yield the problems of a file of candidates in order; counts go into the report."""
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
    keys = ("extraction", "excluded")
    extra = {key: value for key, value in problem.extra.items() if key not in keys}
    problem = replace(problem, nodes=(), extra=extra)
    extraction, excluded = (row.get(key) for key in keys)
    if isinstance(excluded, dict):
        reason, stage, detail = map(excluded.get, ("reason", "stage", "detail"))
        reasons, stages = get_args(ExclusionReason), get_args(Stage)
        if reason not in reasons or stage not in stages or type(detail) is not str:
            raise InputError(f"excluded has stage {stage!r}, reason {reason!r}, detail {detail!r}")
        return Excluded(problem, cast(ExclusionReason, reason), detail, cast(Stage, stage))
    if not isinstance(extraction, dict):
        raise InputError(
            "has neither extraction nor excluded; files of candidates are made by "
            "consensusbench extract"
        )
    wrong = extraction.get("wrong_rollouts", 0)  # absent in files of before
    for key, value, kind in (
        ("correct_rollouts", extraction.get("correct_rollouts"), int),
        ("wrong_rollouts", wrong, int),
        ("inputs", extraction.get("inputs"), str),
        ("provenance", extraction.get("provenance"), dict),
    ):
        if not isinstance(value, kind):
            raise InputError(f"extraction.{key} is missing or of a wrong type")
    chosen = ProblemRollouts(
        problem,
        _sampled(extraction.get("rollouts")),
        extraction["correct_rollouts"],
        extraction["inputs"],
        extraction["provenance"],
        _stated(extraction.get("stated")),
        wrong,
    )
    return ProblemTask(chosen, extraction=extraction_from_row(extraction))


def _stated(row: Any) -> Stated | None:
    if row is None:
        return None
    said: Row = row if isinstance(row, dict) else {}
    counts: list[Any] = [said.get(key) for key in ("statements", "numbers")]
    counts.append(said.get("length", 0))
    if any(type(count) is not int or count < 0 for count in counts):
        raise InputError(
            "extraction.stated must have statements, numbers and length, whole numbers from 0 on,"
            f" got {str(said)[:200]!r}"
        )
    return Stated(*counts)


def _sampled(rows: Any) -> tuple[UsedRollout, ...]:
    if not isinstance(rows, list) or not rows:
        raise InputError("extraction.rollouts must be a list, and not empty")
    sampled = []
    for at, row in enumerate(rows):
        name, model = (row.get("rollout_id"), row.get("model")) if isinstance(row, dict) else (0, 0)
        if not isinstance(name, str) or not isinstance(model, str):
            raise InputError(f"extraction.rollouts[{at}] must have rollout_id and model")
        sampled.append(UsedRollout(name, model, row.get("sampling") or {}))
    return tuple(sampled)


@dataclass(slots=True)
class BuildSeconds:
    """How long what took: on the clock, or (``extracting``, ``refining``) summed over workers.

    Verifying overlaps with the work on problems.
    """

    reading: float = 0.0
    verifying: float = 0.0
    extracting: float = 0.0
    refining: float = 0.0
    total: float = 0.0


@dataclass(slots=True)
class BuildReport:
    """Counts, times and outputs of one command.

    Attributes:
        rollouts: None where none were read; so are ``disagreements``.
        skipped_rows: bad rows of the file of problems or candidates.
        resumed: problems whose extraction an earlier run had left.
        budgets: problems that got a budget of the guard where nothing else was done; else None.
        judge: what it found of nodes and rollouts; None where there were none of either.
        digest: of the dataset, None where none was written.
        provenance: how; the same for all problems of this command.
    """

    paths: OutputPaths
    problems: ProblemCounts = field(default_factory=ProblemCounts)
    rollouts: RolloutCounts | None = None
    skipped_rows: int = 0
    disagreements: Disagreements | None = None
    resumed: int = 0
    budgets: int | None = None
    judge: Judge | None = None
    digest: str | None = None
    provenance: Row = field(default_factory=dict)
    seconds: BuildSeconds = field(default_factory=BuildSeconds)

    def warnings(self) -> list[str]:
        """Return sentences on what a person should look at."""
        sentences = []
        if self.disagreements is not None:
            truths, sources = self.disagreements.ground_truths, self.disagreements.data_sources
            if truths.count:
                who = count_of(truths.count, "rollout names", "rollouts name")
                sentences.append(
                    f"{who} another ground truth than the file of problems, which counts "
                    f"(first: {truths.first})"
                )
            if sources.count:
                who = count_of(sources.count, "problem has", "problems have")
                sentences.append(
                    f"{who} rollouts of several data sources, of which the first in the alphabet "
                    f"is taken (first: {sources.first})"
                )
        skipped = self.rollouts.skipped if self.rollouts is not None else 0
        for count, what in ((self.skipped_rows, "problems"), (skipped, "rollouts")):
            if count:
                bad = f"bad row of {what} was", f"bad rows of {what} were"
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
            "seconds": {name: round(s, 3) for name, s in asdict(self.seconds).items()},
        }
