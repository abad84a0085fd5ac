"""Options that the commands of construction share, each described once."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Annotated, Self, TypeAlias

import typer
from rich.table import Table
from rich.text import Text

from consensusbench.construction import (
    AsyncExtraction,
    BuildReport,
    Job,
    Means,
    OutputPaths,
    Progress,
    Refiner,
    SelectionSettings,
    Source,
    build,
    refine_candidates,
)
from consensusbench.construction import build as run_build
from consensusbench.construction.types import DEFAULT_TIME_LIMIT_S
from consensusbench.extraction.types import AsyncExtractor, Extractor
from consensuspr.cli.options import Color, Json, OnErrorChoice
from consensuspr.console import ColorMode, NoProgress, count_progress, make_console, one_line
from consensuspr.data.writers import dump_json
from consensuspr.errors import InputError
from consensuspr.scoring.types import AnswerRule

if TYPE_CHECKING:
    from consensusbench.llm import Journal


class ExtractorChoice(StrEnum):
    """Who finds the conclusions that rollouts share."""

    RULES = "rules"
    LLM = "llm"


class EngineChoice(StrEnum):
    """Where problems are worked on."""

    LOCAL = "local"
    RAY = "ray"


class SplitChoice(StrEnum):
    """What a dataset is for."""

    TRAIN = "train"
    TEST = "test"


class StructuredChoice(StrEnum):
    """Whether a model is held to the JSON schema of the reply."""

    AUTO = "auto"
    JSON_SCHEMA = "json_schema"
    OFF = "off"


_MODEL = "Model (llm)"

RolloutsPaths: TypeAlias = Annotated[
    list[Path],
    typer.Argument(
        metavar="ROLLOUTS", show_default=False, help="Rollouts: JSONL, JSONL.gz or Parquet."
    ),
]
ProblemsPath: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        show_default="what the rollouts say of their problems",
        help="Problems (consensusbench problems) with ground truth, text, split.",
    ),
]
CandidatesPath: TypeAlias = Annotated[
    Path,
    typer.Argument(
        metavar="CANDIDATES", show_default=False, help="What consensusbench extract wrote."
    ),
]
AuditPath: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        show_default="OUTPUT with .audit.jsonl",
        help="Every conclusion and problem that was left out, and why.",
    ),
]
Split: TypeAlias = Annotated[
    SplitChoice | None,
    typer.Option(show_default="that of the problems", help="Put this split into every row."),
]
RolloutsPerProblem: TypeAlias = Annotated[
    str,
    typer.Option(
        metavar="N|all", help="Correct rollouts of a problem to look at, over all models (N)."
    ),
]
MinRollouts: TypeAlias = Annotated[
    int,
    typer.Option(metavar="N", help="Leave out problems with fewer correct rollouts (N_min)."),
]
ExcludeModel: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME",
        show_default=False,
        help="Leave out a model's rollouts, to evaluate it later; repeat it for several.",
    ),
]
OnlyModel: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME", show_default=False, help="Take this model's rollouts only; may be repeated."
    ),
]
TrustLabels: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--trust-labels", help="Take the column correct instead of verifying the answers."
    ),
]
Seed: TypeAlias = Annotated[int, typer.Option(help="Another seed, another choice of rollouts.")]
AnswerRuleChoice: TypeAlias = Annotated[
    AnswerRule | None,
    typer.Option(
        show_default="the problem's own, else auto", help="How the final answer is found."
    ),
]
ExtractorOption: TypeAlias = Annotated[
    ExtractorChoice,
    typer.Option(help="Find shared conclusions by computation, or by asking a model."),
]
MinNodes: TypeAlias = Annotated[
    int, typer.Option(min=1, metavar="N", help="Leave out problems with fewer nodes.")
]
MaxNodes: TypeAlias = Annotated[
    int, typer.Option(min=1, metavar="N", help="Nodes of a problem at most.")
]
MinSupport: TypeAlias = Annotated[
    int, typer.Option(min=1, metavar="N", help="Rollouts that must reach a node.")
]
MinShare: TypeAlias = Annotated[
    float,
    typer.Option(metavar="SHARE", help="Share of the rollouts that must reach a node, 0 to 1."),
]
MinFormulaShare: TypeAlias = Annotated[
    float,
    typer.Option(metavar="SHARE", help="The same for formulas that give no number, such as a+b=c."),
]
MinInformation: TypeAlias = Annotated[
    float,
    typer.Option(
        metavar="N", help="Digits, and half as many operations, that a node must hold at least."
    ),
]
MaxFinals: TypeAlias = Annotated[
    int, typer.Option(metavar="N", help="Nodes that state the final answer at most.")
]
Workers: TypeAlias = Annotated[
    int | None,
    typer.Option(metavar="N", show_default="one a core", help="Processes that work on problems."),
]
EngineOption: TypeAlias = Annotated[
    EngineChoice, typer.Option(help="Work on this machine, or on all cores of a Ray cluster.")
]
TimeLimit: TypeAlias = Annotated[
    float,
    typer.Option(
        metavar="SECONDS",
        help="Leave out a problem that takes longer, in processor time (on the clock 20 times it).",
    ),
]

_RULES = "Rules (rules)"

MinModels: TypeAlias = Annotated[
    int,
    typer.Option(
        min=1,
        metavar="N",
        help="Models that must state a conclusion, or as many as there are.",
        rich_help_panel=_RULES,
    ),
]
NoPhrases: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--no-phrases",
        help='Take no number with a word ("30 minutes") for a wording of a formula that gives it.',
        rich_help_panel=_RULES,
    ),
]
NoValues: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--no-values", help="Take no number alone, however distinctive.", rich_help_panel=_RULES
    ),
]

Model: TypeAlias = Annotated[
    str | None,
    typer.Option(metavar="NAME", show_default=False, help="Who is asked.", rich_help_panel=_MODEL),
]
BaseUrl: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        show_default="OpenAI's",
        help="Any OpenAI-compatible server, for example http://HOST:8000/v1.",
        rich_help_panel=_MODEL,
    ),
]
ApiKeyEnv: TypeAlias = Annotated[
    str,
    typer.Option(
        metavar="VARIABLE", help="Environment variable with the key.", rich_help_panel=_MODEL
    ),
]
Temperature: TypeAlias = Annotated[
    str,
    typer.Option(
        metavar="T|server",
        help="Of the replies; server: leave it to the server, as some models demand.",
        rich_help_panel=_MODEL,
    ),
]
Structured: TypeAlias = Annotated[
    StructuredChoice,
    typer.Option(
        help="Send the JSON schema of the reply: until the server refuses it, always, or never.",
        rich_help_panel=_MODEL,
    ),
]
MaxTokens: TypeAlias = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        show_default="the server's",
        help="Tokens of one reply at most.",
        rich_help_panel=_MODEL,
    ),
]
Concurrency: TypeAlias = Annotated[
    int, typer.Option(metavar="N", help="Problems asked about at once.", rich_help_panel=_MODEL)
]
RequestsPerMinute: TypeAlias = Annotated[
    float | None,
    typer.Option(metavar="N", show_default=False, help="Ask no faster.", rich_help_panel=_MODEL),
]
TokensPerMinute: TypeAlias = Annotated[
    float | None,
    typer.Option(metavar="N", show_default=False, help="Ask no faster.", rich_help_panel=_MODEL),
]
PriceIn: TypeAlias = Annotated[
    float | None,
    typer.Option(
        metavar="USD",
        show_default=False,
        help="Price of a million prompt tokens.",
        rich_help_panel=_MODEL,
    ),
]
PriceOut: TypeAlias = Annotated[
    float | None,
    typer.Option(
        metavar="USD",
        show_default=False,
        help="Price of a million reply tokens.",
        rich_help_panel=_MODEL,
    ),
]
MaxCost: TypeAlias = Annotated[
    float | None,
    typer.Option(
        metavar="USD",
        show_default=False,
        help="Stop before more is spent, earlier runs included.",
        rich_help_panel=_MODEL,
    ),
]
MaxRequests: TypeAlias = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        show_default=False,
        help="Stop before more is asked, earlier runs included.",
        rich_help_panel=_MODEL,
    ),
]


OnErrorOption: TypeAlias = Annotated[
    OnErrorChoice,
    typer.Option(
        help="At a bad row or a problem that fails: stop with nothing written, or skip and count."
    ),
]


def audit_path(output: Path) -> Path:
    """Return where the audit of a dataset lies unless somebody says otherwise."""
    name = output.name.removesuffix(".gz")
    return output.with_name(f"{Path(name).stem}.audit.jsonl")


def dataset_paths(output: Path, audit: Path | None, candidates: Path | None = None) -> OutputPaths:
    """Return the outputs of a command that writes a dataset."""
    return OutputPaths(output, audit or audit_path(output), candidates)


def selection_settings(
    rollouts_per_problem: str,
    min_rollouts: int,
    exclude_model: list[str] | None,
    only_model: list[str] | None,
    trust_labels: bool,
    answer_rule: AnswerRule | None,
    seed: int,
) -> SelectionSettings:
    """Return which rollouts the options ask for.

    Raises:
        InputError: a value is out of its range.
    """
    most: int | None = None
    if rollouts_per_problem != "all":
        try:
            most = int(rollouts_per_problem)
        except ValueError:
            raise InputError(
                f"--rollouts-per-problem must be a number or all, got {rollouts_per_problem!r}"
            ) from None
    if trust_labels and answer_rule is not None:
        raise InputError("--answer-rule is for verified answers, not for --trust-labels")
    return SelectionSettings(
        most,
        min_rollouts,
        seed,
        trust_labels,
        None if answer_rule is None else answer_rule.value,
        tuple(exclude_model or ()),
        tuple(only_model or ()),
    )


def make_means(
    workers: int | None,
    engine: EngineChoice = EngineChoice.LOCAL,
    time_limit: float = DEFAULT_TIME_LIMIT_S,
) -> Means:
    """Return with what the options ask to work.

    Raises:
        InputError: a value is out of its range, or does not go with another.
    """
    if engine is EngineChoice.RAY and workers is not None:
        raise InputError("--workers is for this machine; a Ray cluster has as many as cores")
    processes = len(os.sched_getaffinity(0)) if workers is None else workers
    return Means(processes, engine.value, time_limit)


def paper_refiner(
    min_support: int,
    min_nodes: int,
    max_nodes: int,
    min_share: float,
    min_formula_share: float,
    min_information: float,
    max_finals: int,
) -> Refiner:
    """Return stage 3 with the thresholds that the options ask for.

    Raises:
        InputError: one is out of its range.
    """
    from consensusbench.construction.types import PaperRefiner
    from consensusbench.extraction.refine import RefineSettings

    return PaperRefiner(
        RefineSettings(
            min_nodes=min_nodes,
            max_nodes=max_nodes,
            min_support=min_support,
            min_share=min_share,
            min_formula_share=min_formula_share,
            min_information=min_information,
            max_finals=max_finals,
        )
    )


# MERGED The extractor that the options name, with what it needs around it.

# Beside the output, and kept: it was paid for, and another run may need it.
JOURNAL_SUFFIX = ".journal"


@dataclass(frozen=True, slots=True)
class ModelOptions:
    """What the command line says about the model; None: nothing."""

    model: str | None = None
    base_url: str | None = None
    api_key_env: str = "OPENAI_API_KEY"
    temperature: str = "0"
    structured: StructuredChoice = StructuredChoice.AUTO
    max_tokens: int | None = None
    concurrency: int = 16
    requests_per_minute: float | None = None
    tokens_per_minute: float | None = None
    price_in: float | None = None
    price_out: float | None = None
    max_cost: float | None = None
    max_requests: int | None = None


@dataclass(frozen=True, slots=True)
class RulesOptions:
    """What the command line says about the rules; see ``RulesSettings``."""

    min_models: int = 2
    phrases: bool = True
    values: bool = True


def open_extractor(
    choice: ExtractorChoice,
    options: ModelOptions,
    rules: RulesOptions,
    min_support: int,
    output: Path,
    stack: ExitStack,
) -> Extractor | AsyncExtraction:
    """Return stage 2 as the options ask for it.

    Args:
        choice: by rules or by a model.
        options: of the model.
        rules: of the rules.
        min_support: rollouts that must reach a node.
        output: beside which a model's replies are kept.
        stack: closes what was opened.

    Raises:
        InputError: an option is missing, out of its range, or not for this extractor.
    """
    if choice is ExtractorChoice.RULES:
        for name, value in asdict(ModelOptions()).items():
            if getattr(options, name) != value:
                raise InputError(f"--{name.replace('_', '-')} is for --extractor llm")
        from consensusbench.extraction.rules import RulesExtractor, RulesSettings

        return RulesExtractor(
            RulesSettings(
                min_support=min_support,
                min_models=rules.min_models,
                phrases=rules.phrases,
                values=rules.values,
            )
        )
    if rules != RulesOptions():
        raise InputError("--min-models, --no-phrases and --no-values are for --extractor rules")
    return _by_model(options, min_support, output, stack)


def _by_model(
    options: ModelOptions, min_support: int, output: Path, stack: ExitStack
) -> AsyncExtraction:
    from consensusbench.extraction.llm import LlmExtractor, LlmSettings
    from consensusbench.llm import Budget, ChatModel, Journal, ModelSettings, Reply, spent_on

    if options.model is None:
        raise InputError("--extractor llm needs --model NAME")
    temperature = _temperature(options.temperature)
    model_settings = ModelSettings(
        model=options.model,
        base_url=options.base_url,
        api_key_env=options.api_key_env,
        temperature=temperature,
        max_tokens=options.max_tokens,
        concurrency=options.concurrency,
        requests_per_minute=options.requests_per_minute,
        tokens_per_minute=options.tokens_per_minute,
        price_in=options.price_in,
        price_out=options.price_out,
    )
    if options.max_cost is not None and not model_settings.is_priced:
        raise InputError("--max-cost needs --price-in and --price-out")
    budget = Budget(options.max_cost, options.max_requests)
    model = ChatModel(model_settings, budget)
    journal = Journal(Path(f"{output}{JOURNAL_SUFFIX}"), "extraction-replies", {})
    stack.callback(_close, journal)
    for _, record in journal.items():
        budget.charge_earlier(spent_on(Reply.from_row(record)))
    extractor = LlmExtractor(
        model,
        LlmSettings(
            min_support=min_support, temperature=temperature, structured=options.structured.value
        ),
        journal,
    )

    @asynccontextmanager
    async def opened() -> AsyncIterator[AsyncExtractor]:
        async with model:
            yield extractor

    return AsyncExtraction(opened, options.concurrency, extractor.provenance())


def _close(journal: Journal) -> None:
    journal.close()
    if not len(journal):
        journal.path.unlink(missing_ok=True)


def _temperature(text: str) -> float | None:
    if text == "server":
        return None
    try:
        return float(text)
    except ValueError:
        raise InputError(f"--temperature must be a number or server, got {text!r}") from None


# MERGED How a build is shown: a bar while it runs, then a table by data source and what was left out.

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


class TerminalProgress(Progress):
    """Shows bars on standard error, one after the other.

    Args:
        hidden: show none; notes are shown all the same.
        reading: whether rollouts are read before the work.
    """

    def __init__(self, hidden: bool, *, reading: bool = True) -> None:
        self._hidden = hidden
        self._reading = reading
        self._stack = ExitStack()
        self._advance_to: Callable[[int], None] = lambda done: None

    def __enter__(self) -> Self:
        if self._reading:
            self._show("reading", None, "rollouts")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
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
    console.print(_sources_table(report))
    if report.problems.dropped:
        console.print()
        console.print(_dropped_table(report))
    console.print()
    for sentence in _rollout_sentences(report):
        console.print(sentence, markup=False, soft_wrap=True)
    for sentence in (*_excluded_sentences(report), *report.warnings()):
        console.print(sentence, style="yellow", markup=False, soft_wrap=True)
    for sentence in _end_sentences(report):
        console.print(sentence, markup=False, soft_wrap=True)


def _sources_table(report: BuildReport) -> Table:
    counts = report.problems
    what = "Nodes" if report.paths.dataset is not None else "Candidates"
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("Data source")
    for heading in ("Problems", what, f"{what} a problem"):
        table.add_column(heading, justify="right")
    for source, problems in sorted(counts.written.items()):
        table.add_row(
            Text(one_line(source or NO_SOURCE)), *_numbers(problems, counts.nodes[source])
        )
    if len(counts.written) > 1:
        table.add_section()
        total = _numbers(counts.written.total(), counts.nodes.total())
        table.add_row(Text("all"), *total, style="bold")
    return table


def _numbers(problems: int, nodes: int) -> list[str]:
    return [f"{problems:,}", f"{nodes:,}", f"{nodes / problems:.2f}"]


def _dropped_table(report: BuildReport) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("Dropped by")
    table.add_column("Reason")
    table.add_column("Conclusions", justify="right")
    for (stage, reason), count in sorted(
        report.problems.dropped.items(), key=lambda item: (item[0][0], -item[1], item[0][1])
    ):
        table.add_row(stage, reason.replace("_", " "), f"{count:,}")
    return table


def _rollout_sentences(report: BuildReport) -> list[str]:
    counts = report.rollouts
    if counts is None:
        return []
    others = [
        (counts.incorrect, "not correct"),
        (counts.undecided, "undecided"),
        (counts.repeated, "repeated"),
        (counts.other_model, "of other models"),
        (counts.unknown_problem, "of unknown problems"),
        (counts.unusable_problem, "of problems that cannot be used"),
        (counts.oversize, "longer than 1 MiB"),
    ]
    rest = "".join(f", {count:,} {what}" for count, what in others if count)
    return [
        f"{counts.read:,} rollouts: {counts.correct:,} correct, of which {counts.used:,} were "
        f"looked at{rest}"
    ]


def _excluded_sentences(report: BuildReport) -> list[str]:
    counts = report.problems
    return [
        f"left out: {count:,} problem{'' if count == 1 else 's'} {REASONS[reason]} (first: "
        f"{one_line(counts.examples[reason], 160)})"
        for reason, count in counts.excluded.most_common()
    ]


def _end_sentences(report: BuildReport) -> list[str]:
    seconds, counts = report.seconds, report.problems
    resumed = f", {report.resumed:,} of them extracted by an earlier run" if report.resumed else ""
    sentences = [
        f"{counts.total:,} problems in {seconds.total:.1f} s{resumed} (reading "
        f"{seconds.reading:.1f} s, verifying {seconds.verifying:.1f} s; in the workers extracting "
        f"{seconds.extracting:.1f} s, refining {seconds.refining:.1f} s)"
    ]
    for path, what in (
        (report.paths.candidates, "candidates"),
        (report.paths.audit, "what was left out, and why"),
    ):
        if path is not None:
            sentences.append(f"{path}: {what}")
    if report.paths.dataset is not None:
        sentences.append(
            f"{report.paths.dataset}: {counts.written.total():,} problems, digest {report.digest}"
        )
    return sentences


# MERGED ``consensusbench build``: from rollouts to a dataset in one pass.


def build_build(
    rollouts: RolloutsPaths,
    *,
    output: Annotated[
        Path,
        typer.Option(
            metavar="FILE",
            show_default=False,
            help="Dataset: .jsonl, .jsonl.gz or .parquet; appears complete or not at all.",
        ),
    ],
    problems: ProblemsPath = None,
    audit: AuditPath = None,
    candidates: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", show_default=False, help="Also write what consensusbench extract does."
        ),
    ] = None,
    split: Split = None,
    rollouts_per_problem: RolloutsPerProblem = "5",
    min_rollouts: MinRollouts = 3,
    exclude_model: ExcludeModel = None,
    only_model: OnlyModel = None,
    trust_labels: TrustLabels = False,
    answer_rule: AnswerRuleChoice = None,
    seed: Seed = 0,
    extractor: ExtractorOption = ExtractorChoice.RULES,
    min_support: MinSupport = 2,
    min_nodes: MinNodes = 2,
    max_nodes: MaxNodes = 12,
    min_share: MinShare = 0.4,
    min_formula_share: MinFormulaShare = 0.5,
    min_information: MinInformation = 2.0,
    max_finals: MaxFinals = 1,
    min_models: MinModels = 2,
    no_phrases: NoPhrases = False,
    no_values: NoValues = False,
    engine: EngineOption = EngineChoice.LOCAL,
    workers: Workers = None,
    time_limit: TimeLimit = DEFAULT_TIME_LIMIT_S,
    model: Model = None,
    base_url: BaseUrl = None,
    api_key_env: ApiKeyEnv = "OPENAI_API_KEY",
    temperature: Temperature = "0",
    structured: Structured = StructuredChoice.AUTO,
    max_tokens: MaxTokens = None,
    concurrency: Concurrency = 16,
    requests_per_minute: RequestsPerMinute = None,
    tokens_per_minute: TokensPerMinute = None,
    price_in: PriceIn = None,
    price_out: PriceOut = None,
    max_cost: MaxCost = None,
    max_requests: MaxRequests = None,
    on_error: OnErrorOption = OnErrorChoice.STOP,
    no_progress: NoProgress = False,
    as_json: Json = False,
    color: Color = ColorMode.AUTO,
) -> None:
    """Make a dataset of consensus nodes from rollouts.

    ```text
    consensusbench build rollouts.jsonl --problems problems.jsonl --output dataset.jsonl
    consensusbench build a.jsonl b.jsonl.gz --exclude-model gpt-4o --output dataset.parquet
    consensusbench build rollouts.jsonl --extractor llm --model NAME --base-url URL --output d.jsonl
    ```

    Of each problem, correct rollouts of several models are compared; conclusions that at least two
    of them reach become its nodes. Whatever is left out stands in the audit with its reason. Killed
    at any moment, the same command goes on where it was; `docs/construction.md` tells the rest.
    """
    paths = dataset_paths(output, audit, candidates)
    selection = selection_settings(
        rollouts_per_problem, min_rollouts, exclude_model, only_model, trust_labels,
        answer_rule, seed,
    )  # fmt: skip
    asked = ModelOptions(
        model, base_url, api_key_env, temperature, structured, max_tokens, concurrency,
        requests_per_minute, tokens_per_minute, price_in, price_out, max_cost, max_requests,
    )  # fmt: skip
    source = Source(
        tuple(rollouts), problems, None if split is None else split.value, on_error.value
    )
    means = make_means(workers, engine, time_limit)
    refiner = paper_refiner(
        min_support, min_nodes, max_nodes, min_share, min_formula_share, min_information,
        max_finals,
    )  # fmt: skip
    with ExitStack() as stack:
        rules = RulesOptions(min_models, not no_phrases, not no_values)
        stage = open_extractor(extractor, asked, rules, min_support, output, stack)
        progress = stack.enter_context(TerminalProgress(no_progress))
        report = run_build(Job(source, paths, stage, refiner, selection, means), progress)
    print_report(report, as_json, color)


# MERGED ``consensusbench extract``: from rollouts to candidates, the first half of ``build``.


def extract(
    rollouts: RolloutsPaths,
    *,
    output: Annotated[
        Path,
        typer.Option(
            metavar="FILE",
            show_default=False,
            help="Candidates: .jsonl, .jsonl.gz or .parquet; appears complete or not at all.",
        ),
    ],
    problems: ProblemsPath = None,
    split: Split = None,
    rollouts_per_problem: RolloutsPerProblem = "5",
    min_rollouts: MinRollouts = 3,
    exclude_model: ExcludeModel = None,
    only_model: OnlyModel = None,
    trust_labels: TrustLabels = False,
    answer_rule: AnswerRuleChoice = None,
    seed: Seed = 0,
    extractor: ExtractorOption = ExtractorChoice.RULES,
    min_support: MinSupport = 2,
    min_models: MinModels = 2,
    no_phrases: NoPhrases = False,
    no_values: NoValues = False,
    engine: EngineOption = EngineChoice.LOCAL,
    workers: Workers = None,
    time_limit: TimeLimit = DEFAULT_TIME_LIMIT_S,
    model: Model = None,
    base_url: BaseUrl = None,
    api_key_env: ApiKeyEnv = "OPENAI_API_KEY",
    temperature: Temperature = "0",
    structured: Structured = StructuredChoice.AUTO,
    max_tokens: MaxTokens = None,
    concurrency: Concurrency = 16,
    requests_per_minute: RequestsPerMinute = None,
    tokens_per_minute: TokensPerMinute = None,
    price_in: PriceIn = None,
    price_out: PriceOut = None,
    max_cost: MaxCost = None,
    max_requests: MaxRequests = None,
    on_error: OnErrorOption = OnErrorChoice.STOP,
    no_progress: NoProgress = False,
    as_json: Json = False,
    color: Color = ColorMode.AUTO,
) -> None:
    """Find the conclusions that correct rollouts share: candidates for nodes.

    ```text
    consensusbench extract rollouts.jsonl --problems problems.jsonl --output candidates.jsonl
    consensusbench refine candidates.jsonl --output dataset.jsonl
    ```

    The first half of `consensusbench build`. `consensusbench refine` makes a dataset of them, again
    and again with other thresholds, and without asking a model again.
    """
    selection = selection_settings(
        rollouts_per_problem, min_rollouts, exclude_model, only_model, trust_labels,
        answer_rule, seed,
    )  # fmt: skip
    asked = ModelOptions(
        model, base_url, api_key_env, temperature, structured, max_tokens, concurrency,
        requests_per_minute, tokens_per_minute, price_in, price_out, max_cost, max_requests,
    )  # fmt: skip
    source = Source(
        tuple(rollouts), problems, None if split is None else split.value, on_error.value
    )
    means = make_means(workers, engine, time_limit)
    paths = OutputPaths(candidates=output)
    with ExitStack() as stack:
        rules = RulesOptions(min_models, not no_phrases, not no_values)
        stage = open_extractor(extractor, asked, rules, min_support, output, stack)
        progress = stack.enter_context(TerminalProgress(no_progress))
        report = build(Job(source, paths, stage, None, selection, means), progress)
    print_report(report, as_json, color)


# MERGED ``consensusbench refine``: from candidates to a dataset, the second half of ``build``.


def refine(
    candidates: CandidatesPath,
    *,
    output: Annotated[
        Path,
        typer.Option(
            metavar="FILE",
            show_default=False,
            help="Dataset: .jsonl, .jsonl.gz or .parquet; appears complete or not at all.",
        ),
    ],
    audit: AuditPath = None,
    min_support: MinSupport = 2,
    min_nodes: MinNodes = 2,
    max_nodes: MaxNodes = 12,
    min_share: MinShare = 0.4,
    min_formula_share: MinFormulaShare = 0.5,
    min_information: MinInformation = 2.0,
    max_finals: MaxFinals = 1,
    workers: Workers = None,
    on_error: OnErrorOption = OnErrorChoice.STOP,
    no_progress: NoProgress = False,
    as_json: Json = False,
    color: Color = ColorMode.AUTO,
) -> None:
    """Choose the nodes of a dataset among candidates.

    ```text
    consensusbench refine candidates.jsonl --max-nodes 8 --output dataset.jsonl
    ```

    Drops what restates the problem, what any solution would hold, and what another node implies,
    and keeps the rest in order. Whatever is left out stands in the audit with its reason. With the
    same thresholds the dataset is that of `consensusbench build`.
    """
    refiner = paper_refiner(
        min_support, min_nodes, max_nodes, min_share, min_formula_share, min_information,
        max_finals,
    )  # fmt: skip
    with TerminalProgress(no_progress, reading=False) as progress:
        report = refine_candidates(
            candidates,
            dataset_paths(output, audit),
            refiner,
            on_error=on_error.value,
            means=make_means(workers),
            progress=progress,
        )
    print_report(report, as_json, color)
