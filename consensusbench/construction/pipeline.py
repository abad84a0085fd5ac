"""Rollouts files read into the spool, in any number and order.

Nothing is written before all of them have been read: a bad row at the end of the last file
stops a build with nothing done.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, ExitStack, closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from consensusbench.construction.outputs import (
    BuildReport,
    OutputPaths,
    extraction_provenance,
    open_outputs,
    read_candidates,
)
from consensusbench.construction.selection import Judge, SelectionSettings, VerifyingJudge, choose
from consensusbench.construction.store import (
    ExtractionJournal,
    FoundProblems,
    ListedProblems,
    ProblemTable,
    RolloutSpool,
    Spooled,
    Stored,
    Workspace,
    sampling_records,
)
from consensusbench.construction.types import (
    DEFAULT_TIME_LIMIT_S,
    Excluded,
    FailurePolicy,
    Group,
    Item,
    Progress,
    Refiner,
    RolloutCounts,
    Sampled,
    Stream,
    Task,
)
from consensusbench.construction.worker import Plan
from consensusbench.construction.workers import LlmEngine, LocalEngine
from consensusbench.extraction.types import AsyncExtractor, CorrectRollout, Extraction, Extractor
from consensuspr.data import OnError, Problem, ReadReport, Row, read_rollouts
from consensuspr.data.writers import dump_json
from consensuspr.errors import InputError
from consensuspr.scoring.answers import AnswerVerifier

# A correct solution is a hundredth of it; what is longer is not looked at, and counted.
MAX_RESPONSE_BYTES = 1 << 20

# Columns that say how a rollout was sampled; they are recorded with the rollouts that are used.
SAMPLING_COLUMNS = ("temperature", "top_p", "max_tokens", "seed")


def gather(
    paths: Sequence[str | os.PathLike[str]],
    table: ProblemTable,
    spool: RolloutSpool,
    settings: SelectionSettings,
    on_error: OnError,
    progress: Callable[[int], None] = lambda done: None,
) -> RolloutCounts:
    """Read rollouts into a spool and finish it.

    Args:
        paths: rollouts files.
        table: of the problems; learns what the rows say of theirs.
        spool: takes the rollouts that may be used.
        settings: whose rollouts count.
        on_error: what a bad row does.
        progress: told how many rows are read.

    Returns:
        The counts so far; ``incorrect``, ``undecided``, ``correct``, ``used`` come later.

    Raises:
        DataError: a file is bad.
        InputError: a model that is excluded or asked for wrote none of the rollouts, or no
            model is left, or the labels are to be trusted and no row has one.
    """
    counts = RolloutCounts()
    models: set[str] = set()
    labelled = False
    for path in paths:
        report = ReadReport()
        for row in read_rollouts(path, on_error, report):
            counts.read += 1
            if counts.read % 256 == 0:
                progress(counts.read)
            model = row.get("model") or ""
            models.add(model)
            labelled = labelled or row.get("correct") is not None
            _take(row, model, table, spool, settings, counts)
        counts.skipped += report.skipped
    progress(counts.read)
    _check_models(settings, models)
    if counts.read and counts.other_model == counts.read:
        raise InputError(
            f"--exclude-model and --only-model leave none of the {counts.read:,} rollouts"
        )
    if settings.trust_labels and not labelled:
        raise InputError(
            f"no row of {', '.join(str(path) for path in paths)} has the column correct; leave the "
            "labels out and let the answers be verified"
        )
    spool.finish()
    return counts


def _take(
    row: Row,
    model: str,
    table: ProblemTable,
    spool: RolloutSpool,
    settings: SelectionSettings,
    counts: RolloutCounts,
) -> None:
    if not settings.takes(model):
        counts.other_model += 1
        return
    number = table.number_of(row)
    if number is None:
        counts.unknown_problem += 1
        return
    response: str = row["response"]
    # No character takes more than four bytes: most need not be encoded to know.
    if 4 * len(response) > MAX_RESPONSE_BYTES and (
        len(response.encode("utf-8", "surrogatepass")) > MAX_RESPONSE_BYTES
    ):
        counts.oversize += 1
        return
    rollout = Spooled(row.get("rollout_id"), _sampling(row), response)
    spool.add(number, model, rollout, row.get("correct"))


def _sampling(row: Row) -> str:
    """Return what a row says of its sampling as JSON text, empty where it says nothing."""
    nested = row.get("sampling")
    said: dict[str, Any] = dict(nested) if isinstance(nested, dict) else {}
    said.update({name: row[name] for name in SAMPLING_COLUMNS if row.get(name) is not None})
    known = {name: value for name, value in sorted(said.items()) if value is not None}
    return dump_json(known) if known else ""


def _check_models(settings: SelectionSettings, models: set[str]) -> None:
    """Refuse a name that is not there: a typing error would let a model in unnoticed."""
    for name in (*settings.exclude_models, *settings.only_models):
        if name not in models:
            shown = ", ".join(sorted(filter(None, models))) or "none"
            raise InputError(f"no rollout is of model {name!r}; the models there are: {shown}")


# MERGED The spool turned into work: correct rollouts verified, chosen and put together by problem.
#
# Answers are verified some hundreds at a time, over as many problems as that takes, because the
# few that need computer algebra then overlap; their texts are let go again, and only the chosen
# ones are read a second time.  Memory is bounded by one such batch.

BATCH_ROLLOUTS = 512
BATCH_BYTES = 16 << 20


@dataclass(slots=True)
class _Candidate:
    """A problem whose rollouts are being verified."""

    problem: Problem
    stored: list[Stored]
    correct: list[Stored] = field(default_factory=list)


class Grouping:
    """Makes the work of a build out of a finished spool.

    Args:
        table: the problems.
        spool: their rollouts.
        settings: which rollouts are looked at.
        judge: decides which are correct; None: their labels do.
        counts: filled on the way.
        provenance: put into each group.

    Attributes:
        verify_s: seconds that the judge took.
    """

    def __init__(
        self,
        table: ProblemTable,
        spool: RolloutSpool,
        settings: SelectionSettings,
        judge: Judge | None,
        counts: RolloutCounts,
        provenance: Row,
    ) -> None:
        self.verify_s = 0.0
        self._provenance = provenance
        self._table = table
        self._spool = spool
        self._settings = settings
        self._judge = judge
        self._counts = counts

    def items(self) -> Iterator[Item]:
        """Yield every problem in the order of the dataset, as work or with its reason."""
        waiting: list[_Candidate | Excluded] = []
        rollouts = num_bytes = 0
        for number in self._table.numbers():
            candidate = self._candidate(number)
            waiting.append(candidate)
            if isinstance(candidate, _Candidate):
                rollouts += len(candidate.stored)
                num_bytes += sum(one.num_bytes for one in candidate.stored)
            if rollouts >= BATCH_ROLLOUTS or num_bytes >= BATCH_BYTES:
                yield from self._judged(waiting)
                waiting, rollouts, num_bytes = [], 0, 0
        yield from self._judged(waiting)

    def _candidate(self, number: int) -> _Candidate | Excluded:
        problem = self._table.get(number)
        stored = self._spool.of_problem(number)
        counts = self._counts
        counts.repeated += sum(one.repeats for one in stored)
        if isinstance(problem, Problem) and problem.ground_truth is None:
            problem = Excluded(problem, "no_ground_truth", "its ground truth is not known")
        if isinstance(problem, Excluded):
            counts.unusable_problem += len(stored)
            return problem
        if not stored:
            return Excluded(problem, "no_rollouts", "there is no rollout of it")
        return _Candidate(problem, stored)

    def _judged(self, waiting: Sequence[_Candidate | Excluded]) -> Iterator[Item]:
        candidates = [one for one in waiting if isinstance(one, _Candidate)]
        if self._judge is None:
            for one in candidates:
                for stored in one.stored:
                    self._count(one, stored, stored.label)
        else:
            self._verify(candidates, self._judge)
        for item in waiting:
            yield self._item(item) if isinstance(item, _Candidate) else item

    def _verify(self, candidates: Sequence[_Candidate], judge: Judge) -> None:
        """Verify all rollouts of some problems, in portions that are bounded in bytes."""
        by_rule: dict[str, list[tuple[_Candidate, Stored]]] = {}
        for one in candidates:
            rule = self._settings.answer_rule or one.problem.answer_rule or "auto"
            by_rule.setdefault(rule, []).extend((one, stored) for stored in one.stored)
        for rule, pairs in by_rule.items():
            for portion in _portions(pairs):
                truths = [one.problem.ground_truth or "" for one, _ in portion]
                texts = [self._spool.read(stored.at).response for _, stored in portion]
                start = time.perf_counter()
                verdicts = judge.judge(truths, texts, rule)
                self.verify_s += time.perf_counter() - start
                for (one, stored), correct in zip(portion, verdicts, strict=True):
                    self._count(one, stored, correct)

    def _count(self, candidate: _Candidate, stored: Stored, correct: bool | None) -> None:
        if correct:
            candidate.correct.append(stored)
            self._counts.correct += 1
        elif correct is None:
            self._counts.undecided += 1
        else:
            self._counts.incorrect += 1

    def _item(self, candidate: _Candidate) -> Item:
        problem, correct = candidate.problem, len(candidate.correct)
        if correct < self._settings.min_rollouts:
            return Excluded(
                problem,
                "few_correct",
                f"{correct} of {len(candidate.stored)} distinct rollouts are correct, the least "
                f"is {self._settings.min_rollouts}",
            )
        chosen = choose(problem.problem_id, candidate.correct, self._settings)
        self._counts.used += len(chosen)
        return self._task(problem, chosen, correct)

    def _task(self, problem: Problem, chosen: Sequence[Stored], correct: int) -> Task:
        read = [self._spool.read(one.at) for one in chosen]
        names = _unique_names([rollout.name for rollout in read], chosen)
        sampled = tuple(
            Sampled(name, one.model, json.loads(rollout.sampling or "{}"))
            for name, one, rollout in zip(names, chosen, read, strict=True)
        )
        rollouts = tuple(
            CorrectRollout(one.rollout_id, one.model, rollout.response)
            for one, rollout in zip(sampled, read, strict=True)
        )
        inputs = inputs_digest(problem, chosen, names)
        return Task(Group(problem, sampled, correct, inputs, self._provenance), rollouts)


def inputs_digest(problem: Problem, chosen: Sequence[Stored], names: Sequence[str]) -> str:
    """Return a digest of all that an extractor is given."""
    given = [
        problem.problem_id,
        problem.problem,
        problem.ground_truth,
        [
            [name, one.model, one.digest.hex()]
            for name, one in zip(names, chosen, strict=True)
        ],
    ]  # fmt: skip
    return "sha256:" + hashlib.sha256(json.dumps(given).encode("ascii")).hexdigest()


def _portions(
    pairs: Sequence[tuple[_Candidate, Stored]],
) -> Iterator[list[tuple[_Candidate, Stored]]]:
    portion: list[tuple[_Candidate, Stored]] = []
    num_bytes = 0
    for pair in pairs:
        portion.append(pair)
        num_bytes += pair[1].num_bytes
        if len(portion) >= BATCH_ROLLOUTS or num_bytes >= BATCH_BYTES:
            yield portion
            portion, num_bytes = [], 0
    if portion:
        yield portion


def _unique_names(names: Sequence[str | None], chosen: Sequence[Stored]) -> list[str]:
    """Return a name for each rollout; one without, or with that of another, is named by text."""
    unique = []
    for name, one in zip(names, chosen, strict=True):
        mark = one.digest.hex()[:12]
        if not name:
            unique.append(mark)
        else:
            unique.append(name if names.count(name) == 1 else f"{name}#{mark}")
    return unique


# MERGED The three commands of construction: extract, refine, and both in one pass.
#
# ::
#
#     rollouts ─▶ spool ─▶ verify, choose ─▶ [journal] ─▶ extract ─▶ refine ─▶ dataset, audit
#                                                              └─▶ candidates ─▶ refine ─▶ …
#
# Everything streams, in the order of the problems, and memory is bounded whatever the number of
# problems: docs/design/construction.md tells by what.


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
        from consensusbench.construction.workers import RayEngine

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
