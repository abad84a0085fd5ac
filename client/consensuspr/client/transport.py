"""The connection of a client: token, TLS, channel options."""

from __future__ import annotations

import os
import re
import ssl
import sys
from contextlib import suppress
from dataclasses import dataclass, field
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

Metadata: TypeAlias = "tuple[tuple[str, str | bytes], ...] | None"

# Variable of each value of an access that a caller leaves out.
_VARIABLES = {
    "token_file": TOKEN_FILE_VARIABLE,
    "tls_ca": "CONSENSUSPR_TLS_CA",
    "tls_cert": "CONSENSUSPR_TLS_CERT",
    "tls_key": "CONSENSUSPR_TLS_KEY",
}
TLS_VARIABLE = "CONSENSUSPR_TLS"

# A ping waits behind the requests that are being sent, some 8 MiB.
KEEPALIVE_S = 10
PING_TIMEOUT_S = 20
# gRPC's own limit of two minutes would hide a server that came back.
MAX_RECONNECT_BACKOFF_S = 2
MAX_PORT = 65_535

# Schemes of gRPC's targets; all but a name have forms of their own.
_RESOLVERS = ("dns", "ipv4", "ipv6", "unix", "unix-abstract", "vsock", "xds")
_HOST_PORT = re.compile(r"(?:\[[0-9A-Fa-f:.]+(?:%\w+)?\]|[^\s:/\[\]@]+):[0-9]+")


@dataclass(frozen=True, slots=True)
class Access:
    """Token and TLS of a client; a value that is not given comes from its environment variable.

    Attributes:
        token_file: file whose first token each call sends; read again when it changes.
        tls_ca: certificates (PEM) that sign the server's.
        tls_cert: the client's own certificate (PEM), if the server requires one.
        tls_key: its private key (PEM), not encrypted.
        tls: use TLS; default: if there is a ``tls_ca`` or ``tls_cert``.  Without ``tls_ca`` the
            public authorities sign.
        token: the token itself, instead of a file.

    Raises:
        InputError: a file cannot be used, or both a token and a file are given.
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
        for name, variable in _VARIABLES.items():
            path = getattr(self, name)
            if path is None and not (name == "token_file" and self.token is not None):
                path = os.environ.get(variable) or None
            object.__setattr__(self, name, None if path is None else Path(path))
        if self.token is None and self.token_file is None:
            object.__setattr__(self, "token", os.environ.get(TOKEN_VARIABLE) or None)
        if self.token is not None:
            check_token(self.token, "token")
        elif self.token_file is not None:
            read_tokens(Path(self.token_file))
        if (self.tls_cert is None) != (self.tls_key is None):
            raise InputError("tls_cert and tls_key need each other; give both")
        if self.tls is None:
            wanted = (os.environ.get(TLS_VARIABLE) or "0").lower()
            if wanted not in ("0", "1", "false", "true"):
                raise InputError(f"{TLS_VARIABLE} must be 1 or 0, got {wanted!r}")
            given = self.tls_ca is not None or self.tls_cert is not None
            object.__setattr__(self, "tls", given or wanted in ("1", "true"))
        if self.tls:
            self.tls_context()

    @property
    def tls_files(self) -> tuple[Path, ...]:
        """The files of certificates and keys in use."""
        files = (self.tls_ca, self.tls_cert, self.tls_key) if self.tls else ()
        return tuple(Path(file) for file in files if file is not None)

    def tls_context(self) -> ssl.SSLContext:
        """Return a context with the files.

        Raises:
            InputError: one of them cannot be used; gRPC would only hang up.
        """
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        names = f"tls_ca {self.tls_ca}"
        try:
            if self.tls_ca is not None:
                context.load_verify_locations(self.tls_ca)
            names = f"tls_cert {self.tls_cert} and tls_key {self.tls_key}"
            if self.tls_cert is not None:
                context.load_cert_chain(self.tls_cert, self.tls_key, password=_no_password)
        except ssl.SSLError as error:
            reason = (error.reason or "no PEM files").replace("_", " ").lower()
            raise InputError(f"{names}: {reason}") from None
        except OSError as error:
            raise InputError(f"{names}: {(error.strerror or str(error)).lower()}") from None
        return context


def _no_password() -> str:
    raise InputError("tls_key is encrypted; give an unencrypted file that only its owner can read")


class Connector:
    """Opens a client's channels and makes the metadata of its calls.  Thread-safe."""

    def __init__(self, access: Access | None = None) -> None:
        self._access = Access() if access is None else access
        self._tls_stamp = file_stamp(*self._access.tls_files)
        self._certificates = self._read_certificates()
        self._stamp: Stamp | None = None
        self._token: str | None = None

    def metadata(self, run: str | None = None) -> Metadata:
        """Return the metadata of a call: token, trace context, and the name of the run."""
        shown: list[tuple[str, str | bytes]] = []
        token = self._current_token()
        if token is not None:
            shown.append(("authorization", f"Bearer {token}"))
        shown += _trace_context()
        if run:
            shown.append((RUN_KEY, run.encode()))
        return tuple(shown) or None

    def _current_token(self) -> str | None:
        if self._access.token_file is None:
            return self._access.token
        path = Path(self._access.token_file)
        stamp = file_stamp(path)
        # If the file is missing or being written, the token from before may still be good.
        if stamp not in (None, self._stamp):
            with suppress(InputError):
                self._token = read_tokens(path)[0].text
                self._stamp = stamp
        return self._token

    def open(self, address: str, name: str | None = None) -> grpc.Channel:
        """Return a new channel to an address; it connects on its first call.

        Args:
            name: the name that the server's certificate must have, instead of the address's.
        """
        import grpc

        options = channel_options()
        if not self._access.tls:
            return grpc.insecure_channel(address, options)
        if name is not None:
            options.append(("grpc.ssl_target_name_override", name))
        credentials = grpc.ssl_channel_credentials(*self._certificates)
        return grpc.secure_channel(address, credentials, options)

    def renewed(self) -> bool:
        """Return whether the certificates changed; gRPC reads them once per channel.

        Files that cannot be used, for example while they are written, count as unchanged.
        """
        stamp = file_stamp(*self._access.tls_files) if self._access.tls_files else None
        if stamp is None or stamp == self._tls_stamp:
            return False
        self._tls_stamp = stamp
        try:
            self._access.tls_context()
            self._certificates = self._read_certificates()
        except (InputError, OSError):
            return False
        return True

    def _read_certificates(self) -> list[bytes | None]:
        files = (self._access.tls_ca, self._access.tls_key, self._access.tls_cert)
        return [
            read_credentials(Path(file)) if self._access.tls and file is not None else None
            for file in files
        ]


