"""Where the server listens, and by which address every reward worker reaches it.

verl spreads its reward workers over all nodes of the Ray cluster, in turns.  On one machine the
loopback interface serves them all and is closed to everybody else.  With several nodes, or with
a Ray cluster that is there already and may have several, the address has to be one of this
node's that the others reach: the protocol has neither encryption nor authentication, so that
network must be the cluster's own.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Mapping

from consensuspr.errors import InputError
from consensuspr.launch.overrides import Overrides
from consensuspr.server.address import Address

DEFAULT_PORT = 50051

# Stands for the IP of the node that an actor will be on.
ACTORS_HOST = "NODE_IP"

_LOOPBACK = "127.0.0.1"


def has_other_nodes(overrides: Overrides, environment: Mapping[str, str]) -> bool:
    """Say whether reward workers may run on other nodes than this one."""
    nodes = overrides.value("trainer.nnodes")
    cluster = environment.get("RAY_ADDRESS", "")
    return (nodes is not None and nodes != "1") or cluster not in ("", "local")


def listen_address(given: str | None, other_nodes: bool) -> Address:
    """Return where the server is to listen.

    Args:
        given: what the user said; None for the default.
        other_nodes: whether it must be reached from other nodes.

    Raises:
        InputError: it is no address, or other nodes cannot reach it.
    """
    if given is None:
        return Address(this_node() if other_nodes else _LOOPBACK, DEFAULT_PORT)
    address = Address.parse(given)
    if other_nodes:
        require_reachable(given)
    return address


def actor_address(given: str | None) -> Address:
    """Return the address of a server that Ray places: it listens at its node's IP.

    Args:
        given: ``0.0.0.0:PORT``; None for the default port.

    Raises:
        InputError: it is no address, or names a host.
    """
    if given is None:
        return Address(ACTORS_HOST, DEFAULT_PORT)
    address = Address.parse(given)
    if not _is(address.host, "unspecified"):
        raise InputError(
            f"a Ray actor listens at its node's IP; give its port as 0.0.0.0:PORT, got {given}"
        )
    return Address(ACTORS_HOST, address.port)


def worker_address(listening: Address) -> str:
    """Return the address that reward workers are told, for one at which the server listens."""
    if _is(listening.host, "unspecified"):
        return str(Address(this_node(), listening.port))
    return str(listening)


def require_reachable(address: str) -> None:
    """Refuse an address that means another machine on each node.

    Raises:
        InputError: it is one of the loopback interface.
    """
    host = Address.parse(address).host
    if host == "localhost" or _is(host, "loopback"):
        raise InputError(
            f"reward workers run on every node and cannot reach {address} from another one; "
            "give an address of this node that the others reach, or 0.0.0.0:PORT to listen on all"
        )


def this_node() -> str:
    """Return the IP by which other nodes reach this one.

    Raises:
        InputError: it has none.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            # Sends nothing: the kernel only chooses the interface that leads outside.
            probe.connect(("192.0.2.1", 9))
            host: str = probe.getsockname()[0]
        except OSError as error:
            raise InputError(
                f"the address of this node cannot be found ({error.strerror}); give it"
            ) from None
    return host


def _is(host: str, kind: str) -> bool:
    try:
        return bool(getattr(ipaddress.ip_address(host), f"is_{kind}"))
    except ValueError:
        return False
