"""Options that the commands of construction share, each described once."""

from __future__ import annotations

import os
from enum import StrEnum
from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from consensusbench.construction import Means, OutputPaths, Refiner, SelectionSettings
from consensusbench.construction.time_limit import DEFAULT_TIME_LIMIT_S
from consensuspr.cli.options import OnErrorChoice
from consensuspr.errors import InputError
from consensuspr.scoring.types import AnswerRule


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
Extractor: TypeAlias = Annotated[
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


OnError: TypeAlias = Annotated[
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


def means(
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
    from consensusbench.construction.paper_refiner import PaperRefiner
    from consensusbench.refinement import RefineSettings

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
