"""From settings and datasets to a service that is ready to serve."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from consensuspr.scoring import DatasetIndex, Limits, Scorer
from consensuspr.server.admission import Admission
from consensuspr.server.config import ServerConfig
from consensuspr.server.grpc_server import GrpcServer
from consensuspr.server.handlers import Handlers
from consensuspr.server.metered import MeteredScorer, TimedVerifier
from consensuspr.server.metrics import Metrics
from consensuspr.server.service import ScoringService
from consensuspr.server.slots import Slots, available_cores
from consensuspr.server.threads import WorkingThreads
from consensuspr.wire.info import describe


@dataclass(frozen=True, slots=True)
class BuiltServer:
    """A server, what it must be closed with, and what another front of it needs.

    Attributes:
        server: the gRPC face.
        verifier: the answer processes.
        service: admission and working threads, shared by all faces.
        scorer: counts what it scores.
        datasets: by the name that requests use.
        metrics: where all is counted.
    """

    server: GrpcServer
    verifier: TimedVerifier
    service: ScoringService
    scorer: MeteredScorer
    datasets: Mapping[str, DatasetIndex]
    metrics: Metrics

    def close(self) -> None:
        """End the answer processes."""
        self.verifier.close()


@dataclass(frozen=True, slots=True)
class BuiltService:
    """A service without a port of its own, for whatever brings it requests.

    Attributes:
        service: admission and working threads.
        verifier: the answer processes.
        scorer: counts what it scores.
    """

    service: ScoringService
    verifier: TimedVerifier
    scorer: MeteredScorer

    def close(self) -> None:
        """Drop what is queued, and end the answer processes."""
        self.service.close()
        self.verifier.close()


def build_service(
    config: ServerConfig, datasets: Mapping[str, DatasetIndex], metrics: Metrics
) -> BuiltService:
    """Put together what scores requests; arguments are those of :func:`build_server`."""
    # All cores, not this worker's share: one client is one connection, and may keep one
    # worker busy while the others idle.
    slots = Slots(available_cores())
    verifier = TimedVerifier(
        workers=config.answer_workers,
        budget_s=config.answer_budget_s,
        memory_limit_bytes=int(config.answer_memory_bytes),
        cache_size=config.answer_cache_size,
        # While an answer is waited for, another request may compute.
        while_waiting=slots.lent,
    )
    limits = Limits(
        max_response_bytes=int(config.max_response_bytes),
        max_inline_nodes=config.max_inline_nodes,
        max_expressions_per_node=config.max_expressions_per_node,
        max_expression_bytes=int(config.max_expression_bytes),
        max_inline_bytes=int(config.max_inline_bytes),
    )
    scorer = Scorer(datasets, verifier=verifier, threads=config.match_threads, limits=limits)
    info = describe(
        scorer,
        max_message_bytes=int(config.max_message_bytes),
        max_rollouts=config.max_rollouts,
    )
    metered = MeteredScorer(scorer, verifier, metrics)
    service = ScoringService(
        Handlers(metered, info),
        Admission(int(config.queue_limit_bytes), config.queue_burst_s),
        WorkingThreads(config.max_concurrent_requests, slots),
        metrics,
    )
    return BuiltService(service, verifier, metered)


def build_server(
    config: ServerConfig, datasets: Mapping[str, DatasetIndex], metrics: Metrics
) -> BuiltServer:
    """Put a worker together; to be called with an event loop running.

    Args:
        config: settings; its addresses and datasets are not looked at.
        datasets: loaded, by the name that requests use.
        metrics: where all is counted.
    """
    built = build_service(config, datasets, metrics)
    server = GrpcServer(built.service, int(config.max_message_bytes))
    return BuiltServer(server, built.verifier, built.service, built.scorer, datasets, metrics)
