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
        typer.Option(metavar="PATH", help="Dataset, for samples whose own the run does not keep."),
    ] = None,
    as_json: Json = False,
) -> int:
    """Score every sample of a run again, and compare each reward with the logged one.

    ```text
    consensuspr replay runs/qwen3-4b
    ```

    With the datasets and settings that the score log keeps, in this process. What cannot be
    scored again, or comes out otherwise for a known reason (another version, an answer left open
    by its budget), is counted with that reason. Exits with 1 if a reward changed without one, or
    if no sample could be scored.
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
    lines = [f"{count_of(result.samples, 'sample')}: {result.same:,} as they were"]
    lines += [
        f"scoring version {version} of {count_of(number, 'sample')} is not emulated: this release"
        f" scored them by version {SCORING_VERSION}"
        for version, number in result.other_versions.items()
    ]
    lines += [f"{number:,} changed: {reason}" for reason, number in result.changed.items()]
    lines += [f"{number:,} not scored: {reason}" for reason, number in result.unscored.items()]
    for example in result.examples:
        was, now = example["was"], example["now"]
        lines.append(
            f"step {example['step']}, problem {example['problem_id']}: reward {was['reward']}"
            f" ({was['status']}) is {now['reward']} ({now['status']}): {example['reason']}"
        )
    return lines
