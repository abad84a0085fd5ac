"""What Ray adds: a call of an actor, and a request through Ray Serve's proxy and replica.

An actor's method that returns nothing is the floor of every way through Ray (verl's reward
loop is one), with the payload of one sample and of a batch.  Serve is compared with the plain
server: the same client, rollouts and one matching thread on either side, requests of one size
to the one and the other in turn, every reply compared with the in-process scores before a time
is kept.  All on one machine; a network would add its own.

Measured in the environment that has Ray (:mod:`benchmarks.harness.verl_python`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.harness import verl_python
from benchmarks.harness.results import SuiteResult
from benchmarks.measure import Context, interleaved
from benchmarks.processes import serving
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
    return verl_python.measured(measure, "ray_calls", TITLE, context)


def measure(context: Context) -> SuiteResult:
    """Time calls of an actor, and of the service with and without Serve."""
    step = make_step(BATCH, ROLLOUT_BYTES, context.seed, context.data, context.scratch)
    ray = require_ray()
    note = (
        f"Ray {ray.__version__}; rollouts of {ROLLOUT_BYTES:,} bytes, one request at a time"
        " where no number is given. The plain server and Serve's one replica each match"
        " with one thread, in one process."
    )
    found = SuiteResult(suite="ray_calls", title=TITLE, notes=[note])
    ray.init(num_cpus=4, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    try:
        _actor(context, step, found)
        _serve(context, step, found)
    finally:
        ray.shutdown()
    return found


def _actor(context: Context, step: Step, found: SuiteResult) -> None:
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
    )["many"]
    ray.kill(actor)
    for size, seconds in times.items():
        of = {"rollouts": int(size)}
        found.add("a call of an actor that does nothing", median(seconds) * 1e3, "ms", of)
    found.add("calls of an actor, 256 at a time", 256 / median(many), "calls/s", {"rollouts": 1})


def _serve(context: Context, step: Step, found: SuiteResult) -> None:
    """Time the same requests to the plain server and through Serve."""
    rollouts = [
        Rollout(row["problem_id"], row["response"], row["ground_truth"]) for row in step.rows
    ]
    with LocalClient(step.dataset) as local:
        expected = list(local.score(rollouts))
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
            times = interleaved(sides, context.rounds, shortest_s=0.02)
            of = {"rollouts": size}
            plain_s, served_s = (median(seconds) for seconds in times.values())
            found.add("plain server", plain_s * 1e3, "ms", of)
            found.add("Ray Serve", served_s * 1e3, "ms", of)
            found.add("Serve adds", (served_s - plain_s) * 1e3, "ms", of)
            found.add("Serve against plain", served_s / plain_s, "x", of)


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
        serve.run(app({"datasets": {"default": str(dataset)}, "insecure": True}), name=APPLICATION)
        yield f"127.0.0.1:{port}"
    finally:
        serve.shutdown()


def _free_port() -> int:
    """Return a port that is free now."""
    claimed = claim(Address("127.0.0.1", 0))
    claimed.close()
    return claimed.address.port
