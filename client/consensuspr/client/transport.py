"""One connection of a client: its target, who is at either end of it, its channel, its memory."""

from __future__ import annotations

import os
import socket
import ssl
import sys
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from consensuspr.credentials import (
    TOKEN_FILE_VARIABLE,
    TOKEN_VARIABLE,
    Stamp,
    check_token,
    file_stamp,
    read_credentials,
    read_tokens,
)
from consensuspr.errors import InputError
from consensuspr.v1 import RUN_KEY

if TYPE_CHECKING:
    import grpc
    import grpc.aio

Metadata: TypeAlias = "tuple[tuple[str, str | bytes], ...] | None"

TLS_VARIABLE = "CONSENSUSPR_TLS"
TLS_CA_VARIABLE = "CONSENSUSPR_TLS_CA"
TLS_CERT_VARIABLE = "CONSENSUSPR_TLS_CERT"
TLS_KEY_VARIABLE = "CONSENSUSPR_TLS_KEY"

_AS_CLIENT = ssl.PROTOCOL_TLS_CLIENT
_WANTS_TLS = (
    "what listens there speaks TLS; give tls_ca (--tls-ca or CONSENSUSPR_TLS_CA), and tls_cert and"
    " tls_key (CONSENSUSPR_TLS_CERT, CONSENSUSPR_TLS_KEY) where it wants a certificate of yours"
)
_WANTS_CERTIFICATE = (
    "the server wants a certificate of this client's; give tls_cert and tls_key"
    " (CONSENSUSPR_TLS_CERT, CONSENSUSPR_TLS_KEY)"
)
_OTHER_CERTIFICATE = (
    "the server does not take this client's certificate (tls_cert or CONSENSUSPR_TLS_CERT)"
)

# A server that hangs, or a firewall that dropped the connection during a policy update, would be
# noticed only by a call's timeout.  Sooner would also cut off a slow network: a ping waits behind
# the requests that are being sent, some 8 MiB of them.
KEEPALIVE_S = 10
PING_TIMEOUT_S = 20
# gRPC's own ceiling is two minutes: a server that came back would go unnoticed that long.
MAX_RECONNECT_BACKOFF_S = 2
MAX_PORT = 65_535
# Of each of the steps in which it is looked what a server speaks that hangs up.
LOOK_S = 1.0
# More than a client's requests take that are under way.  glibc learns from up to 32 MiB.
_KEPT_BYTES = 16 << 20


def _variable(name: str) -> str | None:
    return os.environ.get(name) or None


def _file(given: str | os.PathLike[str] | None, variable: str) -> Path | None:
    path = given if given is not None else _variable(variable)
    return None if path is None else Path(path)


@dataclass(frozen=True, slots=True)
class Access:
    """How a client knows its server, and how it shows who it is.

    What is not given is what the environment says (``CONSENSUSPR_TOKEN_FILE``,
    ``CONSENSUSPR_TOKEN``, ``CONSENSUSPR_TLS_CA``, ``CONSENSUSPR_TLS_CERT``,
    ``CONSENSUSPR_TLS_KEY``, ``CONSENSUSPR_TLS``), so that a trainer needs no code for it.

    Attributes:
        token_file: file whose first token each call shows; read again when it changes.
        tls_ca: certificates (PEM) that sign the server's.
        tls_cert: the client's own certificate (PEM), for a server that demands one.
        tls_key: its private key (PEM), not encrypted.
        tls: encrypt, and make sure of the server; where not given, if there is a ``tls_ca`` or
            ``tls_cert``.  Without ``tls_ca`` the public authorities sign.
        token: the token itself, in place of a file.

    Raises:
        InputError: a file cannot be used, or both a token and a file of one are given.
    """

    token_file: str | os.PathLike[str] | None = None
    tls_ca: str | os.PathLike[str] | None = None
    tls_cert: str | os.PathLike[str] | None = None
    tls_key: str | os.PathLike[str] | None = None
    tls: bool | None = None
    token: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if self.token is not None and self.token_file is not None:
            raise InputError("give token or token_file, not both")
        if self.token is None:
            object.__setattr__(self, "token_file", _file(self.token_file, TOKEN_FILE_VARIABLE))
            if self.token_file is None:
                object.__setattr__(self, "token", _variable(TOKEN_VARIABLE))
        if self.token is not None:
            check_token(self.token, "token")
        elif self.token_file is not None:
            read_tokens(Path(self.token_file))
        for name, variable in (
            ("tls_ca", TLS_CA_VARIABLE),
            ("tls_cert", TLS_CERT_VARIABLE),
            ("tls_key", TLS_KEY_VARIABLE),
        ):
            object.__setattr__(self, name, _file(getattr(self, name), variable))
        if (self.tls_cert is None) != (self.tls_key is None):
            raise InputError("tls_cert and tls_key go together, and one of them is not given")
        if self.tls is None:
            wanted = (_variable(TLS_VARIABLE) or "0").lower()
            if wanted not in ("0", "1", "false", "true"):
                raise InputError(f"{TLS_VARIABLE} must be 1 or 0, got {wanted!r}")
            given = self.tls_ca is not None or self.tls_cert is not None
            object.__setattr__(self, "tls", given or wanted in ("1", "true"))
        if self.tls:
            self.tls_context()

    @property
    def tls_files(self) -> tuple[Path, ...]:
        """The files of certificates and keys that are used."""
        files = (self.tls_ca, self.tls_cert, self.tls_key) if self.tls else ()
        return tuple(Path(file) for file in files if file is not None)

    def tls_context(self) -> ssl.SSLContext:
        """Read the files of certificates, and return what a connection by them would use.

        What gRPC would only say of a connection that fails is found out here.

        Raises:
            InputError: a file cannot be used.
        """
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        names = "tls_ca"
        try:
            if self.tls_ca is not None:
                context.load_verify_locations(self.tls_ca)
            names = "tls_cert and tls_key"
            if self.tls_cert is not None:
                context.load_cert_chain(self.tls_cert, self.tls_key, password=_no_password)
        except ssl.SSLError as error:
            reason = (error.reason or "no PEM files").replace("_", " ").lower()
            raise InputError(f"{names}: {reason}") from None
        except OSError as error:
            raise InputError(f"{names}: {(error.strerror or str(error)).lower()}") from None
        return context