def _trace_context() -> list[tuple[str, str]]:
    """Return the caller's OpenTelemetry span as a W3C header; imports nothing."""
    api = sys.modules.get("opentelemetry.trace")
    span = api.get_current_span().get_span_context() if api is not None else None
    if span is None or not span.is_valid:
        return []
    return [("traceparent", f"00-{span.trace_id:032x}-{span.span_id:016x}-{span.trace_flags:02x}")]


def channel_options() -> list[tuple[str, int | str]]:
    """Return the options of a client's channel; the server limits the message sizes."""
    return [
        ("grpc.max_send_message_length", -1),
        ("grpc.max_receive_message_length", -1),
        ("grpc.enable_retries", 0),
        # A name with several addresses: one connection to each, in turn.
        ("grpc.service_config", '{"loadBalancingConfig": [{"round_robin": {}}]}'),
        ("grpc.service_config_disable_resolution", 1),
        # Clients of one process would share a connection, and with it one worker process.
        ("grpc.use_local_subchannel_pool", 1),
        ("grpc.initial_reconnect_backoff_ms", 100),
        ("grpc.min_reconnect_backoff_ms", 1000),
        ("grpc.max_reconnect_backoff_ms", MAX_RECONNECT_BACKOFF_S * 1000),
        # With gRPC's 30 s a server that has moved would be away that long.
        ("grpc.dns_min_time_between_resolutions_ms", MAX_RECONNECT_BACKOFF_S * 1000),
        ("grpc.keepalive_time_ms", KEEPALIVE_S * 1000),
        # gRPC's version decides which of the two counts.
        ("grpc.keepalive_timeout_ms", PING_TIMEOUT_S * 1000),
        ("grpc.http2.ping_timeout_ms", PING_TIMEOUT_S * 1000),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_pings_without_data", 0),
    ]


def check_target(address: str) -> str:
    """Return the address if it is ``HOST:PORT``, or another target that gRPC resolves.

    Raises:
        InputError: it is a URL, or it has no port or a wrong one; names the right form.
    """
    scheme, colon, rest = address.partition(":")
    if colon and scheme in _RESOLVERS:
        address_of = rest.rpartition("/")[2] if scheme == "dns" else "any:1"
    else:
        address_of = address
    if _HOST_PORT.fullmatch(address_of) is None:
        url_scheme, is_url, after = address.partition("://")
        host = (after if is_url else address).lstrip("/").partition("/")[0]
        if host.count(":") > 1 and not host.startswith("["):  # IPv6 without a port
            known = f"[{host}]:50051"
        elif _HOST_PORT.fullmatch(host):
            known = host
        else:
            known = f"{host.partition(':')[0] or 'localhost'}:50051"
        form = f"HOST:PORT, such as {known!r}, got {address!r}"
        if url_scheme in ("https", "grpcs"):
            form += f"; for TLS set tls_ca, or {TLS_VARIABLE}=1"
        raise InputError(f"address must be {form}")
    # gRPC would take a larger port modulo 65,536.
    if int(port := address_of.rpartition(":")[2]) > MAX_PORT:
        raise InputError(f"port must be at most {MAX_PORT}, got {port} in {address!r}")
    return address
