"""Faults, one after the other, while clients score rollouts and check every score.

Each fault has its own server with two workers.  No rollout may be lost or scored wrong, the server
must survive, its workers stay small and its log short.

    python -m reliability.chaos [NAME ...]
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import grpc

from benchmarks.markdown import table
from consensuspr.client.admin import AdminClient
from consensuspr.score_log import LogReader
from consensuspr.v1 import PROTOCOL_VERSION
from consensuspr.v1 import scoring_pb2 as pb
from reliability import frames
from reliability.load import Load, Server, is_running, resident_mb, serving, wait_until

# Scored before a fault, and after it has ended.
AROUND = 600
# Of a worker above its size before the fault, at its peak.
MAX_GROWTH_MB = 300
MAX_LOG_BYTES = 256 << 10

Fault = Callable[[Server, Load], None]
# In the order of their definition; the docstring of each names its action.
FAULTS: dict[str, Fault] = {}
# The command that runs the server of a fault that needs one.
WITHIN = {"few-descriptors": ("prlimit", "--nofile=256:256")}


class Skipped(Exception):
    """A fault cannot be made here; the text says why."""


def fault(make: Fault) -> Fault:
    """Register a fault."""
    FAULTS[make.__name__.replace("_", "-")] = make
    return make


@fault
def kill_a_worker(server: Server, load: Load) -> None:
    """SIGKILL one of the workers, six times."""
    for _ in range(6):
        random.choice(server.workers()).kill()
        load.wait_for_rollouts(300)
        server.wait_for_workers()


@fault
def kill_the_server(server: Server, load: Load) -> None:
    """SIGKILL the supervisor while a worker is stopped, and start another server at its address."""
    workers = server.workers()
    workers[0].suspend()
    server.supervisor.kill()
    wait_until(lambda: not any(map(is_running, workers)), "workers outlived their supervisor")
    server.replace()
    load.wait_for_rollouts(300)


@fault
def full_disk(server: Server, load: Load) -> None:
    """Fill the disk of the score log and of temporary files, kill a worker, and free the disk."""
    disk = server.scratch / "disk"
    with (disk / "filler").open("wb") as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(1 << 16))
    load.wait_for_rollouts(1000)
    server.workers()[0].kill()
    load.wait_for_rollouts(1000)
    before = _logged(disk)
    (disk / "filler").unlink()
    wait_until(lambda: _logged(disk) > before, "the score log did not grow", 90)
    server.wait_for_workers()


def _mount_small_disk(folder: Path, stack: ExitStack) -> dict[str, str]:
    """Mount a disk of 64 MB in a folder; return the variables of a server that writes there."""
    disk = folder / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", str(disk)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        raise Skipped("a small disk needs the right to mount one")
    stack.callback(lambda: subprocess.run(["umount", "--lazy", disk], check=False))
    return {"CONSENSUSPR_SCORE_LOG": str(disk), "TMPDIR": str(disk)}


def _logged(run: Path) -> int:
    """Return how many rows the score log of a run has."""
    return sum(rows.num_rows for rows in LogReader(run, columns=["status"], following=True).read())


@fault
def few_descriptors(server: Server, load: Load) -> None:
    """Open 600 connections to a server that may have 256 descriptors in each process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 1600:
        raise Skipped(f"600 connections need as many descriptors; the limit is {hard}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with ExitStack() as stack:
        stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        for number in range(600):
            sock = stack.enter_context(socket.socket())
            sock.setblocking(False)
            sock.connect_ex(("127.0.0.1", server.port))
            if number % 100 == 99:
                time.sleep(0.02)
        time.sleep(5)


@fault
def stalled_clients(server: Server, load: Load) -> None:
    """Begin 400 requests and never go on, for 15 s."""
    with ExitStack() as stack:
        for _ in range(400):
            stack.enter_context(_connected(server)).sendall(frames.begun_request(1 << 20))
        time.sleep(15)


@fault
def flooding_clients(server: Server, load: Load) -> None:
    """Let six connections send requests of 160 KB without waiting for replies, for 15 s."""
    request = frames.score_request(*[b"so 14*118 = 1652 and " * 500] * 16)
    until = time.monotonic() + 15

    def flood(_: int) -> None:
        options = [("grpc.use_local_subchannel_pool", 1)]
        with grpc.insecure_channel(server.address, options) as channel:
            call = channel.unary_unary(frames.SCORE.decode(), None, None)
            under_way: list[Any] = []
            while time.monotonic() < until:
                under_way = [reply for reply in under_way if not reply.done()]
                while len(under_way) < 100:
                    under_way.append(call.future(request, timeout=30))
                time.sleep(0.01)
            for reply in under_way:
                reply.cancel()

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(flood, range(6)))


