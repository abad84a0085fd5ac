"""An empty gRPC server in a process of its own: takes any request, replies as asked.

What a service costs that does nothing: the floor under the reward server's own cost.  The first
four bytes of a request, little-endian, say how many bytes to reply with.
"""

from __future__ import annotations

import asyncio

import grpc
import grpc.aio

SERVICE = "benchmarks.Echo"
METHOD = f"/{SERVICE}/Echo"
SIZE_BYTES = 4


async def _echo(request: bytes, _: grpc.aio.ServicerContext[bytes, bytes]) -> bytes:
    return bytes(int.from_bytes(request[:SIZE_BYTES], "little"))


async def _serve() -> None:
    # As the reward server has it; its other options pay for nothing here.
    server = grpc.aio.server(options=[("grpc.max_receive_message_length", -1)])
    handler = grpc.unary_unary_rpc_method_handler(_echo)
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler(SERVICE, {"Echo": handler}),)
    )
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(f"listening on 127.0.0.1:{port}", flush=True)
    await server.wait_for_termination()


if __name__ == "__main__":
    asyncio.run(_serve())
