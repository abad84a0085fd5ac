"""``consensusbench build``, ``extract``, ``refine`` and ``grow``: from rollouts to a dataset.

``build`` is ``extract`` and ``refine`` in one pass.  All share :class:`BuildSettings`, so
that one file of settings serves all.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Self, TypeAlias, TypeVar

import typer
from pydantic import Field

from consensusbench.construction import (
    BuildJob,
    BuildProgress,
    BuildReport,
    OutputPaths,
    SelectionSettings,
    refine_candidates,
)
from consensusbench.construction import build as run_build
from consensusbench.construction.growth import Growth, add_nodes
from consensusbench.construction.pipeline import Engine, add_budgets
from consensusbench.construction.types import DEFAULT_TIME_LIMIT_S, Split
from consensusbench.extraction.llm import LlmExtractor, LlmSettings
from consensusbench.extraction.refine import PaperRefiner, RefineSettings
from consensusbench.extraction.rules import RulesExtractor, RulesSettings
from consensusbench.extraction.types import AsyncExtractor, Extractor
from consensusbench.llm import Budget, ChatModel, ModelSettings, Reply
from consensusbench.store import Journal
from consensusbench.tables import Row, Table, number, words
from consensuspr.cli.options import Json, OnErrorChoice, TlsCa, TokenFile, with_settings
from consensuspr.client import Access
from consensuspr.console import ColorMode, count_of, count_progress, make_console, one_line
from consensuspr.data.writers import dump_json
from consensuspr.errors import InputError
from consensuspr.settings import Settings

PREFIX = "CONSENSUSBENCH_BUILD"

# Beside the output, and kept: it was paid for, and another run may need it.
JOURNAL_SUFFIX = ".journal"

NO_SOURCE = "(none)"

# What the reasons of excluded problems mean, as ends of "12 problems …".
REASONS = {
    "no_rollouts": "without a rollout",
    "no_ground_truth": "without a ground truth",
    "conflicting_rows": "whose rollouts say different things of them",
    "few_correct": "with too few correct rollouts",
    "few_nodes": "with too few nodes",
    "time_limit": "that took too long",
    "failed": "that failed",
}


class ExtractorChoice(StrEnum):
    """Who finds the conclusions that rollouts share."""

    RULES = "rules"
    LLM = "llm"


@dataclass(frozen=True, slots=True)
class AskedModel(ModelSettings):
    """The model of ``--extractor llm``, which may be left out.

    Attributes:
        model: name of the model that is asked.
        base_url: any OpenAI-compatible server, up to and with ``/v1``; OpenAI's where not set.
    """

    model: str = ""

    def __post_init__(self) -> None:
        if self.model:
            ModelSettings.__post_init__(self)


_GroupT = TypeVar("_GroupT", RefineSettings, RulesSettings, LlmSettings)


class BuildSettings(Settings):
    """How rollouts become nodes."""

    extractor: ExtractorChoice = Field(
        ExtractorChoice.RULES,
        description="Find shared conclusions by computation, or by asking a model.",
    )
    min_support: int | None = Field(
        None,
        ge=1,
        description="Rollouts that must reach a node, in every stage; where not set, each stage's "
        "own min_support, 2.",
    )
    split: Split | None = Field(
        None, description="Put this split into every row; where not set, that of the problems."
    )
    engine: Engine = Field(
        "local", description="Work on this machine, or on all cores of a Ray cluster."
    )
    workers: int | None = Field(
        None, description="Processes that work on problems; where not set, one a core."
    )
    time_limit: float = Field(
        DEFAULT_TIME_LIMIT_S,
        description="Leave out a problem that takes longer, in seconds of CPU time.",
    )
    on_error: OnErrorChoice = Field(
        OnErrorChoice.STOP,
        description="At a bad row or a problem that fails: stop with nothing written, or skip and "
        "count.",
    )
    max_cost: float | None = Field(
        None, description="Stop before more US dollars are spent, earlier runs included."
    )
    max_requests: int | None = Field(
        None, description="Stop before more is asked, earlier runs included."
    )
    no_progress: bool = Field(False, description="Show no progress bar.")
    color: ColorMode = Field(
        ColorMode.AUTO, description="When to colour; auto: on a terminal only."
    )
    selection: SelectionSettings = SelectionSettings()
    refine: RefineSettings = RefineSettings()
    rules: RulesSettings = RulesSettings()
    llm: LlmSettings = LlmSettings()
    model: AskedModel = AskedModel()

    def refiner(self) -> PaperRefiner:
        """Return stage 3."""
        return PaperRefiner(self.supported(self.refine))

    def num_workers(self) -> int:
        """Return how many processes work."""
        if self.engine == "ray" and self.workers is not None:
            raise InputError("--workers is for this machine; a Ray cluster has as many as cores")
        return len(os.sched_getaffinity(0)) if self.workers is None else self.workers

    def open_extractor(self, output: Path, stack: ExitStack) -> Extractor | AsyncExtractor:
        """Return stage 2; a model's replies are kept beside the output, and closed by the stack."""
        if self.extractor is ExtractorChoice.RULES:
            for_model = {"--model": self.model.model or None, "--max-cost": self.max_cost}
            for option, value in for_model.items():
                if value is not None:
                    raise InputError(f"{option} is for --extractor llm")
            return RulesExtractor(self.supported(self.rules))
        return self._by_model(output, stack)

    def supported(self, group: _GroupT) -> _GroupT:
        """Return settings of a stage with the support that is asked of every stage."""
        return group if self.min_support is None else replace(group, min_support=self.min_support)

    def _by_model(self, output: Path, stack: ExitStack) -> LlmExtractor:
        asked, settings = self.model, self.supported(self.llm)
        if not asked.model:
            raise InputError("--extractor llm needs --model NAME")
        if settings.temperature is not None:
            asked = replace(asked, temperature=settings.temperature)
        if self.max_cost is not None and not asked.is_priced:
            raise InputError("--max-cost needs --price-in and --price-out")
        budget = Budget(self.max_cost, self.max_requests)
        model = ChatModel(asked, budget)
        journal = Journal(Path(f"{output}{JOURNAL_SUFFIX}"), "extraction-replies")
        stack.callback(_close, journal)
        for _, record in journal.items():
            budget.charge_earlier(Reply.from_row(record))
        return LlmExtractor(model, settings, journal)


