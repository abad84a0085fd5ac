"""Where a server listens: parsing, resolving and reserving ``HOST:PORT``.

Workers share one port with SO_REUSEPORT, which would let a second server join in
silence and take a share of the traffic.  So the supervisor claims the port first: it
binds exclusively, which fails where anybody else has the port, and only then opens the
socket to sharing.  The claim never listens (the kernel hands it no connection) and is
held for as long as the server lives, so that the port stays ours while a worker restarts.

Unix sockets are not covered: worker processes cannot share one.
"""

from __future__ import annotations

import errno
import socket
from dataclasses import dataclass

from consensuspr.errors import ConsensusPRError, InputError

MAX_PORT = 65535


@dataclass(frozen=True, slots=True)
class Address:
    """A host, as a name or a number without brackets, and a port; port 0 is any free one."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @classmethod
    def parse(cls, text: str) -> Address:
        """Read ``HOST:PORT``, an IPv6 host in brackets.

        Raises:
            InputError: the text has another form or the port is out of range.
        """
        if text.startswith(("unix:", "/")):
            raise InputError(f"address {text!r} is a unix socket; serve needs HOST:PORT")
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


@dataclass(frozen=True, slots=True)
class Claim:
    """A port that is ours; ``address`` has a numeric host and the real port."""

    address: Address
    socket: socket.socket

    def close(self) -> None:
        """Give the port up."""
        self.socket.close()


def claim(address: Address) -> Claim:
    """Resolve ``address`` and claim it for the workers of this server alone.

    Raises:
        InputError: the host cannot be resolved or is not one of this machine's, or the
            port needs rights that this process lacks.
        ConsensusPRError: another process has the port.
    """
    try:
        family, _, _, _, target = socket.getaddrinfo(
            address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except (socket.gaierror, UnicodeError) as error:
        raise InputError(f"cannot resolve host {address.host!r} of {address}: {error}") from None
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        # With SO_REUSEADDR, connections of an earlier server in TIME_WAIT do not count.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(target)
        # Without it from here on, so that another exclusive bind fails although the claim
        # does not listen; with SO_REUSEPORT, so that the workers' binds succeed.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 0)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    except OSError as error:
        sock.close()
        if error.errno == errno.EADDRINUSE:
            raise ConsensusPRError(f"{address} is in use by another process") from None
        reason = error.strerror or str(error)
        raise InputError(f"cannot listen on {address}: {reason.lower()}") from None
    host, port = sock.getsockname()[:2]
    return Claim(Address(host, port), sock)
