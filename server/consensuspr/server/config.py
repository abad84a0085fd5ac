"""The settings of a server, and how it claims its port.

:mod:`consensuspr.settings` reads the values from a file, the environment and the command line.  A
limit is per worker process unless its description says otherwise.
"""

from __future__ import annotations

import errno
import os
import re
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar, Literal, Self

from pydantic import (
    ByteSize,
    Field,
    field_validator,
    model_validator,
)

from consensuspr.errors import ConsensusPRError, InputError
from consensuspr.pages import page
from consensuspr.settings import Settings, load_settings

ENVIRONMENT_PREFIX = "CONSENSUSPR"
DEFAULT_DATASET = "default"
# Of files in a folder of datasets.
DATASET_SUFFIXES = (".jsonl", ".jsonl.gz", ".parquet", ".index")

MIB = 1 << 20
GIB = 1 << 30

MAX_PORT = 65535
MAX_UINT32 = (1 << 32) - 1  # the protocol's largest number for these limits

Bytes = Annotated[ByteSize, Field(ge=1)]
Count = Annotated[int, Field(ge=1, le=MAX_UINT32)]
# Of processes and threads: more than a machine has cores; larger numbers are typing errors.
Parallel = Annotated[int, Field(ge=1, le=4096)]
Seconds = Annotated[float, Field(ge=0, le=86400, allow_inf_nan=False)]


@dataclass(frozen=True, slots=True)
class Address:
    """A host, as a name or a number without brackets, and a port; port 0 is any free one."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @classmethod
    def of(cls, bound: socket.socket) -> Address:
        """Return the numeric host and the real port of a socket."""
        return cls(*bound.getsockname()[:2])

    @classmethod
    def parse(cls, text: str) -> Address:
        """Read ``HOST:PORT``, an IPv6 host in brackets; raise InputError for anything else."""
        if text.startswith(("unix:", "/")):
            raise InputError(f"address {text!r} is a unix socket; use HOST:PORT")
        host, colon, port = text.rpartition(":")
        bracketed = host.startswith("[") and host.endswith("]")
        if bracketed:
            host = host[1:-1]
        if not (colon and host and port.isascii() and port.isdigit()) or (
            ":" in host and not bracketed
        ):
            raise InputError(f"address must be HOST:PORT, got {text!r}")
        if int(port) > MAX_PORT:
            raise InputError(f"port must be at most {MAX_PORT}, got {port} in {text!r}")
        return cls(host, int(port))


def _default_workers() -> int:
    """Return a worker a core, at most four: past that, one machine's trainers are the limit."""
    return min(4, os.cpu_count() or 1)


def parse_datasets(arguments: Sequence[str]) -> dict[str, Path]:
    """Read ``PATH`` or ``NAME=PATH`` each; a bare path gets the name ``default``."""
    datasets: dict[str, Path] = {}
    for argument in arguments:
        name, equals, path = argument.partition("=")
        if not equals or "/" in name:
            name, path = DEFAULT_DATASET, argument
        if not (name and path):
            raise InputError(f"dataset must be PATH or NAME=PATH, got {argument!r}")
        if name in datasets:
            raise InputError(
                f"two datasets have the name {name!r} ({datasets[name]} and {path});"
                " give each a name with NAME=PATH"
            )
        datasets[name] = Path(path)
    return datasets


