"""``consensuspr health``: ask a server whether it takes work, for probes and scripts."""

from __future__ import annotations

from typing import Annotated

import typer

from consensuspr.cli.options import TlsCa, more_option
from consensuspr.errors import InputError, Unavailable


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
    """
    import grpc
    from grpc_health.v1 import health_pb2, health_pb2_grpc

    from consensuspr.client.retries import RpcFailure
    from consensuspr.client.servers import split_addresses
    from consensuspr.client.transport import Access, Connector

    if len(split_addresses(address)) > 1:
        raise InputError(f"health checks one server, got several addresses: {address}")
    with Connector(Access(tls_ca=tls_ca)).open(address) as channel:
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