def _close(journal: Journal) -> None:
    is_empty = not len(journal)
    journal.close()
    if is_empty:
        journal.path.unlink(missing_ok=True)


def _file(help: str, shown_default: str | bool = False) -> Any:
    return typer.Option(metavar="FILE", show_default=shown_default, help=help)


RolloutsPaths: TypeAlias = Annotated[
    list[Path],
    typer.Argument(
        metavar="ROLLOUTS",
        show_default=False,
        help="Rollouts: JSONL, JSONL.gz or Parquet; or the folder of a training run.",
    ),
]
ProblemsPath: TypeAlias = Annotated[
    Path | None,
    _file(
        "Problems (consensusbench problems) with ground truth, text, split.",
        "what the rollouts say of their problems",
    ),
]
DatasetOutput: TypeAlias = Annotated[
    Path, _file("Dataset: .jsonl, .jsonl.gz or .parquet; appears complete or not at all.")
]
AuditPath: TypeAlias = Annotated[
    Path | None,
    _file("Every conclusion and problem that was left out, and why.", "OUTPUT with .audit.jsonl"),
]

_SELECTION = {
    "selection.rollouts_per_problem": "N|all",
    "selection.min_rollouts": "N",
    "selection.min_steps": "N",
    "selection.exclude_models": "NAME",
    "selection.trust_labels": None,
}
_EXTRACTION = {"extractor": None, "model.model": "NAME", "model.base_url": "URL"}
_REFINEMENT = {"refine.min_nodes": "N", "refine.max_nodes": "N", "refine.min_share": "SHARE"}
_WORK = {"engine": "local|ray", "workers": "N"}


