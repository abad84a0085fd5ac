"""``python -m benchmarks.quality``: measure, print, and bring docs/quality.md up to date."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from benchmarks.quality.measure import (
    GOLD_NODES,
    ROLLOUTS,
    count_forms,
    measure,
    read_gold,
    read_responses,
)
from benchmarks.quality.report import (
    figures_table,
    forms_table,
    misses_table,
    sample_of_misses,
    write_block,
)

REPOSITORY = Path(__file__).resolve().parents[2]


def main() -> int:
    """Run the benchmark; return the exit code."""
    arguments = _arguments()
    if not (arguments.shared / GOLD_NODES).is_file():
        print(
            f"error: {arguments.shared / GOLD_NODES} is missing; name the folder of outside data "
            "with --shared or CONSENSUSPR_SHARED",
            file=sys.stderr,
        )
        return 2
    results = measure(arguments.shared, arguments.in_process)
    problems = read_gold(arguments.shared)
    known = {problem.problem_id for problem in problems}
    files = [read_responses(arguments.shared / path, known) for path in ROLLOUTS.values()]
    num_nodes = sum(len(problem.nodes) for problem in problems)
    blocks = {
        "figures": figures_table(results),
        "forms": forms_table(count_forms(problems, files), num_nodes),
        "misses": misses_table(results),
    }
    print(*blocks.values(), sep="\n\n")
    if arguments.sample_misses:
        print(
            "", sample_of_misses(results.misses, arguments.sample_misses, arguments.seed), sep="\n"
        )
    if arguments.write:
        for name, text in blocks.items():
            write_block(arguments.write, name, text)
    return 0


def _arguments() -> argparse.Namespace:
    shared = os.environ.get("CONSENSUSPR_SHARED")
    parser = argparse.ArgumentParser(prog="python -m benchmarks.quality", description=__doc__)
    parser.add_argument(
        "--shared",
        type=Path,
        default=Path(shared) if shared else REPOSITORY.parent / "shared",
        help="folder of outside data (default: CONSENSUSPR_SHARED, else ../shared)",
    )
    parser.add_argument("--in-process", action="store_true", help="score without a server")
    parser.add_argument("--write", type=Path, metavar="FILE", help="bring its tables up to date")
    parser.add_argument(
        "--sample-misses", type=int, default=0, metavar="N", help="also print N misses to read"
    )
    parser.add_argument("--seed", type=int, default=0, help="of that sample (0)")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
