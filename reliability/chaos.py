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
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc

from benchmarks.markdown import table
from consensuspr.client.admin import AdminClient
from consensuspr.errors import ConsensusPRError
from consensuspr.score_log import LogReader
from consensuspr.v1 import PROTOCOL_VERSION
from consensuspr.v1 import scoring_pb2 as pb
from reliability import frames
from reliability.load import (
    Load,
    Server,
    is_running,
    machine,
    resident_mb,
    serving,
    wait_until,
)

# Scored before a fault, and after it has ended.
AROUND = 600
# Of a worker above its size before the fault, at its peak.
MAX_GROWTH_MB = 300
MAX_LOG_BYTES = 256 << 10


class Skipped(Exception):
    """A fault cannot be made here; the text says why."""


Fault = Callable[[Server, Load], None]
# Returns environment variables of the server; gets its folder, and a stack that ends with it.
Prepare = Callable[[Path, ExitStack], Mapping[str, str]]


@dataclass(frozen=True)
class Scenario:
    """A fault, and the settings of its server and the command that runs it."""

    fault: Fault
    settings: Mapping[str, str | int | float]
    within: Sequence[str]
    prepare: Prepare


SCENARIOS: dict[str, Scenario] = {}


def scenario(
    *within: str,
    prepare: Prepare = lambda folder, stack: {},
    **settings: str | int | float,
) -> Callable[[Fault], Fault]:
    """Register a fault; see :class:`Scenario`."""

    def register(fault: Fault) -> Fault:
        name = fault.__name__.replace("_", "-")
        SCENARIOS[name] = Scenario(fault, settings, within, prepare)
        return fault

    return register


# --- processes ------------------------------------------------------------------------------------


@scenario()
def kill_a_worker(server: Server, load: Load) -> None:
    """SIGKILL one of the workers, six times."""
    for _ in range(6):
        os.kill(random.choice(server.workers()), signal.SIGKILL)
        load.wait_for_rollouts(300)
        server.wait_for_workers()


@scenario()
def kill_the_server(server: Server, load: Load) -> None:
    """SIGKILL the supervisor while a worker is stopped, and start another server at its address."""
    workers = server.workers()
    os.kill(workers[0], signal.SIGSTOP)
    os.kill(server.pid, signal.SIGKILL)
    wait_until(lambda: not any(map(is_running, workers)), "workers outlived their supervisor")
    server.replace()
    load.wait_for_rollouts(300)


# --- the machine ----------------------------------------------------------------------------------


def _small_disk(folder: Path, stack: ExitStack) -> Mapping[str, str]:
    disk = folder / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", str(disk)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        raise Skipped("a small disk needs the right to mount one")
    stack.callback(lambda: subprocess.run(["umount", "--lazy", disk], check=False))
    return {"CONSENSUSPR_SCORE_LOG": str(disk), "TMPDIR": str(disk)}


@scenario(prepare=_small_disk)
def full_disk(server: Server, load: Load) -> None:
    """Fill the disk of the score log and of temporary files, kill a worker, and free the disk."""
    disk = server.scratch / "disk"
    with (disk / "filler").open("wb") as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(1 << 16))
    load.wait_for_rollouts(1000)
    os.kill(server.workers()[0], signal.SIGKILL)
    load.wait_for_rollouts(1000)
    before = _rows(disk)
    (disk / "filler").unlink()
    wait_until(lambda: _rows(disk) > before, "the score log did not grow", 90)
    server.wait_for_workers()


@scenario("prlimit", "--nofile=256:256")
def few_descriptors(server: Server, load: Load) -> None:
    """Open 600 connections to a server that may have 256 descriptors in each process."""
    with _many_connections(server.port, 600):
        time.sleep(5)


# --- clients --------------------------------------------------------------------------------------


@scenario()
def stalled_clients(server: Server, load: Load) -> None:
    """Begin 400 requests and never go on, for 15 s."""
    with ExitStack() as stack:
        for _ in range(400):
            sock = stack.enter_context(connected(server.port))
            sock.sendall(frames.begun_request(1 << 20))
        time.sleep(15)


