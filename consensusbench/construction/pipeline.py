"""A build: rollouts read, verified and chosen, extracted, refined, written.

::

    rollouts ─▶ disk ─▶ verify, choose ─▶ [journal] ─▶ extract ─▶ refine ─▶ dataset, audit
                                                             └─▶ candidates ─▶ refine ─▶ …

:func:`build` is both ``consensusbench build`` and ``extract``, :func:`refine_candidates` the rest.
Everything streams, in the order of the problems, and memory is bounded whatever their number.
Nothing is written before all rollouts have been read: a bad row at the end of the last file stops
a build with nothing done.

A problem that takes too long is left out: a hostile text must not hang a build, nor end it.  One
that fails otherwise (a model without a usable reply, a defect) ends it, because the same may hold
for others; but only after all the others have been tried, so that what they cost is not lost, and
the next run finds them in the journal.
"""

from __future__ import annotations

import functools
import hashlib
import json
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, ExitStack, closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal, TypeAlias

from consensusbench.construction.budgets import Stated, budget_of, stated_in
from consensusbench.construction.outputs import (
    BuildReport,
    BuildSeconds,
    OutputPaths,
    extraction_provenance,
    open_outputs,
    read_candidates,
)
from consensusbench.construction.runs import is_run, read_run
from consensusbench.construction.selection import SelectionSettings, choose
from consensusbench.construction.store import (
    DistinctRollout,
    Inputs,
    SpooledRollout,
    Workspace,
    sampling_records,
)
from consensusbench.construction.types import (
    DEFAULT_TIME_LIMIT_S,
    BuildProgress,
    Excluded,
    Item,
    Outcome,
    ProblemRollouts,
    ProblemTask,
    RolloutCounts,
    Stream,
    UsedRollout,
)
from consensusbench.construction.worker import Stages
from consensusbench.construction.workers import ask_model, batches, work_here, work_on_ray
from consensusbench.construction.worth import Judge
from consensusbench.extraction.types import AsyncExtractor, CorrectRollout, Extractor, Refiner
from consensuspr.console import count_of
from consensuspr.data import (
    DataError,
    OnError,
    Problem,
    ReadReport,
    Row,
    open_writer,
    problem_to_row,
    read_problems,
    read_rollouts,
)
from consensuspr.data.writers import dump_json
from consensuspr.errors import ConsensusPRError, InputError
from consensuspr.scoring.answers import AnswerVerifier

# A correct solution is a hundredth of it; what is longer is not looked at, and counted.
MAX_RESPONSE_BYTES = 1 << 20

# Columns that say how a rollout was sampled; they are recorded with the rollouts that are used.
SAMPLING_COLUMNS = ("temperature", "top_p", "max_tokens", "seed")

# Answers are verified so many at a time, over as many problems as that takes, because the few
# that need computer algebra then overlap.  Their texts are let go again, and only the chosen ones
# are read a second time.
BATCH_ROLLOUTS = 512
BATCH_BYTES = 16 << 20

# So many failures are no longer about single problems.
MAX_FAILURES = 20

Engine: TypeAlias = Literal["local", "ray"]
Split: TypeAlias = Literal["train", "test"]


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
class BuildJob:
    """A build from rollouts.

    Attributes:
        rollouts: files, in any order; or folders of training runs, whose logs say which of their
            rollouts are correct.
        paths: what is written.
        extractor: stage 2.
        refiner: stage 3; None: end with stage 2.
        problems: a file of problems; None: what the rollouts say of theirs.
        split: put into each problem; None: as it is.
        selection: which rollouts are looked at.
        on_error: what a bad row does, and a problem whose extraction fails.
        engine: processes of this machine, or a Ray cluster; the outputs are the same.
        workers: processes, 1 or more; the outputs are the same.
        time_limit_s: seconds of processor time that one problem may take.

    Raises:
        InputError: a number is out of its range.
    """

    rollouts: tuple[Path, ...]
    paths: OutputPaths
    extractor: Extractor | AsyncExtraction
    refiner: Refiner | None
    problems: Path | None = None
    split: Split | None = None
    selection: SelectionSettings = field(default_factory=SelectionSettings)
    on_error: OnError = "stop"
    engine: Engine = "local"
    workers: int = 1
    time_limit_s: float = DEFAULT_TIME_LIMIT_S

    def __post_init__(self) -> None:
        _check_workers(self.workers)
        if not 0.01 <= self.time_limit_s <= 86_400:
            raise InputError(
                f"the time limit must be from 0.01 to 86400 seconds, got {self.time_limit_s:g}"
            )
        runs = [is_run(path) for path in self.rollouts]
        if any(runs) and not all(runs):
            raise InputError("give files of rollouts or folders of runs, not both")
        if self.engine == "ray" and isinstance(self.extractor, AsyncExtraction):
            raise InputError("a model is asked from one process; use the local engine")

    @property
    def of_run(self) -> bool:
        """Whether the rollouts are those of training runs."""
        return is_run(self.rollouts[0])

    def extractor_provenance(self) -> Row:
        """Return what the dataset records of stage 2."""
        if isinstance(self.extractor, AsyncExtraction):
            return self.extractor.provenance
        return self.extractor.provenance()


