"""The public problem sets that the paper draws from (section 3.2), and how their rows read.

Four sets are its test split, DAPO-Math-17k is its training split.  Which hub dataset stands
for each, its configuration, its split on the hub and its columns are written here once;
hub id, configuration, split and revision can be given anew at run time.  No revision is
pinned: the latest is read, and the report names what was asked for.

``data_source`` is the label that training rows of the same set carry elsewhere: the hub id,
and ``math_dapo`` for DAPO-Math-17k, whose own rows say so.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

Answer: TypeAlias = Literal["as written", "after ####", "whole number"]


@dataclass(frozen=True, slots=True)
class Source:
    """One problem set.

    A column is named with the names that copies of the set use, the hub's own first; ``a.b``
    is the key ``b`` of the object in column ``a``.

    Attributes:
        name: what a person types.
        hub_id: dataset on the hub.
        hub_config: its configuration, None for the only one.
        hub_split: its split on the hub, whatever the set is used for.
        split: what the set is used for.
        data_source: label of its rows.
        id_prefix: beginning of its problem ids.
        problem: column of the text.
        ground_truth: column of the answer.
        answer: how the answer is taken out of that column.
        source_id: column of the set's own id; None: there is none, and ids come from the text.
        metadata: columns that are kept as metadata, by the name that they get.
    """

    name: str
    hub_id: str
    hub_split: str
    split: Literal["train", "test"]
    data_source: str
    id_prefix: str
    problem: tuple[str, ...] = ("problem",)
    ground_truth: tuple[str, ...] = ("answer",)
    answer: Answer = "as written"
    source_id: tuple[str, ...] = ()
    hub_config: str | None = None
    metadata: dict[str, tuple[str, ...]] = field(default_factory=dict)


def _gsm8k(name: str, split: Literal["train", "test"]) -> Source:
    return Source(
        name=name,
        hub_id="openai/gsm8k",
        hub_config="main",
        hub_split=split,
        split=split,
        data_source="openai/gsm8k",
        id_prefix=f"gsm8k-{split}",
        problem=("question",),
        answer="after ####",
    )


_ALL = (
    _gsm8k("gsm8k", "test"),
    # Not in the paper's training split; here for those who want more to train on.
    _gsm8k("gsm8k-train", "train"),
    Source(
        name="math-500",
        hub_id="HuggingFaceH4/MATH-500",
        hub_split="test",
        split="test",
        data_source="HuggingFaceH4/MATH-500",
        id_prefix="math500",
        source_id=("unique_id",),
        metadata={"level": ("level",), "subject": ("subject", "type")},
    ),
    Source(
        name="aime-2024",
        hub_id="HuggingFaceH4/aime_2024",
        # Its only split on the hub is called so; it is a benchmark all the same.
        hub_split="train",
        split="test",
        data_source="HuggingFaceH4/aime_2024",
        id_prefix="aime24",
        problem=("problem", "Problem"),
        ground_truth=("answer", "Answer"),
        answer="whole number",
        source_id=("id", "ID"),
        metadata={"url": ("url",), "year": ("year",)},
    ),
    Source(
        name="aime-2025",
        hub_id="math-ai/aime25",
        hub_split="test",
        split="test",
        data_source="math-ai/aime25",
        id_prefix="aime25",
        problem=("problem", "question"),
        answer="whole number",
        source_id=("id",),
        metadata={"url": ("url",), "year": ("year",)},
    ),
    Source(
        name="dapo-math-17k",
        hub_id="BytedTsinghua-SIA/DAPO-Math-17k",
        hub_split="train",
        split="train",
        data_source="math_dapo",
        id_prefix="dapo17k",
        problem=("prompt",),
        ground_truth=("reward_model.ground_truth", "solution"),
        source_id=("extra_info.index",),
    ),
)

SOURCES: dict[str, Source] = {source.name: source for source in _ALL}
