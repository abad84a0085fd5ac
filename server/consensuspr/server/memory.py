"""The memory of a worker: what a request takes of it, how many arrive at a time, what goes back.

Whatever is sent, a worker's memory is bounded by its settings.  Three things would break that.

**Bytes that become more.**  Two bytes on the wire may be a rollout without a field, which takes a
hundred once it is parsed, and a hundred more as a Python object.  So the fields of a request are
counted before it is parsed (:func:`charge`), there is a limit on them, and the admission counts
what a request becomes and not what it was.  A compressed request is unpacked here and not by gRPC,
which would unpack a megabyte to a gigabyte (:func:`unpacked`).

**Requests on their way.**  gRPC takes a message in before Python sees it, as many at a time as
there are open calls.  :class:`Reception` bounds them: while few arrive, each is received at
once, and beyond that calls wait with next to nothing of their body received.  Calls that need only
a few bytes (:class:`SmallCalls`) take turns of their own, so that no probe waits behind requests.

**What allocators keep.**  Freed memory stays with the process, for good where it lies between what
lives.  :class:`Trimmer` hands it back when there is much of it.

Not covered: connections that send nothing, some ten kilobytes each; the messages that Ray Serve's
proxies hold.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import zlib
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any

import grpc
import grpc.aio
from google.protobuf.descriptor import Descriptor
from google.protobuf.message import DecodeError

from consensuspr.core import count_fields
from consensuspr.errors import InvalidRequest
from consensuspr.server.admission import Origin, count_out

# As received, and as unpacked.  An explanation holds all of the response in its normal form too: as
# a text, in the reply, and as the reply is sent.
COPIES = 2
COPIES_EXPLAINED = 6
# Of a field as it is parsed and as Python sees it: 237 were measured of an inline node.
FIELD_BYTES = 256
# What a call costs beside its bytes, from its header to the end of its reply: gRPC's own books of
# it, a header of 8 KiB, two tasks.  27 KB were measured of such that wait for their turn.
REQUEST_OVERHEAD_BYTES = 24 << 10
# Of a body that waits for its turn, gRPC's window of a stream is there already.
WINDOW_BYTES = 64 << 10

# No message of the protocol begins so: 0x1f would be a field of a wire type that there is not.
GZIP_MAGIC = b"\x1f\x8b"
_GZIP_FORMAT = 16 + zlib.MAX_WBITS

# Bodies that arrive at a time without further ado; those beyond take their turns, two at a time.
# Ordinary ones arrive in about a millisecond; a turn costs a message of a megabyte 0.3 ms.
RECEIVED_AT_ONCE = 1
# While others wait for their turn; 17 MiB arrive so over 100 Mbit/s.  The more wait, the shorter.
TURN_S = 2.0
SHORTEST_TURN_S = 0.1
# Between two looks at how long it takes.
LOOK_S = 0.02
# Of calls that need few bytes: a path has 4,096 at most.
SMALL_BYTES = 8192
SMALL_TURN_S = 0.5
# Of them that are open at a time, those that watch the health included; each takes what any call
# does.  A host may have so many times what it leaves free.
MAX_SMALL_CALLS = 1024
SMALL_CALLS_TO_FREE = 3
# Connections of which a body has arrived in time are remembered, so many at most.
MAX_KNOWN = 4096

# So much more than after the last time is handed back: where nothing is to be done, and under load,
# where the allocator keeps some on purpose (ALLOCATOR of the supervisor).
TRIM_IDLE_BYTES = 16 << 20
TRIM_BUSY_BYTES = 96 << 20
# From the end of a request to a look at how much there is.
TRIM_DELAY_S = 1.0
# Or, where requests took so much since then, at once: what comes next may need memory of another
# kind (blocks that the allocator maps one by one), and both would be there together.
TRIM_ENDED_BYTES = 32 << 20

_KIND_FIELDS = 32


def field_table(message: Descriptor) -> bytes:
    """Return the table of :func:`consensuspr.core.count_fields` of a kind of message."""
    kinds, rows = [message], bytearray()
    for kind in kinds:
        row = bytearray(_KIND_FIELDS)
        for field in kind.fields:
            if field.message_type is not None:
                if field.message_type not in kinds:
                    kinds.append(field.message_type)
                row[field.number] = kinds.index(field.message_type)
        rows += row
    return bytes(rows)


def charge(request: bytes, table: bytes, max_fields: int, copies: int = COPIES) -> int:
    """Return how many bytes of memory a request takes until it is answered, from above.

    Raises:
        InvalidRequest: it has more fields than there may be.
    """
    fields = count_fields(request, table, max_fields)
    if fields > max_fields:
        raise InvalidRequest(
            f"a request holds at most {max_fields} fields, all those of its rollouts and nodes"
            f" counted; this one of {len(request)} bytes holds more"
        )
    return copies * len(request) + FIELD_BYTES * fields + REQUEST_OVERHEAD_BYTES


def unpacked_bytes(request: bytes) -> int:
    """Return how many bytes a gzip-compressed request says that it becomes, at its end."""
    return int.from_bytes(request[-4:], "little")


def unpacked(request: bytes) -> bytes:
    """Return what a gzip-compressed request becomes, no more than it says itself.

    Raises:
        InvalidRequest: it is no gzip, ends before its end, or becomes something else.
    """
    unpacking = zlib.decompressobj(_GZIP_FORMAT)
    size = unpacked_bytes(request)
    try:
        # One more, since 0 would be no bound; and zlib sees the end only where it has room.
        data = unpacking.decompress(request, size + 1)
    except zlib.error as error:
        raise InvalidRequest(
            f"the {len(request)} bytes of the request are no gzip: {error}"
        ) from None
    if len(data) != size or not unpacking.eof or unpacking.unused_data:
        raise InvalidRequest(f"the {len(request)} bytes of the request are no one whole gzip")
    return data


class Reception:
    """How many requests arrive at a time; of one event loop.

    Turns go by connection: those of which a body has arrived in time have one turn among them,
    all others another one.  So hundreds that begin requests and never end them wait for each
    other, and not those that score.

    Attributes:
        arriving: bodies that arrive without a turn.
    """

    def __init__(self) -> None:
        self.arriving = 0
        self._known: OrderedDict[str, None] = OrderedDict()
        self._of_known = _Turns()
        self._of_others = _Turns()

    @property
    def busy(self) -> bool:
        """Whether whatever comes next has to wait for its turn."""
        return self.arriving >= RECEIVED_AT_ONCE

    async def receive(self, context: grpc.aio.ServicerContext[bytes, bytes]) -> bytes | None:
        """Return the one message of a call when it has had its turn; None where it brought none.

        Raises:
            TimeoutError: it did not arrive in time.
        """
        sender = context.peer()
        turns = self._of_known if sender in self._known else self._of_others
        try:
            message = await turns.receive(context, TURN_S)
        except TimeoutError:
            self._known.pop(sender, None)
            raise
        self.know(sender)
        return message

    def know(self, sender: str) -> None:
        """Take note that a body arrived by a connection."""
        self._known[sender] = None
        self._known.move_to_end(sender)
        if len(self._known) > MAX_KNOWN:
            self._known.popitem(last=False)


class _Turns:
    """One turn at a time, for one host after the other.

    Of a host, who came last goes first: who waits for long is more likely to stall.  Among hosts
    that would let one that stalls keep out whoever came before it.
    """

    def __init__(self) -> None:
        self._taken = False
        self._waiting: dict[str, list[asyncio.Future[None]]] = {}  # by host, the next one first

    async def receive(
        self, context: grpc.aio.ServicerContext[Any, Any], longest_s: float
    ) -> bytes | None:
        """Return the next message of a call when it has had its turn; None where there is none.

        Raises:
            TimeoutError: it did not arrive in time; the call cannot be read any more.
        """
        await self.take(Origin(context.peer()).host)
        try:
            others = sum(map(len, self._waiting.values()))
            async with _turn(max(SHORTEST_TURN_S, longest_s / (1 + others))):
                # Not by the iterator of messages, which would keep the last one as long as it
                # lives.
                message = await context.read()
        finally:
            self.give_back()
        return message if isinstance(message, bytes) else None

    async def take(self, host: str) -> None:
        """Wait for the turn and take it."""
        if not self._taken:
            self._taken = True
            return
        mine = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(host, []).append(mine)
        try:
            await mine
        except asyncio.CancelledError:
            of_host = self._waiting.get(host, [])
            if mine in of_host:
                of_host.remove(mine)
                if not of_host:
                    del self._waiting[host]
            elif not mine.cancelled():
                self.give_back()  # it was this one's already
            raise

    def give_back(self) -> None:
        """Let the next one have the turn."""
        while self._waiting:
            host = next(iter(self._waiting))
            of_host = self._waiting.pop(host)
            following = of_host.pop()
            if of_host:
                self._waiting[host] = of_host  # behind the others
            if not following.done():
                following.set_result(None)
                return
        self._taken = False


@contextlib.asynccontextmanager
async def _turn(turn_s: float) -> AsyncIterator[None]:
    """Bound what happens within by so many seconds in which the event loop turns.

    A loop that got no core (a busy machine, a stopped process) finds that the time is over before
    it finds what has come meanwhile: the sender is not to blame for that.

    Raises:
        TimeoutError: the time is over.
    """
    loop = asyncio.get_running_loop()
    handle: asyncio.TimerHandle
    async with asyncio.timeout(None) as limit:

        def look(looked: float, left_s: float) -> None:
            nonlocal handle
            now = loop.time()
            left_s -= min(now - looked, 2 * LOOK_S)
            if left_s > 0:
                handle = loop.call_later(min(left_s, LOOK_S), look, now, left_s)
            else:
                limit.reschedule(now)

        handle = loop.call_later(LOOK_S, look, loop.time(), turn_s)
        try:
            yield
        finally:
            handle.cancel()


class Arrival:
    """The handler of a call whose body arrives without a turn, which it counts.

    gRPC has it for as long as the call lasts, and drops it unused where the caller leaves before.
    """

    request_streaming = response_streaming = False
    request_deserializer = response_serializer = None
    unary_stream = stream_unary = stream_stream = None

    def __init__(
        self, reception: Reception, behaviour: Callable[[bytes, Any], Awaitable[bytes]]
    ) -> None:
        self._reception: Reception | None = reception
        self._behaviour = behaviour
        reception.arriving += 1

    async def unary_unary(self, request: bytes, context: Any) -> bytes:
        """Carry out the call."""
        if self._reception is not None:
            self._reception.know(context.peer())
        self._arrived()
        work = self._behaviour(request, context)
        del request  # gRPC may keep this frame
        return await work

    def _arrived(self) -> None:
        if self._reception is not None:
            self._reception.arriving -= 1
            self._reception = None

    def __del__(self) -> None:
        self._arrived()


class SmallCalls(grpc.GenericRpcHandler):  # type: ignore[type-arg]
    """Methods whose messages are small, and are received one at a time.

    Each message could have as many bytes as a request for scores, and of those of generated code
    gRPC would receive as many as there are streams, before anybody is asked.  Generated code adds
    its methods here as it would to a server.  Clients whose next message does not come in a turn
    are told that they have said all.  Only so many calls are open at a time: streams that watch
    have no end of their own.
    """

    def __init__(self) -> None:
        self._turns = _Turns()
        self._open: Counter[str] = Counter()  # by host
        self._handlers: dict[str, Any] = {}

    def add_generic_rpc_handlers(self, handlers: object) -> None:
        """Do nothing: what generated code adds here, it adds by name too."""

    def add_registered_method_handlers(self, service: str, handlers: Mapping[str, Any]) -> None:
        """Take the methods of a service, by name."""
        for name, handler in handlers.items():
            self._handlers[f"/{service}/{name}"] = self._bounded(handler)

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        """Return the handler of a call, None where the method is no one's here."""
        return self._handlers.get(handler_call_details.method)

    def _bounded(self, handler: Any) -> Any:
        async def answer(_: object, context: Any) -> Any:
            await self._enter(context)
            return await handler.unary_unary(await self._only(handler, context), context)

        async def follow(_: object, context: Any) -> None:
            await self._enter(context)
            await handler.unary_stream(await self._only(handler, context), context)

        async def converse(_: object, context: Any) -> AsyncIterator[Any]:
            await self._enter(context)
            async for reply in handler.stream_stream(self._each(handler, context), context):
                yield reply

        serializer = handler.response_serializer
        if handler.request_streaming:
            return grpc.stream_stream_rpc_method_handler(converse, response_serializer=serializer)
        if handler.response_streaming:
            return grpc.stream_stream_rpc_method_handler(follow, response_serializer=serializer)
        return grpc.stream_unary_rpc_method_handler(answer, response_serializer=serializer)

    async def _enter(self, context: Any) -> None:
        """Count a call in until its reply has been taken, or end it where too many are open."""
        host = Origin(context.peer()).host
        free = MAX_SMALL_CALLS - self._open.total()
        if self._open[host] >= SMALL_CALLS_TO_FREE * free:
            await context.abort(
                grpc.StatusCode.RESOURCE_EXHAUSTED,
                f"{self._open[host]} calls of this kind are open from one host; no more are taken"
                " until some have ended",
            )
        self._open[host] += 1
        task = asyncio.current_task()
        assert task is not None, "a coroutine is run by one"
        task.add_done_callback(lambda _: count_out(self._open, host))

    async def _only(self, handler: Any, context: Any) -> Any:
        """Return the request of a call, which has one."""
        request = await self._next(handler, context)
        if request is None:
            await context.abort(
                grpc.StatusCode.INVALID_ARGUMENT, "the call brought no request in time"
            )
        return request

    async def _each(self, handler: Any, context: Any) -> AsyncIterator[Any]:
        """Yield the requests of a call, until there are no more in time."""
        while (request := await self._next(handler, context)) is not None:
            yield request

    async def _next(self, handler: Any, context: Any) -> Any:
        try:
            raw = await self._turns.receive(context, SMALL_TURN_S)
        except TimeoutError:
            return None
        if raw is None:
            return None
        size = len(raw)
        refused = None
        if size > SMALL_BYTES:
            refused = (
                grpc.StatusCode.RESOURCE_EXHAUSTED,
                f"a request here has at most {SMALL_BYTES} bytes, this one has {size}",
            )
        elif handler.request_deserializer is None:
            return raw
        else:
            try:
                return handler.request_deserializer(raw)
            except DecodeError:
                refused = (
                    grpc.StatusCode.INVALID_ARGUMENT,
                    f"the {size} bytes are no request of this method",
                )
        # What is raised here hangs together with the call, and with the frames below.
        del raw
        await context.abort(*refused)
        return None