@fault
def hand_made_frames(server: Server, load: Load) -> None:
    """Send HTTP/2 frames that no client sends: floods, resets, nonsense; 300 connections."""
    dice = random.Random(7)
    for attack in frames.ATTACKS * 60:
        with _connected(server) as sock, contextlib.suppress(OSError):
            sock.settimeout(2)
            sock.sendall(frames.PREFACE + frames.frame(4, 0, 0, b"") + attack(dice))
            sock.recv(4096)


@fault
def memory_bombs(server: Server, load: Load) -> None:
    """Send requests that are small on the wire and large in memory, compressed and plain."""
    protocol = pb.ScoreRequest(protocol_version=PROTOCOL_VERSION).SerializeToString()
    empty = protocol + b"\x42\x00" * (16 << 20)
    nodes = protocol + frames.field(8, frames.field(1, b"p") + b"\x32\x00" * (4 << 20))
    options = [("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1)]
    for compression in (None, grpc.Compression.Gzip):
        with grpc.insecure_channel(server.address, options, compression) as channel:
            call = channel.unary_unary(frames.SCORE.decode(), None, None)
            replies = [call.future(request, timeout=60) for request in (empty, nodes)]
            for reply in replies:
                with contextlib.suppress(grpc.RpcError):
                    reply.result()


@fault
def changing_datasets(server: Server, load: Load) -> None:
    """Add, replace and remove datasets by command for 20 s, while hangups come and files change."""
    whole = (server.scratch / "dataset.jsonl").read_bytes()
    other = server.scratch / "other.jsonl"
    other.write_bytes(whole)
    until = time.monotonic() + 20

    def change(name: str) -> None:
        with AdminClient(server.address, timeout_s=60) as admin:
            while time.monotonic() < until:
                admin.put(name, str(other))
                admin.put("default")
                admin.remove(name)

    with ThreadPoolExecutor(2) as pool:
        changes = [pool.submit(change, name) for name in ("first", "second")]
        while not all(done.done() for done in changes):
            # Renamed into place, so that every read is whole.
            (server.scratch / "new").write_bytes(whole + b"\n" * random.randrange(9))
            (server.scratch / "new").rename(other)
            os.kill(server.supervisor.pid, signal.SIGHUP)
            time.sleep(0.05)
        for done in changes:
            done.result()


def _connected(server: Server) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.port), timeout=30)


HEADER = [
    "fault", "action", "scored", "lost", "wrong", "longest pause", "longest call",
    "a worker grew by",
]  # fmt: skip


def run(name: str) -> tuple[list[str], list[str]]:
    """Make a fault; return its row of the page's table, and the harm that it did.

    Raises:
        Skipped: it cannot be made here.
    """
    make, harm = FAULTS[name], []
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="chaos-")))
        environment = _mount_small_disk(scratch, stack) if make is full_disk else {}
        started = serving(scratch, within=WITHIN.get(name, ()), environment=environment)
        server = stack.enter_context(started)
        with Load(server.address) as load:
            load.wait_for_rollouts(AROUND)
            base = max(map(resident_mb, server.workers()))
            begun = time.monotonic()
            try:
                make(server, load)
                load.wait_for_rollouts(AROUND)
            except Skipped:
                raise
            except Exception as error:  # the boundary: a fault that ends early did harm
                harm.append(f"{type(error).__name__}: {error}")
        workers = server.workers()
        growth = max([0.0, *(resident_mb(worker, peak=True) - base for worker in workers)])
        log = server.log()
        if not is_running(server.supervisor) or not workers:
            harm.append("the server did not survive: " + log[-400:])
    harm += load.harm()
    if growth > MAX_GROWTH_MB:
        harm.append(f"a worker grew by {growth:.0f} MB; the limit is {MAX_GROWTH_MB}")
    if len(log) > MAX_LOG_BYTES:
        harm.append(f"the log has {len(log)} bytes; the limit is {MAX_LOG_BYTES}")
    row = [
        f"`{name}`", (make.__doc__ or "").rstrip("."), f"{load.right:,}",
        str(load.lost.total()), str(load.wrong), f"{load.pause_s(begun):.1f} s",
        f"{load.longest_s:.1f} s", f"{growth:.0f} MB",
    ]  # fmt: skip
    return row, harm


def main(arguments: Sequence[str] | None = None) -> int:
    """Make the faults that were asked for; return 1 if one did harm."""
    parser = argparse.ArgumentParser(
        prog="python -m reliability.chaos", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"of faults (default: all): {', '.join(FAULTS)}"
    )
    names: list[str] = parser.parse_args(arguments).names
    if unknown := [name for name in names if name not in FAULTS]:
        parser.error(f"there is no fault {unknown[0]!r}; there are {', '.join(FAULTS)}")
    rows, failed = [], False
    for name in names or FAULTS:
        try:
            row, harm = run(name)
        except Skipped as reason:
            print(f"{name} was skipped: {reason}", file=sys.stderr)
            continue
        rows.append(row)
        failed |= bool(harm)
        print(f"{name}: {'; '.join(harm) or 'no harm'}", file=sys.stderr)
    print(table(HEADER, rows, words=2))
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
