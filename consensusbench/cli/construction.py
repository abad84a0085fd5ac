"""``consensusbench build``, ``extract``, ``refine`` and ``grow``: from rollouts to a dataset.

``build`` is ``extract`` and ``refine`` in one pass.  All share :class:`BuildSettings`, so
that one file of settings serves all.
"""

from __future__ import annotations

import functools
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, TypeAlias, TypeVar

import typer
from pydantic import Field

from consensusbench.cli.options import file_argument, file_option
from consensusbench.construction import (
    BuildJob,
    BuildReport,
    OutputPaths,
    SelectionSettings,
    refine_candidates,
)
from consensusbench.construction import build as run_build
from consensusbench.construction.growth import Growth, add_nodes
from consensusbench.construction.pipeline import Engine, add_budgets
from consensusbench.construction.types import DEFAULT_TIME_LIMIT_S, REASON_WORDS, Split
from consensusbench.extraction.llm import LlmExtractor, LlmSettings
from consensusbench.extraction.refine import PaperRefiner, RefineSettings
from consensusbench.extraction.rules import RulesExtractor, RulesSettings
from consensusbench.extraction.types import AsyncExtractor, Extractor
from consensusbench.llm import Budget, ChatModel, ModelSettings, Reply
from consensusbench.store import Journal
from consensusbench.tables import Row, Table, number, print_result, words
from consensuspr.cli.options import (
    COLOR,
    NO_PROGRESS,
    Json,
    OnErrorChoice,
    TlsCa,
    TokenFile,
    more_option,
    with_settings,
)
from consensuspr.client import Access
from consensuspr.console import ColorMode, count_of, count_progress, make_console, one_line
from consensuspr.data.writers import dump_json
from consensuspr.errors import InputError
from consensuspr.settings import Settings

PREFIX = "CONSENSUSBENCH_BUILD"


class ExtractorChoice(StrEnum):
    """Who finds the conclusions that rollouts share."""

    RULES = "rules"
    LLM = "llm"


_StageT = TypeVar("_StageT", RefineSettings, RulesSettings, LlmSettings)


class BuildSettings(Settings):
    """How rollouts become nodes."""

    extractor: ExtractorChoice = Field(
        ExtractorChoice.RULES,
        description="Extract conclusions by rules, or by asking a model (llm).",
    )
    min_support: int | None = Field(
        None,
        ge=1,
        description="Rollouts that must reach a node, in every stage. Default: the min_support of "
        "each stage.",
    )
    split: Split | None = Field(
        None, description="Split to write into every row. Default: the split of the problems."
    )
    engine: Engine = Field(
        "local", description="Work on this machine, or on all cores of a Ray cluster."
    )
    workers: int | None = Field(None, description="Worker processes. Default: one per core.")
    time_limit: float = Field(
        DEFAULT_TIME_LIMIT_S,
        description="Seconds of CPU time for a problem; slower problems are left out.",
    )
    on_error: OnErrorChoice = Field(
        OnErrorChoice.STOP,
        description="At a bad row or a failed problem: stop and write nothing, or skip and count "
        "it.",
    )
    max_cost: float | None = Field(
        None, description="US dollars to spend at most, in all runs together."
    )
    max_requests: int | None = Field(
        None, description="Requests to send at most, in all runs together."
    )
    no_progress: bool = Field(False, description=NO_PROGRESS)
    color: ColorMode = Field(ColorMode.AUTO, description=COLOR)
    selection: SelectionSettings = SelectionSettings()
    refine: RefineSettings = RefineSettings()
    rules: RulesSettings = RulesSettings()
    llm: LlmSettings = LlmSettings()
    model: ModelSettings = ModelSettings()

    def refiner(self) -> PaperRefiner:
        """Return stage 3."""
        return PaperRefiner(self.supported(self.refine))

    def supported(self, stage: _StageT) -> _StageT:
        """Return the settings of a stage with the support that is asked of every stage."""
        return stage if self.min_support is None else replace(stage, min_support=self.min_support)

    def num_workers(self) -> int:
        """Return how many processes work."""
        if self.engine == "ray" and self.workers is not None:
            raise InputError(
                "--workers has no effect on a Ray cluster, which uses all of its cores"
            )
        return len(os.sched_getaffinity(0)) if self.workers is None else self.workers

    def open_extractor(self, output: Path, stack: ExitStack) -> Extractor | AsyncExtractor:
        """Return stage 2; a model's replies are kept beside the output, for another run too."""
        model, llm = self.model, self.supported(self.llm)
        if self.extractor is ExtractorChoice.RULES:
            for option, value in {"--model": model.model, "--max-cost": self.max_cost}.items():
                if value:
                    raise InputError(f"{option} needs --extractor llm")
            return RulesExtractor(self.supported(self.rules))
        if not model.model:
            raise InputError("--extractor llm needs --model NAME")
        if llm.temperature is not None:
            model = replace(model, temperature=llm.temperature)
        if self.max_cost is not None and not model.is_priced:
            raise InputError("--max-cost needs --price-in and --price-out")
        budget = Budget(self.max_cost, self.max_requests)
        chat = ChatModel(model, budget)
        journal = stack.enter_context(Journal(f"{output}.journal", "extraction-replies"))
        for _, record in journal.items():
            budget.charge_earlier(Reply.from_row(record))
        return LlmExtractor(chat, llm, journal)