@with_settings(
    BuildSettings,
    prefix=PREFIX,
    shown={**_SELECTION, **_EXTRACTION, **_REFINEMENT, **_WORK, "on_error": None},
)
def build(
    rollouts: RolloutsPaths,
    *,
    output: DatasetOutput,
    problems: ProblemsPath = None,
    audit: AuditPath = None,
    candidates: Annotated[
        Path | None, _file("Also write what consensusbench extract does.")
    ] = None,
    budgets: Annotated[
        Path | None,
        _file("Only add budgets of the guard, and weights of nodes, to this dataset."),
    ] = None,
    settings: BuildSettings,
    as_json: Json = False,
) -> None:
    """Make a dataset of consensus nodes from rollouts.

    ```text
    consensusbench build rollouts.jsonl --problems problems.jsonl --output dataset.jsonl
    consensusbench build a.jsonl b.jsonl.gz --exclude-model gpt-4o --output dataset.parquet
    consensusbench build rollouts.jsonl --extractor llm --model NAME --base-url URL --output d.jsonl
    consensusbench build rollouts.jsonl --budgets dataset.jsonl --output with-budgets.jsonl
    ```

    Of each problem, correct rollouts of several models are compared; conclusions that at least two
    of them reach become its nodes. With them goes a budget of the guard: what a right rollout
    states at most, half as much again; and where there are wrong rollouts, a weight for each node
    (`ncr=weighted`): the share of right rollouts that reach it less that of wrong ones. Whatever is
    left out stands in the audit with its reason. Killed at any moment, the same command goes on
    where it was; `docs/build-datasets.md` tells the rest.
    """
    if budgets is not None:
        for option, given in {
            "--problems": problems, "--audit": audit, "--candidates": candidates,
        }.items():  # fmt: skip
            if given is not None:
                raise InputError(f"{option} has no use with --budgets, which makes no nodes")
        _build(rollouts, budgets, OutputPaths(output), None, settings, as_json, budgets=True)
        return
    paths = OutputPaths(output, audit or audit_path(output), candidates)
    _build(rollouts, problems, paths, settings.refiner(), settings, as_json)


