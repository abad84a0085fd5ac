"""``consensusbench extract``: from rollouts to candidates, the first half of ``build``."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from consensusbench.cli import construction_options as options
from consensusbench.cli.construction_report import TerminalProgress, print_report
from consensusbench.cli.extractor_choice import ModelOptions, RulesOptions, open_extractor
from consensusbench.construction import Job, OutputPaths, Source, build
from consensusbench.construction.time_limit import DEFAULT_TIME_LIMIT_S
from consensuspr.cli.console import ColorMode
from consensuspr.cli.options import Color, Json, OnErrorChoice
from consensuspr.cli.progress import NoProgress


def extract(
    rollouts: options.RolloutsPaths,
    *,
    output: Annotated[
        Path,
        typer.Option(
            metavar="FILE",
            show_default=False,
            help="Candidates: .jsonl, .jsonl.gz or .parquet; appears complete or not at all.",
        ),
    ],
    problems: options.ProblemsPath = None,
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
    """Find the conclusions that correct rollouts share: candidates for nodes.

    ```text
    consensusbench extract rollouts.jsonl --problems problems.jsonl --output candidates.jsonl
    consensusbench refine candidates.jsonl --output dataset.jsonl
    ```

    The first half of `consensusbench build`. `consensusbench refine` makes a dataset of them, again
    and again with other thresholds, and without asking a model again.
    """
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
    paths = OutputPaths(candidates=output)
    with ExitStack() as stack:
        rules = RulesOptions(min_models, not no_phrases, not no_values)
        stage = open_extractor(extractor, asked, rules, min_support, output, stack)
        progress = stack.enter_context(TerminalProgress(no_progress))
        report = build(Job(source, paths, stage, None, selection, means), progress)
    print_report(report, as_json, color)
