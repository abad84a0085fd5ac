"""``consensuspr replay``: score a run again from its log."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from consensuspr.cli.options import Json, RunFolder
from consensuspr.console import count_of, load_core, make_console
from consensuspr.scoring.types import SCORING_VERSION

if TYPE_CHECKING:
    from consensuspr.score_log.replay import Replay


def replay(
    run: RunFolder,
    *,
    dataset: Annotated[
        Path | None,
        typer.Option(metavar="PATH", help="Dataset, if the folder of the run has no copy."),
    ] = None,
    as_json: Json = False,
) -> int:
    """Score a run again and compare each reward with the logged one.

    ```text
    consensuspr replay runs/qwen3-4b
    ```

    Uses the datasets and settings of the run. Prints how many rewards are equal, and the reason of
    each change: another version, or an answer check that ran out of time. The exit code is 1 if a
    reward changed without such a reason, or if no sample could be scored.
    """
    load_core()
    from consensuspr.score_log.replay import replay as score_again

    with Console(stderr=True).status("scoring again") as status:
        result = score_again(run, dataset, lambda done: status.update(f"{done:,} samples"))
    if as_json:
        print(json.dumps(result.to_json()))
    else:
        for line in _lines(result):
            make_console().print(line, highlight=False, markup=False, soft_wrap=True)
    nothing = result.same + result.changed.total() == 0
    return 1 if nothing or result.unexplained else 0


def _lines(result: Replay) -> list[str]:
    lines = [f"{count_of(result.samples, 'sample')}: {result.same:,} with the same reward"]
    lines += [
        f"{count_of(number, 'sample')} of scoring version {version}: scored again with version"
        f" {SCORING_VERSION}, the only one of this release"
        for version, number in result.other_versions.items()
    ]
    lines += [f"{number:,} changed: {reason}" for reason, number in result.changed.items()]
    lines += [f"{number:,} not scored: {reason}" for reason, number in result.unscored.items()]
    for example in result.examples:
        was, now = example["was"], example["now"]
        lines.append(
            f"step {example['step']}, problem {example['problem_id']}: reward {was['reward']}"
            f" ({was['status']}) became {now['reward']} ({now['status']}): {example['reason']}"
        )
    return lines