def _check_workers(workers: int) -> None:
    if workers < 1:
        raise InputError(f"workers must be 1 or more, got {workers}")


def build(
    job: BuildJob, progress: BuildProgress | None = None, inputs: Inputs | None = None
) -> BuildReport:
    """Make a dataset, or its candidates, from rollouts.

    Args:
        job: what is to be done.
        progress: told how it goes.
        inputs: problems and rollouts that were read already; None: those of the job.

    Killed at any moment, it leaves the outputs as they were, and the next call with the same
    output goes on with the problems that are not extracted yet.

    Raises:
        InputError: an input, an option or an output is bad, or no problem is left.
        ConsensusPRError: problems failed, or the work as a whole.
    """
    progress = progress or BuildProgress()
    try:
        return _build(job, progress, inputs)
    except KeyboardInterrupt:
        progress.note("what is extracted is kept; the same command goes on from there")
        raise


def _build(job: BuildJob, progress: BuildProgress, inputs: Inputs | None) -> BuildReport:
    started = time.perf_counter()
    if job.of_run:
        job = replace(job, selection=replace(job.selection, trust_labels=True))
    job.paths.refuse_inputs(*job.rollouts, job.problems)
    report = BuildReport(job.paths)
    provenance = extraction_provenance(
        job.selection, job.extractor_provenance(), sampling_records(job.rollouts)
    )
    refinement = {} if job.refiner is None else {"refinement": job.refiner.provenance()}
    report.provenance = provenance | refinement
    output = job.paths.dataset or job.paths.candidates
    assert output is not None, "a build writes something"
    with ExitStack() as stack:
        workspace = stack.enter_context(Workspace(output))
        counts = report.rollouts = RolloutCounts()
        if inputs is None:
            inputs = stack.enter_context(closing(Inputs(workspace.folder, job.split)))
            if job.problems is not None:
                report.skipped_rows = inputs.list_problems(job.problems, job.on_error).skipped
            counts = report.rollouts = take_rollouts(job, inputs, progress)
        report.disagreements = inputs.disagreements
        found, others = workspace.open_journal(job.extractor_provenance())
        if found:
            progress.note(f"an earlier run left {found:,} extracted problems; going on")
        elif others:
            progress.note("an earlier run extracted with other settings; starting anew")
        report.seconds.reading = time.perf_counter() - started
        progress.begin(len(inputs))
        verifier = None
        if not job.selection.trust_labels:
            verifier = stack.enter_context(AnswerVerifier(job.workers))
        judge = None if job.refiner is None else Judge(functools.partial(_responses, inputs))
        tasks = Tasks(
            inputs, job.selection, verifier, counts, report.seconds, provenance, judge, job.of_run
        )
        items = _resumed(tasks.items(), workspace, report)
        _finish(_run(job, items, workspace), job.refiner, job.on_error, report, progress, judge)
        workspace.done()
    report.seconds.total = time.perf_counter() - started
    return report


