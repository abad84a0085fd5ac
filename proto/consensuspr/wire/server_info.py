"""What a server says about itself; also what the in-process client says."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from consensuspr.v1 import PROTOCOL_VERSION
from consensuspr.v1 import scoring_pb2 as pb
from consensuspr.version import VERSION

if TYPE_CHECKING:
    from consensuspr.scoring import Scorer


@dataclass(frozen=True, slots=True)
class DatasetInfo:
    """One loaded dataset, in counts; ``num_derived`` are equal forms made beforehand."""

    name: str
    digest: str
    num_problems: int
    num_nodes: int
    num_expressions: int
    num_derived: int
    num_without_nodes: int


@dataclass(frozen=True, slots=True)
class ServerInfo:
    """Versions, limits and datasets of a server.

    Attributes:
        max_response_bytes: of one rollout; a larger one is OVERSIZE.
        max_message_bytes: of one request.
        max_rollouts: in one request.
        max_inline_nodes: nodes sent with one rollout.
        max_expressions_per_node: of one inline node, derived ones included.
        max_expression_bytes: of one inline expression.
        max_inline_bytes: of all inline expressions of one rollout together.
        core_backend: "native" or "python".
    """

    server_version: str
    protocol_version: int
    normal_form_version: str
    answer_version: str
    core_backend: str
    datasets: tuple[DatasetInfo, ...]
    max_response_bytes: int
    max_message_bytes: int
    max_rollouts: int
    max_inline_nodes: int
    max_expressions_per_node: int
    max_expression_bytes: int
    max_inline_bytes: int


def describe(scorer: Scorer, *, max_message_bytes: int, max_rollouts: int) -> ServerInfo:
    """Return what a front of ``scorer`` says about itself.

    Args:
        scorer: what scores; its datasets are listed by name.
        max_message_bytes: limit of the front on one request.
        max_rollouts: limit of the front on one request.
    """
    from consensuspr import core
    from consensuspr.scoring.answers import ANSWER_VERSION

    limits = scorer.limits
    return ServerInfo(
        server_version=VERSION,
        protocol_version=PROTOCOL_VERSION,
        normal_form_version=core.NORMAL_FORM_VERSION,
        answer_version=ANSWER_VERSION,
        core_backend=core.BACKEND,
        datasets=tuple(
            DatasetInfo(
                name=name,
                digest=index.digest,
                num_problems=index.info.num_problems,
                num_nodes=index.info.num_nodes,
                num_expressions=index.info.num_expressions,
                num_derived=index.info.num_derived,
                num_without_nodes=index.info.num_without_nodes,
            )
            for name, index in sorted(scorer.datasets.items())
        ),
        max_response_bytes=limits.max_response_bytes,
        max_message_bytes=max_message_bytes,
        max_rollouts=max_rollouts,
        max_inline_nodes=limits.max_inline_nodes,
        max_expressions_per_node=limits.max_expressions_per_node,
        max_expression_bytes=limits.max_expression_bytes,
        max_inline_bytes=limits.max_inline_bytes,
    )


def encode_server_info(info: ServerInfo) -> pb.ServerInfoResponse:
    """Return the message of a server's description."""
    return pb.ServerInfoResponse(
        server_version=info.server_version,
        protocol_version=info.protocol_version,
        normal_form_version=info.normal_form_version,
        answer_version=info.answer_version,
        core_backend=info.core_backend,
        datasets=[
            pb.DatasetInfo(
                name=dataset.name,
                digest=dataset.digest,
                num_problems=dataset.num_problems,
                num_nodes=dataset.num_nodes,
                num_expressions=dataset.num_expressions,
                num_derived=dataset.num_derived,
                num_without_nodes=dataset.num_without_nodes,
            )
            for dataset in info.datasets
        ],
        max_response_bytes=info.max_response_bytes,
        max_message_bytes=info.max_message_bytes,
        max_rollouts=info.max_rollouts,
        max_inline_nodes=info.max_inline_nodes,
        max_expressions_per_node=info.max_expressions_per_node,
        max_expression_bytes=info.max_expression_bytes,
        max_inline_bytes=info.max_inline_bytes,
    )


def decode_server_info(message: pb.ServerInfoResponse) -> ServerInfo:
    """Return the server's description of a message."""
    return ServerInfo(
        server_version=message.server_version,
        protocol_version=message.protocol_version,
        normal_form_version=message.normal_form_version,
        answer_version=message.answer_version,
        core_backend=message.core_backend,
        datasets=tuple(
            DatasetInfo(
                name=dataset.name,
                digest=dataset.digest,
                num_problems=dataset.num_problems,
                num_nodes=dataset.num_nodes,
                num_expressions=dataset.num_expressions,
                num_derived=dataset.num_derived,
                num_without_nodes=dataset.num_without_nodes,
            )
            for dataset in message.datasets
        ),
        max_response_bytes=message.max_response_bytes,
        max_message_bytes=message.max_message_bytes,
        max_rollouts=message.max_rollouts,
        max_inline_nodes=message.max_inline_nodes,
        max_expressions_per_node=message.max_expressions_per_node,
        max_expression_bytes=message.max_expression_bytes,
        max_inline_bytes=message.max_inline_bytes,
    )
