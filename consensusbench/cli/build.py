"""``consensusbench build``: from rollouts to a dataset in one pass."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from consensusbench.cli import construction_options as options
from consensusbench.cli.construction_report import TerminalProgress, print_report
from consensusbench.cli.extractor_choice import ModelOptions, RulesOptions, open_extractor
from consensusbench.construction import Job, Source
from consensusbench.construction import build as run_build
from consensusbench.construction.time_limit import DEFAULT_TIME_LIMIT_S
from consensuspr.cli.console import ColorMode
from consensuspr.cli.options import Color, Json, OnErrorChoice
from consensuspr.cli.progress import NoProgress


def build(
    rollouts: options.RolloutsPaths,
    *,
    output: Annotated[
        Path,
        typer.Option(
            metavar="FILE",
            show_default=False,
            help="Dataset: .jsonl, .jsonl.gz or .parquet; appears complete or not at all.",
        ),
    ],
    problems: options.ProblemsPath = None,
    audit: options.AuditPath = None,
    candidates: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", show_default=False, help="Also write what consensusbench extract does."
        ),
    ] = None,
    split: options.Split = None,
    rollouts_per_problem: options.RolloutsPerProblem = "5",
    min_rollouts: options.MinRollouts = 3,
    exclude_model: options.ExcludeModel = None,
    only_model: options.OnlyModel = None,
    trust_labels: options.TrustLabels = False,
    answer_rule: options.AnswerRuleChoice = None,
    seed: options.Seed = 0,
    extractor: options.Extractor = options.ExtractorChoice.RULES,
    min_support: options.MinSupport = 2,
    min_nodes: options.MinNodes = 2,
    max_nodes: options.MaxNodes = 12,
    min_share: options.MinShare = 0.4,
    min_formula_share: options.MinFormulaShare = 0.5,
    min_information: options.MinInformation = 2.0,
    max_finals: options.MaxFinals = 1,
    min_models: options.MinModels = 2,
    no_phrases: options.NoPhrases = False,
    no_values: options.NoValues = False,
    engine: options.EngineOption = options.EngineChoice.LOCAL,
    workers: options.Workers = None,
    time_limit: options.TimeLimit = DEFAULT_TIME_LIMIT_S,
    model: options.Model = None,
    base_url: options.BaseUrl = None,
    api_key_env: options.ApiKeyEnv = "OPENAI_API_KEY",
    temperature: options.Temperature = "0",
    structured: options.Structured = options.StructuredChoice.AUTO,
    max_tokens: options.MaxTokens = None,
    concurrency: options.Concurrency = 16,
    requests_per_minute: options.RequestsPerMinute = None,
    tokens_per_minute: options.TokensPerMinute = None,
    price_in: options.PriceIn = None,
    price_out: options.PriceOut = None,
    max_cost: options.MaxCost = None,
    max_requests: options.MaxRequests = None,
    on_error: options.OnError = OnErrorChoice.STOP,
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
    paths = options.dataset_paths(output, audit, candidates)
    selection = options.selection_settings(
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
    means = options.means(workers, engine, time_limit)
    refiner = options.paper_refiner(
        min_support, min_nodes, max_nodes, min_share, min_formula_share, min_information,
        max_finals,
    )  # fmt: skip
    with ExitStack() as stack:
        rules = RulesOptions(min_models, not no_phrases, not no_values)
        stage = open_extractor(extractor, asked, rules, min_support, output, stack)
        progress = stack.enter_context(TerminalProgress(no_progress))
        report = run_build(Job(source, paths, stage, refiner, selection, means), progress)
    print_report(report, as_json, color)