@scenario()
def flooding_clients(server: Server, load: Load) -> None:
    """Let six connections send requests of 160 KB without waiting for replies, for 15 s."""
    request = frames.score_request(*[b"so 14*118 = 1652 and " * 500] * 16)
    until = time.monotonic() + 15

    def flood() -> None:
        with grpc.insecure_channel(
            server.address, [("grpc.use_local_subchannel_pool", 1)]
        ) as channel:
            call = channel.unary_unary(frames.SCORE.decode(), None, None)
            under_way: list[Any] = []
            while time.monotonic() < until:
                under_way = [reply for reply in under_way if not reply.done()]
                while len(under_way) < 100:
                    under_way.append(call.future(request, timeout=30))
                time.sleep(0.01)
            for reply in under_way:
                reply.cancel()

    threads = [threading.Thread(target=flood) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@scenario()
def hand_made_frames(server: Server, load: Load) -> None:
    """Send HTTP/2 frames that no client sends: floods, resets, nonsense; 300 connections."""
    dice = random.Random(7)
    for _ in range(60):
        for attack in frames.ATTACKS:
            with connected(server.port) as sock:
                sock.settimeout(2)
                with contextlib.suppress(OSError):
                    sock.sendall(frames.PREFACE + frames.frame(4, 0, 0, b"") + attack(dice))
                    sock.recv(4096)


@scenario()
def memory_bombs(server: Server, load: Load) -> None:
    """Send requests that are small on the wire and large in memory, compressed and plain."""
    protocol = pb.ScoreRequest(protocol_version=PROTOCOL_VERSION).SerializeToString()
    empty = protocol + b"\x42\x00" * (16 << 20)
    nodes = protocol + _field(8, _field(1, b"p") + b"\x32\x00" * (4 << 20))
    _send_raw(server, [empty, nodes])
    _send_raw(server, [empty, nodes], grpc.Compression.Gzip)


# --- datasets and ends ----------------------------------------------------------------------------


@scenario()
def changing_datasets(server: Server, load: Load) -> None:
    """Add, replace and remove datasets by command for 20 s, while hangups come and files change."""
    whole = (server.scratch / "dataset.jsonl").read_bytes()
    other = server.scratch / "other.jsonl"
    other.write_bytes(whole)
    until = time.monotonic() + 20
    faults: list[str] = []

    def change(name: str) -> None:
        with AdminClient(server.address, timeout_s=60) as admin:
            while time.monotonic() < until:
                try:
                    admin.put(name, str(other))
                    admin.put("default")
                    admin.remove(name)
                except ConsensusPRError as error:
                    faults.append(str(error))
                    return

    threads = [threading.Thread(target=change, args=(name,)) for name in ("first", "second")]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        # Renamed into place, so that every read is whole.
        (server.scratch / "new").write_bytes(whole + b"\n" * random.randrange(9))
        (server.scratch / "new").rename(other)
        os.kill(server.pid, signal.SIGHUP)
        time.sleep(0.05)
    if faults:
        raise RuntimeError(f"a change was not made: {faults[0]}")


# --- helpers ------------------------------------------------------------------------


def _rows(run: Path) -> int:
    """Return how many rows the score log of a run has."""
    return sum(
        table.num_rows for table in LogReader(run, columns=["status"], following=True).read()
    )


def _field(number: int, content: bytes) -> bytes:
    return bytes([number << 3 | 2]) + frames.varint(len(content)) + content


def _send_raw(
    server: Server, requests: Sequence[bytes], compression: grpc.Compression | None = None
) -> None:
    """Send requests at the same time, and wait for whatever comes back."""
    options = [("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1)]
    with grpc.insecure_channel(server.address, options, compression) as channel:
        call = channel.unary_unary(frames.SCORE.decode(), None, None)
        replies = [call.future(request, timeout=60) for request in requests]
        for reply in replies:
            with contextlib.suppress(grpc.RpcError):
                reply.result()


def connected(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=30)


@contextlib.contextmanager
def _many_connections(port: int, number: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < number + 1000:
        raise Skipped(f"{number} connections need as many descriptors; the limit is {hard}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    socks = []
    try:
        for _ in range(number):
            sock = socket.socket()
            sock.setblocking(False)
            sock.connect_ex(("127.0.0.1", port))
            socks.append(sock)
            if len(socks) % 100 == 0:
                time.sleep(0.02)
        yield
    finally:
        for sock in socks:
            sock.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


# --- running --------------------------------------------------------------------------------------

HEADER = [
    "fault", "action", "scored", "lost", "wrong", "longest pause", "longest call",
    "a worker grew by",
]  # fmt: skip


def run(name: str) -> tuple[list[str], list[str]]:
    """Make a fault; return its row of the page's table, and the harm that it did.

    Raises:
        Skipped: it cannot be made here.
    """
    chosen, harm = SCENARIOS[name], []
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="chaos-")))
        environment = chosen.prepare(scratch, stack)
        server = stack.enter_context(
            serving(
                scratch, settings=chosen.settings, within=chosen.within, environment=environment
            )
        )
        with Load(server.address) as load:
            load.wait_for_rollouts(AROUND)
            base = max(map(resident_mb, server.workers()))
            begun = time.monotonic()
            try:
                chosen.fault(server, load)
                load.wait_for_rollouts(AROUND)
            except (TimeoutError, RuntimeError) as error:
                harm.append(str(error))
        workers = server.workers()
        growth = max([0.0, *(resident_mb(pid, "VmHWM") - base for pid in workers)])
        log = server.log()
        if not is_running(server.pid) or not workers:
            harm.append("the server did not survive: " + log[-400:])
    harm += load.harm()
    if growth > MAX_GROWTH_MB:
        harm.append(f"a worker grew by {growth:.0f} MB; the limit is {MAX_GROWTH_MB}")
    if len(log) > MAX_LOG_BYTES:
        harm.append(f"the log has {len(log)} bytes; the limit is {MAX_LOG_BYTES}")
    row = [
        f"`{name}`", (chosen.fault.__doc__ or "").rstrip("."), f"{load.right:,}",
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
        "names", nargs="*", metavar="NAME", help=f"of faults (default: all): {', '.join(SCENARIOS)}"
    )
    chosen = parser.parse_args(arguments)
    unknown = [name for name in chosen.names if name not in SCENARIOS]
    if unknown:
        parser.error(f"there is no fault {unknown[0]!r}; there are {', '.join(SCENARIOS)}")
    rows, skipped, failed = [], [], False
    for name in chosen.names or SCENARIOS:
        try:
            row, harm = run(name)
        except Skipped as reason:
            skipped.append(f"`{name}` was skipped: {reason}.")
            continue
        rows.append(row)
        failed |= bool(harm)
        print(f"{name}: {'; '.join(harm) or 'no harm'}", file=sys.stderr)
    print(f"On {machine()}.", table(HEADER, rows, words=2), *skipped, sep="\n\n")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
