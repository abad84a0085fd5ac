"""How well NCR separates right from wrong rollouts: ``python -m benchmarks.quality``.

GSM8K, MATH and AIME 2024 are measured in one way.  NCR is guarded and over the nodes that are not
final; *inner* is its AUROC, *within* the mean AUROC over problems with right and wrong rollouts.
A part takes from seconds to minutes; ``--write docs/quality.md`` updates the tables of the parts
that ran.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import numpy as np

from benchmarks.markdown import demand, page_parser, publish, share, table
from benchmarks.quality.data import (
    AIME,
    AIME_STRONG,
    GOLD_NODES,
    GSM8K,
    MATH,
    READ_NODES,
    file_of,
    read_gold,
    read_nodes,
)
from benchmarks.quality.node_sets import NodeSet, Workbench
from benchmarks.quality.recall import recall_table
from consensusbench.evaluation.agreement import agreement_of_files
from consensusbench.evaluation.estimates import Estimate
from consensusbench.evaluation.metrics import (
    Consistency,
    auroc,
    consistency_of,
    within_problems,
)
from consensusbench.evaluation.scored import Columns, columns_of, per_node
from consensusbench.quality.attacks import Attack
from consensuspr.data import read_problems

CONFIDENCE: Final = 0.95

GOLD = NodeSet("GSM8K, gold", GSM8K, read_gold, models=("text-davinci-003",))
GSM8K_BUILT = NodeSet("GSM8K, built", GSM8K)
PROGRAMS = NodeSet("programs", GSM8K, read_gold, programs=True)
MATH_BUILT = NodeSet("MATH, built", MATH, parts=4)
READ = NodeSet("AIME, read", AIME, read_nodes, models=("Qwen3-32B-thinking",))
AIME_BUILT = NodeSet("AIME, built", AIME, sources=AIME_STRONG)
STRONG = NodeSet("built, strong writers", AIME_STRONG)


def signal_table(bench: Workbench, node_sets: Sequence[NodeSet]) -> str:
    """Return rows for each set of nodes: all rollouts, and those that reason themselves or not."""
    rows = []
    for nodes in node_sets:
        scored = columns_of(bench.scored(nodes))[0]
        groups = {"all": scored}
        groups |= {model: scored.where(scored.model == model) for model in nodes.models}
        # Rewritten rollouts are programs, and still have the steps of their sources.
        others = scored.where(~scored.own_reasoning)
        if not nodes.programs and {0.0, 1.0} <= {*others.acc.tolist()}:
            own = scored.where(scored.own_reasoning)
            groups |= {"own reasoning": own, "other rollouts": others}
        problems = [one for one in read_problems(bench.dataset(nodes)) if one.nodes]
        sizes = f"{len(problems)}×{np.mean([len(one.nodes) for one in problems]):.1f}"
        for name, columns in groups.items():
            chance = f"{chance_of(bench, nodes):.2%}" if name == "all" else ""
            first = [nodes.name, sizes] if name == "all" else ["", ""]
            rows.append([*first, name, *cells_of(columns), chance])
    headings = (
        "nodes", "problems", "rollouts", "right/wrong", "inner/within", "length", "NCR",
        "lowered", "chance",
    )  # fmt: skip
    return table(headings, rows, 3)


def separation(columns: Columns) -> Consistency:
    """Return how guarded NCR without final nodes goes with Acc."""
    ncr = per_node(columns.hits_without_final, columns.nodes_without_final) * columns.guard
    return consistency_of(ncr, columns.acc, columns.problem, CONFIDENCE)


def cells_of(columns: Columns) -> list[str]:
    """Return the figures of rollouts: counts, AUROC of NCR and of length, NCR, right lowered."""
    columns = columns.where((columns.nodes_without_final > 0) & ~np.isnan(columns.acc))
    found = separation(columns)
    right, chars = columns.acc == 1, columns.chars.astype(float)
    mixed = 0 < found.num_right < len(columns)
    length = within_problems(chars, right, columns.problem, CONFIDENCE).value
    inner, within = found.figures["auroc"].value, found.figures["within"]
    return [
        f"{found.num_right:,}/{found.num_wrong:,}",
        f"{share(inner)}/{share(within.value)} ({within.problems if mixed else 0})",
        f"{_short(auroc(chars, right) if mixed else None)}/{_short(length)}",
        f"{_short(found.ncr_right)}/{_short(found.ncr_wrong)}",
        f"{(columns.guard[right] < 1).mean():.1%}" if found.num_right else "–",
    ]


def _short(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}".removeprefix("0")


def chance_of(bench: Workbench, nodes: NodeSet) -> float:
    """Return the NCR of rollouts of other problems."""
    figures = bench.probes(nodes).attack(Attack.UNRELATED).overall
    assert figures.ncr_without_final is not None, "there are nodes that are not final"
    return figures.ncr_without_final


def attacks_table(bench: Workbench) -> str:
    """Return a row for each attack: the NCR that it earns of each set of nodes."""
    node_sets = (GOLD, GSM8K_BUILT, MATH_BUILT, READ, AIME_BUILT)
    reports = [bench.probes(nodes) for nodes in node_sets]
    rows = []
    for attack in Attack:
        if attack is not Attack.UNRELATED:  # chance, in the tables of nodes
            shares = [report.attack(attack).overall.ncr_without_final for report in reports]
            cells = ["–" if one is None else f"{one:.1%}" for one in shares]
            rows.append([f"`{attack.value}`", *cells])
    return table(["attack", *(nodes.name for nodes in node_sets)], rows, 1)


def agreement_table(bench: Workbench) -> str:
    """Return a row for each set of built nodes, against nodes at hand."""
    rows = []
    for ours, theirs in ((GSM8K_BUILT, GOLD), (AIME_BUILT, READ)):
        found = agreement_of_files(bench.dataset(ours), bench.dataset(theirs))
        shares = map(_with_interval, (found.consistency, found.recall, found.precision))
        counts = f"{found.num_ours:,}/{found.num_theirs:,}"
        against = theirs.name.split(", ")[1]
        rows.append([ours.name, against, str(len(found.problems)), counts, *shares])
    headings = ("nodes", "against", "problems", "nodes", "consistency", "recall", "precision")
    return table(headings, rows, 2)


def _with_interval(estimate: Estimate) -> str:
    return f"{share(estimate.value)} ({_short(estimate.low)}–{_short(estimate.high)})"


@dataclass(frozen=True, slots=True)
class Part:
    """A table, and what it is about."""

    about: str
    make: Callable[[Workbench], str]


PARTS: Final = {
    "gsm8k": Part(
        "GSM8K by gold steps and built nodes",
        lambda bench: signal_table(bench, (GOLD, PROGRAMS, GSM8K_BUILT)),
    ),
    "math": Part("MATH by built nodes", lambda bench: signal_table(bench, (MATH_BUILT,))),
    "aime": Part(
        "AIME 2024 by read and built nodes",
        lambda bench: signal_table(bench, (READ, AIME_BUILT, STRONG)),
    ),
    "recall": Part("read nodes found in solutions", lambda bench: recall_table(bench.shared)),
    "agreement": Part("built nodes against gold steps and read nodes", agreement_table),
    "attacks": Part("what cheap texts earn", attacks_table),
}


def main() -> int:
    """Run the benchmark; return the exit code."""
    parser = page_parser("benchmarks.quality", __doc__)
    parser.add_argument(
        "--only",
        action="append",
        choices=PARTS,
        metavar="PART",
        help="; ".join(f"{name}: {part.about}" for name, part in PARTS.items()),
    )
    arguments = parser.parse_args()
    rollouts = (*GSM8K, *MATH, *AIME, *AIME_STRONG)
    shared = demand([GOLD_NODES, READ_NODES, *map(file_of, rollouts)])
    with TemporaryDirectory(prefix="quality-") as folder:
        bench = Workbench(shared, Path(folder))
        publish(
            {name: PARTS[name].make(bench) for name in arguments.only or PARTS}, arguments.write
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
