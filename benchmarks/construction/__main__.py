"""``python -m benchmarks.construction``: build, score, print, bring docs/quality.md up to date."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from benchmarks.construction.measure import SETS, VARIANTS, Figures, measure, measure_whole
from benchmarks.construction.report import agreement_table, attacks_table, figures_table
from benchmarks.quality.report import write_block

REPOSITORY = Path(__file__).resolve().parents[2]


def main() -> int:
    """Run the benchmark; return the exit code."""
    arguments = _arguments()
    missing = [
        file for one in SETS for file in one.files if not (arguments.shared / file).is_file()
    ]
    if missing:
        print(
            f"error: {arguments.shared / missing[0]} is missing; name the folder of outside data "
            "with --shared or CONSENSUSPR_SHARED",
            file=sys.stderr,
        )
        return 2
    wanted = [one for one in SETS if arguments.only in (None, one.name)]
    rows: list[tuple[str, str, Figures]] = []
    for one in wanted:
        for variant in VARIANTS[: one.variants]:
            rows.append((one.name, variant.name, measure(one, variant, arguments.shared, _tell)))
            _tell(figures_table(rows[-1:]))
    blocks = {"construction": figures_table(rows)}
    if SETS[0] in wanted:
        whole = measure_whole(SETS[0], arguments.shared, _tell)
        blocks |= {"attacks": attacks_table(whole), "agreement": agreement_table(whole)}
    print(*blocks.values(), sep="\n\n")
    if arguments.write:
        for name, text in blocks.items():
            write_block(arguments.write, name, text)
    return 0


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _arguments() -> argparse.Namespace:
    shared = os.environ.get("CONSENSUSPR_SHARED")
    parser = argparse.ArgumentParser(prog="python -m benchmarks.construction", description=__doc__)
    parser.add_argument(
        "--shared",
        type=Path,
        default=Path(shared) if shared else REPOSITORY.parent / "shared",
        help="folder of outside data (default: CONSENSUSPR_SHARED, else ../shared)",
    )
    parser.add_argument("--only", metavar="SET", help="one set, by its name")
    parser.add_argument("--write", type=Path, metavar="FILE", help="bring its tables up to date")
    arguments = parser.parse_args()
    if arguments.only and arguments.write:
        parser.error("--write needs all sets; leave --only out")
    return arguments


if __name__ == "__main__":
    sys.exit(main())
