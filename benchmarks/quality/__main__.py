"""``python -m benchmarks.quality``: measure, print, bring ``docs/quality.md`` up to date.

The tables are as they stand on that page.
"""

from __future__ import annotations

import argparse
import random
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.markdown import demand, page_parser, publish, table
from benchmarks.quality.measure import (
    DERIVED,
    FORM_KINDS,
    GOLD_NODES,
    MISS_KINDS,
    ROLLOUTS,
    WRITTEN,
    Figures,
    FormCounts,
    Miss,
    Results,
    count_forms,
    count_kinds,
    kind_of,
    measure,
    read_gold,
    read_responses,
)
from benchmarks.quality.writers import (
    attacks_table,
    families,
    families_table,
    guard_table,
    long_table,
    measure_attacks,
    measure_families,
)


def figures_table(results: Results) -> str:
    """Return the table of figures, one column a file of rollouts."""
    rows: list[tuple[str, Callable[[Figures, Figures], str]]] = [
        (
            "rollouts, right ones",
            lambda on, off: f"{on.every.num_right + on.every.num_wrong:,}, {on.every.num_right:,}",
        ),
        ("**recall** of gold equations in right solutions", lambda on, off: f"**{on.recall:.3f}**"),
        ("… without derived forms", lambda on, off: f"{off.recall:.3f}"),
        (
            "**false positives** against all other problems' nodes",
            lambda on, off: f"**{on.false_positives:.3%}**",
        ),
        ("… without derived forms", lambda on, off: f"{off.false_positives:.3%}"),
        ("mean NCR, right", lambda on, off: _known(on.every.ncr_right)),
        ("mean NCR, wrong", lambda on, off: _known(on.every.ncr_wrong)),
        ("**AUROC** of NCR, all nodes", lambda on, off: f"**{_known(on.every.auroc.value)}**"),
        ("… without derived forms", lambda on, off: _known(off.every.auroc.value)),
        (
            "**AUROC** without the final-answer node",
            lambda on, off: f"**{_known(on.inner.auroc.value)}**",
        ),
        ("… without derived forms", lambda on, off: _known(off.inner.auroc.value)),
        ("Acc agrees with the label", lambda on, off: f"{on.acc_agreement:.2%}"),
    ]
    sets = results.figures.values()
    cells = [
        [heading, *(told(by_set[DERIVED], by_set[WRITTEN]) for by_set in sets)]
        for heading, told in rows
    ]
    return "\n".join([table(["", *results.figures], cells, 1), "", *_facts(results)])


def _known(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def _facts(results: Results) -> list[str]:
    derived, written = results.datasets[DERIVED], results.datasets[WRITTEN]
    equations, values = results.enumerated
    patterns = (derived.num_expressions + derived.num_derived) / derived.num_nodes
    return [
        f"{derived.num_problems} problems with {derived.num_nodes:,} gold nodes; "
        f"{patterns:.1f} patterns a node, {written.num_expressions / written.num_nodes:.1f} "
        "without derived forms.",
        f'Printing "=0", "=1", … "=300" hits {equations:.1%} of the equations; as bare values '
        f"the same nodes would be hit in {values:.1%} of cases.",
        f"Normal form {results.normal_form_version}, {results.backend} core, dataset "
        f"`{derived.digest.partition(':')[2][:16]}`.",
    ]


def forms_table(counts: FormCounts, num_nodes: int) -> str:
    """Return the table of what each kind of derived form is worth, all rollouts together."""
    rows = [
        [
            kind,
            f"+{counts.found[kind] / counts.looked_for:.2%}",
            f"+{counts.false[kind] / counts.held_against:.4%}",
            f"{counts.derived[kind] / num_nodes:.1f}",
        ]
        for kind in FORM_KINDS
    ]
    return table(["kind of form", "recall", "false positives", "patterns a node"], rows, 1)


def misses_table(results: Results) -> str:
    """Return the table of why gold equations were missed, one column a file of rollouts."""
    counts = count_kinds(results.misses)
    rows = [
        [kind, *(f"{of[kind]:,} ({of[kind] / of.total():.1%})" for of in counts.values())]
        for kind in MISS_KINDS
    ]
    rows.append(["all", *(f"{of.total():,}" for of in counts.values())])
    return table(["kind", *counts], rows, 1)


def sample_of_misses(misses: Sequence[Miss], size: int, seed: int) -> str:
    """Return a sample to read: the gold equation, its kind, and the lines with its numbers."""
    parts = []
    for miss in random.Random(seed).sample(misses, min(size, len(misses))):
        equation = miss.node.expressions[0]
        numbers = re.findall(r"\d+", equation)
        parts.append(f"{equation}  [{kind_of(miss)}; {miss.file}]  {miss.node.label}")
        parts += [
            f"    {line.strip()[:200]}"
            for line in miss.response.text.splitlines()
            if any(re.search(rf"(?<!\d){number}(?!\d)", line) for number in numbers)
        ]
    return "\n".join(parts)


def main() -> int:
    """Run the benchmark; return the exit code."""
    arguments = _arguments()
    demand(arguments.shared, [GOLD_NODES])
    results = measure(arguments.shared, arguments.in_process)
    named = families(arguments.shared).items()
    off, on = (measure_families(arguments.shared, named, wanted) for wanted in (False, True))
    with TemporaryDirectory(prefix="quality-") as folder:
        probed = measure_attacks(arguments.shared, Path(folder))
    problems = read_gold(arguments.shared)
    known = {problem.problem_id for problem in problems}
    files = [read_responses(arguments.shared / path, known) for path in ROLLOUTS.values()]
    num_nodes = sum(len(problem.nodes) for problem in problems)
    blocks = {
        "figures": figures_table(results),
        "writers": families_table(off, on),
        "hacks": attacks_table(*probed),
        "guard": guard_table(arguments.shared),
        "long": long_table(arguments.shared),
        "forms": forms_table(count_forms(problems, files), num_nodes),
        "misses": misses_table(results),
    }
    publish(blocks, arguments.write)
    if arguments.sample_misses:
        print(
            "", sample_of_misses(results.misses, arguments.sample_misses, arguments.seed), sep="\n"
        )
    return 0


def _arguments() -> argparse.Namespace:
    parser = page_parser("benchmarks.quality", __doc__)
    parser.add_argument("--in-process", action="store_true", help="score without a server")
    parser.add_argument(
        "--sample-misses", type=int, default=0, metavar="N", help="also print N misses to read"
    )
    parser.add_argument("--seed", type=int, default=0, help="of that sample (0)")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
