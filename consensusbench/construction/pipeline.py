"""A build: rollouts are read, verified, chosen, extracted, refined and written.

:func:`build` is both ``consensusbench build`` and ``extract``, :func:`refine_candidates` the rest.
Everything streams in the order of the problems, in bounded memory.  Nothing is written before all
rollouts have been read.

A problem that takes too long is left out.  One that fails otherwise (a model without a usable
reply, a defect) ends the build, but only after all the others have been tried; the next run finds
their extractions in the journal ``OUTPUT.partial``.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Literal, TypeAlias

import pyarrow.compute as pc

from consensusbench import quiet_readers, verify_patiently
from consensusbench.construction.budgets import Stated, budget_of, stated_in
from consensusbench.construction.outputs import (
    EXTRACTION,
    BuildReport,
    OutputPaths,
    RolloutCounts,
    open_outputs,
    read_candidates,
)
from consensusbench.construction.selection import SelectionSettings, choose
from consensusbench.construction.store import (
    BATCH_LIMITS,
    DistinctRollout,
    Inputs,
    sampling_records,
)
from consensusbench.construction.types import (
    DEFAULT_TIME_LIMIT_S,
    BuildItem,
    BuildRecord,
    Excluded,
    Split,
    Stream,
)
from consensusbench.construction.work import Stages, ask_model, batches, work_here, work_on_ray
from consensusbench.construction.worth import Judge
from consensusbench.extraction.corpus import (
    MAX_PROBLEMS,
    ROLLOUTS_PER_PROBLEM,
    Corpus,
    order_of,
)
from consensusbench.extraction.types import AsyncExtractor, CorrectRollout, Extractor, Refiner
from consensusbench.store import Journal, digest
from consensuspr.client.training import VALIDATION_SPLITS
from consensuspr.console import ProgressBar, count_of, count_progress
from consensuspr.core import NORMAL_FORM_VERSION
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
from consensuspr.score_log import LogReader
from consensuspr.scoring import DatasetIndex
from consensuspr.scoring.answers import ANSWER_VERSION, AnswerVerifier
from consensuspr.scoring.derive import FORMS_VERSION
from consensuspr.scoring.types import Status
from consensuspr.version import VERSION

# A correct solution is a hundredth of it; longer ones are counted and left out.
MAX_RESPONSE_BYTES = 1 << 20
# Columns about the sampling of a rollout; the dataset records them with the compared rollouts.
SAMPLING_COLUMNS = ("temperature", "top_p", "max_tokens", "seed")
# So many failures are no longer about single problems.
MAX_FAILURES = 20

Engine: TypeAlias = Literal["local", "ray"]
no_progress = partial(count_progress, hidden=True)


@dataclass(frozen=True, slots=True)
class BuildJob:
    """A build from rollouts.

    Attributes:
        rollouts: files, in any order; or folders of training runs, whose logs have the verdict
            on each rollout.
        paths: of the outputs.
        extractor: stage 2.
        refiner: stage 3; None: end with stage 2.
        problems: a file of problems; None: the rollouts' own columns.
        only_without_nodes: leave out problems of the file that have nodes.
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
    only_without_nodes: bool = False
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
            raise InputError("--extractor llm works with the local engine only")

    @property
    def of_run(self) -> bool:
        """Whether the rollouts are those of training runs."""
        return self.rollouts[0].is_dir()


def _check_workers(workers: int) -> None:
    if workers < 1:
        raise InputError(f"workers must be 1 or more, got {workers}")


def build(job: BuildJob, progress: ProgressBar = no_progress) -> BuildReport:
    """Make a dataset, or its candidates, from rollouts.

    Killed at any moment, it leaves the outputs as they were, and the next call with the same
    output goes on with the problems that are not extracted yet.

    Raises:
        InputError: an input, an option or an output is bad, or no problem is left.
        ConsensusPRError: problems failed, or the work as a whole.
    """
    started = time.perf_counter()
    if job.of_run:
        job = replace(job, selection=replace(job.selection, trust_labels=True))
    job.paths.refuse_inputs(*job.rollouts, job.problems)
    report = BuildReport(job.paths)
    provenance: Row = {
        "consensuspr": VERSION,
        "normal_form": NORMAL_FORM_VERSION,
        "forms": FORMS_VERSION,
        "answers": ANSWER_VERSION,
        "sampling": sampling_records(job.rollouts),
        "selection": job.selection.provenance(),
        "extraction": job.extractor.provenance(),
    }
    refinement = {} if job.refiner is None else {"refinement": job.refiner.provenance()}
    report.provenance = provenance | refinement
    output = job.paths.main
    with (
        Journal(f"{output}.partial", "extraction", durable=False) as journal,
        Inputs(output.parent, job.split) as inputs,
    ):
        _take(job, inputs, report, progress)
        report.judge = None if job.refiner is None else Judge(inputs)
        tasks = _tasks(job, inputs, provenance, report)
        corpus = _corpus(job, inputs, progress)
        with (
            closing(_work(job, tasks, corpus, journal, report)) as done,
            progress("building", len(inputs), "problems") as advance,
        ):
            _write(done, job.refiner, job.on_error, report, advance)
        if isinstance(job.extractor, AsyncExtractor):
            report.usage = job.extractor.usage()
        journal.clear()
    report.seconds = time.perf_counter() - started
    return report