def add_budgets(job: BuildJob, progress: BuildProgress | None = None) -> BuildReport:
    """Give the problems of a dataset budgets of the guard, and weights to nodes that have none.

    A problem without a correct rollout keeps the budget that it has, if any, and one with a
    weight keeps its weights.  What attacks earn goes into the metadata.  Nothing else changes.

    Args:
        job: its ``problems`` are the dataset, ``paths.dataset`` is what is written; stages 2 and
            3 are not used.

    Raises:
        InputError: an input or an output is bad, or no problem has a correct rollout.
    """
    if job.of_run:
        raise InputError(
            f"{job.rollouts[0]} is a training run: budgets are not made of the rollouts of the"
            " policy that is trained, for they would grow with what it learns to print"
        )
    dataset, output = job.problems, job.paths.dataset
    assert dataset is not None and output is not None, "budgets are added to a dataset"
    started = time.perf_counter()
    progress = progress or BuildProgress()
    job.paths.refuse_inputs(*job.rollouts, dataset)
    report = BuildReport(OutputPaths(output), budgets=0)
    selection = replace(job.selection, min_rollouts=1)
    stated: dict[str, Stated] = {}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="consensusbench-")))
        inputs = stack.enter_context(closing(Inputs(folder, None)))
        report.skipped_rows = inputs.list_problems(dataset, job.on_error).skipped
        counts = report.rollouts = take_rollouts(job, inputs, progress)
        report.seconds.reading = time.perf_counter() - started
        progress.begin(len(inputs))
        verifier = None
        if not selection.trust_labels:
            verifier = stack.enter_context(AnswerVerifier(job.workers))
        judge = Judge(functools.partial(_responses, inputs))
        tasks = Tasks(inputs, selection, verifier, counts, report.seconds, {}, judge)
        for done, item in enumerate(tasks.items(), start=1):
            if isinstance(item, ProblemTask) and item.chosen.stated is not None:
                stated[item.chosen.problem.problem_id] = item.chosen.stated
            progress.work(done)
        if not stated:
            raise InputError("no problem of the dataset has a correct rollout to make a budget of")
        out = stack.enter_context(open_writer(output))
        for problem in read_problems(dataset, job.on_error, _Unsaid()):
            report.problems.write(problem.data_source, len(problem.nodes))
            if problem.nodes and (most := stated.get(problem.problem_id)) is not None:
                report.budgets = (report.budgets or 0) + 1
                problem = replace(problem, budget=budget_of(most, len(problem.nodes)))
                problem = judge.weigh(problem)
            out.write(problem_to_row(problem))
    report.judge = judge
    _name_dataset(report, output)
    report.seconds.total = time.perf_counter() - started
    return report


class _Unsaid(ReadReport):
    """Skips bad rows without a word: they were told of when the file was read first."""

    def skip(self, fault: DataError) -> None:
        self.skipped += 1


def refine_candidates(
    candidates: Path,
    paths: OutputPaths,
    refiner: Refiner,
    *,
    on_error: OnError = "stop",
    workers: int = 1,
    progress: BuildProgress | None = None,
) -> BuildReport:
    """Make a dataset from candidates.

    Args:
        candidates: a file that a build with candidates wrote.
        on_error: what a bad row does, and a problem that fails.
        workers: processes, 1 or more.

    Raises:
        InputError: an input or an output is bad, or no problem is left.
        ConsensusPRError: problems failed, or the work as a whole.
    """
    _check_workers(workers)
    started = time.perf_counter()
    progress = progress or BuildProgress()
    paths.refuse_inputs(candidates)
    report, read = BuildReport(paths), ReadReport()
    report.provenance = {"refinement": refiner.provenance()}
    progress.begin(None)
    items = read_candidates(candidates, on_error, read)
    _finish(work_here(items, Stages(None, refiner), workers), refiner, on_error, report, progress)
    report.skipped_rows = read.skipped
    report.seconds.total = time.perf_counter() - started
    return report


