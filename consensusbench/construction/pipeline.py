"""A build: rollouts are read, verified, chosen, extracted, refined and written.

:func:`build` is both ``consensusbench build`` and ``extract``, :func:`refine_candidates` the rest.
Everything streams in the order of the problems, in bounded memory.  Nothing is written before all
rollouts have been read.

A problem that takes too long is left out.  One that fails otherwise (a model without a usable
reply, a defect) ends the build, but only after all the others have been tried; the next run finds
their extractions in the journal ``OUTPUT.partial``.
"""

from __future__ import annotations

import functools
import hashlib
import json
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, TypeAlias

from consensusbench.answers import verify_patiently
from consensusbench.construction.budgets import Stated, budget_of, stated_in
from consensusbench.construction.outputs import (
    BuildReport,
    OutputPaths,
    extraction_from_row,
    extraction_provenance,
    extraction_to_row,
    open_outputs,
    read_candidates,
)
from consensusbench.construction.runs import read_run
from consensusbench.construction.selection import SelectionSettings, choose
from consensusbench.construction.store import (
    DistinctRollout,
    Inputs,
    SpooledRollout,
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
    Split,
    Stream,
    UsedRollout,
)
from consensusbench.construction.work import Stages, ask_model, batches, work_here, work_on_ray
from consensusbench.construction.worth import Judge
from consensusbench.extraction.types import AsyncExtractor, CorrectRollout, Extractor, Refiner
from consensusbench.quiet import quiet_readers
from consensusbench.store import Journal, digest
from consensuspr.console import count_of
from consensuspr.data import (
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
# Answers are verified so many at a time, because the few that need computer algebra then overlap.
BATCH_ROLLOUTS = 512
BATCH_BYTES = 16 << 20
# So many failures are no longer about single problems.
MAX_FAILURES = 20

Engine: TypeAlias = Literal["local", "ray"]


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
        selection: which rollouts are compared.
        on_error: what a bad row does, and a problem whose extraction fails.
        engine: processes of this machine, or a Ray cluster; the outputs are the same.
        workers: processes, 1 or more; the outputs are the same.
        time_limit_s: seconds of CPU time that one problem may take.

    Raises:
        InputError: a number is out of its range.
    """

    rollouts: tuple[Path, ...]
    paths: OutputPaths
    extractor: Extractor | AsyncExtractor
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
        runs = [path.is_dir() for path in self.rollouts]
        if any(runs) and not all(runs):
            raise InputError("give files of rollouts or folders of runs, not both")
        if self.engine == "ray" and isinstance(self.extractor, AsyncExtractor):
            raise InputError("a model is asked from one process; use the local engine")

    @property
    def of_run(self) -> bool:
        """Whether the rollouts are those of training runs."""
        return self.rollouts[0].is_dir()


def _check_workers(workers: int) -> None:
    if workers < 1:
        raise InputError(f"workers must be 1 or more, got {workers}")


def build(
    job: BuildJob, progress: BuildProgress | None = None, *, without_nodes: bool = False
) -> BuildReport:
    """Make a dataset, or its candidates, from rollouts.

    Killed at any moment, it leaves the outputs as they were, and the next call with the same
    output goes on with the problems that are not extracted yet.

    Args:
        job: what is to be done.
        progress: informed of how it goes.
        without_nodes: leave out problems of the file that have nodes.

    Raises:
        InputError: an input, an option or an output is bad, or no problem is left.
        ConsensusPRError: problems failed, or the work as a whole.
    """
    started = time.perf_counter()
    progress = progress or BuildProgress()
    if job.of_run:
        job = replace(job, selection=replace(job.selection, trust_labels=True))
    job.paths.refuse_inputs(*job.rollouts, job.problems)
    output = job.paths.dataset or job.paths.candidates
    assert output is not None, "a build writes something"
    report = BuildReport(job.paths)
    extractor = job.extractor.provenance()
    provenance = extraction_provenance(job.selection, extractor, sampling_records(job.rollouts))
    refinement = {} if job.refiner is None else {"refinement": job.refiner.provenance()}
    report.provenance = provenance | refinement
    with ExitStack() as stack:
        journal = stack.enter_context(_Extracted(output, extractor))
        inputs = stack.enter_context(Inputs(output.parent, job.split))
        if job.problems is not None:
            read = inputs.list_problems(job.problems, job.on_error, without_nodes=without_nodes)
            report.skipped_rows = read.skipped
        counts = take_rollouts(job, inputs, progress)
        if len(journal):
            progress.note("an earlier run left extracted problems; going on with the others")
        judge = None if job.refiner is None else Judge(functools.partial(_responses, inputs))
        tasks = Tasks(inputs, job.selection, _verifier(job, stack), counts, provenance, judge,
                      job.of_run)  # fmt: skip
        progress.begin(len(inputs))
        _count(report, inputs, counts)
        try:
            items = journal.resumed(tasks.items(), report)
            _finish(_run(job, items, journal), job.refiner, job.on_error, report, progress, judge)
        except KeyboardInterrupt:
            progress.note("what is extracted is kept; the same command goes on from there")
            raise
        journal.done()
    report.seconds = time.perf_counter() - started
    return report


def _verifier(job: BuildJob, stack: ExitStack) -> AnswerVerifier | None:
    trusted = job.selection.trust_labels
    return None if trusted else stack.enter_context(AnswerVerifier(job.workers))


def _count(report: BuildReport, inputs: Inputs, counts: RolloutCounts) -> None:
    report.rollouts = counts
    report.ground_truths, report.data_sources = inputs.ground_truths, inputs.data_sources


class _Extracted:
    """Extractions of a build until it is complete, in ``OUTPUT.partial``.

    The key stands for all that the extractor was given, and for its settings.
    """

    def __init__(self, output: Path, extractor: Row) -> None:
        self._path = Path(f"{output}.partial")
        self._journal = Journal(self._path, "extraction", durable=False)
        self._extractor = extractor
        self._is_done = False

    def __enter__(self) -> _Extracted:
        return self

    def __exit__(self, *exception: object) -> None:
        useless = self._is_done or not len(self._journal)
        self._journal.close()
        if useless:
            self._path.unlink(missing_ok=True)

    def __len__(self) -> int:
        return len(self._journal)

    def resumed(self, items: Iterable[Item], report: BuildReport) -> Iterator[Item]:
        """Give tasks the extraction that an earlier run left."""
        for item in items:
            if isinstance(item, ProblemTask):
                row = self._journal.get(self._key(item))
                if row is not None:
                    report.resumed += 1
                    item = ProblemTask(item.chosen, extraction=extraction_from_row(row))
            yield item

    def keep(self, outcome: Outcome) -> None:
        """Keep an extraction; one that is there already stays."""
        key = self._key(outcome)
        if outcome.extraction is not None and key not in self._journal:
            self._journal.append(key, extraction_to_row(outcome.extraction))

    def done(self) -> None:
        """Note that the output is complete."""
        self._is_done = True

    def _key(self, one: ProblemTask | Outcome) -> str:
        return digest([self._extractor, one.chosen.inputs])


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
    stated: dict[str, Stated] = {}
    with ExitStack() as stack:
        inputs = stack.enter_context(Inputs(output.parent))
        report.skipped_rows = inputs.list_problems(dataset, job.on_error).skipped
        counts = take_rollouts(job, inputs, progress)
        progress.begin(len(inputs))
        judge = Judge(functools.partial(_responses, inputs))
        selection = replace(job.selection, min_rollouts=1)
        tasks = Tasks(inputs, selection, _verifier(job, stack), counts, {}, judge)
        for done, item in enumerate(tasks.items(), start=1):
            if isinstance(item, ProblemTask) and item.chosen.stated is not None:
                stated[item.chosen.problem.problem_id] = item.chosen.stated
            progress.work(done)
        _count(report, inputs, counts)
        if not stated:
            raise InputError("no problem of the dataset has a correct rollout to make a budget of")
        out = stack.enter_context(open_writer(output))
        with quiet_readers():
            for problem in read_problems(dataset, job.on_error):
                report.problems.write(problem.data_source, len(problem.nodes))
                if problem.nodes and (most := stated.get(problem.problem_id)) is not None:
                    report.budgets = (report.budgets or 0) + 1
                    problem = replace(problem, budget=budget_of(most, len(problem.nodes)))
                    problem = judge.weigh(problem)
                out.write(problem_to_row(problem))
    report.judge = judge
    _name_dataset(report, output)
    report.seconds = time.perf_counter() - started
    return report


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
    report.seconds = time.perf_counter() - started
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
    counts, selection = RolloutCounts(), job.selection
    models: set[str] = set()
    labelled = False
    for path in job.rollouts:
        report = ReadReport()
        for row in read_run(path) if job.of_run else read_rollouts(path, job.on_error, report):
            counts.read += 1
            if counts.read % 256 == 0:
                progress.read(counts.read)
            model = row.get("model") or ""
            models.add(model)
            labelled = labelled or row.get("correct") is not None
            if not selection.takes(model):
                counts.other_model += 1
            elif (number := inputs.number_of(row)) is None:
                counts.unknown_problem += 1
            elif _is_oversize(row["response"]):
                counts.oversize += 1
            else:
                rollout = SpooledRollout(row.get("rollout_id"), _sampling(row), row["response"])
                inputs.add(number, model, rollout, row.get("correct"))
        counts.skipped += report.skipped
    progress.read(counts.read)
    for name in (*selection.exclude_models, *selection.only_models):
        if name not in models:  # a typing error would let a model in unnoticed
            shown = ", ".join(sorted(filter(None, models))) or "none"
            raise InputError(f"no rollout is of model {name!r}; the models there are: {shown}")
    if counts.read and counts.other_model == counts.read:
        raise InputError(
            f"exclude_models and only_models leave none of the {counts.read:,} rollouts"
        )
    if selection.trust_labels and not labelled and not job.of_run:
        raise InputError(
            f"no row of {', '.join(map(str, job.rollouts))} has the column correct; leave the "
            "labels out and let the answers be verified"
        )
    inputs.finish()
    return counts


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
        counts: filled on the way.
        provenance: put into each problem.
        judge: takes the right and wrong rollouts of each problem that is worked on.
        of_run: the rollouts are those of a policy that is trained: of each problem they must be of
            ``min_steps`` steps, and its budget is not made of them.
    """

    inputs: Inputs
    settings: SelectionSettings
    verifier: AnswerVerifier | None
    counts: RolloutCounts
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
        return verify_patiently(self.verifier, truths, texts, rule)

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
        """Return the most that a correct rollout states, one that is not chosen included."""
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


def _run(job: BuildJob, items: Iterator[Item], journal: _Extracted) -> Stream:
    """Yield what becomes of each item; extractions are in the journal by then."""
    if isinstance(job.extractor, AsyncExtractor):
        stages = Stages(None, job.refiner, job.time_limit_s)
        asked = _kept(ask_model(items, job.extractor), journal)
        yield from asked if job.refiner is None else _refined(asked, stages, job.workers)
        return
    stages = Stages(job.extractor, job.refiner, job.time_limit_s)
    output = job.paths.dataset or job.paths.candidates
    assert output is not None, "a build writes something"
    if job.engine == "ray":
        yield from _kept(work_on_ray(items, stages, output.parent), journal)
    else:
        yield from _kept(work_here(items, stages, job.workers), journal)


def _kept(stream: Stream, journal: _Extracted) -> Stream:
    with closing(stream) as finished:
        for one in finished:
            if isinstance(one, Outcome):
                journal.keep(one)
            yield one


def _refined(asked: Stream, stages: Stages, workers: int) -> Stream:
    """Refine what a model extracted in worker processes."""

    def tasks() -> Iterator[Item]:
        for one in asked:
            if isinstance(one, Outcome) and one.extraction is not None:
                yield ProblemTask(one.chosen, extraction=one.extraction)
            else:
                yield one

    with closing(asked), closing(work_here(tasks(), stages, workers)) as finished:
        yield from finished


def _finish(
    finished: Stream,
    refiner: Refiner | None,
    on_error: OnError,
    report: BuildReport,
    progress: BuildProgress,
    judge: Judge | None = None,
) -> None:
    """Write and count the problems, and name the dataset that they make."""
    failed: list[str] = []
    with open_outputs(report.paths, refiner, judge) as outputs, closing(finished):
        report.problems = outputs.counts
        for done, one in enumerate(finished, start=1):
            failure = one.failure if isinstance(one, Outcome) else None
            if on_error == "stop" and failure is not None and failure.reason == "failed":
                failed.append(f"problem {failure.problem.problem_id[:80]!r}: {failure.detail}")
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