RolloutsPaths: TypeAlias = Annotated[
    list[Path],
    file_argument(
        "ROLLOUTS", "Files of rollouts: JSONL, JSONL.gz or Parquet; or the folder of a run."
    ),
]
ProblemsPath: TypeAlias = Annotated[
    Path | None,
    file_option("File of problems: ground truth, text, split. Default: columns of the rollouts."),
]
DatasetOutput: TypeAlias = Annotated[
    Path, file_option("Dataset to write: .jsonl, .jsonl.gz or .parquet.")
]
AuditPath: TypeAlias = Annotated[
    Path | None,
    more_option(
        "FILE", "File for all that was left out, with the reason. [default: OUTPUT.audit.jsonl]"
    ),
]

_EXTRACTION = {
    "selection.exclude_models": "NAME",
    "selection.min_rollouts": "N",
    "extractor": None,
    "model.model": "NAME",
    "model.base_url": "URL",
}
_REFINEMENT = {"refine.max_nodes": "N", "refine.min_share": "SHARE"}
_MORE_EXTRACTION = {
    "selection.rollouts_per_problem": "N",
    "selection.min_steps": "N",
    "selection.trust_labels": None,
}
_WORK = {"engine": "local|ray", "workers": "N", "on_error": None}


@with_settings(
    BuildSettings,
    prefix=PREFIX,
    shown={**_EXTRACTION, **_REFINEMENT},
    more={"refine.min_nodes": "N", **_MORE_EXTRACTION, **_WORK},
)
def build(
    rollouts: RolloutsPaths,
    *,
    output: DatasetOutput,
    problems: ProblemsPath = None,
    audit: AuditPath = None,
    candidates: Annotated[
        Path | None, more_option("FILE", "Also write the candidates, as `extract` does.")
    ] = None,
    budgets: Annotated[
        Path | None,
        more_option("FILE", "Dataset that gets budgets and weights; no nodes are built."),
    ] = None,
    settings: BuildSettings,
    as_json: Json = False,
) -> None:
    """Build a dataset with nodes from rollouts.

    ```text
    consensusbench build rollouts.jsonl --output dataset.jsonl
    consensusbench build a.jsonl b.jsonl.gz --problems problems.jsonl --output dataset.parquet
    consensusbench build rollouts.jsonl --extractor llm --model NAME --base-url URL --output d.jsonl
    consensusbench build rollouts.jsonl --budgets dataset.jsonl --output with-budgets.jsonl
    ```

    Compares the correct rollouts of each problem. Conclusions that several of them reach become its
    nodes. Each problem also gets a budget for the guard: 1.5 times the most that a correct rollout
    states, at least 4 results of calculations and 2 more per node, and 12 numbers and 3 more per
    node. If a problem has wrong rollouts, its nodes get weights for `--ncr weighted`.

    Rollouts of several models give better nodes. If the command stops, run it again: it goes on
    where it stopped. See the page "Build nodes".
    """
    if budgets is not None:
        given = {"--problems": problems, "--audit": audit, "--candidates": candidates}
        for option, path in given.items():
            if path is not None:
                raise InputError(f"{option} has no effect with --budgets, which makes no nodes")
        _build(rollouts, budgets, OutputPaths(output), None, settings, as_json, budgets=True)
        return
    paths = _with_audit(output, audit, candidates)
    _build(rollouts, problems, paths, settings.refiner(), settings, as_json)


@with_settings(
    BuildSettings,
    prefix=PREFIX,
    shown=_EXTRACTION,
    more={**_MORE_EXTRACTION, **_WORK},
    # An option means the same in all three; the model's own maximum is another.
    unused=("refine", "llm.max_nodes"),
)
def extract(
    rollouts: RolloutsPaths,
    *,
    output: Annotated[
        Path,
        file_option("Candidates to write: .jsonl, .jsonl.gz or .parquet."),
    ],
    problems: ProblemsPath = None,
    settings: BuildSettings,
    as_json: Json = False,
) -> None:
    """Extract the conclusions that correct rollouts share.

    ```text
    consensusbench extract rollouts.jsonl --problems problems.jsonl --output candidates.jsonl
    consensusbench refine candidates.jsonl --output dataset.jsonl
    ```

    This is the first half of `consensusbench build`. `consensusbench refine` is the second: run it
    with other thresholds as often as you like, without asking a model again.
    """
    _build(rollouts, problems, OutputPaths(candidates=output), None, settings, as_json)