def _work(
    job: BuildJob,
    items: Iterator[BuildItem],
    corpus: Corpus,
    journal: Journal,
    report: BuildReport,
) -> Stream:
    """Yield the result of each item once its extraction is in the journal.

    The key of an extraction is a digest of all that the extractor was given, and its settings.
    """

    def key_of(item: BuildItem) -> str:
        assert item.record is not None, "only problems with a record are extracted"
        return digest([item.record.provenance["extraction"], item.record.inputs])

    def resumed() -> Iterator[BuildItem]:
        for item in items:
            row = None if item.excluded is not None else journal.get(key_of(item))
            if row is not None:
                report.resumed += 1
                extraction = EXTRACTION.validate_python(row)
                item = replace(item, rollouts=(), extraction=extraction)
            yield item

    def kept(stream: Stream) -> Iterator[BuildItem]:
        for item in stack.enter_context(closing(stream)):
            if item.extraction is not None and (key := key_of(item)) not in journal:
                journal.append(key, asdict(item.extraction))
            yield item

    with ExitStack() as stack:
        tasks, extractor = resumed(), job.extractor
        if isinstance(extractor, AsyncExtractor):
            tasks = kept(ask_model(tasks, extractor))
            stages = Stages(None, job.refiner, job.time_limit_s, corpus)
        else:
            stages = Stages(extractor, job.refiner, job.time_limit_s, corpus)
        if job.engine == "ray":
            yield from kept(work_on_ray(tasks, stages, job.paths.main.parent))
        else:
            yield from kept(work_here(tasks, stages, job.workers))


def add_budgets(job: BuildJob, progress: ProgressBar = no_progress) -> BuildReport:
    """Give the problems of a dataset budgets of the guard, and weights to nodes that have none.

    A problem without a correct rollout keeps its budget, and one with a weight keeps its weights.
    The metadata record what attacks earn.  Nothing else changes.

    Args:
        job: its ``problems`` are the dataset; writes ``paths.dataset``, without stages 2 and 3.

    Raises:
        InputError: an input or an output is bad, or no problem has a correct rollout.
    """
    if job.of_run:
        raise InputError(
            f"{job.rollouts[0]} is a training run: budgets are not made from the rollouts of the"
            " trained policy, because they would grow with what it learns to print"
        )
    dataset, output = job.problems, job.paths.main
    assert dataset is not None, "budgets are added to a dataset"
    started = time.perf_counter()
    job.paths.refuse_inputs(*job.rollouts, dataset)
    report = BuildReport(OutputPaths(output))
    report.budgets = 0
    with Inputs(output.parent) as inputs, quiet_readers():
        counts = _take(job, inputs, report, progress)
        counts.used = counts.correct
        if not counts.correct:
            raise InputError(
                "no problem of the dataset has a correct rollout, so no budget can be made"
            )
        judge = report.judge = Judge(inputs)
        with progress("weighing", len(inputs), "problems") as advance, open_writer(output) as out:
            for done, problem in enumerate(read_problems(dataset, job.on_error), 1):
                can_be_judged = problem.nodes and problem.ground_truth is not None
                right = judge.right_of(problem) if can_be_judged else []
                if right:
                    budget = budget_of(_stated(inputs, right), len(problem.nodes))
                    problem = judge.weigh(replace(problem, budget=budget))
                    report.budgets += 1
                report.problems.write(problem.data_source, len(problem.nodes))
                out.write(problem_to_row(problem))
                advance(done)
    report.digest = DatasetIndex.load(output, derive="stored").digest
    report.seconds = time.perf_counter() - started
    return report


