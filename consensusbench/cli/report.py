"""``consensusbench report``: pages about rollouts or runs, to keep."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from consensusbench import check_outputs
from consensusbench.cli.options import (
    FIGURE_OPTIONS,
    SCORING_OPTIONS,
    FigureSettings,
    file_argument,
    file_option,
)
from consensuspr.cli.options import Json, MoreAddress, with_settings
from consensuspr.console import count_of, count_progress, make_console
from consensuspr.errors import InputError
from consensuspr.scoring.types import AnswerRule
from consensuspr.web import require_web

if TYPE_CHECKING:
    from consensuspr.web.figures import PageReport
    from consensuspr.web.sources import Source


class PageSettings(FigureSettings):
    """Settings of ``report``."""

    title: str = Field("", description="Heading of the page. Default: the file names.")
    answer_rule: AnswerRule | None = Field(
        None,
        description="Answer rule that the prompt asked for: auto, dapo, boxed or gsm8k. Default: "
        "the rule of the scores.",
    )
    no_probes: bool = Field(False, description="Leave out the attacks on the nodes.")


@with_settings(
    PageSettings,
    prefix="CONSENSUSBENCH_REPORT",
    shown={
        "title": "TEXT",
        **FIGURE_OPTIONS,
        "answer_rule": "NAME",
        "no_probes": None,
    },
    more=SCORING_OPTIONS,
)
def report(
    rollouts: Annotated[
        list[Path],
        file_argument(
            "ROLLOUTS|RUN…",
            "Files of rollouts, or folders of runs with score logs.",
        ),
    ],
    *,
    dataset: Annotated[
        Path | None, file_option("Dataset of the rollouts; of a run, if its folder has no copy.")
    ] = None,
    output: Annotated[Path, file_option("HTML file to write.")],
    settings: PageSettings,
    address: MoreAddress = None,
    as_json: Json = False,
) -> None:
    """Write a report of rollouts or runs as one HTML file.

    ```text
    consensusbench report rollouts.jsonl --dataset dataset.jsonl --output report.html
    consensusbench report runs/linear runs/outcome --output runs.html
    ```

    The file has the pages of `consensuspr watch`, with every text and hit, and needs no other file.
    A report of rollouts begins with figures and intervals, how rewards separate them, and attacks
    on the nodes. To filter and search, use `consensuspr watch`.
    """
    require_web("consensusbench report")
    from consensusbench.report.page import write_pages
    from consensuspr.web.sources import LogSource, name_apart

    folders = [path for path in rollouts if path.is_dir()]
    if folders and len(folders) < len(rollouts):
        raise InputError("give files of rollouts or folders of runs, not both")
    if output.suffix.lower() not in (".html", ".htm"):
        raise InputError(f"--output must end in .html, got {str(output)!r}")
    check_outputs((output,), (*rollouts, dataset))
    hidden = settings.no_progress
    story: PageReport | None = None
    if folders:
        sources: list[Source] = [LogSource(run, following=False) for run in folders]
    else:
        story, sources = _evaluated(rollouts, dataset, address, settings)
    name_apart(sources)
    title = settings.title or ", ".join(source.name for source in sources)
    with count_progress("keeping", None, "rollouts", hidden=hidden) as advance_to:
        written = write_pages(sources, dataset, output, title, story, advance_to)
    if as_json:
        print(json.dumps(written.to_json()))
        return
    console = make_console(settings.color)
    console.print(
        f"{written.path}: {written.size_bytes / 1e6:.1f} MB,"
        f" {count_of(written.samples, 'rollout')}",
        markup=False,
        soft_wrap=True,
    )
    for warning in written.warnings:
        console.print(warning, style="yellow", markup=False, soft_wrap=True)


def _evaluated(
    rollouts: list[Path], dataset: Path | None, address: str | None, settings: PageSettings
) -> tuple[PageReport, list[Source]]:
    from consensusbench.evaluation.metrics import DIMENSIONS, check
    from consensusbench.report.page import prepare

    if dataset is None:
        raise InputError("a report of rollouts needs --dataset FILE")
    figures = settings.evaluation()
    check(DIMENSIONS, figures)
    scored = settings.score(rollouts, dataset, address, spans=True, plain=True)
    hidden = settings.no_progress or settings.no_probes
    with count_progress("probing", len(scored.problems), "problems", hidden=hidden) as advance_to:
        return prepare(
            scored,
            dataset,
            title=settings.title,
            answer_rule=settings.answer_rule,
            probes=not settings.no_probes,
            figures=figures,
            progress=advance_to,
        )
