"""``consensusbench compare``: two models on the same problems, paired."""

from __future__ import annotations

import json
from collections.abc import Sequence, Set
from typing import Annotated

import typer

from consensusbench.cli.evaluate import (
    Confidence,
    DatasetPath,
    RolloutsPaths,
    Seed,
    TokenizerName,
    parse_dimensions,
    score_with_progress,
)
from consensusbench.evaluation.paired import check_comparison, compare
from consensusbench.evaluation.scored import columns_of, model_names
from consensusbench.evaluation.tables import comparison_notes, comparison_tables
from consensusbench.tables import print_result
from consensuspr.cli.options import Address, Color, Json, OnErrorChoice, OnErrorOption
from consensuspr.console import ColorMode, NoProgress, make_console, one_line
from consensuspr.errors import InputError


def compare_models(
    rollouts: RolloutsPaths,
    *,
    dataset: DatasetPath,
    baseline: Annotated[
        str | None,
        typer.Option(
            metavar="MODEL",
            show_default="the first file",
            help="Model to compare with, as the column model says.",
        ),
    ] = None,
    candidate: Annotated[
        str | None,
        typer.Option(
            metavar="MODEL", show_default="the second file", help="Model that may be better."
        ),
    ] = None,
    by: Annotated[
        str,
        typer.Option(
            "--by", metavar="DIMENSION,...", help="Also within groups: source, difficulty."
        ),
    ] = "none",
    tokenizer: TokenizerName = None,
    confidence: Confidence = 0.95,
    seed: Seed = 0,
    address: Address = None,
    on_error: OnErrorOption = OnErrorChoice.STOP,
    no_progress: NoProgress = False,
    as_json: Json = False,
    color: Color = ColorMode.AUTO,
) -> None:
    """Compare two models on the problems that both answered.

    ```text
    consensusbench compare before.jsonl after.jsonl --dataset problems.jsonl
    consensusbench compare rollouts.jsonl --dataset problems.jsonl --baseline A --candidate B
    ```

    Two files are two models, or two models are named in any number of files. Each problem gives
    one difference, of the candidate's mean to the baseline's; shown are their mean, its interval,
    the p-value of a sign-flip permutation test, and on how many problems the candidate is better,
    equal and worse. Problems that only one of the two answered are left out and named.
    """
    if (baseline is None) != (candidate is None):
        raise InputError("--baseline and --candidate go together")
    if baseline is None and len(rollouts) != 2:
        raise InputError(
            "give two files, or name two models with --baseline and --candidate; got "
            + ("1 file" if len(rollouts) == 1 else f"{len(rollouts)} files")
        )
    if baseline is not None and baseline == candidate:
        raise InputError(f"--baseline and --candidate are both {one_line(baseline)!r}")
    dimensions = parse_dimensions(by)
    check_comparison(dimensions, confidence, seed)
    if baseline is not None and candidate is not None:
        _check_models((baseline, candidate), model_names(rollouts, on_error.value))
    scored = score_with_progress(
        rollouts,
        dataset,
        address=address,
        tokenizer=tokenizer,
        on_error=on_error,
        no_progress=no_progress,
    )
    columns, problem_ids = columns_of(scored)
    if baseline is None or candidate is None:
        names = str(rollouts[0]), str(rollouts[1])
        sides = columns.where(columns.file == 0), columns.where(columns.file == 1)
    else:
        names = baseline, candidate
        sides = columns.where(columns.model == baseline), columns.where(columns.model == candidate)
    comparison = compare(
        *sides, problem_ids, names=names, by=dimensions, confidence=confidence, seed=seed
    )
    if as_json:
        print(json.dumps(comparison.to_json()))
        return
    console = make_console(color)
    sides_of = (
        f"baseline {one_line(comparison.baseline)}, candidate {one_line(comparison.candidate)}"
    )
    console.print(sides_of, "", sep="\n", markup=False, soft_wrap=True)
    print_result(console, comparison_tables(comparison), comparison_notes(comparison))


def _check_models(named: Sequence[str], known: Set[str]) -> None:
    """Refuse a model that wrote nothing, before anything is scored."""
    for model in named:
        if model not in known:
            shown = ", ".join(one_line(name) for name in sorted(known)[:20])
            raise InputError(f"no rollout is of model {model!r}; there are {shown}")
