"""A server and its clients against an empty echo: ``python -m benchmarks.service``.

The floor is an empty gRPC echo of as many bytes, plus the scoring in this process.  Client and
server share one core, so that all that both do shows; batches at a time use all.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import grpc
import grpc.aio

from benchmarks import texts
from benchmarks.measure import Row, WrongAnswerError, fastest, report
from benchmarks.processes import listening, on_one_core, serving
from consensuspr.client import RewardClient
from consensuspr.client.transport import channel_options
from consensuspr.scoring import (
    AnswerVerifier,
    DatasetIndex,
    RewardSpec,
    Score,
    ScoreOptions,
    Scorer,
)
from consensuspr.wire.codec import (
    encode_rollout_field,
    encode_score_request,
    encode_score_response,
)

BATCHES = (1, 64, 256, 2048)
ROLLOUT_BYTES = 10_000
UNDER_WAY = 4
SEED = 20
ECHO = "benchmarks.Echo"
REWARD = RewardSpec.linear()
ONE_THREAD = {"CONSENSUSPR_THREADS": "1"}

Way = Callable[[], object]


async def echo() -> None:
    """Serve a method that replies with as many bytes as the first four bytes of a request say."""

    async def reply(request: bytes, _: grpc.aio.ServicerContext[bytes, bytes]) -> bytes:
        return bytes(int.from_bytes(request[:4], "little"))

    server = grpc.aio.server(options=[("grpc.max_receive_message_length", -1)])
    handlers = {"Echo": grpc.unary_unary_rpc_method_handler(reply)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(ECHO, handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(f"listening on 127.0.0.1:{port}", flush=True)
    await server.wait_for_termination()


class Field:
    """Rollouts with known nodes, a scorer, a reward server and an echo."""

    def __init__(self, folder: Path, count: int, stack: contextlib.ExitStack) -> None:
        """Start the servers; ``stack`` ends them."""
        batch = texts.batch(count, ROLLOUT_BYTES, SEED, folder)
        self.dataset, self.rollouts = batch.dataset, batch.rollouts
        verifier = stack.enter_context(AnswerVerifier(workers=1))
        index = DatasetIndex.load(batch.dataset)
        self.scorer = Scorer({"default": index}, verifier=verifier, threads=1)
        self.expected = self.scorer.score(self.rollouts, ScoreOptions(REWARD))[0]
        for row, score in zip(batch.rows, self.expected, strict=True):
            if (list(score.matched), score.acc == 1.0) != (row["expected"], row["correct"]):
                raise WrongAnswerError(f"in-process scoring is wrong for {row['rollout_id']}")
        server = serving(batch.dataset, folder, workers=1, settings=ONE_THREAD)
        self.address = stack.enter_context(server)[0]
        self.client = stack.enter_context(RewardClient(self.address, timeout_s=120))
        command = [sys.executable, "-m", "benchmarks.service", "echo"]
        address = stack.enter_context(listening(command, folder))[0]
        channel = stack.enter_context(grpc.insecure_channel(address, channel_options()))
        self.echo = channel.unary_unary(f"/{ECHO}/Echo", None, None)

    def floor(self, count: int) -> dict[str, Way]:
        """Return the scoring of the first rollouts, and an echo of as many bytes both ways."""
        rollouts, options = self.rollouts[:count], ScoreOptions(REWARD)
        size = len(encode_score_request(map(encode_rollout_field, rollouts), options))
        reply = len(encode_score_response(*self.scorer.score_columns(rollouts, options)))
        payload = reply.to_bytes(4, "little").ljust(size, b"\0")
        if len(self.echo(payload)) != reply:
            raise WrongAnswerError(f"the echo does not reply with {reply} bytes")
        return {
            "scoring": lambda: self.scorer.score(rollouts, options),
            "echo": partial(self.echo, payload),
        }

    def check(self, name: str, scores: Sequence[Score]) -> None:
        """Raise WrongAnswerError if scores differ from those of in-process scoring."""
        if list(scores) != self.expected[: len(scores)] or not scores:
            raise WrongAnswerError(f"{name} does not give the scores of in-process scoring")


def batches(field: Field, counts: Sequence[int] = BATCHES) -> Iterator[Row]:
    """Compare a batch through the server with the floor, on one core."""
    for count in counts:
        rollouts = field.rollouts[:count]
        field.check("server", field.client.score(rollouts, REWARD))
        call = partial(field.client.score, rollouts, REWARD)
        best = fastest({**field.floor(count), "server": call})
        us = {name: 1e6 * seconds / count for name, seconds in best.items()}
        parts = ", ".join(f"{name} {value:.0f}" for name, value in us.items())
        ratio = us["server"] / (us["scoring"] + us["echo"])
        note = f"one core; µs a rollout of 10 KB: {parts}"
        yield Row("service", f"batch of {count} over echo + scoring", f"{ratio:.2f}x", note)


def overlapping(field: Field, count: int = 256) -> Row:
    """Compare several batches under way at a time, on all cores."""
    rollouts = field.rollouts[:count]
    with ThreadPoolExecutor(UNDER_WAY) as threads:

        def several() -> list[Sequence[Score]]:
            call = partial(field.client.score, rollouts, REWARD)
            return [*threads.map(lambda _: call(), range(UNDER_WAY))]

        for scores in several():
            field.check("several batches", scores)
        best = fastest({**field.floor(count), "several": several})
    ratio = best["several"] / UNDER_WAY / (best["scoring"] + best["echo"])
    note = f"{len(os.sched_getaffinity(0))} cores, one worker with one thread"
    quantity = f"{UNDER_WAY} batches of {count} under way over echo + scoring"
    return Row("service", quantity, f"{ratio:.2f}x", note)


def logged(field: Field, folder: Path, count: int = 256) -> Row:
    """Compare a server that logs every rollout with its text with one that does not."""
    settings = {**ONE_THREAD, "CONSENSUSPR_SCORE_LOG": str(folder / "log")}
    rollouts = field.rollouts[:count]
    with (
        serving(field.dataset, folder, workers=1, settings=settings) as (address, _),
        RewardClient(address) as client,
    ):
        field.check("server with a log", client.score(rollouts, REWARD))
        best = fastest(
            {
                "plain": partial(field.client.score, rollouts, REWARD),
                "logged": partial(client.score, rollouts, REWARD),
            }
        )
    ratio = best["logged"] / best["plain"]
    return Row(
        "service", f"batch of {count}, score log with texts over none", f"{ratio:.2f}x", "one core"
    )


def run() -> Iterator[Row]:
    """Measure the service."""
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        with on_one_core(), contextlib.ExitStack() as one:
            field = Field(folder, max(BATCHES), one)
            yield from batches(field)
            yield logged(field, folder)
        yield overlapping(Field(folder, 256, stack))


if __name__ == "__main__":
    if sys.argv[1:] == ["echo"]:
        asyncio.run(echo())
    else:
        report(run())