def take_rollouts(job: BuildJob, inputs: Inputs, progress: BuildProgress) -> RolloutCounts:
    """Read the rollouts of a build into its inputs and finish these.

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
    for path in job.rollouts:
        report = ReadReport()
        rows = read_run(path) if job.of_run else read_rollouts(path, job.on_error, report)
        for row in rows:
            counts.read += 1
            if counts.read % 256 == 0:
                progress.read(counts.read)
            model = row.get("model") or ""
            models.add(model)
            labelled = labelled or row.get("correct") is not None
            take_rollout(row, job.selection, inputs, counts)
        counts.skipped += report.skipped
    progress.read(counts.read)
    for name in (*job.selection.exclude_models, *job.selection.only_models):
        if name not in models:  # a typing error would let a model in unnoticed
            shown = ", ".join(sorted(filter(None, models))) or "none"
            raise InputError(f"no rollout is of model {name!r}; the models there are: {shown}")
    if counts.read and counts.other_model == counts.read:
        raise InputError(
            f"exclude_models and only_models leave none of the {counts.read:,} rollouts"
        )
    if job.selection.trust_labels and not labelled and not job.of_run:
        raise InputError(
            f"no row of {', '.join(map(str, job.rollouts))} has the column correct; leave the "
            "labels out and let the answers be verified"
        )
    inputs.finish()
    return counts


def take_rollout(
    row: Row, selection: SelectionSettings, inputs: Inputs, counts: RolloutCounts
) -> None:
    """Put a rollout into the inputs, or count why not."""
    model = row.get("model") or ""
    if not selection.takes(model):
        counts.other_model += 1
    elif (number := inputs.number_of(row)) is None:
        counts.unknown_problem += 1
    elif _is_oversize(row["response"]):
        counts.oversize += 1
    else:
        rollout = SpooledRollout(row.get("rollout_id"), _sampling(row), row["response"])
        inputs.add(number, model, rollout, row.get("correct"))


def _is_oversize(response: str) -> bool:
    # No character takes more than four bytes: most need not be encoded to know.
    return 4 * len(response) > MAX_RESPONSE_BYTES and (
        len(response.encode("utf-8", "surrogatepass")) > MAX_RESPONSE_BYTES
    )


def _sampling(row: Row) -> str:
    """Return what a row says of its sampling as JSON text, empty where it says nothing."""
    nested = row.get("sampling")
    said: dict[str, Any] = dict(nested) if isinstance(nested, dict) else {}
    said.update({name: row[name] for name in SAMPLING_COLUMNS if row.get(name) is not None})
    known = {name: value for name, value in sorted(said.items()) if value is not None}
    return dump_json(known) if known else ""


@dataclass(slots=True)
class _Judged:
    """A problem whose rollouts are being verified."""

    problem: Problem
    rollouts: list[DistinctRollout]
    correct: list[DistinctRollout] = field(default_factory=list)
    wrong: list[DistinctRollout] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Tasks:
    """Makes the work of a build out of its finished inputs.

    Attributes:
        verifier: decides which rollouts are correct; None: their labels do.
        counts: filled on the way, as are the seconds.
        provenance: put into each problem.
        judge: hears of the right and wrong rollouts of each problem that is worked on.
        of_run: the rollouts are those of a policy that is trained: of each problem they must be of
            ``min_steps`` steps, and its budget is not made of them.
    """

    inputs: Inputs
    settings: SelectionSettings
    verifier: AnswerVerifier | None
    counts: RolloutCounts
    seconds: BuildSeconds
    provenance: Row
    judge: Judge | None = None
    of_run: bool = False

    def items(self) -> Iterator[Item]:
        """Yield every problem in the order of the dataset, as work or with its reason."""
        started = (self._start(number, problem) for number, problem in self.inputs.problems())
        for waiting in batches(
            started,
            lambda one: (0, 0) if isinstance(one, Excluded) else _size(one.rollouts),
            BATCH_ROLLOUTS,
            BATCH_BYTES,
        ):
            yield from self._judged(waiting)

    def _start(self, number: int, problem: Problem | Excluded) -> _Judged | Excluded:
        rollouts = self.inputs.rollouts_of(number)
        self.counts.repeated += sum(one.repeats for one in rollouts)
        if isinstance(problem, Problem) and problem.ground_truth is None:
            problem = Excluded(problem, "no_ground_truth", "its ground truth is not known")
        if isinstance(problem, Excluded):
            self.counts.unusable_problem += len(rollouts)
            return problem
        if not rollouts:
            return Excluded(problem, "no_rollouts", "there is no rollout of it")
        return _Judged(problem, rollouts)

    def _judged(self, waiting: Sequence[_Judged | Excluded]) -> Iterator[Item]:
        by_rule: dict[str, list[tuple[_Judged, DistinctRollout]]] = {}
        for one in waiting:
            if isinstance(one, _Judged):
                rule = self.settings.answer_rule or one.problem.answer_rule or "auto"
                by_rule.setdefault(rule, []).extend((one, rollout) for rollout in one.rollouts)
        for rule, pairs in by_rule.items():
            for portion in batches(
                pairs, lambda pair: _size(pair[1:]), BATCH_ROLLOUTS, BATCH_BYTES
            ):
                verdicts = self._verdicts(portion, rule)
                for (one, rollout), correct in zip(portion, verdicts, strict=True):
                    if correct:
                        one.correct.append(rollout)
                        self.counts.correct += 1
                    elif correct is None:
                        self.counts.undecided += 1
                    else:
                        one.wrong.append(rollout)
                        self.counts.incorrect += 1
        for one in waiting:
            yield one if isinstance(one, Excluded) else self._item(one)

    def _verdicts(
        self, portion: Sequence[tuple[_Judged, DistinctRollout]], rule: str
    ) -> list[bool | None]:
        if self.verifier is None:
            return [rollout.label for _, rollout in portion]
        truths = [one.problem.ground_truth or "" for one, _ in portion]
        texts = [self.inputs.read(rollout.at).response for _, rollout in portion]
        start = time.perf_counter()
        verdicts = self.verifier.verify_batch(truths, texts, rule)
        self.seconds.verifying += time.perf_counter() - start
        return [verdict.correct for verdict in verdicts]

    def _item(self, judged: _Judged) -> Item:
        problem, correct = judged.problem, len(judged.correct)
        if correct < self.settings.min_rollouts:
            return Excluded(
                problem,
                "few_correct",
                f"{correct} of {len(judged.rollouts)} distinct rollouts are correct, the least "
                f"is {self.settings.min_rollouts}",
            )
        steps = len({one.model for one in judged.correct})
        if self.of_run and steps < self.settings.min_steps:
            return Excluded(
                problem,
                "few_correct",
                f"its {correct} correct rollouts are of {count_of(steps, 'step')}, the least is "
                f"{self.settings.min_steps}",
            )
        chosen = choose(problem.problem_id, judged.correct, self.settings)
        self.counts.used += len(chosen)
        read = [self.inputs.read(one.at) for one in chosen]
        names = _unique_names([rollout.name for rollout in read], chosen)
        sampled = tuple(
            UsedRollout(name, one.model, json.loads(rollout.sampling or "{}"))
            for name, one, rollout in zip(names, chosen, read, strict=True)
        )
        rollouts = tuple(
            CorrectRollout(one.rollout_id, one.model, rollout.response)
            for one, rollout in zip(sampled, read, strict=True)
        )
        inputs = inputs_digest(problem, chosen, names)
        if self.judge is not None:
            self.judge.expect(problem.problem_id, judged.correct, judged.wrong)
        stated = None if self.of_run else self._stated(judged.correct)
        wrong = len(judged.wrong)
        return ProblemTask(
            ProblemRollouts(problem, sampled, correct, inputs, self.provenance, stated, wrong),
            rollouts,
        )

    def _stated(self, correct: Sequence[DistinctRollout]) -> Stated:
        """Return the most that a correct rollout states, one that is not looked at included."""
        most = Stated()
        for texts in _responses(self.inputs, correct):
            most = most.most(stated_in(texts))
        return most


def _responses(inputs: Inputs, rollouts: Sequence[DistinctRollout]) -> Iterator[list[str]]:
    """Read the texts of rollouts, a bounded part at a time."""
    for portion in batches(rollouts, lambda one: _size([one]), BATCH_ROLLOUTS, BATCH_BYTES):
        yield [inputs.read(one.at).response for one in portion]


def _size(rollouts: Sequence[DistinctRollout]) -> tuple[int, int]:
    return len(rollouts), sum(one.num_bytes for one in rollouts)


def _unique_names(names: Sequence[str | None], chosen: Sequence[DistinctRollout]) -> list[str]:
    """Return a name for each rollout; one without, or with that of another, is named by text."""
    unique = []
    for name, one in zip(names, chosen, strict=True):
        mark = one.digest.hex()[:12]
        if not name:
            unique.append(mark)
        else:
            unique.append(name if names.count(name) == 1 else f"{name}#{mark}")
    return unique


def inputs_digest(problem: Problem, chosen: Sequence[DistinctRollout], names: Sequence[str]) -> str:
    """Return a digest of all that an extractor is given."""
    texts = [[name, one.model, one.digest.hex()] for name, one in zip(names, chosen, strict=True)]
    given = [problem.problem_id, problem.problem, problem.ground_truth, texts]
    return "sha256:" + hashlib.sha256(json.dumps(given).encode("ascii")).hexdigest()


def _resumed(items: Iterable[Item], workspace: Workspace, report: BuildReport) -> Iterator[Item]:
    """Give tasks the extraction that an earlier run left."""
    for item in items:
        if isinstance(item, ProblemTask) and (found := workspace.get(item.chosen)) is not None:
            report.resumed += 1
            yield ProblemTask(item.chosen, extraction=found)
        else:
            yield item


def _run(job: BuildJob, items: Iterator[Item], workspace: Workspace) -> Stream:
    """Yield what becomes of each item; extractions are in the journal by then."""
    stages = Stages(None, job.refiner, job.time_limit_s)
    if isinstance(job.extractor, AsyncExtraction):
        # In the journal before anything else is done with it: it was paid for.
        keep = functools.partial(workspace.keep, durable=True)
        asked = ask_model(items, job.extractor.open, job.extractor.in_flight, keep)
        yield from asked if job.refiner is None else _refined(asked, stages, job.workers)
        return
    stages = replace(stages, extractor=job.extractor)
    if job.engine == "ray":
        stream = work_on_ray(items, stages, workspace.folder)
    else:
        stream = work_here(items, stages, job.workers)
    with closing(stream) as finished:
        for one in finished:
            if isinstance(one, Outcome) and one.extraction is not None:
                workspace.keep(one.chosen, one.extraction, durable=False)
            yield one


def _refined(asked: Stream, stages: Stages, workers: int) -> Stream:
    """Refine what a model extracted in worker processes."""
    seconds: dict[str, float] = {}

    def tasks() -> Iterator[Item]:
        for one in asked:
            if isinstance(one, Excluded) or one.extraction is None:
                yield one
            else:
                seconds[one.chosen.inputs] = one.extract_s
                yield ProblemTask(one.chosen, extraction=one.extraction)

    with closing(asked), closing(work_here(tasks(), stages, workers)) as finished:
        for one in finished:
            if isinstance(one, Outcome):
                one = replace(one, extract_s=seconds.pop(one.chosen.inputs, one.extract_s))
            yield one


def _finish(
    finished: Stream,
    refiner: Refiner | None,
    on_error: OnError,
    report: BuildReport,
    progress: BuildProgress,
    judge: Judge | None = None,
) -> None:
    """Write and count what became of the problems, and name the dataset that they make."""
    failed: list[str] = []
    with open_outputs(report.paths, refiner, judge) as outputs, closing(finished):
        report.problems = outputs.counts
        for done, one in enumerate(finished, start=1):
            if isinstance(one, Outcome):
                report.seconds.extracting += one.extract_s
                report.seconds.refining += one.refine_s
                if on_error == "stop" and one.failure and one.failure.reason == "failed":
                    problem_id = one.chosen.problem.problem_id[:80]
                    failed.append(f"problem {problem_id!r}: {one.failure.detail}")
                    if len(failed) == MAX_FAILURES:
                        break
            outputs.take(one)
            progress.work(done)
        if failed:
            what, them = ("problem", "it") if len(failed) == 1 else ("problems", "them")
            raise ConsensusPRError(
                f"{failed[0]} ({len(failed):,} {what} failed; the extracted ones are kept and the "
                f"same command goes on with them, --on-error skip leaves {them} out)"
            )
    report.judge = judge
    if report.paths.dataset is not None:
        _name_dataset(report, report.paths.dataset)


def _name_dataset(report: BuildReport, path: Path) -> None:
    """Put the digest into the report that every score with this dataset will carry."""
    from consensuspr.scoring import DatasetIndex

    report.digest = DatasetIndex.load(path, derive="stored").digest
