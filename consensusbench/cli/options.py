"""What the commands share that score rollouts: files, settings, and the scoring itself."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Final, TypeAlias

import typer
from pydantic import Field

from consensusbench.evaluation.metrics import DIMENSIONS, EvaluationSettings
from consensusbench.evaluation.scored import ScoredSet, count_rollouts, dataset_warning, score_files
from consensuspr.cli.options import OnErrorChoice
from consensuspr.console import ColorMode, count_progress
from consensuspr.errors import InputError
from consensuspr.scoring.rewards import CodeCredit
from consensuspr.settings import Settings

RolloutsPaths: TypeAlias = Annotated[
    list[Path],
    typer.Argument(
        metavar="ROLLOUTS...",
        show_default=False,
        help="Rollouts: JSONL, JSONL.gz or Parquet; scored ones are not scored again.",
    ),
]
DatasetPath: TypeAlias = Annotated[
    Path,
    typer.Option(
        "--dataset",
        metavar="PATH",
        show_default=False,
        help="Dataset with nodes and ground truths.",
    ),
]


class ScoringSettings(Settings):
    """Settings of scoring files of rollouts and of showing results."""

    tokenizer: str | None = Field(
        None,
        description="Counts tokens where rollouts have no num_tokens: a tokenizer.json, or a "
        "model's name on the hub.",
    )
    on_error: OnErrorChoice = Field(
        OnErrorChoice.STOP,
        description="At a bad row: stop before anything is written, or skip and count it.",
    )
    code: CodeCredit = Field(
        CodeCredit.WRITTEN,
        description="A statement in code counts if its result is written, or always (computed).",
    )
    no_progress: bool = Field(False, description="Show no progress bar.")
    color: ColorMode = Field(
        ColorMode.AUTO, description="When to colour; auto: on a terminal only."
    )

    def score(
        self,
        rollouts: list[Path],
        dataset: Path,
        address: str | None,
        *,
        spans: bool = False,
        plain: bool = False,
        scored_output: Path | None = None,
    ) -> ScoredSet:
        """Score files of rollouts with a progress bar; warn if the dataset looks wrong."""
        # Counting finds a bad row at the end of a long file before anything is scored.
        total = count_rollouts(rollouts) if self.on_error is OnErrorChoice.STOP else None
        with count_progress("scoring", total, "rollouts", hidden=self.no_progress) as advance_to:
            scored = score_files(
                rollouts,
                dataset,
                address=address,
                spans=spans,
                plain=plain,
                code=self.code,
                tokenizer=self.tokenizer,
                on_error=self.on_error.value,
                scored_output=scored_output,
                progress=advance_to,
            )
        if (warning := dataset_warning(scored, dataset)) is not None:
            typer.echo(f"warning: {warning}", err=True)
        return scored


# Of ScoringSettings, what every help shows.
SCORING_OPTIONS: Final[dict[str, str | None]] = {
    "tokenizer": "NAME",
    "code": None,
    "on_error": None,
}


class FigureSettings(ScoringSettings):
    """How figures are made of scored rollouts."""

    k: str = Field("1", description="The k of pass@k, separated by commas.")
    confidence: float = Field(0.95, description="Level of the intervals, between 0 and 1.")
    seed: int = Field(0, ge=0, description="Of resampling.")

    def evaluation(self) -> EvaluationSettings:
        """Return the settings of an evaluation.

        Raises:
            InputError: a k is no whole number of 1 or more.
        """
        return EvaluationSettings(parse_ks(self.k), self.confidence, self.seed)


FIGURE_OPTIONS: Final[dict[str, str | None]] = {"k": "K,...", "confidence": "SHARE", "seed": None}
DEFAULT_BY: Final = ",".join(DIMENSIONS)


def parse_ks(text: str) -> tuple[int, ...]:
    """Return the k of pass@k, ascending.

    Raises:
        InputError: one of them is no whole number of 1 or more.
    """
    ks = set()
    for part in text.split(","):
        if not re.fullmatch(r"\s*0*[1-9][0-9]{0,5}\s*", part) or int(part) > 100_000:
            raise InputError(
                f"--k takes whole numbers of 1 to 100000 and commas, got {text[:60]!r}"
            )
        ks.add(int(part))
    return tuple(sorted(ks))


def parse_dimensions(text: str) -> tuple[str, ...]:
    """Return the dimensions to group by; none for ``none``."""
    if text.strip() == "none":
        return ()
    return tuple(part.strip() for part in text.split(","))
