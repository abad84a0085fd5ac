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
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

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

# A known token is good for so long after its file was looked at.
LOOK_S = 1.0
# How a caller gives a token; every client has these.
HOW_TO_SHOW = (
    f"--token-file FILE, a trainer's setting token_file, or the variable {TOKEN_FILE_VARIABLE}"
)
ADMIN_WITHOUT_TOKENS = (
    "without tokens, only callers on the server's own machine may change it;"
    " start the server with --token-file, and send a token of scope admin"
)

_log = logging.getLogger(LOGGER_NAME)


class Denial(NamedTuple):
    """Why a call is rejected; ``known`` if its token is good, and of too narrow a scope."""

    known: bool
    sentence: str


T = TypeVar("T")


class _Watched(Generic[T]):
    """A value that is read again when its files change.  Thread-safe.

    Files that cannot be used, such as while one of two is replaced already, change nothing.
    """

    def __init__(self, files: Sequence[Path], read: Callable[[], T]) -> None:
        self._files, self._read = files, read
        self._lock = threading.Lock()
        self._stamp = file_stamp(*files)
        self._value = read()
        self._looked_at = time.monotonic()

    def current(self, max_age_s: float = 0.0) -> T:
        """Return the value, of files that were looked at so many seconds ago at most."""
        with self._lock:
            if time.monotonic() - self._looked_at < max_age_s:
                return self._value
            self._looked_at = time.monotonic()
            stamp = file_stamp(*self._files)
            if stamp != self._stamp:
                self._stamp = stamp
                try:
                    self._value = self._read()
                except InputError as error:
                    _log.error("%s; still using the previous content", error)
                else:
                    _log.info("%s changed; using the new content", self._files[0])
            return self._value


class Gate:
    """The tokens of a server.  Thread-safe.

    Without a file everybody may do everything, but only callers on this machine may administer.
    """

    def __init__(self, token_file: Path | None) -> None:
        self._scopes = None
        if token_file is not None:
            self._scopes = _Watched([token_file], partial(_digests, token_file))

    @property
    def wants_tokens(self) -> bool:
        """Whether calls need a token."""
        return self._scopes is not None

    def denial(
        self, scope: Scope, authorization: str | bytes | None, peer: str = ""
    ) -> Denial | None:
        """Return why a call that needs a scope is rejected; None: it is allowed.

        Args:
            authorization: ``Bearer TOKEN``, or ``Basic`` with the token as the password.
            peer: the caller as gRPC names it, ``ipv4:127.0.0.1:4711``.
        """
        if self._scopes is None:
            if scope is not Scope.ADMIN or _is_local_peer(peer):
                return None
            return Denial(False, ADMIN_WITHOUT_TOKENS)
        shown = _token_in(authorization)
        if shown is None:
            sentence = f"the server requires a token, and the call has none; set {HOW_TO_SHOW}"
            return Denial(False, sentence)
        # A look-up by digest: its duration does not depend on the token.
        digest = hashlib.sha256(shown).digest()
        granted = self._scopes.current(LOOK_S).get(digest) or self._scopes.current().get(digest)
        if granted is None:
            sentence = "the server does not know the token of the call; set one of its token file"
            return Denial(False, f"{sentence} with {HOW_TO_SHOW}")
        if not granted.includes(scope):
            sentence = f"the call needs a token of scope {scope}; its token has scope {granted}"
            return Denial(True, sentence)
        return None


def _digests(token_file: Path) -> dict[bytes, Scope]:
    scopes: dict[bytes, Scope] = {}
    for token in read_tokens(token_file):
        digest = hashlib.sha256(token.text.encode()).digest()
        if scopes.setdefault(digest, token.scope) is not token.scope:
            raise InputError(f"token file {token_file}: a token is listed with two scopes")
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
    context: ssl.SSLContext


class Tls:
    """The certificates of a server, read again when their files change.  Thread-safe.

    With ``client_ca``, clients must show a certificate that it signed.  All files are PEM.
    """

    def __init__(self, cert: Path, key: Path, client_ca: Path | None) -> None:
        self._files = (cert, key) if client_ca is None else (cert, key, client_ca)
        self._certificates = _Watched(self._files, self._read)

    @property
    def wants_client_certificates(self) -> bool:
        """Whether clients must show a certificate."""
        return len(self._files) == 3

    def current(self) -> Certificates:
        """Return the certificates for new connections; another object after each change."""
        return self._certificates.current()

    def context(self) -> ssl.SSLContext:
        """Return a context for a server of :mod:`ssl`; its new connections follow the files."""
        entrance = self._read().context

        def at_handshake(connection: ssl.SSLObject, name: str | None, _: ssl.SSLContext) -> None:
            connection.context = self.current().context

        entrance.sni_callback = at_handshake
        return entrance

    def _read(self) -> Certificates:
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
            reason = (error.reason or "not PEM files").replace("_", " ").lower()
            raise InputError(f"{name} ({path}): {reason}") from None
        except OSError as error:
            raise InputError(
                f"{error.filename}: {(error.strerror or str(error)).lower()}"
            ) from None
        return Certificates(read[0], read[1], read[2] if client_ca else None, context)


def _no_password() -> str:
    raise InputError(
        "tls_key is encrypted; set a key without a password, in a file that only its owner can read"
    )


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
            _log.warning(
                "every user of this machine can read or change %s; run chmod 600 on it", file
            )
    tls = config.tls_cert is not None
    known = config.token_file is not None or config.tls_client_ca is not None
    for name in ("address", "http_address", "metrics_address", "web"):
        text = getattr(config, name)
        if text is None or is_loopback(Address.parse(text).host):
            continue
        if not config.insecure:
            if name == "web":
                check_page_reach(name, Address.parse(text), known, "--insecure")
            elif not (known or tls):
                raise InputError(
                    f"other machines can reach {name} {text}, and neither tokens nor TLS are set:"
                    " set --token-file FILE (`consensuspr token FILE` makes one), --tls-cert and"
                    " --tls-key, or --insecure on a trusted network"
                )
        if not known:
            _log.warning("%s %s: no tokens are set, so whoever can reach it may use it", name, text)
        elif not tls:
            _log.warning(
                "%s %s: no TLS is set, so tokens and texts are sent unencrypted", name, text
            )


def check_page_reach(name: str, address: Address, known: bool, escape: str = "") -> None:
    """Reject an address of the page that other machines reach without a token.

    Args:
        known: whether callers must show a token, or a certificate that was signed for them.
        escape: the option that allows it all the same.
    """
    if not known and not is_loopback(address.host):
        raise InputError(
            f"other machines can reach {name} {address}, and would read every prompt and response:"
            " set --token-file FILE (`consensuspr token FILE` makes one; TLS alone rejects nobody)"
            + (escape and f", or {escape} on a trusted network")
        )


def is_loopback(host: str) -> bool:
    """Return whether a host, by name or number, is only reachable from this machine."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (socket.gaierror, UnicodeError):
        return False  # binding fails with the reason
    return all(_is_loopback_number(str(address[0]).partition("%")[0]) for *_, address in found)
