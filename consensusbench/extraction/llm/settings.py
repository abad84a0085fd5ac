"""What the model is asked, and what of its reply is believed."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Literal, TypeAlias

from consensuspr.data import Row
from consensuspr.errors import InputError

Structured: TypeAlias = Literal["auto", "json_schema", "off"]
_STRUCTURED = ("auto", "json_schema", "off")


@dataclass(frozen=True, slots=True)
class LlmSettings:
    """Thresholds and limits of the extractor by a model.

    Attributes:
        min_support: correct rollouts that must state a node.
        max_nodes: nodes asked for; what a reply lists beyond is dropped.
        max_wordings: wordings of one node that are looked at and kept.
        max_wording_chars: length of one wording; the core derives forms up to 512.
        max_prompt_rollouts: rollouts shown to the model; support is counted over all.
        max_prompt_chars: bound on the quoted problem and rollouts together.
        max_reply_chars: a longer reply is not read.
        re_asks: times that a malformed reply is sent back with what is wrong with it.
        temperature: of the replies; None leaves it to the model's settings.
        seed: asks servers that can for repeatable replies.
        structured: whether the server is asked to keep the reply to the JSON schema:
            ``json_schema`` always, ``off`` never, ``auto`` until the server refuses it.

    Raises:
        InputError: a value is out of its range.
    """

    min_support: int = 2
    max_nodes: int = 16
    max_wordings: int = 16
    max_wording_chars: int = 256
    max_prompt_rollouts: int = 5
    max_prompt_chars: int = 60_000
    max_reply_chars: int = 200_000
    re_asks: int = 2
    temperature: float | None = 0.0
    seed: int | None = None
    structured: Structured = "auto"

    def __post_init__(self) -> None:
        self._within("min_support", 1, 1_000)
        self._within("max_nodes", 1, 64)
        self._within("max_wordings", 1, 64)
        self._within("max_wording_chars", 8, 512)
        self._within("max_prompt_rollouts", 2, 64)
        self._within("max_prompt_chars", 1_000, 4_000_000)
        self._within("max_reply_chars", 1_000, 4_000_000)
        self._within("re_asks", 0, 10)
        if self.temperature is not None and not 0.0 <= self.temperature <= 10.0:
            raise InputError(f"temperature must be from 0 to 10, got {self.temperature!r}")
        if self.structured not in _STRUCTURED:
            raise InputError(
                f"structured must be one of {', '.join(_STRUCTURED)}, got {self.structured!r}"
            )

    def _within(self, name: str, low: int, high: int) -> None:
        value = getattr(self, name)
        if not low <= value <= high:
            raise InputError(f"{name} must be from {low} to {high}, got {value!r}")

    def provenance(self) -> Row:
        """Return all of it, as it is recorded in a dataset."""
        return asdict(self)