def _build(
    rollouts: list[Path],
    problems: Path | None,
    paths: OutputPaths,
    refiner: PaperRefiner | None,
    settings: BuildSettings,
    as_json: bool,
    budgets: bool = False,
) -> None:
    with ExitStack() as stack:
        job = BuildJob(
            tuple(rollouts),
            paths,
            settings.open_extractor(paths.main, stack),
            refiner,
            problems,
            split=settings.split,
            selection=settings.selection,
            on_error=settings.on_error.value,
            engine=settings.engine,
            workers=settings.num_workers(),
            time_limit_s=settings.time_limit,
        )
        progress = functools.partial(count_progress, hidden=settings.no_progress)
        try:
            report = (add_budgets if budgets else run_build)(job, progress)
        except KeyboardInterrupt:
            typer.echo(
                "finished problems are kept; run the same command again to continue", err=True
            )
            raise
    print_report(report, as_json, settings.color)


@with_settings(
    BuildSettings,
    prefix=PREFIX,
    shown={"refine.min_nodes": "N", **_REFINEMENT, "min_support": "N"},
    more={"workers": "N", "on_error": None},
    unused=(
        *("extractor", "split", "engine", "time_limit", "max_cost", "max_requests"),
        *("selection", "rules", "llm", "model"),
    ),
)
def refine(
    candidates: Annotated[
        Path, file_argument("CANDIDATES", "File of candidates by consensusbench extract.")
    ],
    *,
    output: DatasetOutput,
    audit: AuditPath = None,
    settings: BuildSettings,
    as_json: Json = False,
) -> None:
    """Choose nodes among candidates and write a dataset.

    ```text
    consensusbench refine candidates.jsonl --max-nodes 8 --output dataset.jsonl
    ```

    Drops candidates that restate the problem, that any solution would have, or that another node
    implies. The audit lists them with the reason. For budgets and weights, run `consensusbench
    build ROLLOUTS --budgets DATASET` afterwards.
    """
    report = refine_candidates(
        candidates,
        _with_audit(output, audit),
        settings.refiner(),
        on_error=settings.on_error.value,
        # The candidates are refined here, wherever they were made.
        workers=settings.model_copy(update={"engine": "local"}).num_workers(),
        progress=functools.partial(count_progress, hidden=settings.no_progress),
    )
    print_report(report, as_json, settings.color)


@with_settings(
    BuildSettings,
    prefix=PREFIX,
    shown={"selection.min_rollouts": "N", "selection.min_steps": "N"},
    more={"selection.rollouts_per_problem": "N", "refine.min_nodes": "N", **_REFINEMENT},
    unused=(
        *("extractor", "split", "engine", "workers", "on_error", "no_progress", "color"),
        *("max_cost", "max_requests", "llm", "model", "selection.answer_rule"),
        *("selection.trust_labels", "selection.exclude_models", "selection.only_models"),
    ),
)
def grow(
    run: Annotated[Path, file_argument("RUN", "Folder of a run with a score log.")],
    *,
    dataset: Annotated[
        Path,
        file_option("Dataset that the run began with; its problems may have nodes or not."),
    ],
    output: Annotated[
        Path | None,
        file_option("Dataset to write once: .jsonl, .jsonl.gz or .parquet."),
    ] = None,
    address: Annotated[
        str | None,
        file_option("Server that gets new datasets during the run.", "HOST:PORT"),
    ] = None,
    token_file: TokenFile = None,
    tls_ca: TlsCa = None,
    settings: BuildSettings,
) -> None:
    """Add nodes to a dataset from the correct rollouts of a training run.

    ```text
    consensusbench grow RUN --dataset problems.jsonl --output grown.jsonl
    consensusbench grow RUN --dataset problems.jsonl --address 127.0.0.1:50051
    ```

    Existing nodes and problems stay. With `--address`, the command runs until you stop it, on one
    core with low priority. It writes datasets to `RUN/nodes`; a trainer with the setting
    `grown_nodes` uses the newest from the next epoch on. `consensuspr launch --grow-nodes` does all
    this for you.
    """
    if (output is None) == (address is None):
        raise InputError("set --output FILE to build once, or --address HOST:PORT to keep building")
    if not run.is_dir() and address is None:
        raise InputError(f"{run}: no such folder")
    extractor = RulesExtractor(settings.supported(settings.rules))
    job = BuildJob(
        (run,),
        OutputPaths(output),
        extractor,
        settings.refiner(),
        dataset,
        selection=settings.selection,
        on_error="skip",
        time_limit_s=settings.time_limit,
    )
    if output is not None:
        typer.echo(f"{output}: {add_nodes(job).sentence()}")
        return
    assert address is not None, "one of the two is given"
    with Growth(job, address, Access(token_file, tls_ca), _report) as growth:
        ready = growth.begin()
        have = f"{ready.with_nodes:,} of {count_of(ready.problems, 'problem')} have nodes"
        print(f"growing nodes in {growth.folder}: {have}", flush=True)
        signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(0))
        growth.keep_on()


