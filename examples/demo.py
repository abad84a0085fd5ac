"""The whole of consensuspr in a minute: a real server, real gRPC, real scores.

Starts ``consensuspr serve`` on the sample dataset and scores the sample rollouts.  Prints the mean
of each reward of the paper by data source and by kind of rollout, explains one rollout, and stops
the server.  The score log is kept for ``watch``.

Run it with ``make demo``.  ``--svg FILE`` draws the picture of the README instead.
"""

from __future__ import annotations

import argparse
import io
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from statistics import fmean

from rich.console import Console
from rich.rule import Rule
from rich.table import Table

from consensuspr.client import RewardClient, RewardSpec
from consensuspr.console import load_core, make_console
from consensuspr.data import Row, read_rollouts
from consensuspr.scoring import Score, rollout_from_row
from consensuspr.scoring.explained import print_explanation

SAMPLE = Path(__file__).resolve().parent / "sample"
# The score log of the demo.
RUN = SAMPLE.parents[1] / "out" / "demo"

# Short, and wrong in its last step alone.
EXPLAINED = "sample-algebra-007-r4"

# The reward that the server computes.  The others follow from the same Acc and NCR.
REWARD = RewardSpec.linear(0.5)
# Heading, reward and epoch.
REWARDS = (
    ("linear 0.5", REWARD, 0),
    ("max", RewardSpec.maximum(), 0),
    ("curriculum, epoch 0", RewardSpec.curriculum(), 0),
    ("curriculum, epoch 1", RewardSpec.curriculum(), 1),
)

NEXT = """\
Next, with .venv/bin on the path:

  # Explain another rollout
  consensuspr explain examples/sample/rollouts.jsonl \\
      --dataset examples/sample/dataset.jsonl --rollout-id sample-comp-009-r3

  # Score your own rollouts
  consensuspr score examples/sample/rollouts.jsonl --dataset examples/sample/dataset.jsonl \\
      --reward max --output scored.jsonl

  # Look at the scores above in a browser
  pip install ".[web]"
  consensuspr watch out/demo --dataset examples/sample/dataset.jsonl"""


def table_by(column: str, title: str, rows: list[Row], scores: list[Score]) -> Table:
    """Return accuracy, coverage and each reward, averaged by a column of the rollouts."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column(title)
    for heading in ("Rollouts", "Acc", "NCR", "TPN", *(heading for heading, _, _ in REWARDS)):
        table.add_column(heading, justify="right")
    values = dict.fromkeys(row[column] for row in rows)
    for value in (*values, "all"):
        places = [at for at, row in enumerate(rows) if value in (row[column], "all")]
        if value == "all":
            table.add_section()
        acc, ncr = ([getattr(scores[at], name) for at in places] for name in ("acc", "ncr"))
        table.add_row(
            value.replace("_", " "),
            f"{len(places):,}",
            mean(".1%", acc),
            mean(".1%", ncr),
            mean(",.1f", [scores[at].tpn for at in places]),
            *(mean(".3f", reward.compute(acc, ncr, epoch)) for _, reward, epoch in REWARDS),
            style="bold" if value == "all" else "",
        )
    return table


def mean(form: str, values: Iterable[float | None]) -> str:
    """Return the mean of the known values as text."""
    return format(fmean(value for value in values if value is not None), form)


def explain(console: Console, client: RewardClient, rows: list[Row]) -> None:
    """Explain one rollout: all its steps but the last are right, which an outcome cannot show."""
    row = next(row for row in rows if row["rollout_id"] == EXPLAINED)
    explanation = client.explain(rollout_from_row(row), reward=REWARD)
    title = f"{row['rollout_id']} ({row['case'].replace('_', ' ')})"
    expected = row.get("ground_truth")
    print_explanation(console, explanation, title=title, expected=expected)


def show(console: Console, client: RewardClient, rows: list[Row]) -> None:
    """Score everything and print tables and one explanation."""
    scores = list(client.score([rollout_from_row(row) for row in rows], reward=REWARD))
    console.print(Rule("Rewards of the rollouts, by data source", align="left"))
    console.print(table_by("data_source", "Data source", rows, scores))
    console.print()
    console.print(Rule("… and by kind of rollout", align="left"))
    console.print(table_by("case", "Kind of rollout", rows, scores))
    console.print()
    console.print(Rule("Why one of them got its reward", align="left"))
    explain(console, client, rows)


def draw(path: Path, client: RewardClient, rows: list[Row]) -> None:
    """Write the explanation of one rollout as a picture."""
    console = Console(
        record=True, width=88, file=io.StringIO(), color_system="standard", force_terminal=True
    )
    explain(console, client, rows)
    path.parent.mkdir(parents=True, exist_ok=True)
    picture = console.export_svg(title="consensuspr explain", unique_id="explain")
    # The reader's browser would fetch the font from a server; any font will do.
    path.write_text(re.sub(r"@font-face \{.*?\}\s*", "", picture, flags=re.DOTALL))


def main() -> int:
    """Run the demo, or draw it; return the exit code."""
    parser = argparse.ArgumentParser(description="Score the sample rollouts by a real server.")
    parser.add_argument("--svg", type=Path, metavar="FILE", help="draw the explanation instead")
    svg: Path | None = parser.parse_args().svg
    console = make_console()
    backend = load_core()
    rows = list(read_rollouts(SAMPLE / "rollouts.jsonl"))
    shutil.rmtree(RUN, ignore_errors=True)
    command = [sys.executable, "-m", "consensuspr.cli", "serve", "--address", "127.0.0.1:0"]
    command += ["--dataset", str(SAMPLE / "dataset.jsonl"), "--score-log", str(RUN)]
    command += ["--log-level", "warning"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            line = server.stdout.readline()
            if not line.startswith("listening on "):
                raise SystemExit(f"the server did not start, it printed {line!r}")
            address = line.split()[-1]
            console.print(f"consensuspr serve is listening on {address} ({backend} core)")
            with RewardClient(address, timeout_s=60) as client:
                if svg:
                    draw(svg, client, rows)
                else:
                    show(console, client, rows)
        finally:
            server.send_signal(signal.SIGTERM)
    console.print(f"\nThe server has drained and stopped with exit code {server.returncode}.\n")
    if not svg:
        console.print(NEXT, markup=False)
    return server.returncode


if __name__ == "__main__":
    sys.exit(main())