class Trimmer:
    """Hands freed memory back to the system some time after it was in use; of one event loop.

    Where the C library has no ``malloc_trim`` (it is glibc's) or the system no ``/proc``, nothing.

    Args:
        idle: whether there is no request at the moment, nor a reply that has not been taken.
    """

    def __init__(self, idle: Callable[[], bool]) -> None:
        self._idle = idle
        self._trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        self._floor = _resident_bytes()
        self._planned: asyncio.TimerHandle | None = None
        self._ended_bytes = 0  # of requests, since the last look

    def plan(self) -> None:
        """Look in a while whether there is much to hand back, unless that is planned already."""
        if self._planned is None and self._trim is not None and self._floor:
            self._planned = asyncio.get_running_loop().call_later(TRIM_DELAY_S, self._look)

    def ended(self, num_bytes: int) -> None:
        """Take note that a request ended that took so much memory: with much of it, look now."""
        self._ended_bytes += num_bytes
        if self._ended_bytes >= TRIM_ENDED_BYTES and self._planned is not None:
            self._planned.cancel()
            self._look()

    def _look(self) -> None:
        self._planned = None
        self._ended_bytes = 0
        idle = self._idle()
        if not idle:
            self.plan()
        limit = TRIM_IDLE_BYTES if idle else TRIM_BUSY_BYTES
        resident = _resident_bytes()
        if resident - self._floor > limit:
            asyncio.get_running_loop().run_in_executor(None, self._hand_back)
        elif resident < self._floor:
            self._floor = resident

    def _hand_back(self) -> None:
        assert self._trim is not None
        self._trim(0)
        if self._idle():
            # What is left is alive, caches that have filled for instance.
            self._floor = _resident_bytes()


def _resident_bytes() -> int:
    """Return what this process has in memory, 0 where the system does not tell."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0
