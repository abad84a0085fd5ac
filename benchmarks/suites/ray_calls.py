"""What Ray adds: a call of an actor, and a request through Ray Serve's proxy and replica.

An actor's method that returns nothing is the floor of every way through Ray (verl's reward
loop is one), with the payload of one sample and of a batch.  Serve is compared with the plain
server: the same client, rollouts and one matching thread on either side, requests of one size
to the one and the other in turn, every reply compared with the in-process scores before a time
is kept.  All on one machine; a network would add its own.

Measured in the environment that has Ray (:mod:`benchmarks.suites.verl_python`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from benchmarks.harness.measure import Context, Timing, interleaved
from benchmarks.harness.results import Figure, SuiteResult
from benchmarks.harness.runner import serving
from benchmarks.suites import verl_python
from benchmarks.suites.step import Step, make_step
from consensuspr.client import LocalClient, RewardClient, Rollout, Score
from consensuspr.ray.node import require_ray
from consensuspr.ray.serve import APPLICATION, app
from consensuspr.server.config import Address, claim

TITLE = "Ray: an actor's call, and Ray Serve"
# Rollouts of one request.
SIZES = (1, 16, 64)
ROLLOUT_BYTES = 10_000
TIMEOUT_S = 120.0
# Requests at a time of the batch; a client's own bound.
IN_FLIGHT = 8
BATCH = 1024


def run(context: Context) -> SuiteResult:
    """Measure where Ray is; say what to install where it is not."""
    return verl_python.measured("benchmarks.suites.ray_calls", "ray_calls", TITLE, context)


def measure(context: Context) -> SuiteResult:
    """Time calls of an actor, and of the service with and without Serve."""
    step = make_step(BATCH, ROLLOUT_BYTES, context.seed, context.data, context.scratch)
    ray = require_ray()
    ray.init(num_cpus=4, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    try:
        figures = _actor(context, step)
        figures += _serve(context, step)
    finally:
        ray.shutdown()
    return SuiteResult(
        suite="ray_calls",
        title=TITLE,
        figures=figures,
        notes=[
            f"Ray {ray.__version__}; rollouts of {ROLLOUT_BYTES:,} bytes, one request at a time"
            " where no number is given. The plain server and Serve's one replica each match"
            " with one thread, in one process.",
        ],
    )


def _actor(context: Context, step: Step) -> list[Figure]:
    """Time a call of an asynchronous actor that does nothing, as verl's workers are one."""
    ray = require_ray()

    class Idle:
        async def take(self, texts: list[str]) -> int:
            return len(texts)

    actor = ray.remote(Idle).remote()
    texts = [row["response"] for row in step.rows]

    def call(size: int) -> Callable[[], object]:
        return lambda: ray.get(actor.take.remote(texts[:size]))

    sides = {str(size): call(size) for size in (0, *SIZES)}
    times = interleaved(sides, context.rounds, shortest_s=0.05)
    many = interleaved(
        {"many": lambda: ray.get([actor.take.remote(texts[at : at + 1]) for at in range(256)])},
        context.rounds,
    )
    ray.kill(actor)
    return [
        *(
            Figure(
                name="a call of an actor that does nothing",
                value=timing.median * 1e3,
                unit="ms",
                parameters={"rollouts": int(size)},
            )
            for size, timing in times.items()
        ),
        Figure(
            name="calls of an actor, 256 at a time",
            value=256 / many["many"].median,
            unit="calls/s",
            parameters={"rollouts": 1},
        ),
    ]


def _serve(context: Context, step: Step) -> list[Figure]:
    """Time the same requests to the plain server and through Serve."""
    rollouts = [
        Rollout(row["problem_id"], row["response"], row["ground_truth"]) for row in step.rows
    ]
    with LocalClient(step.dataset) as local:
        expected = list(local.score(rollouts))
    figures: list[Figure] = []
    with ExitStack() as stack:
        plain, _ = stack.enter_context(
            serving(step.dataset, context.scratch, None, 1, {"CONSENSUSPR_THREADS": "1"})
        )
        served = stack.enter_context(_deployed(step.dataset))
        clients = {
            name: stack.enter_context(
                RewardClient(address, timeout_s=TIMEOUT_S, max_in_flight=IN_FLIGHT)
            )
            for name, address in (("plain server", plain), ("Ray Serve", served))
        }
        for size in (*SIZES, BATCH):
            context.say(f"requests of {size} rollouts, plain and through Serve")
            sides = {
                name: _checked(client, rollouts[:size], expected[:size])
                for name, client in clients.items()
            }
            figures += _compared(size, interleaved(sides, context.rounds, shortest_s=0.02))
    return figures


def _compared(size: int, times: Mapping[str, Timing]) -> list[Figure]:
    plain, served = times["plain server"].median, times["Ray Serve"].median
    what: dict[str, str | int | float] = {"rollouts": size}
    return [
        *(
            Figure(name=name, value=timing.median * 1e3, unit="ms", parameters=what)
            for name, timing in times.items()
        ),
        Figure(name="Serve adds", value=(served - plain) * 1e3, unit="ms", parameters=what),
        Figure(name="Serve against plain", value=served / plain, unit="x", parameters=what),
    ]


def _checked(
    client: RewardClient, rollouts: Sequence[Rollout], expected: Sequence[Score]
) -> Callable[[], None]:
    def call() -> None:
        if list(client.score(rollouts)) != list(expected):
            raise ValueError("a reply differs from the in-process scores; nothing is reported")

    return call


@contextmanager
def _deployed(dataset: Path) -> Iterator[str]:
    """Run one replica behind Ray Serve on the cluster that runs, and yield its address."""
    serve: Any = require_ray("ray.serve")
    port = _free_port()
    try:
        serve.start(
            proxy_location="HeadOnly",
            http_options={"host": "127.0.0.1", "port": _free_port()},
            grpc_options={
                "port": port,
                "grpc_servicer_functions": ["consensuspr.ray.serve.add_scoring_to_server"],
            },
        )
        serve.run(app({"datasets": {"default": str(dataset)}}), name=APPLICATION)
        yield f"127.0.0.1:{port}"
    finally:
        serve.shutdown()


def _free_port() -> int:
    """Return a port that is free now."""
    claimed = claim(Address("127.0.0.1", 0))
    claimed.close()
    return claimed.address.port
