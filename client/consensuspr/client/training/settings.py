"""The settings of a reward in training, and the epoch that a curriculum needs.

Names, defaults and limits are the same in every trainer; an unknown key is an error.  The epoch is
computed from the step of each sample, never counted: a worker sees a random share of the samples.
"""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Mapping
from pathlib import Path
from string import Formatter
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BeforeValidator,
    ByteSize,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)

from consensuspr.client.transport import Access
from consensuspr.credentials import TOKEN_FILE_VARIABLE
from consensuspr.errors import InputError, did_you_mean
from consensuspr.pages import page
from consensuspr.scoring.reward_options import RewardOptions
from consensuspr.scoring.types import check_digest, check_label
from consensuspr.settings import what_is_wrong

logger = logging.getLogger(__name__)

ADDRESS_VARIABLE = "CONSENSUSPR_ADDRESS"
DEFAULT_ADDRESS = "127.0.0.1:50051"

# What a problem id may be put together from, besides fixed text.
ID_FIELDS = ("data_source", "index", "split")


def _finite_unless(*words: str | None) -> BeforeValidator:
    """Let these words and finite numbers through, also as a command line's text."""

    def check(value: Any) -> object:
        try:
            number = math.nan if isinstance(value, bool) else float(value)
        except (TypeError, ValueError):
            number = math.nan
        if value not in words and not math.isfinite(number):
            raise ValueError(f"must be 'raise' or a finite number, got {value!r}")
        return value if value in words else number

    return BeforeValidator(check)


Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1)]


class RewardSettings(RewardOptions):
    """How a trainer's samples are rewarded, and what happens when they cannot be."""

    dataset_path: Path | None = Field(
        None,
        description="Dataset file. The trainer scores with it in this process, if the server is"
        " away or no address is set.",
    )
    # Behind dataset_path, on which its default depends.
    address: str | None = Field(
        None,
        validate_default=True,
        description="HOST:PORT of the server, or of several, separated by commas. Default:"
        f" ${ADDRESS_VARIABLE}, else none with dataset_path, else {DEFAULT_ADDRESS}.",
    )
    dataset: str | None = Field(None, description="Name of the dataset, if the server has several.")
    expect_digest: str | None = Field(
        None, description="Digest that the dataset must have; with another one the run fails."
    )
    grown_nodes: Path | None = Field(
        None,
        description="Folder of datasets that `consensusbench grow` writes during the run. Each"
        " epoch uses the newest.",
    )
    run: str | None = Field(
        None, description="Name of the run, for the server's queues and metrics."
    )
    timeout_s: Seconds = Field(
        60.0, description="Seconds to wait for the score of a sample, including retries."
    )
    on_unavailable: Literal["wait", "raise"] = Field(
        "wait",
        description="If the server is unreachable and dataset_path is not set: wait (wait), or"
        " fail (raise).",
    )
    unavailable_limit_s: Seconds = Field(
        1800.0, description="Seconds that a sample waits for the server before it fails."
    )
    on_unscorable: Annotated[Literal["raise"] | float, _finite_unless("raise")] = Field(
        "raise", description="Reward of a sample that cannot be scored, or raise to fail."
    )
    without_nodes: Annotated[
        Literal["acc", "raise"] | float | None, _finite_unless("raise", "acc", None)
    ] = Field(
        None,
        description="Reward of a sample whose problem has no nodes: its Acc (acc), a number, or"
        " raise to fail. Default: on_unscorable; with grown_nodes, acc.",
    )
    max_unscorable: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)] = Field(
        0.01,
        description="Highest share of samples that cannot be scored, of at least 1,000. With more"
        " the run ends.",
    )
    validate_by_acc: bool = Field(
        True, description="Use Acc as the reward of validation samples whose problem has no nodes."
    )
    steps_per_epoch: Count | None = Field(
        None, description="Training steps of an epoch, if the trainer does not pass them."
    )
    epoch: Annotated[int, Field(ge=0)] | None = Field(
        None, description="Fixed epoch for the curriculum, if each stage is a separate run."
    )
    problem_id_format: str | None = Field(
        None,
        description="Format of problem ids, for rows with an index and no problem_id. Default:"
        " {data_source}/{index}, for test and val rows {data_source}/{split}/{index}.",
    )
    score_log: Path | None = Field(
        None,
        description="Folder of the run, to which each sample is logged. See"
        f" {page('The score log')}.",
    )
    score_log_bytes: Annotated[ByteSize, Field(ge=0)] = Field(
        ByteSize(20 << 30),
        description="Bytes on disk for the texts in score_log. The oldest are deleted first; 0"
        " keeps none.",
    )
    token_file: Path | None = Field(
        None, description=f"File with the token for the server. Default: ${TOKEN_FILE_VARIABLE}."
    )
    tls_ca: Path | None = Field(
        None, description="CA certificates (PEM) of the server; turns TLS on."
    )
    tls_cert: Path | None = Field(
        None, description="Certificate of the client (PEM), if the server needs one; turns TLS on."
    )
    tls_key: Path | None = Field(
        None, description="Private key (PEM, not encrypted) of the certificate."
    )

    @field_validator("address")
    @classmethod
    def _check_address(cls, value: str | None, info: ValidationInfo) -> str | None:
        from consensuspr.client.servers import split_addresses

        if value is None:
            no_server = None if info.data.get("dataset_path") else DEFAULT_ADDRESS
            value = os.environ.get(ADDRESS_VARIABLE) or no_server
        if value is not None:
            split_addresses(value)
        return value

    @field_validator("expect_digest", "run")
    @classmethod
    def _check_text(cls, value: str | None, info: ValidationInfo) -> str | None:
        if value is not None:
            check_label("run", value) if info.field_name == "run" else check_digest(value)
        return value

    @field_validator("problem_id_format")
    @classmethod
    def _check_format(cls, value: str | None) -> str | None:
        if value is None:
            return value
        try:
            fields = [name for _, name, _, _ in Formatter().parse(value) if name is not None]
        except ValueError as error:
            raise ValueError(f"must be a format string, got {value!r} ({error})") from None
        unknown = [name for name in fields if name not in ID_FIELDS]
        if unknown or "index" not in fields:
            raise ValueError(
                f"must hold {{index}} and of {', '.join(ID_FIELDS)} at most these, got {value!r}"
            )
        return value

    @model_validator(mode="after")
    def _check_grown(self) -> Self:
        for name in ("dataset", "expect_digest", "dataset_path"):
            if self.grown_nodes is not None and getattr(self, name) is not None:
                raise ValueError(
                    f"{name} has no effect with grown_nodes, which has a dataset for each epoch;"
                    f" remove it, got {getattr(self, name)}"
                )
        return self

    @classmethod
    def of(cls, values: Mapping[str, Any], source: str) -> Self:
        """Check the settings that a trainer was given.

        Args:
            values: by name.
            source: of the values, for error messages.

        Raises:
            InputError: a key is unknown or a value is wrong.
        """
        for key in values:
            if key not in cls.model_fields:
                known = f"; known: {', '.join(cls.model_fields)}"
                hint = did_you_mean(str(key), cls.model_fields, known)
                raise InputError(f"unknown setting {key!r} in {source}{hint}")
        try:
            return cls(**values)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            name = first["loc"][0] if first["loc"] else "settings"
            raise InputError(f"{source}.{name}: {what_is_wrong(first)}") from None

    @property
    def access(self) -> Access:
        """Token and TLS; raises InputError if a file cannot be used."""
        return Access(self.token_file, self.tls_ca, self.tls_cert, self.tls_key)

    def check_files(self) -> None:
        """Check the files that rewards need; raise InputError if one cannot be used."""
        self.access  # noqa: B018  # reads its files
        if self.dataset_path is not None and not self.dataset_path.is_file():
            raise InputError(f"dataset_path: file not found: {self.dataset_path}")
        if self.grown_nodes is not None and not self.grown_nodes.is_dir():
            raise InputError(f"grown_nodes: folder not found: {self.grown_nodes}")

    @property
    def needs_epoch(self) -> str | None:
        """The setting that makes a reward depend on the epoch, None without one."""
        if self.grown_nodes is not None:
            return "grown_nodes"
        return "reward=curriculum" if self.reward == "curriculum" else None

    @property
    def instead_of_nodes(self) -> str | float | None:
        """``without_nodes``, by default Acc while nodes are still to come."""
        if self.without_nodes is None and self.grown_nodes is not None:
            return "acc"
        return self.without_nodes


