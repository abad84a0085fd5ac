"""What Ray Serve adds to a request: the same client, service and rollouts with and without it.

Both serve from one process with one matching thread on this machine: the plain server with
one worker, Serve with one replica behind one proxy.  Requests of one size go to the one and
the other in turn, so that a neighbour's load hits both; every reply is compared with the
in-process scores before a time is printed.  Answers are warm: it is the way that is measured.

    python benchmarks/ray_serve_overhead.py           needs consensuspr[ray]

Not covered: several nodes, where a request crosses the network once more, and many clients.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from consensuspr.client import LocalClient, RewardClient, Rollout, Score
from consensuspr.data import read_rollouts
from consensuspr.ray.deployment import app
from consensuspr.ray.front import APPLICATION
from consensuspr.ray.require import require_ray
from consensuspr.scoring import rollout_from_row
from consensuspr.server.address import Address, claim

REPOSITORY = Path(__file__).resolve().parent.parent
SAMPLE = REPOSITORY / "examples" / "sample"
PROBLEMS = SAMPLE / "problems.jsonl"
# Rollouts of one request; 256 is the most that a client puts into one.
SIZES = (1, 16, 256)
TIMEOUT_S = 120.0
# On a busy machine the usual two seconds may leave an answer undecided.
BUDGET_S = 60.0


def free_port() -> int:
    """Return a port that is free now."""
    claimed = claim(Address("127.0.0.1", 0))
    claimed.close()
    return claimed.address.port


@contextlib.contextmanager
def plain_server() -> Iterator[str]:
    """Run ``consensuspr serve`` and yield its address."""
    command = [sys.executable, "-m", "consensuspr.cli", "serve", "--dataset", str(PROBLEMS)]
    environment = {
        **os.environ,
        "CONSENSUSPR_THREADS": "1",
        "CONSENSUSPR_ANSWER_BUDGET_S": str(BUDGET_S),
    }
    process = subprocess.Popen(
        [*command, "--address", "127.0.0.1:0", "--workers", "1", "--log-level", "warning"],
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    )
    try:
        assert process.stdout is not None
        yield process.stdout.readline().split()[-1]
    finally:
        process.terminate()
        process.wait(60)


@contextlib.contextmanager
def ray_serve() -> Iterator[str]:
    """Run one replica behind Ray Serve, on a cluster of its own, and yield its address."""
    ray, serve = require_ray(), require_ray("ray.serve")
    port = free_port()
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    try:
        serve.start(
            proxy_location="HeadOnly",
            http_options={"host": "127.0.0.1", "port": free_port()},
            grpc_options={
                "port": port,
                "grpc_servicer_functions": ["consensuspr.ray.front.add_scoring_to_server"],
            },
        )
        serve.run(
            app({"datasets": {"default": str(PROBLEMS)}, "answer_budget_s": BUDGET_S}),
            name=APPLICATION,
        )
        yield f"127.0.0.1:{port}"
    finally:
        serve.shutdown()
        ray.shutdown()


def timed(client: RewardClient, batch: Sequence[Rollout], expected: Sequence[Score]) -> float:
    """Return the seconds of one call, having compared its scores."""
    start = time.perf_counter()
    scores = client.score(batch)
    spent = time.perf_counter() - start
    if list(scores) != list(expected):
        raise SystemExit("a reply differs from the in-process scores; nothing is reported")
    return spent


def commit() -> str:
    """Return the commit of this checkout, or ``unknown``."""
    done = subprocess.run(
        ["git", "-C", str(REPOSITORY), "rev-parse", "--short", "HEAD"],
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout.strip() or "unknown"


def main() -> int:
    """Run the comparison and print it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--rounds", type=int, default=200, help="calls of each size to each side")
    parser.add_argument("--large", type=int, default=40, help="copies of the sample in a batch")
    arguments = parser.parse_args()
    sample = [rollout_from_row(row) for row in read_rollouts(SAMPLE / "rollouts.jsonl")]
    with LocalClient(PROBLEMS, answer_budget_s=BUDGET_S) as local:
        expected = list(local.score(sample))
    with (
        tempfile.TemporaryDirectory(prefix="cpr", dir="/tmp") as folder,
        contextlib.ExitStack() as stack,
    ):
        os.environ.setdefault("RAY_TMPDIR", folder)
        addresses = {
            "plain": stack.enter_context(plain_server()),
            "serve": stack.enter_context(ray_serve()),
        }
        clients = {
            name: stack.enter_context(RewardClient(address, timeout_s=TIMEOUT_S))
            for name, address in addresses.items()
        }
        print(f"ray {require_ray().__version__}, commit {commit()}, {platform.platform()}")
        print("one request at a time, median milliseconds")
        print("rollouts   plain   serve   added   ratio")
        for size in SIZES:
            spent = rounds(clients, sample[:size], expected[:size], arguments.rounds)
            plain, serve = (1000 * statistics.median(spent[name]) for name in ("plain", "serve"))
            print(f"{size:8d} {plain:7.2f} {serve:7.2f} {serve - plain:7.2f} {serve / plain:6.1f}x")
        batch, want = sample * arguments.large, expected * arguments.large
        spent = rounds(clients, batch, want, 5)
        print(f"one batch of {len(batch):,} rollouts, 8 requests at a time, best of 5")
        rates = {name: len(batch) / min(times) for name, times in spent.items()}
        for name, rate in rates.items():
            print(f"{name:>8} {rate:8,.0f} rollouts/s")
        print(f"serve reaches {rates['serve'] / rates['plain']:.2f} of the plain server's rate")
    return 0


def rounds(
    clients: dict[str, RewardClient],
    batch: Sequence[Rollout],
    expected: Sequence[Score],
    number: int,
) -> dict[str, list[float]]:
    """Return the seconds of calls that go to all sides in turn, after one to warm up."""
    spent: dict[str, list[float]] = {name: [] for name in clients}
    for client in clients.values():
        timed(client, batch, expected)
    for _ in range(number):
        for name, client in clients.items():
            spent[name].append(timed(client, batch, expected))
    return spent


if __name__ == "__main__":
    sys.exit(main())
