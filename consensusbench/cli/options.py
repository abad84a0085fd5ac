"""Options and settings that several commands share, and the scoring of rollouts."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Final, TypeAlias

import typer
from pydantic import Field

from consensusbench.evaluation.metrics import DIMENSIONS, EvaluationSettings
from consensusbench.evaluation.scored import ScoredSet, count_rollouts, dataset_warning, score_files
from consensuspr.cli.options import COLOR, NO_PROGRESS, ON_ERROR, OnErrorChoice
from consensuspr.console import ColorMode, count_progress
from consensuspr.errors import InputError
from consensuspr.scoring.rewards import CodeCredit
from consensuspr.settings import Settings


def file_argument(metavar: str, help: str) -> Any:
    """Return an argument that names a file, or several."""
    return typer.Argument(metavar=metavar, show_default=False, help=help)


def file_option(help: str, metavar: str = "FILE") -> Any:
    """Return an option that names a file, or several."""
    return typer.Option(metavar=metavar, show_default=False, help=help)


DatasetArgument: TypeAlias = Annotated[
    Path, file_argument("DATASET", "Dataset with nodes: JSONL, JSONL.gz or Parquet.")
]
RolloutsPaths: TypeAlias = Annotated[
    list[Path],
    file_argument(
        "ROLLOUTS...", "Files of rollouts: JSONL, JSONL.gz or Parquet. Scores in them are used."
    ),
]
DatasetPath: TypeAlias = Annotated[
    Path, typer.Option("--dataset", metavar="PATH", show_default=False, help="Dataset with nodes.")
]


CONFIDENCE: Final = "Level of the confidence intervals, between 0 and 1."


class ScoringSettings(Settings):
    """Settings of scoring files of rollouts and of showing results."""

    tokenizer: str | None = Field(
        None,
        description="Tokenizer that counts tokens if rollouts have no num_tokens: a tokenizer.json "
        "or a model's name on the hub.",
    )
    on_error: OnErrorChoice = Field(OnErrorChoice.STOP, description=ON_ERROR)
    code: CodeCredit = Field(
        CodeCredit.WRITTEN,
        description="Statements in program code count if the response writes their result "
        "(written), or always (computed).",
    )
    no_progress: bool = Field(False, description=NO_PROGRESS)
    color: ColorMode = Field(ColorMode.AUTO, description=COLOR)

    def score(
        self, rollouts: list[Path], dataset: Path, address: str | None, **options: Any
    ) -> ScoredSet:
        """Score files of rollouts with a progress bar; warn if the dataset looks wrong.

        Args:
            options: of :func:`~consensusbench.evaluation.scored.score_files`.
        """
        # Counting finds a bad row at the end of a long file before anything is scored.
        total = count_rollouts(rollouts) if self.on_error is OnErrorChoice.STOP else None
        with count_progress("scoring", total, "rollouts", hidden=self.no_progress) as advance_to:
            scored = score_files(
                rollouts,
                dataset,
                address=address,
                code=self.code,
                tokenizer=self.tokenizer,
                on_error=self.on_error.value,
                progress=advance_to,
                **options,
            )
        if (warning := dataset_warning(scored, dataset)) is not None:
            typer.echo(f"warning: {warning}", err=True)
        return scored


# Of ScoringSettings, those that every help shows in the panel of less common options.
SCORING_OPTIONS: Final[dict[str, str | None]] = {
    "tokenizer": "NAME",
    "code": None,
    "on_error": None,
    "color": None,
}


class FigureSettings(ScoringSettings):
    """Settings of the figures of scored rollouts."""

    k: str = Field("1", description="Values of k for pass@k, separated by commas.")
    confidence: float = Field(0.95, description=CONFIDENCE)

    def evaluation(self) -> EvaluationSettings:
        """Return the settings of an evaluation.

        Raises:
            InputError: a k is not a whole number of 1 or more.
        """
        parts = [part.strip() for part in self.k.split(",")]
        if not all(re.fullmatch("[1-9][0-9]{0,4}", part) for part in parts):
            raise InputError(
                f"--k takes whole numbers of 1 to 99999 and commas, got {self.k[:60]!r}"
            )
        return EvaluationSettings(tuple(sorted({*map(int, parts)})), self.confidence)


FIGURE_OPTIONS: Final[dict[str, str | None]] = {"k": "K,...", "confidence": "SHARE"}
DEFAULT_BY: Final = ",".join(DIMENSIONS)


def parse_dimensions(text: str) -> tuple[str, ...]:
    """Return the dimensions to group by; none for ``none``."""
    return () if text.strip() == "none" else tuple(part.strip() for part in text.split(","))