class EpochClock:
    """Returns the epoch of a sample, and logs when the curriculum switches.

    A fixed epoch of the settings takes precedence over the step, and the step over the epoch that
    a trainer passes.  Raises InputError if the reward needs the epoch, and it cannot be known.

    Args:
        settings: of the reward; their ``steps_per_epoch`` takes precedence.
        steps_per_epoch: as the trainer knows it.
        unknown: why that is None, a clause; None if the epoch comes with the samples.
        missing: why a sample may come without it, a clause as well.
    """

    def __init__(
        self,
        settings: RewardSettings,
        steps_per_epoch: int | None = None,
        unknown: str | None = None,
        missing: str = "the sample came without its step (global_steps)",
    ) -> None:
        self._settings = settings
        self._steps_per_epoch = settings.steps_per_epoch or steps_per_epoch
        self._missing = missing
        # Late samples of the first stage may follow the switch.
        self._announced: set[bool] = set()
        if unknown is not None and settings.epoch is None and not self._steps_per_epoch:
            self._check_needless(
                f"which cannot be known: {unknown}; set steps_per_epoch, or a fixed epoch in one"
            )

    def epoch_of(self, step: int | None, epoch: int | None = None) -> int:
        """Return the epoch, from 0, of a sample; raise InputError if it is needed and unknown.

        Args:
            step: counted from 1; 0 or less is validation before training; None: unknown.
            epoch: as the trainer passes it.
        """
        settings = self._settings
        if settings.epoch is not None:
            epoch = settings.epoch
        elif step is not None and self._steps_per_epoch:
            epoch = max(0, (step - 1) // self._steps_per_epoch)
        if epoch is None:
            self._check_needless(f"and {self._missing}; set a fixed epoch in one")
            return 0
        by_acc = epoch >= settings.switch_epoch
        if settings.reward == "curriculum" and by_acc not in self._announced:
            self._announced.add(by_acc)
            logger.warning(
                "curriculum: %s is rewarded from here on (epoch %d, step %s, switch_epoch %d)",
                "Acc" if by_acc else "NCR",
                epoch,
                "unknown" if step is None else step,
                settings.switch_epoch,
            )
        return epoch

    def _check_needless(self, reason: str) -> None:
        needed = self._settings.needs_epoch
        if needed:
            raise InputError(f"{needed} needs the epoch, {reason} run per stage")


def progress_of(state: Any) -> tuple[int | None, int | None]:
    """Return the step, from 1, and the epoch, from 0, that a trainer of transformers is making.

    Args:
        state: a ``transformers.TrainerState`` with a fractional ``epoch`` and the steps done; None
            if the trainer passes none.
    """
    return (None, None) if state is None else (int(state.global_step) + 1, int(state.epoch or 0))
