"""``consensusbench sample``: rollouts from language models, correct ones or all."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from pydantic import Field

from consensusbench import check_outputs
from consensusbench.cli.options import file_argument, file_option
from consensusbench.llm import read_models
from consensusbench.sampling.job import Sampler
from consensusbench.sampling.plan import SampleSettings
from consensusbench.tables import Row, Table, number, print_result, words
from consensuspr.cli.options import (
    MORE,
    NO_PROGRESS,
    Color,
    Json,
    OnErrorChoice,
    flag,
    with_settings,
)
from consensuspr.console import ColorMode, count_of, count_progress, make_console, one_line
from consensuspr.errors import ConsensusPRError

HEADINGS = ("Rollouts", "Correct", "Undecided", "Cut", "Refused", "Tokens", "Cost")


class SampleOptions(SampleSettings):
    """The settings of ``sample``."""

    on_error: OnErrorChoice = Field(
        OnErrorChoice.STOP,
        description="At a bad row: stop before the first request, or skip and count it.",
    )
    no_progress: bool = Field(False, description=NO_PROGRESS)


@with_settings(
    SampleOptions,
    prefix="CONSENSUSBENCH_SAMPLE",
    shown={
        "per_problem": "N",
        "samples": "K",
        "temperature": "T",
        "max_tokens": "N",
        "max_cost": "USD",
    },
    more={"concurrency": "N", "on_error": None},
)
def sample(
    problems: Annotated[
        Path, file_argument("PROBLEMS", "File of problems: JSONL, JSONL.gz or Parquet.")
    ],
    *,
    output: Annotated[Path, file_option("File of rollouts: .jsonl, .jsonl.gz or .parquet.")],
    model: Annotated[
        list[str] | None,
        file_option(
            "Model to ask, at OpenAI or at an address; repeat it for several.",
            "NAME[@BASE_URL]",
        ),
    ] = None,
    models: Annotated[
        Path | None,
        file_option("TOML file of models: addresses, prices, limits, keys."),
    ] = None,
    finish: Annotated[
        bool,
        flag("--finish", "Send no requests; write the rollouts of a stopped run.", MORE),
    ] = False,
    settings: SampleOptions,
    as_json: Json = False,
    color: Color = ColorMode.AUTO,
) -> int:
    """Sample rollouts from OpenAI-compatible models.

    ```text
    consensusbench sample problems.jsonl --model gpt-5-mini --output rollouts.jsonl
    consensusbench sample problems.jsonl --models models.toml --max-cost 20 --output r.jsonl
    consensusbench sample test.jsonl --model qwen@http://gpu:8000/v1 --samples 16 --output k.jsonl
    ```

    Asks the models in turn, with the paper's prompt, until each problem has `--per-problem`
    correct rollouts. Wrong rollouts are in the output too, with `correct: false`. The key is
    `OPENAI_API_KEY`, or the variable that the models file names.

    Every reply is kept in `OUTPUT.journal`. If the command stops, run it again: it asks for no
    reply twice. It writes the output at the end.
    """
    defaults = settings.model_dump(include={"temperature", "top_p", "max_tokens", "concurrency"})
    check_outputs((output,), (problems, models))
    asked = read_models(model or (), models, defaults)
    sampler = Sampler(problems, output, asked, settings, settings.on_error.value)
    # Once before all else, so that a bad row stops the command before anything is paid.
    total = sum(1 for _ in sampler.read())
    hidden = settings.no_progress
    with count_progress("sampling", total, "problems", hidden=hidden) as advance_to:
        asyncio.run(sampler.run(advance_to, finish=finish))
    if sampler.report is not None:
        if as_json:
            print(json.dumps(asdict(sampler.report)))
        else:
            columns = [words("Model"), *map(number, HEADINGS)]
            table = Table("", columns, [[_cells(*item) for item in sampler.report.models.items()]])
            print_result(make_console(color), [table], _notes(sampler))
    return _end(sampler, total)


def _end(sampler: Sampler, total: int) -> int:
    """Print the reason of an unfinished run, and return the exit code."""
    go_on = (
        f"{sampler.finished:,} of {total:,} problems are finished; run the same command again to "
        "continue, or with --finish to write the rollouts so far"
    )
    if sampler.signal is not None:
        print(f"consensusbench: stopped by {sampler.signal.name}: {go_on}", file=sys.stderr)
        return 128 + sampler.signal
    if sampler.stopped_by is not None:
        raise ConsensusPRError(f"{one_line(str(sampler.stopped_by), 1000)}; {go_on}")
    for name, reason in sampler.gone.items():
        print(f"warning: stopped asking {name}: {one_line(reason, 300)}", file=sys.stderr)
    for problem, reason in sampler.unfinished.items():
        raise ConsensusPRError(
            f"{len(sampler.unfinished):,} of {total:,} problems have no reply yet, "
            f"the first {one_line(problem)!r} ({one_line(reason, 300)}); "
            "run the same command again to continue"
        )
    return 0


def _cells(model: str, count: dict[str, float]) -> Row:
    rollouts, correct = count["rollouts"], count["correct"]
    return [
        model,
        rollouts,
        f"{correct:,} ({100 * correct / rollouts:.1f} %)" if rollouts else None,
        *(count[name] for name in ("undecided", "cut", "refused", "completion_tokens")),
        f"${count['cost']:,.2f}" if count["cost"] else None,
    ]


def _notes(sampler: Sampler) -> Iterator[str]:
    """Return the number of rows, and how many problems are complete."""
    report = sampler.report
    assert report is not None, "rollouts are written"
    yield f"{sampler.output}: {count_of(report.rows, 'row')}"
    counts = report.problems
    parts = [f"{count_of(counts.get('complete', 0), 'problem')} complete"]
    if "enough" in counts:
        parts.append(
            f"{counts['enough']:,} with fewer rollouts than asked for, but at least the minimum"
        )
    for first in list(report.few)[:1]:
        is_counted = sampler.settings.samples is not None
        missing = "with samples missing" if is_counted else "with too few correct rollouts"
        parts.append(f"{len(report.few):,} {missing} (first: {one_line(first)!r})")
    for first, reason in list(report.not_asked.items())[:1]:
        parts.append(f"{len(report.not_asked):,} not asked (first: {one_line(first)!r}, {reason})")
    yield ", ".join(parts)