def refine_candidates(
    candidates: Path,
    paths: OutputPaths,
    refiner: Refiner,
    *,
    on_error: OnError = "stop",
    workers: int = 1,
    progress: ProgressBar = no_progress,
) -> BuildReport:
    """Make a dataset from a file of candidates that a build wrote.

    Args:
        on_error: what a bad row does, and a problem that fails.
        workers: processes, 1 or more.

    Raises:
        InputError: an input or an output is bad, or no problem is left.
        ConsensusPRError: problems failed, or the work as a whole.
    """
    _check_workers(workers)
    started = time.perf_counter()
    paths.refuse_inputs(candidates)
    report, read = BuildReport(paths), ReadReport()
    report.provenance = {"refinement": refiner.provenance()}
    corpus = Corpus.of(
        (item.problem.problem_id, text)
        for item in read_candidates(candidates, on_error, ReadReport())
        if item.extraction is not None
        for texts in (
            *(found.expressions for found in item.extraction.candidates),
            *(found.expressions for found in item.extraction.dropped),
        )
        for text in texts
    )
    items = read_candidates(candidates, on_error, read)
    with (
        progress("refining", None, "problems") as advance,
        closing(work_here(items, Stages(None, refiner, corpus=corpus), workers)) as done,
    ):
        _write(done, refiner, on_error, report, advance)
    report.skipped_rows = read.skipped
    report.seconds = time.perf_counter() - started
    return report


def _take(
    job: BuildJob, inputs: Inputs, report: BuildReport, progress: ProgressBar
) -> RolloutCounts:
    """Read problems and rollouts of a build, and label the rollouts as correct or not.

    Raises:
        DataError: a file is bad.
        InputError: a model that is excluded or asked for wrote none of the rollouts, or no
            model is left, or the labels are to be trusted and no row has one.
    """
    if job.problems is not None:
        read = inputs.list_problems(
            job.problems, job.on_error, without_nodes=job.only_without_nodes
        )
        report.skipped_rows = read.skipped
    report.rollouts = counts = RolloutCounts()
    report.disagreements = inputs.disagreements
    with progress("reading", None, "rollouts") as advance:
        _read_rollouts(job, inputs, counts, advance)
    inputs.finish()
    if not job.selection.trust_labels:
        with AnswerVerifier(job.workers) as verifier:
            _verify(inputs, verifier, job.selection.answer_rule, progress)
    for number, item in inputs.items():
        rollouts = inputs.rollouts_of(number)
        counts.repeated += sum(rollout.repeats for rollout in rollouts)
        if item.excluded is not None or item.problem.ground_truth is None:
            counts.unusable_problem += len(rollouts)
        else:
            labels = [rollout.label for rollout in rollouts]
            counts.correct += labels.count(True)
            counts.incorrect += labels.count(False)
            counts.undecided += labels.count(None)
    return counts


def _read_rollouts(
    job: BuildJob, inputs: Inputs, counts: RolloutCounts, advance: Callable[[int], None]
) -> None:
    selection = job.selection
    models: set[str] = set()
    is_labelled = False
    for path in job.rollouts:
        report = ReadReport()
        for row in read_run(path) if job.of_run else read_rollouts(path, job.on_error, report):
            counts.read += 1
            if counts.read % 256 == 0:
                advance(counts.read)
            model = row.get("model") or ""
            models.add(model)
            is_labelled = is_labelled or row.get("correct") is not None
            if not selection.takes(model):
                counts.other_model += 1
            elif _is_oversize(row["response"]):
                counts.oversize += 1
            elif not inputs.add_row(row, _sampling(row)):
                counts.unknown_problem += 1
        counts.skipped += report.skipped
    advance(counts.read)
    for name in (*selection.exclude_models, *selection.only_models):
        if name not in models:  # a typing error would let a model in unnoticed
            shown = ", ".join(sorted(filter(None, models))) or "none"
            raise InputError(f"no rollout has the model {name!r}; the models are: {shown}")
    if counts.read and counts.other_model == counts.read:
        raise InputError(f"exclude_models and only_models leave out all {counts.read:,} rollouts")
    if selection.trust_labels and not is_labelled and not job.of_run:
        raise InputError(
            f"no row of {', '.join(map(str, job.rollouts))} has the column correct; leave out "
            "--trust-labels to verify the answers"
        )


def _is_oversize(response: str) -> bool:
    # No character takes more than four bytes: most need not be encoded.
    return 4 * len(response) > MAX_RESPONSE_BYTES and (
        len(response.encode("utf-8", "surrogatepass")) > MAX_RESPONSE_BYTES
    )


