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
from consensuspr.cli.options import Address, Json, with_settings
from consensuspr.console import count_of, count_progress, make_console
from consensuspr.errors import InputError
from consensuspr.scoring.types import AnswerRule
from consensuspr.web import require_web

if TYPE_CHECKING:
    from consensuspr.web.figures import PageReport
    from consensuspr.web.sources import Source


class PageSettings(FigureSettings):
    """Settings of ``report``."""

    title: str = Field("", description="Heading of the page; by default made of file names.")
    answer_rule: AnswerRule | None = Field(
        None,
        description="Rule that the rollouts were asked to follow, for format errors; auto sees "
        "right answers anywhere. By default the one the scores were made with.",
    )
    no_probes: bool = Field(False, description="Leave out the attacks on the dataset's nodes.")


@with_settings(
    PageSettings,
    prefix="CONSENSUSBENCH_REPORT",
    shown={
        "title": "TEXT",
        **FIGURE_OPTIONS,
        "answer_rule": None,
        "no_probes": None,
        **SCORING_OPTIONS,
    },
)
def report(
    rollouts: Annotated[
        list[Path],
        file_argument(
            "ROLLOUTS|RUN…",
            "Rollouts, scored or not: JSONL, JSONL.gz or Parquet; or folders of runs with their "
            "score logs.",
        ),
    ],
    *,
    dataset: Annotated[
        Path | None, file_option("Dataset of the rollouts, or of a run that keeps none.")
    ] = None,
    output: Annotated[Path, file_option("The page, for example r.html.")],
    address: Address = None,
    settings: PageSettings,
    as_json: Json = False,
) -> None:
    """Write pages to keep about rollouts or runs: figures, charts, and every rollout itself.

    ```text
    consensusbench report rollouts.jsonl --dataset dataset.jsonl --output report.html
    consensusbench report a.jsonl b.jsonl --dataset dataset.jsonl --output report.html --k 1,8
    consensusbench report runs/linear runs/outcome --output runs.html
    ```

    They are the pages of `consensuspr watch`, as they stand now: samples, groups and problems
    with every text and hit. Rollouts have a report before them: figures with intervals, what
    rewards would tell a trainer, attacks on the nodes. All of it is one file that loads nothing
    and can be mailed. It offers one choice of samples at a time; `watch` filters, sorts and
    searches.
    """
    require_web("consensusbench report")
    from consensusbench.report.page import write_pages
    from consensuspr.web.sources import LogSource

    folders = [path for path in rollouts if path.is_dir()]
    if folders and len(folders) < len(rollouts):
        raise InputError("report takes rollouts or runs, not both at a time")
    if output.suffix.lower() not in (".html", ".htm"):
        raise InputError(f"{output}: a report is a page; give it a name that ends in .html")
    check_outputs((output,), (*rollouts, dataset))
    hidden = settings.no_progress
    story: PageReport | None = None
    if folders:
        sources: list[Source] = [LogSource(run, following=False) for run in folders]
    else:
        story, sources = _evaluated(rollouts, dataset, address, settings)
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
        raise InputError("a report about rollouts needs their dataset: --dataset FILE")
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
