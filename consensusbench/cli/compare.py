"""``consensusbench compare``: two models on the same problems, paired."""

from __future__ import annotations

import json
from collections.abc import Sequence, Set
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from consensusbench.cli.evaluate import (
    Confidence,
    DatasetPath,
    RolloutsPaths,
    Seed,
    TokenizerName,
    parse_dimensions,
    score_with_progress,
)
from consensusbench.evaluation.paired import (
    Comparison,
    Difference,
    PairedGroup,
    check_comparison,
    compare,
)
from consensusbench.evaluation.scored import columns_of, model_names
from consensuspr.cli.options import Address, Color, Json, OnErrorChoice, OnErrorOption
from consensuspr.console import ColorMode, NoProgress, make_console, one_line
from consensuspr.errors import InputError

_HEADINGS = {
    "acc": "Acc %",
    "ncr": "NCR %",
    "ncr_without_final": "NCR w/o final %",
    "tpn": "TPN",
    "tokens": "Tokens",
}
_IN_PERCENT = frozenset(("acc", "ncr", "ncr_without_final"))


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
    else:
        _print(comparison, color)


def _check_models(named: Sequence[str], known: Set[str]) -> None:
    """Refuse a model that wrote nothing, before anything is scored."""
    for model in named:
        if model not in known:
            shown = ", ".join(one_line(name) for name in sorted(known)[:20])
            raise InputError(f"no rollout is of model {model!r}; there are {shown}")


def _print(comparison: Comparison, color: ColorMode) -> None:
    console = make_console(color)
    console.print(
        f"baseline {one_line(comparison.baseline)}, candidate {one_line(comparison.candidate)}",
        markup=False,
        soft_wrap=True,
    )
    for group in (comparison.overall, *comparison.groups):
        console.print()
        console.print(_table(group))
    console.print()
    for note in _notes(comparison):
        console.print(note, markup=False, soft_wrap=True)


def _table(group: PairedGroup) -> Table:
    title = ", ".join(one_line(label) for label in group.key.values()) or "all"
    table = Table(
        box=None,
        pad_edge=False,
        header_style="bold",
        title=Text(f"{title}: {group.num_problems:,} problems"),
        title_justify="left",
    )
    table.add_column("Measure")
    for heading in ("Baseline", "Candidate", "Difference", "Relative", "p", "Better/equal/worse"):
        table.add_column(heading, justify="right")
    for difference in group.differences:
        if difference.delta.value is not None:
            table.add_row(_HEADINGS[difference.measure], *_cells(difference))
    return table


def _cells(difference: Difference) -> list[str]:
    scale = 100.0 if difference.measure in _IN_PERCENT else 1.0

    def shown(value: float | None, sign: str = "") -> str:
        return "–" if value is None else f"{scale * value:{sign},.1f}"

    delta = difference.delta
    interval = ""
    if delta.low is not None and delta.high is not None:
        interval = f" ({shown(delta.low, '+')} to {shown(delta.high, '+')})"
    return [
        shown(difference.baseline),
        shown(difference.candidate),
        shown(delta.value, "+") + interval,
        "–" if difference.relative is None else f"{100 * difference.relative:+,.1f} %",
        "–" if difference.p_value is None else f"{difference.p_value:.4f}",
        f"{difference.wins:,}/{difference.ties:,}/{difference.losses:,}",
    ]


def _notes(comparison: Comparison) -> list[str]:
    notes = [
        _left_out(comparison.num_only_baseline, comparison.only_baseline, "baseline"),
        _left_out(comparison.num_only_candidate, comparison.only_candidate, "candidate"),
    ]
    for difference in comparison.overall.differences:
        if 0 < difference.num_unpaired < comparison.overall.num_problems:
            notes.append(
                f"{_HEADINGS[difference.measure].removesuffix(' %')}: {difference.num_unpaired:,} "
                "problems left out, one of the two has no value there"
            )
    if comparison.num_undecided:
        notes.append(f"{comparison.num_undecided:,} answers stayed undecided and count as wrong")
    notes.append(
        f"in brackets: {100 * comparison.confidence:g} % intervals over problems; "
        "of TPN and tokens, less counts as better"
    )
    return [note for note in notes if note]


def _left_out(count: int, ids: Sequence[str], who: str) -> str:
    if not count:
        return ""
    named = ", ".join(one_line(problem_id) for problem_id in ids[:3]) + (", …" if count > 3 else "")
    return f"{count:,} problems that only the {who} answered are left out: {named}"