@with_settings(
    BuildSettings,
    prefix=PREFIX,
    shown={**_SELECTION, **_EXTRACTION, **_WORK, "on_error": None},
    # An option means the same in all three; the model's own maximum is another.
    unused=("refine", "llm.max_nodes"),
)
def extract(
    rollouts: RolloutsPaths,
    *,
    output: Annotated[
        Path, _file("Candidates: .jsonl, .jsonl.gz or .parquet; appears complete or not at all.")
    ],
    problems: ProblemsPath = None,
    settings: BuildSettings,
    as_json: Json = False,
) -> None:
    """Find the conclusions that correct rollouts share: candidates for nodes.

    ```text
    consensusbench extract rollouts.jsonl --problems problems.jsonl --output candidates.jsonl
    consensusbench refine candidates.jsonl --output dataset.jsonl
    ```

    The first half of `consensusbench build`. `consensusbench refine` makes a dataset of them, again
    and again with other thresholds, and without asking a model again.
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
    output = paths.dataset or paths.candidates
    assert output is not None, "a build writes something"
    workers = settings.num_workers()
    with ExitStack() as stack:
        job = BuildJob(
            tuple(rollouts),
            paths,
            settings.open_extractor(output, stack),
            refiner,
            problems,
            settings.split,
            settings.selection,
            settings.on_error.value,
            settings.engine,
            workers,
            settings.time_limit,
        )
        progress = stack.enter_context(TerminalProgress(settings.no_progress))
        report = add_budgets(job, progress) if budgets else run_build(job, progress)
    print_report(report, as_json, settings.color)


@with_settings(
    BuildSettings,
    prefix=PREFIX,
    shown={"min_support": "N", **_REFINEMENT, "workers": "N", "on_error": None},
    unused=(
        *("extractor", "split", "engine", "time_limit", "max_cost", "max_requests"),
        *("selection", "rules", "llm", "model"),
    ),
)
def refine(
    candidates: Annotated[
        Path,
        typer.Argument(
            metavar="CANDIDATES", show_default=False, help="What consensusbench extract wrote."
        ),
    ],
    *,
    output: DatasetOutput,
    audit: AuditPath = None,
    settings: BuildSettings,
    as_json: Json = False,
) -> None:
    """Choose the nodes of a dataset among candidates.

    ```text
    consensusbench refine candidates.jsonl --max-nodes 8 --output dataset.jsonl
    ```

    Drops what restates the problem, what any solution would hold, and what another node implies,
    and keeps the rest in order. Whatever is left out stands in the audit with its reason. With the
    same thresholds the nodes are those of `consensusbench build`; their weights take the rollouts
    (`consensusbench build ROLLOUTS --budgets DATASET`).
    """
    # The candidates are worked on here, wherever they were made.
    workers = settings.model_copy(update={"engine": "local"}).num_workers()
    with TerminalProgress(settings.no_progress, reading=False) as progress:
        report = refine_candidates(
            candidates,
            OutputPaths(output, audit or audit_path(output)),
            settings.refiner(),
            on_error=settings.on_error.value,
            workers=workers,
            progress=progress,
        )
    print_report(report, as_json, settings.color)


@with_settings(
    BuildSettings,
    prefix=PREFIX,
    shown={
        **{f"selection.{name}": "N" for name in ("rollouts_per_problem", "min_rollouts")},
        "selection.min_steps": "N",
        **_REFINEMENT,
    },
    unused=(
        *("extractor", "split", "engine", "workers", "on_error", "no_progress", "color"),
        *("max_cost", "max_requests", "llm", "model", "selection.answer_rule"),
        *("selection.trust_labels", "selection.exclude_models", "selection.only_models"),
    ),
)
def grow(
    run: Annotated[
        Path,
        typer.Argument(metavar="RUN", show_default=False, help="Folder with the run's score log."),
    ],
    *,
    dataset: Annotated[
        Path,
        _file("Dataset that the run began with; its problems need no nodes, and those stay."),
    ],
    output: Annotated[
        Path | None, _file("Make the dataset once, as this file: .jsonl, .jsonl.gz or .parquet.")
    ] = None,
    address: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            show_default=False,
            help="Keep on beside the run, and have this server serve what is ready.",
        ),
    ] = None,
    token_file: TokenFile = None,
    tls_ca: TlsCa = None,
    settings: BuildSettings,
) -> None:
    """Give nodes to problems of a dataset from the right rollouts of a training run.

    ```text
    consensusbench grow RUN --dataset problems.jsonl --output grown.jsonl
    consensusbench grow RUN --dataset problems.jsonl --address 127.0.0.1:50051
    ```

    Nodes that a problem has stay, and so does every problem without. With `--address` it goes on
    until it is stopped, on one core and with the least priority: what is ready is in `RUN/nodes`,
    and rewards the next epoch of trainings whose `grown_nodes` is that folder. `consensuspr launch
    --grow-nodes` does all of it.
    """
    if (output is None) == (address is None):
        raise InputError("give --output FILE to do it once, or --address HOST:PORT to keep on")
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
    with Growth(job, address, Access(token_file, tls_ca), _say) as growth:
        ready = growth.begin()
        have = f"{ready.with_nodes:,} of {count_of(ready.problems, 'problem')} have nodes"
        print(f"growing in {growth.folder}: {have}", flush=True)
        signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(0))
        growth.keep_on()


def _say(sentence: str) -> None:
    typer.echo(one_line(sentence, 2000), err=True)


def audit_path(output: Path) -> Path:
    """Return where the audit of a dataset lies unless somebody says otherwise."""
    name = output.name.removesuffix(".gz")
    return output.with_name(f"{Path(name).stem}.audit.jsonl")


class TerminalProgress(BuildProgress):
    """Shows bars on standard error, one after the other; notes where they are hidden too."""

    def __init__(self, hidden: bool, *, reading: bool = True) -> None:
        self._hidden = hidden
        self._reading = reading
        self._stack = ExitStack()
        self._advance_to: Callable[[int], None] = lambda done: None

    def __enter__(self) -> Self:
        if self._reading:
            self._show("reading", None, "rollouts")
        return self

    def __exit__(self, *exception: object) -> None:
        self._stack.close()

    def read(self, rollouts: int) -> None:
        self._advance_to(rollouts)

    def begin(self, problems: int | None) -> None:
        self._stack.close()
        self._show("building", problems, "problems")

    def work(self, problems: int) -> None:
        self._advance_to(problems)

    def note(self, sentence: str) -> None:
        typer.echo(sentence, err=True)

    def _show(self, what: str, total: int | None, unit: str) -> None:
        self._advance_to = self._stack.enter_context(
            count_progress(what, total, unit, hidden=self._hidden)
        )


def print_report(report: BuildReport, as_json: bool, color: ColorMode) -> None:
    """Print what a build did, as JSON or for a person."""
    if as_json:
        print(dump_json(report.to_json(), ensure_ascii=True))
        return
    console = make_console(color)
    console.print(_sources_table(report).to_terminal(console.width))
    if report.problems.dropped:
        console.print()
        console.print(_dropped_table(report).to_terminal(console.width))
    console.print()
    warnings = [*_excluded(report), *report.warnings()]
    for sentences, style in ((_rollouts(report), ""), (warnings, "yellow"), (_end(report), "")):
        for sentence in sentences:
            console.print(sentence, style=style, markup=False, soft_wrap=True)


def _sources_table(report: BuildReport) -> Table:
    counts = report.problems
    what = "Nodes" if report.paths.dataset is not None else "Candidates"
    columns = [words("Data source"), number("Problems"), number(what)]
    columns.append(number(f"{what} a problem", decimals=2))
    sources: list[Row] = [
        (source or NO_SOURCE, problems, counts.nodes[source], counts.nodes[source] / problems)
        for source, problems in sorted(counts.written.items())
    ]
    problems, nodes = counts.written.total(), counts.nodes.total()
    total: list[Row] = [("all", problems, nodes, nodes / problems)]
    return Table("", columns, [sources, *([total] if len(sources) > 1 else [])], bold=1)


def _dropped_table(report: BuildReport) -> Table:
    dropped = report.problems.dropped.items()
    rows: list[Row] = [
        (stage, reason.replace("_", " "), count)
        for (stage, reason), count in sorted(dropped, key=lambda item: (item[0][0], -item[1]))
    ]
    return Table("", [words("Dropped by"), words("Reason"), number("Conclusions")], [rows])


def _rollouts(report: BuildReport) -> Iterator[str]:
    counts = report.rollouts
    if counts is not None:
        others = {
            "not correct": counts.incorrect,
            "undecided": counts.undecided,
            "repeated": counts.repeated,
            "of other models": counts.other_model,
            "of unknown problems": counts.unknown_problem,
            "of problems that cannot be used": counts.unusable_problem,
            "longer than 1 MiB": counts.oversize,
        }
        rest = "".join(f", {count:,} {what}" for what, count in others.items() if count)
        read = count_of(counts.read, "rollout")
        yield f"{read}: {counts.correct:,} correct, {counts.used:,} of them looked at{rest}"


def _excluded(report: BuildReport) -> Iterator[str]:
    counts = report.problems
    for reason, count in counts.excluded.most_common():
        who = f"{count_of(count, 'problem')} {REASONS[reason]}"
        yield f"left out: {who} (first: {one_line(counts.examples[reason], 160)})"


def _end(report: BuildReport) -> Iterator[str]:
    counts, paths, judge = report.problems, report.paths, report.judge
    resumed = f", {report.resumed:,} of them extracted by an earlier run" if report.resumed else ""
    yield f"{count_of(counts.total, 'problem')} in {report.seconds:.1f} s{resumed}"
    if paths.candidates is not None:
        yield f"{paths.candidates}: candidates"
    if paths.audit is not None:
        yield f"{paths.audit}: what was left out, and why"
    if judge is not None:
        yield judge.separation.sentence()
    if paths.dataset is not None:
        made = "" if report.budgets is None else f", {report.budgets:,} of them with a new budget"
        if judge is not None and judge.weighted:
            made += f", {judge.weighted:,} of them with new weights"
        written = count_of(counts.written.total(), "problem")
        yield f"{paths.dataset}: {written}{made}, digest {report.digest}"
