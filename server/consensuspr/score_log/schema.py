"""The row of a score log: one scored sample, with all that a replay needs to score it again.

:data:`COLUMNS` is the one list of its columns, which is public.
Columns are added, never changed: readers take a missing one as null and ignore unknown ones.

The writer takes :class:`LoggedPart` values, which refer to rollouts and scores;
:func:`record_batch` makes rows of them, later and in another thread.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from itertools import accumulate, chain, repeat
from typing import Any, Final, Literal, TypeAlias

import numpy as np
import pyarrow as pa

from consensuspr.data.writers import arrow_array
from consensuspr.errors import InputError
from consensuspr.scoring.guard import GuardBudget
from consensuspr.scoring.rewards import CodeCredit, RewardSpec
from consensuspr.scoring.types import (
    CHANNELS,
    SAMPLE_KEY_BYTES,
    Identity,
    InlineNode,
    Rollout,
    Sample,
    SampleKeys,
    Score,
    ScoreColumns,
    ScoreOptions,
)
from consensuspr.wire.codec import decode_rollout, encode_response, encode_rollout

# The process that wrote a row: the trainer's or the server's.
Side: TypeAlias = Literal["trainer", "server"]

# Of a row without its text, roughly.
ROW_BYTES: Final = 1024
# Of a node or one of its strings, besides the characters.
_OBJECT_BYTES: Final = 64

_SPAN = pa.struct([("start", pa.int32()), ("end", pa.int32())])
_TEXT, _FLOAT, _INT, _COUNT = pa.string(), pa.float64(), pa.int64(), pa.int32()

# Values are set in :func:`record_batch`, those of texts in :func:`_texts`.  The page shows a column
# only if ``web/sources.py`` and ``web/store.py`` list it too.
COLUMNS: Final[tuple[tuple[str, pa.DataType, str], ...]] = (
    ("key", pa.binary(SAMPLE_KEY_BYTES), "the sample; rows of one key are one sample"),
    ("time", pa.timestamp("us", tz="UTC"), "when it was scored"),
    ("side", _TEXT, "`trainer` or `server`: who wrote the row"),
    ("run", _TEXT, "name of the run (setting `run`)"),
    ("step", _INT, "training step from 1, 0 before training"),
    ("epoch", _INT, "epoch from 0, the phase of the curriculum"),
    ("split", _TEXT, "of the row of data: `train`, `test`, …"),
    ("group_id", _TEXT, "samples that the trainer compares with each other (verl's `uid`)"),
    ("rollout_id", _TEXT, "name of the rollout, if it has one"),
    ("problem_id", _TEXT, "the problem"),
    ("data_source", _TEXT, "of the row of data"),
    ("response", _TEXT, "the text; null if it was not kept"),
    ("response_raw", pa.binary(), "its bytes, only if they are not UTF-8"),
    ("response_size", _INT, "bytes of the text, kept or not"),
    ("ground_truth", _TEXT, "as sent with the sample; null: the dataset's, or dropped"),
    ("inline", _TEXT, "nodes and budget sent with the sample, as JSON; null: none, or dropped"),
    ("num_tokens", _INT, "length of the response in tokens"),
    ("status", _TEXT, "status of the score; read it before any number"),
    ("reward", _FLOAT, "of the formula; null if the status allows none"),
    ("acc", _FLOAT, "final answer right: 0 or 1"),
    ("ncr", _FLOAT, "node coverage, guarded, as the reward uses it"),
    ("ncr_raw", _FLOAT, "before the guard"),
    ("guard", _FLOAT, "the guard's factor"),
    ("num_nodes", _COUNT, "nodes that count"),
    ("num_matched", _COUNT, "of them reached"),
    ("tpn", _FLOAT, "tokens per matched node"),
    ("penalty", _FLOAT, "what the trainer added (overlong); trainer's side only"),
    ("final_score", _FLOAT, "what the policy was trained on; trainer's side only"),
    (
        "channels",
        pa.list_(_TEXT),
        "of each node: `pattern`, `statement`, `code`, `equation` or empty",
    ),
    ("spans", pa.list_(_SPAN), "of each node: code points of its first hit; null: not asked for"),
    ("answer", _TEXT, "the answer taken from the text"),
    ("answer_method", _TEXT, "how it was decided"),
    ("message", _TEXT, "one sentence if the status is not OK"),
    ("scored_by", _TEXT, "`server`, or `local` for the trainer's fallback"),
    ("dataset", _TEXT, "name of the dataset"),
    ("dataset_digest", _TEXT, "of all that decides a score"),
    ("normal_form_version", _TEXT, "of the rules of matching"),
    ("answer_version", _TEXT, "of the rules of answers"),
    ("server_version", _TEXT, "release that scored"),
    ("scoring_version", _TEXT, "of the rules of credit and of the guard; absent: `1`"),
    ("reward_spec", _TEXT, "the formula with all its settings, as JSON"),
    ("answer_rule", _TEXT, "how the final answer is found"),
    ("on_undecided", _TEXT, "what an undecided answer does to the reward"),
)

SCHEMA: Final = pa.schema(
    [(name, kind) for name, kind, _ in COLUMNS], metadata={"consensuspr.score_log": "1"}
)
# Dropped if there is no room for texts.
TEXT_COLUMNS: Final = ("response", "response_raw")


@dataclass(slots=True)
class LoggedPart:
    """Some rollouts and their scores, by reference.

    Attributes:
        scores: of each, at least as many: the columns of a reply grow when its next part is done.
        penalty, final_score: of the trainer; for a part of its one sample.
        sizes: bytes of the responses, where the texts themselves were given up.
    """

    rollouts: Sequence[Rollout]
    scores: ScoreColumns | Sequence[Score]
    identity: Identity
    options: ScoreOptions
    unix_s: float
    scored_by: str = "server"
    penalty: float | None = None
    final_score: float | None = None
    sizes: Sequence[int] | None = None

    def text_bytes(self) -> int:
        """Return about how much memory the strings of the rollouts take."""
        return sum([len(one.response) + _sent_bytes(one) for one in self.rollouts])

    def without_text(self) -> LoggedPart:
        """Return the same without the texts, and without large ground truths and nodes."""
        sizes = [len(encode_response(rollout.response)) for rollout in self.rollouts]
        return replace(self, rollouts=[_without_text(one) for one in self.rollouts], sizes=sizes)


def _sent_bytes(rollout: Rollout) -> int:
    """Return about how much memory the strings take that came with a response."""
    texts = [rollout.problem_id, rollout.ground_truth, rollout.data_source, rollout.rollout_id]
    if rollout.sample is not None:
        texts += rollout.sample[2:]
    number = 0
    for node in rollout.nodes or ():
        number += 1
        if isinstance(node, InlineNode):
            texts += [node.node_id, *node.expressions, *node.derived]
            number += 2 + len(node.expressions) + len(node.derived)
        else:
            texts += node
            number += len(node)
    return sum([len(text) for text in texts if text]) + number * _OBJECT_BYTES


def _without_text(rollout: Rollout) -> Rollout:
    if _sent_bytes(rollout) <= ROW_BYTES:
        return replace(rollout, response=b"")
    return replace(rollout, response=b"", ground_truth=None, nodes=None, budget=None)


def record_batch(parts: Sequence[LoggedPart], side: Side, keys: SampleKeys) -> pa.RecordBatch:
    """Return the rows of parts; ``keys`` names the samples that came without a name."""
    rollouts = [rollout for part in parts for rollout in part.rollouts]
    scores = _merged(parts)
    samples = [one.sample or Sample(keys.next()) for one in rollouts]

    def of_parts(value: Callable[[LoggedPart], Any]) -> list[Any]:
        return list(chain.from_iterable(repeat(value(p), len(p.rollouts)) for p in parts))

    def of_identities(name: str) -> list[Any]:
        return of_parts(lambda part: getattr(part.identity, name))

    at = range(len(rollouts))
    columns: dict[str, Any] = {
        "key": [sample.key for sample in samples],
        "time": of_parts(lambda part: int(part.unix_s * 1e6)),
        "side": [side] * len(rollouts),
        "run": of_parts(lambda part: part.options.run),
        "step": [sample.step for sample in samples],
        "epoch": of_identities("epoch"),
        "split": [sample.split for sample in samples],
        "group_id": [sample.group for sample in samples],
        "rollout_id": [one.rollout_id for one in rollouts],
        "problem_id": [one.problem_id for one in rollouts],
        "data_source": [one.data_source for one in rollouts],
        **_texts(parts),
        "ground_truth": [one.ground_truth for one in rollouts],
        "inline": [None if one.nodes is None else inline_json(one) for one in rollouts],
        "num_tokens": [one.num_tokens for one in rollouts],
        "status": [status.value for status in scores.status],
        **{name: _numbers(getattr(scores, name)) for name in _SCORE_FLOATS},
        "num_nodes": scores.num_nodes,
        "num_matched": scores.num_matched,
        "penalty": of_parts(lambda part: part.penalty),
        "final_score": of_parts(lambda part: part.final_score),
        "channels": _channels(scores.channel_numbers),
        "spans": _spans([scores.spans.get(one) for one in at]),
        "answer": scores.answer,
        "answer_method": scores.answer_method,
        "message": [scores.messages.get(one, "") for one in at],
        "scored_by": of_parts(lambda part: part.scored_by),
        **{name: of_identities(name) for name in _IDENTITY_TEXTS},
        "reward_spec": of_parts(lambda part: reward_json(part.identity.reward)),
        "answer_rule": of_parts(lambda part: part.identity.answer_rule.value),
        "on_undecided": of_parts(lambda part: part.options.on_undecided.value),
    }
    arrays = [
        values if isinstance(values, pa.Array) else arrow_array(pa, values, SCHEMA.field(name).type)
        for name in SCHEMA.names
        for values in [columns[name]]
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


_SCORE_FLOATS = ("reward", "acc", "ncr", "ncr_raw", "guard", "tpn")
_IDENTITY_TEXTS = (
    "dataset", "dataset_digest", "normal_form_version", "answer_version", "server_version",
    "scoring_version",
)  # fmt: skip


def _merged(parts: Sequence[LoggedPart]) -> ScoreColumns:
    """Return the scores of all parts, of each as many as it has rollouts."""
    singles = [part.scores for part in parts if not isinstance(part.scores, ScoreColumns)]
    if len(singles) == len(parts):
        # Columns for each of a trainer's parts, one score each, would be most of the work.
        return ScoreColumns.of([score for scores in singles for score in scores])
    merged = ScoreColumns.of([])
    for part in parts:
        columns = part.scores
        if not isinstance(columns, ScoreColumns):
            columns = ScoreColumns.of(columns)
        merged.extend(columns, len(part.rollouts))
    return merged


def _numbers(values: Sequence[float]) -> pa.Array:
    # NaN is null.
    return pa.array(values, _FLOAT, from_pandas=True)


def _texts(parts: Sequence[LoggedPart]) -> dict[str, Any]:
    """Return the columns of the responses; bytes that are not UTF-8 are kept too."""
    raw: list[bytes | None] = []
    sizes: list[int] = []
    for part in parts:
        if part.sizes is not None:
            raw += [None] * len(part.sizes)
            sizes += part.sizes
        else:
            encoded = [encode_response(one.response) for one in part.rollouts]
            raw += encoded
            sizes += map(len, encoded)
    found = {"response_raw": pa.nulls(len(raw), pa.binary()), "response_size": sizes}
    try:
        return {"response": pa.array(raw, pa.binary()).cast(pa.string()), **found}
    except pa.ArrowInvalid:
        shown = [None if text is None else text.decode("utf-8", "replace") for text in raw]
        odd = [
            None if readable is None or readable.encode() == text else text
            for text, readable in zip(raw, shown, strict=True)
        ]
        return {**found, "response": pa.array(shown), "response_raw": pa.array(odd, pa.binary())}


def _channels(numbers: Sequence[bytes]) -> pa.Array:
    joined = np.frombuffer(b"".join(numbers), dtype=np.uint8)
    names = pa.array(CHANNELS, pa.string()).take(pa.array(joined))
    offsets = np.fromiter(accumulate(map(len, numbers), initial=0), np.int32, len(numbers) + 1)
    return pa.ListArray.from_arrays(pa.array(offsets), names)


def _spans(spans: Sequence[Sequence[tuple[int, int] | None] | None]) -> pa.Array:
    named = [
        None if pairs is None else [pair and {"start": pair[0], "end": pair[1]} for pair in pairs]
        for pairs in spans
    ]
    return pa.array(named, SCHEMA.field("spans").type)


@lru_cache(maxsize=256)
def reward_json(reward: RewardSpec) -> str:
    """Return a reward with all its settings as JSON; equal rewards give equal text."""
    return json.dumps(asdict(reward), sort_keys=True)


@lru_cache(maxsize=256)
def read_reward(text: str) -> RewardSpec:
    """Return the reward of its JSON; without ``code`` it means ``computed``.

    Raises:
        InputError: it is none that this release knows.
    """
    try:
        return RewardSpec(**{"code": CodeCredit.COMPUTED, **json.loads(text)})
    except (TypeError, ValueError) as error:
        raise InputError(f"reward_spec {text[:200]!r} is not known here: {error}") from None


def inline_json(rollout: Rollout) -> str:
    """Return nodes and budget that came with a rollout as JSON."""
    # As a server has them, whatever the trainer gave.
    sent = decode_rollout(encode_rollout(replace(rollout, response=b"")))
    budget = None if sent.budget is None else sent.budget._asdict()
    nodes = [asdict(node) for node in sent.nodes or () if isinstance(node, InlineNode)]
    return json.dumps({"nodes": nodes, "budget": budget})


def read_inline(text: str) -> tuple[list[InlineNode], GuardBudget | None]:
    """Return nodes and budget of their JSON."""
    read = json.loads(text)
    budget = read["budget"]
    nodes = [InlineNode(**node) for node in read["nodes"]]
    return nodes, None if budget is None else GuardBudget(**budget)
