"""The settings of a server: their names, defaults, limits, and how they fit together.

Where their values come from (file, environment, command line) is ``settings.py``.
Every limit is per worker process unless its description says otherwise.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ByteSize, ConfigDict, Field, field_validator, model_validator

from consensuspr.server.address import Address

KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB

DEFAULT_DATASET = "default"

MAX_UINT32 = (1 << 32) - 1  # what the protocol can say of these limits

Bytes = Annotated[ByteSize, Field(ge=1)]
SmallBytes = Annotated[ByteSize, Field(ge=1, le=MAX_UINT32)]
Count = Annotated[int, Field(ge=1, le=MAX_UINT32)]
Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]


def _default_workers() -> int:
    """Return a worker a core, at most four: past that, one machine's trainers are the limit."""
    return min(4, os.cpu_count() or 1)


class ServerConfig(BaseModel):
    """Settings of one server; sizes are numbers of bytes or texts like ``64MiB``."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True)

    datasets: dict[str, Path] = Field(
        min_length=1, description="name and path of each dataset; a request may name one"
    )
    address: str = Field(
        "127.0.0.1:50051", description="HOST:PORT to listen on; port 0 takes any free one"
    )
    metrics_address: str | None = Field(
        None, description="HOST:PORT of the Prometheus endpoint; off where not set"
    )
    http_address: str | None = Field(
        None, description="HOST:PORT of the HTTP endpoint; off where not set"
    )
    http_max_body_bytes: Bytes = Field(
        ByteSize(256 * MIB), description="one HTTP request; larger is code 413"
    )
    http_max_items: Count = Field(65536, description="rollouts in one HTTP request; more is 400")
    workers: Count = Field(
        default_factory=_default_workers,
        description="worker processes that share the port (default: one a core, at most 4)",
    )
    threads: int = Field(
        0, ge=0, description="threads of one batch's matching; 0: cores divided by workers"
    )
    max_concurrent_requests: Count = Field(
        16, description="requests in work at a time in a worker; more wait in its queue"
    )
    queue_limit_bytes: Bytes = Field(
        ByteSize(256 * MIB),
        description="admitted, unfinished requests of a worker; more is RESOURCE_EXHAUSTED",
    )
    queue_burst_s: Seconds = Field(
        0.25,
        description="flooded by one connection for longer, a worker refuses: RESOURCE_EXHAUSTED",
    )
    max_message_bytes: Bytes = Field(
        ByteSize(64 * MIB), description="one request; larger is RESOURCE_EXHAUSTED"
    )
    max_rollouts: Count = Field(
        4096, description="rollouts in one request; more is INVALID_ARGUMENT"
    )
    max_response_bytes: Bytes = Field(
        ByteSize(16 * MIB), description="one response; a larger one gets status OVERSIZE"
    )
    max_inline_nodes: Count = Field(64, description="nodes sent with one rollout")
    max_expressions_per_node: Count = Field(128, description="expressions of one inline node")
    max_expression_bytes: SmallBytes = Field(ByteSize(4 * KIB), description="one inline expression")
    max_inline_bytes: SmallBytes = Field(
        ByteSize(16 * KIB), description="all inline expressions of one rollout together"
    )
    matcher_cache_bytes: Bytes = Field(
        ByteSize(256 * MIB), description="compiled matchers kept in a worker, all datasets"
    )
    derive: Literal["missing", "stored", "off"] = Field(
        "missing",
        description="equal forms: made for nodes that store none, as stored only, or not used",
    )
    answer_workers: Count = Field(
        1, description="processes of a worker that compare what needs computer algebra"
    )
    answer_budget_s: Annotated[float, Field(gt=0, allow_inf_nan=False)] = Field(
        2.0, description="seconds for one answer; spent: status ANSWER_UNDECIDED"
    )
    answer_memory_bytes: Annotated[ByteSize, Field(ge=128 * MIB)] = Field(
        ByteSize(GIB), description="address space of one answer process"
    )
    answer_cache_size: Count = Field(65536, description="verdicts kept in a worker")
    drain_delay_s: Seconds = Field(
        0.0, description="after SIGTERM, go on serving this long while health says NOT_SERVING"
    )
    grace_s: Seconds = Field(
        30.0, description="then, finish admitted requests for at most this long"
    )
    start_timeout_s: Annotated[float, Field(gt=0, allow_inf_nan=False)] = Field(
        120.0, description="a worker that is not ready after this long has failed to start"
    )
    log_format: Literal["text", "json"] = Field(
        "text", description="lines for people or one JSON object a line, on standard error"
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="least severe level that is logged"
    )

    @field_validator("address", "metrics_address", "http_address")
    @classmethod
    def _check_address(cls, value: str | None) -> str | None:
        if value is not None:
            Address.parse(value)
        return value

    @field_validator("datasets")
    @classmethod
    def _check_dataset_names(cls, value: dict[str, Path]) -> dict[str, Path]:
        if "" in value:
            raise ValueError("a dataset's name must not be empty")
        return value

    @model_validator(mode="after")
    def _check_sizes(self) -> Self:
        if self.max_message_bytes < self.max_response_bytes:
            raise ValueError(
                f"max_message_bytes ({int(self.max_message_bytes)}) must be at least"
                f" max_response_bytes ({int(self.max_response_bytes)})"
            )
        if self.queue_limit_bytes < self.max_message_bytes:
            raise ValueError(
                f"queue_limit_bytes ({int(self.queue_limit_bytes)}) must be at least"
                f" max_message_bytes ({int(self.max_message_bytes)})"
            )
        if self.http_address is not None and self.queue_limit_bytes < self.http_max_body_bytes:
            raise ValueError(
                f"queue_limit_bytes ({int(self.queue_limit_bytes)}) must be at least"
                f" http_max_body_bytes ({int(self.http_max_body_bytes)})"
            )
        return self

    @property
    def match_threads(self) -> int:
        """Threads of one batch's matching in one worker, at least 1."""
        return self.threads or max(1, (os.cpu_count() or 1) // self.workers)
