"""Access to a server: tokens with scopes, TLS, and the addresses it may listen on.

Every endpoint asks :meth:`Gate.denial` whether a call is allowed.  Token files and
certificates are read again when they change; a file that cannot be used leaves the old ones in
use, and is logged.  Nothing here imports gRPC: the supervisor uses it too.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import hashlib
import ipaddress
import logging
import socket
import ssl
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from consensuspr.credentials import (
    TOKEN_FILE_VARIABLE,
    Scope,
    file_stamp,
    open_to_others,
    read_credentials,
    read_tokens,
)
from consensuspr.errors import InputError
from consensuspr.server.config import Address, ServerConfig
from consensuspr.server.logs import LOGGER_NAME

# Between two looks at a token file whose tokens are good.
LOOK_S = 1.0
# How a caller gives a token; every client has these.
HOW_TO_SHOW = (
    f"--token-file FILE, a trainer's setting token_file, or the variable {TOKEN_FILE_VARIABLE}"
)

_log = logging.getLogger(LOGGER_NAME)


class Denial(NamedTuple):
    """Why a call is rejected; ``known`` if its token is good, and of too narrow a scope."""

    known: bool
    sentence: str


class Gate:
    """The tokens of a server.  Thread-safe.

    Without a file everybody may do everything, but only callers on this machine may administer.
    """

    def __init__(
        self, token_file: Path | None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._file = token_file
        self._clock = clock
        self._lock = threading.Lock()
        if token_file is not None:
            self._stamp = file_stamp(token_file)
            self._scopes = _digests(token_file)
            self._look_at = clock() + LOOK_S

    @property
    def wants_tokens(self) -> bool:
        """Whether calls need a token."""
        return self._file is not None

    def denial(
        self, scope: Scope, authorization: str | bytes | None, peer: str = ""
    ) -> Denial | None:
        """Return why a call that needs a scope is rejected; None: it is allowed.

        Args:
            authorization: ``Bearer TOKEN``, or ``Basic`` with the token as the password.
            peer: the caller as gRPC names it, ``ipv4:127.0.0.1:4711``.
        """
        if self._file is None:
            if scope is not Scope.ADMIN or _is_local_peer(peer):
                return None
            return Denial(
                False,
                "a server without tokens is administered from its own machine alone;"
                " start it with --token-file, and show a token of scope admin",
            )
        shown = _token_in(authorization)
        if shown is None:
            return Denial(
                False, f"this server wants a token, and the call showed none; give {HOW_TO_SHOW}"
            )
        granted = self._granted(self._file, hashlib.sha256(shown).digest())
        if granted is None:
            return Denial(
                False,
                "this server does not know the token that the call showed; give one of its"
                f" token file: {HOW_TO_SHOW}",
            )
        if not granted.includes(scope):
            return Denial(
                True, f"this needs a token of scope {scope}, and the one shown has scope {granted}"
            )
        return None

    def _granted(self, file: Path, digest: bytes) -> Scope | None:
        """Return the scope of a token by its digest, None if it is unknown."""
        with self._lock:
            # A look-up by digest: its duration does not depend on the token.
            if self._clock() >= self._look_at or digest not in self._scopes:
                self._look(file)
            return self._scopes.get(digest)

    def _look(self, file: Path) -> None:
        """Read the file if it has changed."""
        self._look_at = self._clock() + LOOK_S
        stamp = file_stamp(file)
        if stamp == self._stamp:
            return
        self._stamp = stamp
        try:
            self._scopes = _digests(file)
        except InputError as error:
            _log.error("%s; the tokens from before stay in use", error)
        else:
            _log.info("token file %s has changed: %d tokens", file, len(self._scopes))


def _digests(token_file: Path) -> dict[bytes, Scope]:
    scopes: dict[bytes, Scope] = {}
    for token in read_tokens(token_file):
        digest = hashlib.sha256(token.text.encode()).digest()
        if scopes.setdefault(digest, token.scope) is not token.scope:
            raise InputError(f"token file {token_file}: one token stands there with two scopes")
    return scopes


def _token_in(authorization: str | bytes | None) -> bytes | None:
    text = authorization or b""
    if isinstance(text, str):
        text = text.encode("utf-8", "surrogatepass")
    scheme, _, credentials = text.strip().partition(b" ")
    if scheme.lower() == b"bearer":
        return credentials.strip() or None
    if scheme.lower() == b"basic":
        with contextlib.suppress(binascii.Error):
            return base64.b64decode(credentials, validate=True).partition(b":")[2] or None
    return None


def _is_local_peer(peer: str) -> bool:
    """Return whether a caller, as gRPC names it, is on this machine."""
    kind, _, address = peer.partition(":")
    host = address.replace("%5B", "[").replace("%5D", "]").rpartition(":")[0].strip("[]")
    return kind == "unix" or (kind in ("ipv4", "ipv6") and _is_loopback_number(host))


def _is_loopback_number(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class Certificates(NamedTuple):
    """Certificates of a server, and the authority of its clients, as PEM."""

    chain: bytes
    key: bytes
    client_ca: bytes | None


class Tls:
    """The certificates of a server, read again when their files change.  Thread-safe.

    With ``client_ca``, clients must show a certificate that it signed.  All files are PEM.
    """

    def __init__(self, cert: Path, key: Path, client_ca: Path | None) -> None:
        self._files = (cert, key) if client_ca is None else (cert, key, client_ca)
        self._lock = threading.Lock()
        self._stamp = file_stamp(*self._files)
        self._certificates, self._context = self._read()

    @property
    def wants_client_certificates(self) -> bool:
        """Whether clients must show a certificate."""
        return len(self._files) == 3

    def current(self) -> Certificates:
        """Return the certificates for new connections; another object after each change."""
        with self._lock:
            self._look()
            return self._certificates

    def context(self) -> ssl.SSLContext:
        """Return a context for a server of :mod:`ssl`; its new connections follow the files."""
        entrance = self._read()[1]

        def at_handshake(connection: ssl.SSLObject, name: str | None, _: ssl.SSLContext) -> None:
            with self._lock:
                self._look()
                connection.context = self._context

        entrance.sni_callback = at_handshake
        return entrance

    def _look(self) -> None:
        stamp = file_stamp(*self._files)
        if stamp == self._stamp:
            return
        self._stamp = stamp
        try:
            self._certificates, self._context = self._read()
        except InputError as error:
            # Such as while one of two files is replaced already.
            _log.error("%s; the certificate from before stays in use", error)
            return
        _log.info("certificate %s has changed; new connections get it", self._files[0])

    def _read(self) -> tuple[Certificates, ssl.SSLContext]:
        cert, key, *client_ca = self._files
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        name, path = "tls_cert and tls_key", cert
        try:
            read = [read_credentials(path) for path in self._files]
            context.load_cert_chain(cert, key, password=_no_password)
            for path in client_ca:
                name = "tls_client_ca"
                context.load_verify_locations(path)
                context.verify_mode = ssl.CERT_REQUIRED
        except ssl.SSLError as error:
            reason = (error.reason or "are no PEM files").replace("_", " ").lower()
            raise InputError(f"{name} ({path}): {reason}") from None
        except OSError as error:
            raise InputError(
                f"{error.filename}: {(error.strerror or str(error)).lower()}"
            ) from None
        return Certificates(read[0], read[1], read[2] if client_ca else None), context


def _no_password() -> str:
    raise InputError("tls_key is encrypted; give one that is not, in a file for its owner alone")


@dataclass(frozen=True, slots=True)
class Security:
    """The gate of a server and its certificates; ``tls`` is None without encryption."""

    gate: Gate
    tls: Tls | None

    @classmethod
    def of(cls, config: ServerConfig) -> Security:
        """Return the gate and certificates of settings; raise InputError for a bad file."""
        tls = None
        if config.tls_cert is not None and config.tls_key is not None:
            tls = Tls(config.tls_cert, config.tls_key, config.tls_client_ca)
        return cls(Gate(config.token_file), tls)


def check_exposure(config: ServerConfig) -> None:
    """Reject addresses that other machines reach unprotected, and warn about weak protection."""
    for file in (config.token_file, config.tls_key):
        if file is not None and open_to_others(file):
            _log.warning("%s is open to every user of this machine; chmod 600 closes it", file)
    tokens, tls = config.token_file is not None, config.tls_cert is not None
    known = tokens or config.tls_client_ca is not None
    for name in ("address", "http_address", "metrics_address", "web"):
        text = getattr(config, name)
        if text is None or is_loopback(Address.parse(text).host):
            continue
        if not config.insecure:
            if name == "web":
                check_page_reach(name, Address.parse(text), known=known, escape=" --insecure")
            elif not (tokens or tls):
                raise InputError(
                    f"{name} {text} can be reached from other machines, and there is neither a"
                    " token nor TLS: give --token-file FILE (`consensuspr token FILE` makes one),"
                    " or --tls-cert and --tls-key, or --insecure on a trusted network"
                )
        if not known:
            _log.warning(
                "%s %s: everybody who can reach it may use it; there are no tokens", name, text
            )
        elif not tls:
            _log.warning("%s %s: tokens and texts pass unencrypted; there is no TLS", name, text)


def check_page_reach(
    name: str, address: Address, *, known: bool, escape: str | None = None
) -> None:
    """Reject an address of the page that other machines reach without a token.

    Args:
        known: whether callers must show a token, or a certificate that was signed for them.
        escape: the option that allows it all the same.
    """
    if known or is_loopback(address.host):
        return
    raise InputError(
        f"{name} {address} can be reached from other machines, and everybody who can reach it"
        " would read every prompt and response: give --token-file FILE (`consensuspr token FILE`"
        " makes one; TLS alone keeps nobody out)"
        + ("" if escape is None else f", or{escape} on a trusted network")
    )


def is_loopback(host: str) -> bool:
    """Return whether a host, by name or number, is only reachable from this machine."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (socket.gaierror, UnicodeError):
        return False  # binding fails with the reason
    return all(_is_loopback_number(str(address[0]).partition("%")[0]) for *_, address in found)