def _no_password() -> str:
    raise InputError("tls_key is encrypted; give one that is not, in a file for its owner alone")


class Connector:
    """Makes a client's channels, and says what each of its calls shows.  Thread-safe."""

    def __init__(self, access: Access | None = None) -> None:
        self._access = Access() if access is None else access
        self._tls_files = self._access.tls_files
        self._tls_stamp = file_stamp(*self._tls_files)
        self._certificates = self._read_certificates()
        self._stamp: Stamp | None = None
        self._metadata: Metadata = None
        if self._access.token is not None:
            self._metadata = _shown(self._access.token)
        elif self._access.token_file is not None:
            self._stamp = file_stamp(Path(self._access.token_file))
            self._metadata = _shown(_first_token(Path(self._access.token_file)))

    def metadata(self, run: str | None = None) -> Metadata:
        """Return what a call shows that begins now; None: nothing.

        ``run`` is the name of the training run that asks: whose turn it is is decided before a
        request is read.  A span of OpenTelemetry that the caller is in goes along.
        """
        shown = (*(self._token() or ()), *_trace_context())
        if run:
            shown = (*shown, (RUN_KEY, run.encode()))
        return shown or None

    def _token(self) -> Metadata:
        if self._access.token_file is not None:
            path = Path(self._access.token_file)
            stamp = file_stamp(path)
            # One that is gone or being written: the token from before may well be good still.
            if stamp not in (None, self._stamp):
                try:
                    self._metadata = _shown(_first_token(path))
                except InputError:
                    return self._metadata
                self._stamp = stamp
        return self._metadata

    def open(self, address: str) -> grpc.Channel:
        """Return a new channel to an address; nothing is connected before its first call."""
        import grpc

        if not self._access.tls:
            return grpc.insecure_channel(address, channel_options())
        return grpc.secure_channel(address, self._credentials(), channel_options())

    def open_aio(self, address: str) -> grpc.aio.Channel:
        """Return a new channel for the running event loop, likewise."""
        import grpc.aio

        if not self._access.tls:
            return grpc.aio.insecure_channel(address, channel_options())
        return grpc.aio.secure_channel(address, self._credentials(), channel_options())

    def renewed(self) -> bool:
        """Tell whether the files of certificates were changed since channels were made.

        gRPC reads them for a channel and never again.  Files that cannot be used, as a certificate
        whose key is still being written, count as unchanged until they change again.
        """
        if not self._tls_files:
            return False
        stamp = file_stamp(*self._tls_files)
        if stamp is None or stamp == self._tls_stamp:
            return False
        self._tls_stamp = stamp
        try:
            self._access.tls_context()
            self._certificates = self._read_certificates()
        except (InputError, OSError):
            return False
        return True

    def told_by_handshake(self, address: str) -> str | None:
        """Look what a server speaks that hung up on a connection; say what is wrong with that.

        gRPC says of a server that wants TLS what it says of one that is ending.  So a connection is
        made that tries TLS, with this client's certificate, and asks for nothing.  It may take some
        :data:`LOOK_S`.

        Returns:
            What no pause helps against; None: nothing of that kind was found.
        """
        host, _, port = address.removeprefix("dns:").rpartition("/")[2].rpartition(":")
        if address.startswith("unix:") or not port.isdigit():
            return None
        at = (host.strip("[]"), int(port))
        try:
            if not self._access.tls:
                return _WANTS_TLS if _shakes_hands(at, ssl.SSLContext(_AS_CLIENT)) else None
            # Of its certificate a client is told after the handshake, by TLS 1.2 within it: a
            # proxy that has nobody to ask would end both after it.
            if not _shakes_hands(at, self._access.tls_context()):
                return None
            context = self._access.tls_context()
            context.maximum_version = ssl.TLSVersion.TLSv1_2
            if _shakes_hands(at, context):
                return None
        except (OSError, InputError):
            return None
        return _OTHER_CERTIFICATE if self._access.tls_cert else _WANTS_CERTIFICATE

    def _read_certificates(self) -> list[bytes | None]:
        files = (self._access.tls_ca, self._access.tls_key, self._access.tls_cert)
        return [
            read_credentials(Path(file)) if self._access.tls and file is not None else None
            for file in files
        ]

    def _credentials(self) -> grpc.ChannelCredentials:
        import grpc

        return grpc.ssl_channel_credentials(*self._certificates)


