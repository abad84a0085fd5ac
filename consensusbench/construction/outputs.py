"""What a build writes: dataset, audit, candidates; all of them appear, or none.

Takes what became of each problem, in order, and counts it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from consensusbench.construction.candidates_file import excluded_row, extracted_row
from consensusbench.construction.counts import ProblemCounts
from consensusbench.construction.extraction_rows import dropped_to_row
from consensusbench.construction.provenance import construction_row
from consensusbench.construction.refiner import Refiner
from consensusbench.construction.values import Excluded, Finished, Group, Result, Stage
from consensusbench.extraction.types import Dropped
from consensusbench.output_files import check_outputs, check_row_outputs
from consensuspr.data import Node, Problem, Row, RowWriter, open_writer, problem_to_row
from consensuspr.errors import InputError


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
