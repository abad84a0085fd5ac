"""``consensusbench compare``: two models on the same problems, paired."""

from __future__ import annotations

import json
from typing import Annotated

from pydantic import Field

from consensusbench.cli.options import (
    CONFIDENCE,
    SCORING_OPTIONS,
    DatasetPath,
    RolloutsPaths,
    ScoringSettings,
    file_option,
    parse_dimensions,
)
from consensusbench.evaluation.paired import check_comparison, compare
from consensusbench.evaluation.scored import columns_of
from consensusbench.evaluation.tables import comparison_notes, comparison_tables
from consensusbench.tables import print_result
from consensuspr.cli.options import Json, MoreAddress, with_settings
from consensuspr.console import make_console, one_line
from consensuspr.errors import InputError


class CompareSettings(ScoringSettings):
    """Settings of ``compare``."""

    by: str = Field("none", description="Groups to compare too: source, difficulty.")
    confidence: float = Field(0.95, description=CONFIDENCE)


@with_settings(
    CompareSettings,
    prefix="CONSENSUSBENCH_COMPARE",
    shown={"by": "GROUP,...", "confidence": "SHARE"},
    more=SCORING_OPTIONS,
)
def compare_models(
    rollouts: RolloutsPaths,
    *,
    dataset: DatasetPath,
    baseline: Annotated[
        str | None, file_option("Baseline: a value of the column model.", "MODEL")
    ] = None,
    candidate: Annotated[
        str | None, file_option("Candidate: a value of the column model.", "MODEL")
    ] = None,
    settings: CompareSettings,
    address: MoreAddress = None,
    as_json: Json = False,
) -> None:
    """Compare two models on the same problems.

    ```text
    consensusbench compare before.jsonl after.jsonl --dataset dataset.jsonl
    consensusbench compare rollouts.jsonl --dataset dataset.jsonl --baseline A --candidate B
    ```

    The first file, or `--baseline`, is the baseline. For each problem that both answered, takes
    the difference of their means. Prints the mean difference with its interval, the p-value of a
    sign-flip permutation test, and the number of problems that got better, stayed equal, and got
    worse.
    """
    if (baseline is None) != (candidate is None):
        raise InputError("set both --baseline and --candidate, or neither")
    if baseline is None and len(rollouts) != 2:
        raise InputError(
            "give two files, or name two models with --baseline and --candidate; got "
            + ("1 file" if len(rollouts) == 1 else f"{len(rollouts)} files")
        )
    if baseline is not None and baseline == candidate:
        raise InputError(f"--baseline and --candidate are both {one_line(baseline)!r}")
    dimensions = parse_dimensions(settings.by)
    check_comparison(dimensions, settings.confidence)
    columns, problem_ids = columns_of(settings.score(rollouts, dataset, address))
    if baseline is None or candidate is None:
        names = str(rollouts[0]), str(rollouts[1])
        sides = columns.where(columns.file == 0), columns.where(columns.file == 1)
    else:
        names = baseline, candidate
        sides = columns.where(columns.model == baseline), columns.where(columns.model == candidate)
        for name, side in zip(names, sides, strict=True):
            if not len(side):
                known = ", ".join(map(one_line, sorted({*columns.model.tolist()})))
                raise InputError(f"no rollout has the model {name!r}; the models are: {known}")
    comparison = compare(
        *sides,
        problem_ids,
        names=names,
        by=dimensions,
        confidence=settings.confidence,
    )
    if as_json:
        print(json.dumps(comparison.to_json()))
        return
    console = make_console(settings.color)
    title = f"baseline {one_line(names[0])}, candidate {one_line(names[1])}\n"
    console.print(title, markup=False, soft_wrap=True)
    print_result(console, comparison_tables(comparison), comparison_notes(comparison))