def _sampling(row: Row) -> str:
    """Return the sampling settings of a row as JSON text, empty if it has none."""
    nested = row.get("sampling")
    settings = dict(nested) if isinstance(nested, dict) else {}
    settings |= {name: row[name] for name in SAMPLING_COLUMNS if row.get(name) is not None}
    known = {name: value for name, value in sorted(settings.items()) if value is not None}
    return dump_json(known) if known else ""


_RUN_COLUMNS = (
    *("run", "step", "split", "group_id", "rollout_id", "problem_id", "data_source"),
    *("response", "ground_truth", "status", "acc"),
)


def read_run(folder: Path) -> Iterator[Row]:
    """Yield the training rollouts of a run whose text was kept, as rows of rollouts.

    A policy changes with each step, so that its **step** counts as the model of a rollout: models
    take turns, and two of them must state a conclusion.  Validation rollouts are left out, because
    a dataset made of them would spoil validation.

    Raises:
        InputError: the folder has no score log.
    """
    for batch in LogReader(folder, _RUN_COLUMNS).read():
        for row in batch.filter(pc.is_valid(batch.column("response"))).to_pylist():
            if row["split"] in VALIDATION_SPLITS:
                continue
            is_decided = row["acc"] is not None and row["status"] != Status.ANSWER_UNDECIDED
            # Some trainers do not give the step; a group belongs to one step.
            step = row["group_id"] if row["step"] is None else row["step"]
            names = ("problem_id", "rollout_id", "response", "ground_truth", "data_source")
            yield {
                **{name: row[name] for name in names},
                "model": "" if step is None else f"{row['run'] or 'run'} step {step}",
                "correct": row["acc"] == 1.0 if is_decided else None,
            }


def _verify(
    inputs: Inputs, verifier: AnswerVerifier, answer_rule: str | None, progress: ProgressBar
) -> None:
    """Label the rollouts of every problem that can be used by verifying their answers."""
    pairs = (
        (number, item.problem, rollout)
        for number, item in inputs.items()
        if item.excluded is None and item.problem.ground_truth is not None
        for rollout in inputs.rollouts_of(number)
    )
    done = 0
    with progress("verifying", None, "rollouts") as advance:
        # Many at a time, because the few that need computer algebra then overlap.
        for batch in batches(pairs, lambda pair: pair[2].num_bytes, *BATCH_LIMITS):
            by_rule: dict[str, list[tuple[int, Problem, DistinctRollout]]] = {}
            for number, problem, rollout in batch:
                rule = answer_rule or problem.answer_rule or "auto"
                by_rule.setdefault(rule, []).append((number, problem, rollout))
            for rule, same in by_rule.items():
                truths = [problem.ground_truth or "" for _, problem, _ in same]
                texts = [inputs.read(rollout.at).response for *_, rollout in same]
                verdicts = verify_patiently(verifier, truths, texts, rule)
                for (number, _, rollout), correct in zip(same, verdicts, strict=True):
                    inputs.label(number, rollout, correct)
            done += len(batch)
            advance(done)


def _tasks(
    job: BuildJob, inputs: Inputs, provenance: Row, report: BuildReport
) -> Iterator[BuildItem]:
    """Yield every problem in the order of the dataset, with its rollouts or its reason."""
    assert report.rollouts is not None, "the rollouts are read"
    for number, item in inputs.items():
        problem, rollouts = item.problem, inputs.rollouts_of(number)
        correct = [rollout for rollout in rollouts if rollout.label]
        excluded = item.excluded or _fault(job, problem, len(rollouts), correct)
        if excluded is not None:
            yield replace(item, excluded=excluded)
            continue
        chosen = choose(problem.problem_id, correct, job.selection)
        report.rollouts.used += len(chosen)
        stored = [inputs.read(rollout.at) for rollout in chosen]
        names = _unique_names([rollout.rollout_id for rollout in stored], chosen)
        described: list[Row] = []
        texts: list[CorrectRollout] = []
        for name, rollout, (_, sampling, response) in zip(names, chosen, stored, strict=True):
            settings = {"sampling": json.loads(sampling)} if sampling else {}
            described.append({"rollout_id": name, "model": rollout.model, **settings})
            texts.append(CorrectRollout(name, rollout.model, response))
        record = BuildRecord(
            len(correct),
            sum(rollout.label is False for rollout in rollouts),
            None if job.of_run else _stated(inputs, correct),
            tuple(described),
            inputs_digest(problem, chosen, names),
            provenance,
        )
        yield BuildItem(problem, record, tuple(texts))


