"""The three commands of construction: extract, refine, and both in one pass.

::

    rollouts ─▶ spool ─▶ verify, choose ─▶ [journal] ─▶ extract ─▶ refine ─▶ dataset, audit
                                                             └─▶ candidates ─▶ refine ─▶ …

Everything streams, in the order of the problems, and memory is bounded whatever the number of
problems: docs/design/construction.md tells by what.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractAsyncContextManager, ExitStack, closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from consensusbench.construction.candidates_file import read_candidates
from consensusbench.construction.failures import FailurePolicy
from consensusbench.construction.gathering import gather
from consensusbench.construction.grouping import Grouping
from consensusbench.construction.llm_engine import LlmEngine
from consensusbench.construction.outputs import OutputPaths, open_outputs
from consensusbench.construction.problem_table import FoundProblems, ListedProblems, ProblemTable
from consensusbench.construction.processes import LocalEngine
from consensusbench.construction.progress import Progress
from consensusbench.construction.provenance import extraction_provenance
from consensusbench.construction.refiner import Refiner
from consensusbench.construction.report import BuildReport
from consensusbench.construction.sampling_record import sampling_records
from consensusbench.construction.selection import SelectionSettings
from consensusbench.construction.spool import RolloutSpool
from consensusbench.construction.time_limit import DEFAULT_TIME_LIMIT_S
from consensusbench.construction.values import Excluded, Group, Item, Stream, Task
from consensusbench.construction.verification import VerifyingJudge
from consensusbench.construction.work import Plan
from consensusbench.construction.workspace import ExtractionJournal, Workspace
from consensusbench.extraction.types import AsyncExtractor, Extraction, Extractor
from consensuspr.data import OnError, ReadReport, Row
from consensuspr.errors import InputError
from consensuspr.scoring.answers import AnswerVerifier


@dataclass(frozen=True, slots=True)
class Source:
    """What a build reads.

    Attributes:
        rollouts: files, in any order.
        problems: a file of problems; None: what the rollouts say of theirs.
        split: put into each problem; None: as it is.
        on_error: what a bad row does, and a problem whose extraction fails.
    """

    rollouts: tuple[Path, ...]
    problems: Path | None = None
    split: Literal["train", "test"] | None = None
    on_error: OnError = "stop"


@dataclass(frozen=True, slots=True)
class AsyncExtraction:
    """Stage 2 by a model.

    Attributes:
        open: called in the event loop; makes the extractor.
        in_flight: problems that are extracted at once.
        provenance: of the extractor that is made.
    """

    open: Callable[[], AbstractAsyncContextManager[AsyncExtractor]]
    in_flight: int
    provenance: Row


@dataclass(frozen=True, slots=True)
class Means:
    """With what the work is done; nothing here changes what comes out.

    Attributes:
        workers: processes, 1 or more.
        engine: processes of this machine, or a Ray cluster.
        time_limit_s: seconds of processor time that one problem may take.
    """

    workers: int = 1
    engine: Literal["local", "ray"] = "local"
    time_limit_s: float = DEFAULT_TIME_LIMIT_S

    def __post_init__(self) -> None:
        if self.workers < 1:
            raise InputError(f"workers must be 1 or more, got {self.workers}")
        if not 0.01 <= self.time_limit_s <= 86_400:
            raise InputError(
                f"the time limit must be from 0.01 to 86400 seconds, got {self.time_limit_s:g}"
            )


@dataclass(frozen=True, slots=True)
class Job:
    """A build from rollouts.

    Attributes:
        source: what is read.
        paths: what is written.
        extractor: stage 2.
        refiner: stage 3; None: end with stage 2.
        selection: which rollouts are looked at.
        means: with what.
    """

    source: Source
    paths: OutputPaths
    extractor: Extractor | AsyncExtraction
    refiner: Refiner | None
    selection: SelectionSettings = field(default_factory=SelectionSettings)
    means: Means = field(default_factory=Means)

    def extractor_provenance(self) -> Row:
        """Return what the dataset records of stage 2."""
        if isinstance(self.extractor, AsyncExtraction):
            return self.extractor.provenance
        return self.extractor.provenance()


def build(job: Job, progress: Progress | None = None) -> BuildReport:
    """Make a dataset, or its candidates, from rollouts.

    Killed at any moment, it leaves the outputs as they were, and the next call with the same
    output goes on with the problems that are not extracted yet.

    Args:
        job: what and how.
        progress: listens.

    Raises:
        InputError: an input, an option or an output is bad, or no problem is left.
        ConsensusPRError: problems failed, or the work as a whole.
    """
    progress = progress or Progress()
    try:
        return _build(job, progress)
    except KeyboardInterrupt:
        progress.note("what is extracted is kept; the same command goes on from there")
        raise


def _build(job: Job, progress: Progress) -> BuildReport:
    started = time.perf_counter()
    job.paths.refuse_inputs(*job.source.rollouts, job.source.problems)
    report = BuildReport(job.paths)
    provenance = extraction_provenance(
        job.selection, job.extractor_provenance(), sampling_records(job.source.rollouts)
    )
    report.provenance = provenance | (
        {"refinement": job.refiner.provenance()} if job.refiner is not None else {}
    )
    output = job.paths.dataset or job.paths.candidates
    assert output is not None, "a build writes something"
    with ExitStack() as stack:
        workspace = stack.enter_context(Workspace(output))
        spool = stack.enter_context(RolloutSpool(workspace.folder))
        table = _table(job.source, workspace.folder, report, stack)
        counts = report.rollouts = gather(
            job.source.rollouts, table, spool, job.selection, job.source.on_error, progress.read
        )
        report.disagreements = table.disagreements
        journal = workspace.open_journal(job.extractor_provenance())
        if journal.found:
            progress.note(f"an earlier run left {journal.found:,} extracted problems; going on")
        elif journal.others:
            progress.note("an earlier run extracted with other settings; starting anew")
        report.seconds.reading = time.perf_counter() - started
        progress.begin(len(table))
        judge = None
        if not job.selection.trust_labels:
            judge = VerifyingJudge(_verifier(stack, job.means.workers))
        grouping = Grouping(table, spool, job.selection, judge, counts, provenance)
        items = _resumed(grouping.items(), journal, report)
        _finish(_run(job, items, journal, workspace.folder), job.paths, job.refiner,
                FailurePolicy(job.source.on_error), report, progress)  # fmt: skip
        report.seconds.verifying = grouping.verify_s
        workspace.done()
    _add_digest(report)
    report.seconds.total = time.perf_counter() - started
    return report


def refine_candidates(
    candidates: Path,
    paths: OutputPaths,
    refiner: Refiner,
    *,
    on_error: OnError = "stop",
    means: Means | None = None,
    progress: Progress | None = None,
) -> BuildReport:
    """Make a dataset from candidates.

    Args:
        candidates: a file that a build with candidates wrote.
        paths: what is written.
        refiner: stage 3.
        on_error: what a bad row does, and a problem that fails.
        means: with what.
        progress: listens.

    Raises:
        InputError: an input or an output is bad, or no problem is left.
        ConsensusPRError: problems failed, or the work as a whole.
    """
    means, progress = means or Means(), progress or Progress()
    started = time.perf_counter()
    paths.refuse_inputs(candidates)
    report, read = BuildReport(paths), ReadReport()
    report.provenance = {"refinement": refiner.provenance()}
    progress.begin(None)
    items = read_candidates(candidates, on_error, read)
    plan = Plan(None, refiner, means.time_limit_s)
    with closing(LocalEngine(plan, means.workers).run(items)) as finished:
        _finish(finished, paths, refiner, FailurePolicy(on_error), report, progress)
    report.skipped_rows = read.skipped
    _add_digest(report)
    report.seconds.total = time.perf_counter() - started
    return report


def _table(source: Source, folder: Path, report: BuildReport, stack: ExitStack) -> ProblemTable:
    if source.problems is None:
        return FoundProblems(source.split)
    read = ReadReport()
    listed = ListedProblems(source.problems, source.on_error, read, folder, source.split)
    stack.callback(listed.close)
    report.skipped_rows = read.skipped
    return listed


def _verifier(stack: ExitStack, workers: int) -> AnswerVerifier:
    return stack.enter_context(AnswerVerifier(workers))


def _resumed(
    items: Iterable[Item], journal: ExtractionJournal, report: BuildReport
) -> Iterator[Item]:
    """Give tasks the extraction that an earlier run left."""
    for item in items:
        if isinstance(item, Task) and (found := journal.get(item.group)) is not None:
            report.resumed += 1
            yield Task(item.group, extraction=found)
        else:
            yield item


def _run(job: Job, items: Iterator[Item], journal: ExtractionJournal, folder: Path) -> Stream:
    """Yield what becomes of each item; extractions are in the journal by then."""
    plan = Plan(None, job.refiner, job.means.time_limit_s)
    if isinstance(job.extractor, AsyncExtraction):
        if job.means.engine == "ray":
            raise InputError("a model is asked from one process; use the local engine")

        def keep(group: Group, extraction: Extraction) -> None:
            journal.add(group, extraction, durable=True)

        asked = LlmEngine(job.extractor.open, job.extractor.in_flight, keep).run(items)
        if job.refiner is None:
            yield from asked
        else:
            yield from _refined(asked, LocalEngine(plan, job.means.workers))
        return
    plan = replace(plan, extractor=job.extractor)
    if job.means.engine == "ray":
        from consensusbench.construction.ray_engine import RayEngine

        stream = RayEngine(plan, folder).run(items)
    else:
        stream = LocalEngine(plan, job.means.workers).run(items)
    with closing(stream) as finished:
        for one in finished:
            if not isinstance(one, Excluded) and one[1].extraction is not None:
                journal.add(one[0], one[1].extraction, durable=False)
            yield one


def _refined(asked: Stream, engine: LocalEngine) -> Stream:
    """Let an engine refine what a model extracted."""
    seconds: dict[str, float] = {}

    def tasks() -> Iterator[Item]:
        for one in asked:
            if isinstance(one, Excluded) or one[1].extraction is None:
                yield one
            else:
                seconds[one[0].inputs] = one[1].extract_s
                yield Task(one[0], extraction=one[1].extraction)

    with closing(asked), closing(engine.run(tasks())) as finished:
        for one in finished:
            if isinstance(one, Excluded):
                yield one
            else:
                group, result = one
                extract_s = seconds.pop(group.inputs, result.extract_s)
                yield group, replace(result, extract_s=extract_s)


def _finish(
    finished: Stream,
    paths: OutputPaths,
    refiner: Refiner | None,
    policy: FailurePolicy,
    report: BuildReport,
    progress: Progress,
) -> None:
    """Write and count what became of the problems."""
    with open_outputs(paths, refiner) as outputs, closing(finished):
        report.problems = outputs.counts
        for done, one in enumerate(finished, start=1):
            if not isinstance(one, Excluded):
                report.seconds.extracting += one[1].extract_s
                report.seconds.refining += one[1].refine_s
                policy.look_at(one[0], one[1])
            outputs.take(one)
            progress.work(done)
        policy.conclude()


def _add_digest(report: BuildReport) -> None:
    """Add the digest that every score with this dataset will carry."""
    if report.paths.dataset is not None:
        from consensuspr.scoring import DatasetIndex

        report.digest = DatasetIndex.load(report.paths.dataset, derive="stored").digest
