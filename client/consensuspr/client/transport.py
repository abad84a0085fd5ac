"""One connection of a client: its target, the options of its channel, its memory."""

from __future__ import annotations

from functools import cache

from consensuspr.errors import InputError

# A trainer's client may be silent for the minutes of a policy update; a firewall that drops
# such a connection would otherwise be noticed only by the next call's timeout.
KEEPALIVE_S = 30
KEEPALIVE_TIMEOUT_S = 10
# gRPC's own ceiling is two minutes: a server that came back would go unnoticed that long.
MAX_RECONNECT_BACKOFF_S = 2
MAX_PORT = 65_535
# More than a client's requests take that are under way.  glibc learns from up to 32 MiB.
_KEPT_BYTES = 16 << 20


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
        ("grpc.keepalive_timeout_ms", KEEPALIVE_TIMEOUT_S * 1000),
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