def _corpus(job: BuildJob, inputs: Inputs, progress: ProgressBar) -> Corpus:
    """Return the equations of some right rollouts of each problem, or of many problems.

    Problems that are left out because they have nodes state what their nodes do.
    """
    if job.refiner is None:
        return Corpus()
    usable = [
        (number, item.problem.problem_id)
        for number, item in inputs.items()
        if item.excluded is None and item.problem.ground_truth is not None
    ]
    usable.sort(key=lambda one: order_of(one[1]))

    def texts() -> Iterator[tuple[str, str]]:
        num_read = 0
        with progress("comparing", min(len(usable), MAX_PROBLEMS), "problems") as advance:
            for number, problem_id in usable:
                correct = [rollout for rollout in inputs.rollouts_of(number) if rollout.label]
                chosen = choose(problem_id, correct, job.selection)[:ROLLOUTS_PER_PROBLEM]
                for rollout in chosen:
                    yield problem_id, inputs.read(rollout.at).response
                num_read += bool(chosen)
                advance(num_read)
                if num_read == MAX_PROBLEMS:
                    return

    def nodes() -> Iterator[tuple[str, str]]:
        if job.problems is not None and job.only_without_nodes:
            with quiet_readers():
                for problem in read_problems(job.problems, job.on_error):
                    for node in problem.nodes:
                        yield from ((problem.problem_id, text) for text in node.expressions)

    return Corpus.of(chain(texts(), nodes()))


def _fault(
    job: BuildJob, problem: Problem, num_rollouts: int, correct: Sequence[DistinctRollout]
) -> Excluded | None:
    """Return why a problem cannot be worked on, None if it can."""
    least = job.selection
    if problem.ground_truth is None:
        return Excluded(
            "select",
            "no_ground_truth",
            "add ground_truth to the rollouts, or give --problems FILE",
        )
    if not num_rollouts:
        return Excluded("select", "no_rollouts", "no rollout has its problem_id")
    if len(correct) < least.min_rollouts:
        counted = f"{len(correct)} of {num_rollouts} distinct rollouts are correct"
        detail = f"{counted}, at least {least.min_rollouts} are needed"
        return Excluded("select", "few_correct", detail)
    steps = len({rollout.model for rollout in correct})
    if job.of_run and steps < least.min_steps:
        counted = f"its {len(correct)} correct rollouts are of {count_of(steps, 'step')}"
        return Excluded(
            "select", "few_correct", f"{counted}, at least {least.min_steps} are needed"
        )
    return None


def _stated(inputs: Inputs, correct: Sequence[DistinctRollout]) -> Stated:
    """Return the most that a correct rollout states, one that is not compared included."""
    most = Stated()
    for texts in inputs.responses(correct):
        most = most.most(stated_in(texts))
    return most


def _unique_names(names: Sequence[str | None], chosen: Sequence[DistinctRollout]) -> list[str]:
    """Return a name for each rollout; one without, or with that of another, is named by text."""
    unique = []
    for name, rollout in zip(names, chosen, strict=True):
        mark = rollout.digest.hex()[:12]
        if not name:
            unique.append(mark)
        else:
            unique.append(name if names.count(name) == 1 else f"{name}#{mark}")
    return unique


def inputs_digest(problem: Problem, chosen: Sequence[DistinctRollout], names: Sequence[str]) -> str:
    """Return a digest of all that an extractor is given."""
    texts = [
        [name, rollout.model, rollout.digest.hex()]
        for name, rollout in zip(names, chosen, strict=True)
    ]
    given = [problem.problem_id, problem.problem, problem.ground_truth, texts]
    return "sha256:" + hashlib.sha256(json.dumps(given).encode("ascii")).hexdigest()


def _write(
    items: Iterable[BuildItem],
    refiner: Refiner | None,
    on_error: OnError,
    report: BuildReport,
    advance: Callable[[int], None],
) -> None:
    """Write and count the problems, and name the dataset that they make."""
    failed: list[str] = []
    with open_outputs(report, refiner) as outputs:
        for done, item in enumerate(items, start=1):
            excluded = item.excluded
            if on_error == "stop" and excluded is not None and excluded.reason == "failed":
                failed.append(f"problem {item.problem.problem_id[:80]!r}: {excluded.detail}")
                if len(failed) == MAX_FAILURES:
                    break
            outputs.take(item)
            advance(done)
        if failed:
            counted = count_of(len(failed), "problem")
            raise ConsensusPRError(
                f"{failed[0]} ({counted} failed; finished problems are kept: run the same command "
                "again to continue, or add --on-error skip to leave failed problems out)"
            )
    if report.paths.dataset is not None:
        # Every score with this dataset will carry the digest.
        report.digest = DatasetIndex.load(report.paths.dataset, derive="stored").digest
