"""``consensuspr health``: ask a server whether it takes work, for probes and scripts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from consensuspr.cli.options import TlsCa, more_option
from consensuspr.errors import InputError, Unavailable

if TYPE_CHECKING:
    from consensuspr.client.transport import Access
    from consensuspr.server.config import Address


def health(
    address: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Server to ask.")
    ] = "127.0.0.1:50051",
    tls_ca: TlsCa = None,
    timeout: Annotated[
        float,
        more_option("SECONDS", "Seconds to wait for the reply.", min=0.001),
    ] = 3.0,
) -> None:
    """Check that a server is ready: exit code 0 if it is SERVING, else 1.

    ```text
    consensuspr health --address 127.0.0.1:50051
    ```

    A server that drains is NOT_SERVING, so that load balancers send it no new requests.
    On the server's machine, with its `CONSENSUSPR_TLS_CERT` and `CONSENSUSPR_TLS_KEY`, the command
    needs no `--tls-ca`: it expects that certificate, and shows it if the server requires one.
    """
    import grpc
    from grpc_health.v1 import health_pb2, health_pb2_grpc

    from consensuspr.client.retries import RpcFailure
    from consensuspr.client.servers import split_addresses
    from consensuspr.client.transport import Access, Connector
    from consensuspr.server.config import Address
    from consensuspr.server.security import is_loopback

    if len(split_addresses(address)) > 1:
        raise InputError(f"health checks one server, got several addresses: {address}")
    access = Access(tls_ca=tls_ca)
    name = None
    if access.tls_cert is not None and access.tls_ca is None:
        server = Address.parse(address)
        if is_loopback(server.host):
            name = _name_of_own_server(server, access, timeout)
            access = Access(tls_ca=access.tls_cert)
    with Connector(access).open(address, name) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        try:
            reply = stub.Check(
                health_pb2.HealthCheckRequest(), timeout=timeout, wait_for_ready=False
            )
        except grpc.RpcError as error:
            failure = RpcFailure.of(error)
            reason = failure.details
            if failure.code is grpc.StatusCode.DEADLINE_EXCEEDED:
                reason = f"no reply within {timeout:g} s; check the address, or raise --timeout"
            raise Unavailable(f"{address}: {reason} ({failure.code.name})") from None
    status = health_pb2.HealthCheckResponse.ServingStatus.Name(reply.status)
    if reply.status != health_pb2.HealthCheckResponse.SERVING:
        raise Unavailable(f"{address}: {status}")
    typer.echo(f"{address}: {status}")


def _name_of_own_server(server: Address, access: Access, timeout: float) -> str | None:
    """Return a name in the certificate of the server on this machine.

    A container's certificate names the host that clients use, and a probe asks 127.0.0.1.  So the
    handshake trusts the certificate file itself; the name is for gRPC, which insists on one.

    Raises:
        Unavailable: no server replies, or it shows another certificate.
    """
    import socket
    import ssl
    from ipaddress import ip_address

    context = access.tls_context()
    context.load_verify_locations(access.tls_cert)
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.check_hostname = False
    try:
        with (
            socket.create_connection((server.host, server.port), timeout) as connection,
            context.wrap_socket(connection) as tls,
        ):
            shown: dict[str, Any] = tls.getpeercert() or {}
    except OSError as error:
        raise Unavailable(f"{server}: {error.strerror or error}") from None
    # The first of each kind; a certificate may begin with a URI, which names no host.
    names = dict(reversed(shown.get("subjectAltName", ())))
    if "DNS" in names:
        return str(names["DNS"]).replace("*", "any")
    # gRPC does not know the long form of IPv6 in which Python returns it.
    return str(ip_address(names["IP Address"])) if "IP Address" in names else None
