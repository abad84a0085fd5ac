"""``consensusbench agreement``: a dataset's nodes against those that people annotated."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from consensusbench.cli.evaluate import Confidence
from consensusbench.evaluation.estimates import Estimate
from consensuspr.cli.options import Color, Json
from consensuspr.console import ColorMode, load_core, make_console, one_line

if TYPE_CHECKING:  # at run time this would load the core, for --help too
    from consensusbench.evaluation.agreement import Agreement

# Of the human nodes without a partner, as many as fit a screen; --json has all.
_SHOWN = 10


def agreement(
    dataset: Annotated[
        Path, typer.Argument(metavar="DATASET", show_default=False, help="Dataset with nodes.")
    ],
    human: Annotated[
        Path,
        typer.Argument(
            metavar="HUMAN_DATASET",
            show_default=False,
            help="The same problems (or some of them) with nodes that people annotated.",
        ),
    ],
    confidence: Confidence = 0.95,
    as_json: Json = False,
    color: Color = ColorMode.AUTO,
) -> None:
    """Compare the nodes of a dataset with human annotation: consistency and recall.

    ```text
    consensusbench agreement problems.jsonl human.jsonl
    ```

    Two nodes state the same where an expression of either is matched by the other, as in a
    rollout; they are paired one to one. Consistency is pairs over the nodes of either, recall is
    pairs over human nodes.
    """
    load_core()
    from consensusbench.evaluation.agreement import agreement_of_files

    found = agreement_of_files(dataset, human, confidence)
    if as_json:
        print(json.dumps(found.to_json()))
    else:
        _print(found, confidence, color)


def _print(found: Agreement, confidence: float, color: ColorMode) -> None:
    console = make_console(color)
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("")
    table.add_column("All nodes %", justify="right")
    table.add_column("Mean over problems %", justify="right")
    for name, pooled, by_problem in (
        ("Consistency", found.consistency, found.consistency_by_problem),
        ("Recall", found.recall, found.recall_by_problem),
        ("Precision", found.precision, found.precision_by_problem),
    ):
        table.add_row(name, _shown(pooled), _shown(by_problem))
    console.print(table)
    console.print()
    for note in _notes(found, confidence):
        console.print(note, markup=False, soft_wrap=True)


def _shown(estimate: Estimate) -> str:
    if estimate.value is None:
        return "–"
    if estimate.low is None or estimate.high is None:
        return f"{100 * estimate.value:.1f}"
    return f"{100 * estimate.value:.1f} ({100 * estimate.low:.1f}–{100 * estimate.high:.1f})"


def _notes(found: Agreement, confidence: float) -> list[str]:
    notes = [
        f"{found.num_pairs:,} pairs of {found.num_ours:,} nodes of the dataset and "
        f"{found.num_theirs:,} human ones, in {len(found.problems):,} problems"
    ]
    if found.num_only_theirs:
        named = ", ".join(one_line(problem_id) for problem_id in found.only_theirs[:3])
        notes.append(
            f"{found.num_only_theirs:,} annotated problems are not in the dataset and left out: "
            + named
            + (", …" if found.num_only_theirs > 3 else "")
        )
    if found.num_only_ours:
        notes.append(f"{found.num_only_ours:,} problems have no human annotation and are left out")
    if found.num_without_nodes:
        notes.append(f"{found.num_without_nodes:,} problems have no nodes in either")
    missed = [
        (problem.problem_id, label) for problem in found.problems for _, label in problem.missed
    ]
    if missed:
        notes.append(f"human nodes without a partner ({len(missed):,}; --json has all):")
        notes += [
            f"  {one_line(problem_id)}: {one_line(label, 80)}"
            for problem_id, label in missed[:_SHOWN]
        ]
    if found.recall.no_interval:
        notes.append(f"no intervals: {found.recall.no_interval}")
    else:
        notes.append(f"in brackets: {100 * confidence:g} % intervals, clustered by problem")
    return notes