def _shakes_hands(at: tuple[str, int], context: ssl.SSLContext) -> bool:
    """Tell whether a server that is there goes through with a TLS handshake.

    Raises:
        OSError: it is not there, or what it says is no TLS.
    """
    # Whether it is trusted is said by gRPC itself; here counts what is spoken.
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    with socket.create_connection(at, LOOK_S) as plain:
        try:
            context.wrap_socket(plain, server_hostname=at[0]).close()
        except (ssl.SSLEOFError, ConnectionResetError):
            return False
    return True


def _trace_context() -> tuple[tuple[str, str], ...]:
    """Return the caller's span as W3C writes it; where nobody traces, nothing is imported."""
    api = sys.modules.get("opentelemetry.trace")
    if api is None:
        return ()
    span = api.get_current_span().get_span_context()
    if not span.is_valid:
        return ()
    return (("traceparent", f"00-{span.trace_id:032x}-{span.span_id:016x}-{span.trace_flags:02x}"),)


def _first_token(path: Path) -> str:
    return read_tokens(path)[0].text


def _shown(token: str) -> Metadata:
    return (("authorization", f"Bearer {token}"),)


def channel_options() -> list[tuple[str, int | str]]:
    """Return the options of a client's channel.

    Message sizes are not limited here: the server says what it takes, and replies are as
    large as what was asked for.  gRPC's own retries are off, so that there is one place
    that repeats a call.
    """
    return [
        ("grpc.max_send_message_length", -1),
        ("grpc.max_receive_message_length", -1),
        ("grpc.enable_retries", 0),
        # Where a name has several addresses, each has a connection and its turn; what a name
        # server says of balancing is not asked for.
        ("grpc.service_config", '{"loadBalancingConfig": [{"round_robin": {}}]}'),
        ("grpc.service_config_disable_resolution", 1),
        # Clients of one process would share a connection, and with it one worker process.
        ("grpc.use_local_subchannel_pool", 1),
        ("grpc.initial_reconnect_backoff_ms", 100),
        ("grpc.min_reconnect_backoff_ms", 1000),
        ("grpc.max_reconnect_backoff_ms", MAX_RECONNECT_BACKOFF_S * 1000),
        # Of a name, which is resolved again when a connection ends: gRPC's 30 s would be an outage
        # where the only server behind it has moved.
        ("grpc.dns_min_time_between_resolutions_ms", MAX_RECONNECT_BACKOFF_S * 1000),
        ("grpc.keepalive_time_ms", KEEPALIVE_S * 1000),
        # Which of the two counts depends on gRPC's version.
        ("grpc.keepalive_timeout_ms", PING_TIMEOUT_S * 1000),
        ("grpc.http2.ping_timeout_ms", PING_TIMEOUT_S * 1000),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_pings_without_data", 0),
    ]


@cache
def keep_freed_memory() -> None:
    """Have the memory of a call's messages kept for the next call, where glibc allows it.

    It hands large blocks back to the system as they are freed, and the system zeroes each page
    of the next ones, which costs a client a third of its time.  How large they have to be, it
    learns from what it sees freed: here from a block that is never touched.  Twice as much may
    stay with each of its arenas (about one a thread).  What the environment of the process says
    (``MALLOC_TRIM_THRESHOLD_``) has precedence.
    """
    bytes(_KEPT_BYTES)


def check_target(address: str) -> str:
    """Return the address if a channel can be made to it.

    Args:
        address: ``HOST:PORT``, or any other target that gRPC resolves.

    Raises:
        InputError: it is empty, names no port, or names one that does not exist; gRPC would
            take such a number modulo 65,536 and call a stranger.
    """
    if ":" not in address:
        raise InputError(f"address must be HOST:PORT, got {address!r}")
    port = address.rpartition(":")[2]
    if port.isascii() and port.isdigit() and int(port) > MAX_PORT:
        raise InputError(f"port must be at most {MAX_PORT}, got {port} in {address!r}")
    return address
