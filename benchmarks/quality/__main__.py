"""``python -m benchmarks.quality``: measure, print, bring ``docs/quality.md`` up to date.

The tables are as they stand on that page.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.markdown import demand, page_parser, publish, table
from benchmarks.quality.measure import (
    DERIVED,
    GOLD_NODES,
    WRITTEN,
    Figures,
    Results,
    measure,
)
from benchmarks.quality.writers import (
    attacks_table,
    families,
    families_table,
    guard_table,
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


def main() -> int:
    """Run the benchmark; return the exit code."""
    arguments = page_parser("benchmarks.quality", __doc__).parse_args()
    demand(arguments.shared, [GOLD_NODES])
    results = measure(arguments.shared)
    named = families(arguments.shared).items()
    off, on = (measure_families(arguments.shared, named, wanted) for wanted in (False, True))
    with TemporaryDirectory(prefix="quality-") as folder:
        probed = measure_attacks(arguments.shared, Path(folder))
    blocks = {
        "figures": figures_table(results),
        "writers": families_table(off, on),
        "hacks": attacks_table(*probed),
        "guard": guard_table(arguments.shared),
    }
    publish(blocks, arguments.write)
    return 0


if __name__ == "__main__":
    sys.exit(main())
