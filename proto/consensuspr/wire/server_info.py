"""The description of a server, which the in-process client gives too.

Values and messages have fields of the same names, and so have the counts of an index and the
limits of a scorer that they are filled from.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING

from consensuspr.scoring.types import FIRST_SCORING_VERSION, SCORING_VERSION
from consensuspr.short_repr import ShortRepr
from consensuspr.v1 import PROTOCOL_VERSION
from consensuspr.v1 import scoring_pb2 as pb
from consensuspr.version import VERSION
from consensuspr.wire.codec import values_of

if TYPE_CHECKING:
    from consensuspr.scoring import DatasetIndex, Scorer


@dataclass(frozen=True, slots=True, repr=False)
class DatasetInfo(ShortRepr):
    """One loaded dataset, in counts."""

    name: str
    digest: str
    num_problems: int
    num_nodes: int
    num_expressions: int
    num_derived: int  # equal forms made beforehand
    num_without_nodes: int
    num_with_budgets: int = 0  # problems with a guard budget of their own


@dataclass(frozen=True, slots=True, repr=False)
class ServerInfo(ShortRepr):
    """Versions, limits and datasets of a server."""

    server_version: str
    protocol_version: int
    normal_form_version: str
    answer_version: str
    core_backend: str  # "native" or "python"
    datasets: tuple[DatasetInfo, ...]
    max_response_bytes: int  # of one rollout; a larger one is OVERSIZE
    max_message_bytes: int  # of one request
    max_rollouts: int  # in one request
    max_inline_nodes: int  # sent with one rollout
    max_expressions_per_node: int  # of one inline node, derived ones included
    max_expression_bytes: int  # of one inline expression
    max_inline_bytes: int  # of all inline expressions of one rollout together
    scoring_version: str = FIRST_SCORING_VERSION


def describe(scorer: Scorer, max_message_bytes: int, max_rollouts: int) -> ServerInfo:
    """Return the description of a server of ``scorer``, with the limits on one request."""
    # Here and not above: a client of a server needs neither the core nor the answer check.
    from consensuspr import core
    from consensuspr.scoring.answers import ANSWER_VERSION

    return ServerInfo(
        server_version=VERSION,
        protocol_version=PROTOCOL_VERSION,
        normal_form_version=core.NORMAL_FORM_VERSION,
        answer_version=ANSWER_VERSION,
        core_backend=core.BACKEND,
        datasets=describe_datasets(scorer.datasets),
        max_message_bytes=max_message_bytes,
        max_rollouts=max_rollouts,
        scoring_version=SCORING_VERSION,
        **asdict(scorer.limits),
    )


def describe_datasets(datasets: Mapping[str, DatasetIndex]) -> tuple[DatasetInfo, ...]:
    """Return the descriptions of datasets, sorted by name."""
    return tuple(
        DatasetInfo(
            name, index.digest, **{key: getattr(index.info, key) for key in _DATASET_COUNTS}
        )
        for name, index in sorted(datasets.items())
    )


def encode_server_info(info: ServerInfo) -> pb.ServerInfoResponse:
    """Return the message of a server's description."""
    return pb.ServerInfoResponse(**asdict(info))


def encode_dataset_info(info: DatasetInfo) -> pb.DatasetInfo:
    """Return the message of a dataset's description."""
    return pb.DatasetInfo(**asdict(info))


def decode_dataset_info(message: pb.DatasetInfo) -> DatasetInfo:
    """Return the description of a dataset."""
    return DatasetInfo(**values_of(DatasetInfo, message))


def decode_server_info(message: pb.ServerInfoResponse) -> ServerInfo:
    """Return the server's description of a message."""
    values = values_of(ServerInfo, message)
    values["scoring_version"] = message.scoring_version or FIRST_SCORING_VERSION
    values["datasets"] = tuple(map(decode_dataset_info, message.datasets))
    return ServerInfo(**values)


_DATASET_COUNTS = [field.name for field in fields(DatasetInfo) if field.name.startswith("num_")]