class ServerConfig(Settings):
    """Settings of one server; sizes are numbers of bytes or texts like ``64MiB``."""

    read_words: ClassVar[Mapping[str, Callable[[Sequence[str]], object]]] = {
        "datasets": parse_datasets,
    }

    datasets: dict[str, Path] = Field(
        default_factory=dict,
        description="Dataset to serve. Repeat it for several, each with a name for requests.",
    )
    dataset_folder: Path | None = Field(
        None,
        description="Folder of more datasets to serve. A file's name without its suffix (.jsonl,"
        " .jsonl.gz, .parquet or .index) is the dataset's name. Off by default.",
    )
    address: str = Field(
        "127.0.0.1:50051", description="HOST:PORT to listen on; port 0 takes a free port."
    )
    metrics_address: str | None = Field(
        None, description="HOST:PORT of the Prometheus endpoint. Off by default."
    )
    http_address: str | None = Field(
        None,
        description="HOST:PORT of the HTTP endpoint, for OpenRLHF and slime. Off by default.",
    )
    http_max_body_bytes: Bytes = Field(
        ByteSize(16 * MIB), description="Bytes of one HTTP request; a larger one gets code 413."
    )
    http_allowed_hosts: tuple[str, ...] = Field(
        default_factory=tuple,
        description="Host names that HTTP requests may carry, besides localhost and the address."
        " Default: any, unless the server listens on loopback.",
    )
    web: str | None = Field(
        None,
        description="HOST:PORT of a web page that shows the runs in score_log. Off by default. See"
        f" {page('Watch a run')}.",
    )
    max_connections: Count = Field(
        1024, description="Open connections per worker: gRPC and HTTP have this limit each."
    )
    token_file: Path | None = Field(
        None,
        description="File of tokens, one a line; callers must send one of them. `consensuspr token"
        " FILE` adds a token.",
    )
    tls_cert: Path | None = Field(
        None,
        description="Certificate chain (PEM) for TLS on every port. The server reloads it when it"
        " changes.",
    )
    tls_key: Path | None = Field(
        None, description="Private key (PEM, not encrypted) of the certificate."
    )
    tls_client_ca: Path | None = Field(
        None,
        description="CA certificates (PEM). Clients must send a certificate that one of them"
        " signed.",
    )
    insecure: bool = Field(
        False, description="Allow other machines to connect without tokens and TLS."
    )
    workers: Parallel = Field(
        default_factory=_default_workers,
        description="Worker processes. Default: one per core, at most 4.",
    )
    threads: int = Field(
        0,
        ge=0,
        le=4096,
        description="Threads that match one batch; 0: the number of cores divided by workers.",
    )
    max_concurrent_requests: Parallel = Field(
        16, description="Requests that a worker processes at a time; more wait in its queue."
    )
    queue_limit_bytes: Bytes = Field(
        ByteSize(96 * MIB),
        description="Bytes of memory for a worker's unfinished requests. The worker rejects more"
        " with RESOURCE_EXHAUSTED.",
    )
    max_message_bytes: Bytes = Field(
        ByteSize(17 * MIB),
        description="Bytes of a request; a larger one gets RESOURCE_EXHAUSTED.",
    )
    max_rollouts: Count = Field(
        4096, description="Rollouts in one request; a larger one gets INVALID_ARGUMENT."
    )
    max_response_bytes: Bytes = Field(
        ByteSize(16 * MIB), description="Bytes of one response; a larger one gets status OVERSIZE."
    )
    matcher_cache_bytes: Bytes = Field(
        ByteSize(48 * MIB), description="Bytes of compiled matchers that a worker keeps in memory."
    )
    derive: Literal["missing", "stored", "off"] = Field(
        "missing",
        description="Equal forms of expressions: derive those that the dataset lacks (missing), use"
        " only those that it has (stored), or use none (off).",
    )
    answer_workers: Parallel = Field(
        1, description="Processes per worker that compare answers by computer algebra."
    )
    answer_budget_s: Annotated[Seconds, Field(gt=0)] = Field(
        2.0, description="Seconds to check one answer; after that its status is ANSWER_UNDECIDED."
    )
    score_log: Path | None = Field(
        None,
        description="Folder of a run, to which the server writes every scored rollout; off by"
        f" default. See {page('The score log')}.",
    )
    score_log_bytes: Annotated[ByteSize, Field(ge=0)] = Field(
        ByteSize(20 * GIB),
        description="Bytes on disk for the texts in score_log. The oldest are deleted first; 0"
        " keeps none.",
    )
    trace_endpoint: str | None = Field(
        None,
        description="http:// or https:// HOST:PORT of an OpenTelemetry collector (OTLP over gRPC)."
        " Off by default.",
    )
    drain_delay_s: Seconds = Field(
        0.0,
        description="Seconds after SIGTERM to serve on while health is NOT_SERVING.",
    )
    grace_s: Seconds = Field(
        30.0, description="Seconds after drain_delay_s to finish the requests that remain."
    )
    log_format: Literal["text", "json"] = Field(
        "text", description="Format of log lines on standard error: text, or a JSON object each."
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="Lowest level that is logged."
    )

    @field_validator("address", "metrics_address", "http_address", "web")
    @classmethod
    def _check_address(cls, value: str | None) -> str | None:
        if value is not None:
            Address.parse(value)
        return value

    @field_validator("trace_endpoint")
    @classmethod
    def _check_endpoint(cls, value: str | None) -> str | None:
        if value is not None and not re.fullmatch(r"https?://[^/\s]+:\d+", value):
            raise ValueError(f"must be http://HOST:PORT or https://HOST:PORT, got {value!r}")
        return value

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        if "" in self.datasets:
            raise ValueError("a dataset's name must not be empty")
        if not self.datasets and self.dataset_folder is None:
            raise ValueError("no dataset was given; add --dataset PATH or --dataset NAME=PATH")
        if self.web is not None and self.score_log is None:
            raise ValueError("web needs score_log, which is not set (--score-log RUN)")
        if (self.tls_cert is None) != (self.tls_key is None):
            given, missing = ("tls_key", "tls_cert") if self.tls_key else ("tls_cert", "tls_key")
            raise ValueError(f"{given} needs {missing}, which is not set")
        if self.tls_client_ca is not None and self.tls_cert is None:
            raise ValueError("tls_client_ca needs tls_cert and tls_key, which are not set")
        pairs = [
            ("max_message_bytes", "max_response_bytes"),
            ("queue_limit_bytes", "max_message_bytes"),
        ]
        if self.http_address is not None:
            pairs.append(("queue_limit_bytes", "http_max_body_bytes"))
        for larger, smaller in pairs:
            most, least = int(getattr(self, larger)), int(getattr(self, smaller))
            if most < least:
                raise ValueError(f"{larger} ({most}) must be at least {smaller} ({least})")
        return self

    def folder_datasets(self) -> dict[str, Path]:
        """Return the files that are in ``dataset_folder`` now by the names of their datasets."""
        datasets: dict[str, Path] = {}
        if self.dataset_folder is None:
            return datasets
        try:
            files = sorted(self.dataset_folder.iterdir())
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            raise InputError(f"dataset_folder {self.dataset_folder}: {reason}") from None
        for file in files:
            suffix = next((end for end in DATASET_SUFFIXES if file.name.endswith(end)), "")
            name = file.name.removesuffix(suffix)
            # Hidden files are being written, or belong to the system.
            if not suffix or not name or name.startswith("."):
                continue
            if name in datasets:
                raise InputError(
                    f"dataset_folder {self.dataset_folder}: {datasets[name].name} and"
                    f" {file.name} give the same name, {name!r}"
                )
            datasets[name] = file.absolute()
        return datasets

    @property
    def match_threads(self) -> int:
        """Threads of one batch's matching in one worker, at least 1."""
        return self.threads or max(1, (os.cpu_count() or 1) // self.workers)


def load_config(
    *,
    file: Path | None = None,
    environment: Mapping[str, str] | None = None,
    overrides: Mapping[str, object] | None = None,
) -> ServerConfig:
    """Return the settings of a server; see :func:`consensuspr.settings.load_settings`."""
    return load_settings(
        ServerConfig,
        prefix=ENVIRONMENT_PREFIX,
        file=file,
        environment=environment,
        overrides=overrides,
    )


def claim(address: Address, *, shared: bool = False) -> socket.socket:
    """Resolve ``address`` and bind it for the workers of this server, or ``shared`` with them.

    Workers share one port with SO_REUSEPORT, which would let a second server join unnoticed.  So
    the supervisor binds the port exclusively first, and only then opens the socket to sharing.  The
    claim never listens, and keeps the port while a worker restarts.
    """
    try:
        family, _, _, _, target = socket.getaddrinfo(
            address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except (socket.gaierror, UnicodeError) as error:
        raise InputError(f"cannot resolve host {address.host!r} of {address}: {error}") from None
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        # With SO_REUSEADDR, connections of an earlier server in TIME_WAIT do not count.  Those of
        # a socket that listens need it as well.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, int(shared))
        sock.bind(target)
        # A claim goes without it from here on, so that another exclusive bind fails although the
        # claim does not listen; with SO_REUSEPORT, so that the workers' binds succeed.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, int(shared))
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    except OSError as error:
        sock.close()
        if error.errno == errno.EADDRINUSE:
            raise ConsensusPRError(f"{address} is in use by another process") from None
        reason = error.strerror or str(error)
        raise InputError(f"cannot listen on {address}: {reason.lower()}") from None
    return sock