def _report(sentence: str) -> None:
    typer.echo(one_line(sentence, 2000), err=True)


def _with_audit(output: Path, audit: Path | None, candidates: Path | None = None) -> OutputPaths:
    name = Path(output.name.removesuffix(".gz")).stem
    return OutputPaths(output, audit or output.with_name(f"{name}.audit.jsonl"), candidates)


def print_report(report: BuildReport, as_json: bool, color: ColorMode) -> None:
    """Print the result of a build, as JSON or as tables."""
    if as_json:
        print(dump_json(report.to_json(), ensure_ascii=True))
        return
    counts = report.problems
    noun = "Nodes" if report.paths.dataset is not None else "Candidates"
    columns = [words("Data source"), number("Problems"), number(noun)]
    columns.append(number(f"{noun} a problem", decimals=2))
    sources: list[Row] = [
        (source or "(none)", problems, counts.nodes[source], counts.nodes[source] / problems)
        for source, problems in sorted(counts.written.items())
    ]
    problems, nodes = counts.written.total(), counts.nodes.total()
    total: list[list[Row]] = [[("all", problems, nodes, nodes / problems)]]
    tables = [Table("", columns, [sources, *(total if len(sources) > 1 else [])], bold=1)]
    if counts.dropped:
        by_reason: list[Row] = [
            (stage, reason.replace("_", " "), count)
            for (stage, reason), count in sorted(
                counts.dropped.items(), key=lambda item: (item[0][0], -item[1])
            )
        ]
        columns = [words("Dropped by"), words("Reason"), number("Conclusions")]
        tables.append(Table("", columns, [by_reason]))
    print_result(make_console(color), tables, _notes(report))


def _notes(report: BuildReport) -> Iterator[str]:
    counts, paths, judge = report.problems, report.paths, report.judge
    if (rollouts := report.rollouts) is not None:
        not_used = {
            "not correct": rollouts.incorrect,
            "undecided": rollouts.undecided,
            "repeated": rollouts.repeated,
            "of other models": rollouts.other_model,
            "of unknown problems": rollouts.unknown_problem,
            "of problems that cannot be used": rollouts.unusable_problem,
            "longer than 1 MiB": rollouts.oversize,
        }
        tail = "".join(f", {count:,} {why}" for why, count in not_used.items() if count)
        read = count_of(rollouts.read, "rollout")
        yield f"{read}: {rollouts.correct:,} correct{tail}; {rollouts.used:,} correct ones compared"
    for reason, count in counts.excluded.most_common():
        first = one_line(counts.excluded.examples[reason], 160)
        yield f"left out: {count_of(count, 'problem')} {REASON_WORDS[reason]} (first: {first})"
    yield from report.warnings()
    if (usage := report.usage) is not None:
        cost = "" if usage["cost"] is None else f", ${usage['cost']:,.2f}"
        yield (
            f"{usage['model']}: {count_of(usage['requests'], 'reply', 'replies')}, "
            f"{usage['prompt_tokens']:,} tokens in, {usage['completion_tokens']:,} out{cost}, "
            "including earlier runs"
        )
        for problem_id, reason in usage["refused"].items():
            yield f"refused: {problem_id!r}: {one_line(reason, 160)}"
    resumed = f", {report.resumed:,} of them extracted by an earlier run" if report.resumed else ""
    written = counts.written.total()
    read = count_of(written + counts.excluded.total(), "problem")
    yield f"{read} in {report.seconds:.1f} s{resumed}"
    if paths.candidates is not None:
        yield f"{paths.candidates}: candidates"
    if paths.audit is not None:
        yield f"{paths.audit}: conclusions and problems that were left out, with reasons"
    if judge is not None:
        yield judge.sentence()
    if paths.dataset is not None:
        made = "" if report.budgets is None else f", {report.budgets:,} with a new budget"
        if judge is not None and judge.weighted:
            made += f", {judge.weighted:,} with new weights"
        yield f"{paths.dataset}: {count_of(written, 'problem')}{made}, digest {report.digest}"
