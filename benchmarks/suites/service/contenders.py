"""The ways to have a batch scored that are timed, and one that scores nothing."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import importlib.util
import json
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Self, TypeVar

import grpc

from benchmarks.suites.service import echo_server
from benchmarks.suites.service.processes import listening, module, reward_server
from benchmarks.suites.service.work import REWARD, Work, WrongAnswer, check
from consensuspr.client import AsyncRewardClient, RewardClient, Score
from consensuspr.client.transport import channel_options
from consensuspr.scoring.types import ScoreOptions
from consensuspr.wire.codec import encode_rollout, encode_score_request, encode_score_response

SCORING = "in-process scoring"
ECHO = "empty gRPC echo"
SYNC = "server, RewardClient"
ASYNC = "server, AsyncRewardClient"
SINGLES = "server, single samples at once"
JSON = "FastAPI with JSON"
# Batches under way at a time, where several are.
UNDER_WAY = 4
OVERLAPPED = f"server, {UNDER_WAY} batches under way"

T = TypeVar("T")
Contenders = dict[str, Callable[[], object]]


class Echo:
    """A client of the empty echo."""

    def __init__(self, address: str) -> None:
        self._channel = grpc.insecure_channel(address, channel_options())
        self._call = self._channel.unary_unary(
            echo_server.METHOD, request_serializer=None, response_deserializer=None
        )

    def contender(self, work: Work, count: int) -> Callable[[], object]:
        """Return a call with as many bytes, both ways, as scoring ``count`` rollouts has.

        Raises WrongAnswer where the reply has another size.
        """
        rollouts = map(encode_rollout, work.rollouts[:count])
        options = ScoreOptions(reward=REWARD)
        size = encode_score_request(rollouts, options).ByteSize()
        reply = encode_score_response(*work.score(count)).ByteSize()
        head = reply.to_bytes(echo_server.SIZE_BYTES, "little")
        payload = head + bytes(max(0, size - len(head)))
        if len(self._call(payload)) != reply:
            raise WrongAnswer(f"the echo does not reply with {reply} bytes")
        return lambda: self._call(payload)

    def close(self) -> None:
        """Close the channel."""
        self._channel.close()


class Server:
    """Both clients of one reward server."""

    def __init__(self, address: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._client = RewardClient(address)
        self._async_client = AsyncRewardClient(address)
        self._threads = ThreadPoolExecutor(UNDER_WAY)

    def contenders(self, work: Work, count: int, *names: str) -> Contenders:
        """Return the ways of that name to score the first ``count`` rollouts, each checked."""
        rollouts = work.rollouts[:count]
        expected = work.score(count)[0]

        def synchronous() -> list[Score]:
            return self._client.score(rollouts, REWARD)

        def overlapped() -> list[list[Score]]:
            return [*self._threads.map(lambda _: synchronous(), range(UNDER_WAY))]

        def asynchronous() -> list[Score]:
            return self._wait_for(self._async_client.score(rollouts, REWARD))

        async def one_by_one() -> list[Score]:
            calls = (self._async_client.score_one(rollout, REWARD) for rollout in rollouts)
            return await asyncio.gather(*calls)

        def singles() -> list[Score]:
            return self._wait_for(one_by_one())

        for scores in overlapped():
            check(OVERLAPPED, scores, expected)
        ways: dict[str, Callable[[], list[Score]]] = {
            SYNC: synchronous,
            ASYNC: asynchronous,
            SINGLES: singles,
        }
        for name, way in ways.items():
            check(name, way(), expected)
        every: Contenders = {**ways, OVERLAPPED: overlapped}
        return {name: every[name] for name in names}

    def close(self) -> None:
        """Close both clients."""
        self._client.close()
        self._wait_for(self._async_client.close())
        self._loop.close()
        self._threads.shutdown()

    def _wait_for(self, work: Coroutine[Any, Any, T]) -> T:
        return self._loop.run_until_complete(work)


class JsonServer:
    """A client of the FastAPI application, on one connection that stays open."""

    @staticmethod
    def missing() -> list[str]:
        """Return the packages that it needs and that are not installed."""
        return [name for name in ("fastapi", "uvicorn") if not importlib.util.find_spec(name)]

    def __init__(self, address: str) -> None:
        host, _, port = address.partition(":")
        self._connection = http.client.HTTPConnection(host, int(port))

    def contender(self, work: Work, count: int) -> Callable[[], object]:
        """Return a call that scores the first ``count`` rollouts, checked."""
        rollouts = work.rollouts[:count]

        def score() -> list[dict[str, Any]]:
            items = [{"problem_id": r.problem_id, "response": r.response} for r in rollouts]
            headers = {"Content-Type": "application/json"}
            self._connection.request("POST", "/score", json.dumps({"rollouts": items}), headers)
            found: list[dict[str, Any]] = json.loads(self._connection.getresponse().read())
            return found

        for found, score_ in zip(score(), work.score(count)[0], strict=True):
            if (found["reward"], found["matched"]) != (score_.reward, list(score_.matched)):
                raise WrongAnswer(f"{JSON} does not give the scores of in-process scoring")
        return score

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


class Field:
    """The servers that are measured against each other, running, and their clients.

    A context manager: what it starts is ended with it.
    """

    def __init__(self, work: Work, scratch: Path, *, workers: int = 1, threads: int = 1) -> None:
        self._stack = contextlib.ExitStack()
        with self._stack:  # ends what was started where a later one does not start
            start = self._stack.enter_context
            self.address = start(
                reward_server(work.dataset, scratch, workers=workers, threads=threads)
            )
            self.server = start(contextlib.closing(Server(self.address)))
            address = start(listening(module("echo_server"), scratch / "echo.log"))
            self.echo = start(contextlib.closing(Echo(address)))
            self._stack = self._stack.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()


@contextlib.contextmanager
def json_server(work: Work, scratch: Path) -> Iterator[JsonServer]:
    """Start the FastAPI application and give a client of it."""
    command = module("json_server", str(work.dataset))
    with (
        listening(command, scratch / "json.log") as address,
        contextlib.closing(JsonServer(address)) as client,
    ):
        yield client
