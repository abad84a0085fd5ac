"""Faults, one after the other, while clients score rollouts and check every score.

Each fault has its own server with two workers.  No rollout may be lost or scored wrong, the server
must survive, its workers stay small and its log short.

    python -m reliability.chaos [NAME ...] [--write docs/reliability.md]
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import resource
import signal
import socket
import struct
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
from unittest import mock

import grpc

from benchmarks.markdown import publish, table
from benchmarks.processes import family
from consensuspr.client import Access, RewardClient
from consensuspr.client.admin import AdminClient
from consensuspr.credentials import new_token, write_token
from consensuspr.errors import AccessDenied, ConsensusPRError
from consensuspr.score_log import LogReader
from consensuspr.v1 import PROTOCOL_VERSION
from consensuspr.v1 import scoring_pb2 as pb
from reliability import frames
from reliability.load import (
    SAMPLE,
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
FIRST_TOKEN = new_token()


class Skipped(Exception):
    """A fault cannot be made here; the text says why."""


Fault = Callable[[Server, Load], None]
# Returns environment variables of the server; gets its folder, and what ends with it.
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
def kill_all_workers(server: Server, load: Load) -> None:
    """SIGKILL both workers at once, twice."""
    for _ in range(2):
        for worker in server.workers():
            os.kill(worker, signal.SIGKILL)
        server.wait_for_workers()
        load.wait_for_rollouts(300)


@scenario()
def stop_a_worker(server: Server, load: Load) -> None:
    """SIGSTOP a worker, which the kernel goes on giving connections to."""
    stopped = server.workers()[0]
    os.kill(stopped, signal.SIGSTOP)
    try:
        wait_until(lambda: stopped not in server.workers(), "a stopped worker was not replaced")
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(stopped, signal.SIGKILL)


@scenario()
def kill_the_server(server: Server, load: Load) -> None:
    """SIGKILL the supervisor while a worker is stopped, and start another server at its address."""
    workers = server.workers()
    os.kill(workers[0], signal.SIGSTOP)
    os.kill(server.pid, signal.SIGKILL)
    wait_until(lambda: not any(map(is_running, workers)), "workers outlived their supervisor")
    server.replace()
    load.wait_for_rollouts(300)


@scenario()
def stop_the_server(server: Server, load: Load) -> None:
    """SIGSTOP all processes of the server for 20 s, as a suspended machine does."""
    everybody = [server.pid, *server.workers()]
    for pid in everybody:
        os.kill(pid, signal.SIGSTOP)
    time.sleep(20)
    for pid in everybody:
        os.kill(pid, signal.SIGCONT)


@scenario()
def kill_answer_processes(server: Server, load: Load) -> None:
    """SIGKILL all processes of computer algebra while they are asked, eight times."""
    with grpc.insecure_channel(server.address) as channel:
        call = channel.unary_unary(frames.SCORE.decode(), None, pb.ScoreResponse.FromString)
        replies = []
        for at in range(8):
            request = frames.score_request(
                rb"\boxed{\int_0^{%d} 2x dx}" % (at + 2), truth=str((at + 2) ** 2)
            )
            replies.append(call.future(request, timeout=60))
            time.sleep(0.1)
            for process in [pid for worker in server.workers() for pid in family(worker)[1:]]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
            # They start again; what is killed twice has no reward, and says so.
            wait_until(replies[-1].done, "an answer was not decided")
            load.wait_for_calls()
        # Killed twice, an answer has no Acc, and says so; it must not be a wrong one.
        wrong = [reply for reply in replies if list(reply.result().accs) == [0.0]]
    load.add_wrong(*["a right answer counted as wrong"] * len(wrong))


# --- the machine ----------------------------------------------------------------------------------


def _small_disk(folder: Path, stack: ExitStack) -> Mapping[str, str]:
    disk = folder / "disk"
    disk.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", disk], capture_output=True, check=False
    )
    if made.returncode:
        raise Skipped("a small disk needs the right to mount one")
    stack.callback(lambda: subprocess.run(["umount", "--lazy", disk], check=False))
    return {"TMPDIR": str(disk)}


@scenario(prepare=_small_disk)
def full_disk(server: Server, load: Load) -> None:
    """Fill the disk of the server's temporary files, kill a worker meanwhile, and free it again."""
    filler = server.scratch / "disk/filler"
    _fill(filler)
    load.wait_for_rollouts(300)
    os.kill(server.workers()[0], signal.SIGKILL)
    load.wait_for_rollouts(300)
    filler.unlink()
    server.wait_for_workers()


def _small_disk_for_the_score_log(folder: Path, stack: ExitStack) -> Mapping[str, str]:
    return {"CONSENSUSPR_SCORE_LOG": _small_disk(folder, stack)["TMPDIR"]}


@scenario(prepare=_small_disk_for_the_score_log)
def full_disk_of_the_score_log(server: Server, load: Load) -> None:
    """Fill the disk of the score log, free it again, and read what was written."""
    disk = server.scratch / "disk"
    _fill(disk / "filler")
    load.wait_for_rollouts(2000)
    before = _rows(disk)
    (disk / "filler").unlink()
    wait_until(lambda: _rows(disk) > before, "the score log did not grow", 90)


@scenario("prlimit", "--nofile=256:256")
def few_descriptors(server: Server, load: Load) -> None:
    """Open 600 connections to a server that may have 256 descriptors in each process."""
    with _many_connections(server.port, 600):
        time.sleep(5)


@scenario("prlimit", f"--as={3 << 30}")
def little_memory(server: Server, load: Load) -> None:
    """Send the largest requests to a server that may have 3 GiB of address space a process."""
    _send_raw(server, [frames.score_request(b"1+1=2 " * 2_500_000) for _ in range(8)])


def _fake_clock(folder: Path, stack: ExitStack) -> Mapping[str, str]:
    found = [*Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1")]
    if not found:
        raise Skipped("clock jumps need libfaketime (Debian's package libfaketime)")
    (folder / "clock").write_text("+0")
    return {
        "LD_PRELOAD": str(found[0]),
        "FAKETIME_TIMESTAMP_FILE": str(folder / "clock"),
        "FAKETIME_NO_CACHE": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    }


@scenario(prepare=_fake_clock)
def clock_jumps(server: Server, load: Load) -> None:
    """Put the wall clock a year ahead, ten years back, and right again."""
    for offset in ("+365d", "-3650d", "+0"):
        (server.scratch / "clock").write_text(offset)
        load.wait_for_rollouts(400)


@scenario()
def busy_machine(server: Server, load: Load) -> None:
    """Let four times as many other processes want the cores, for 15 s."""
    spin = [sys.executable, "-c", "while True: pass"]
    others = [subprocess.Popen(spin) for _ in range(4 * len(os.sched_getaffinity(0)))]
    try:
        time.sleep(15)
    finally:
        for other in others:
            other.kill()
            other.wait()


# --- clients --------------------------------------------------------------------------------------


@scenario()
def vanished_clients(server: Server, load: Load) -> None:
    """Reset 500 connections in the middle of a request."""
    for _ in range(500):
        with connected(server.port) as sock:
            sock.sendall(frames.begun_request(1 << 20) + b"x" * 10_000)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


@scenario(http_address="127.0.0.1:0")
def stalled_clients(server: Server, load: Load) -> None:
    """Begin 400 requests and never go on, on gRPC and HTTP, for 15 s."""
    with ExitStack() as stack:
        for _ in range(400):
            sock = stack.enter_context(connected(server.port))
            sock.sendall(frames.begun_request(1 << 20))
        http = _http_port(server)
        for _ in range(100):
            sock = stack.enter_context(connected(http))
            sock.sendall(b"POST /openrlhf HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: ")
        time.sleep(15)


@scenario()
def half_closed_streams(server: Server, load: Load) -> None:
    """Send whole requests on 200 connections and shut the own side down before the reply."""
    request = frames.score_request(b"1+1=2 " * 1000)
    with ExitStack() as stack:
        for _ in range(200):
            sock = stack.enter_context(connected(server.port))
            sock.sendall(frames.begun_request(len(request)) + frames.data(1, request, end=True))
            sock.shutdown(socket.SHUT_WR)
        time.sleep(3)


@scenario()
def clients_that_never_read(server: Server, load: Load) -> None:
    """Ask 40 connections for large replies and read nothing, for 15 s."""
    request = frames.score_request(*[b"x"] * 2000)
    with ExitStack() as stack:
        for _ in range(40):
            sock = stack.enter_context(connected(server.port))
            sock.settimeout(1)
            with contextlib.suppress(TimeoutError):
                for stream in range(1, 41, 2):
                    sock.sendall(frames.request_on(stream, request))
        time.sleep(15)


@scenario()
def calls_without_end(server: Server, load: Load) -> None:
    """Open 30,000 calls that do not end: begun, with replies not taken, and watching; for 15 s."""
    with ExitStack() as stack:
        for kind in ("begun", "whole", "watching"):
            for sock in frames.open_calls(server.port, kind, 100, 100):
                stack.enter_context(sock)
            load.wait_for_calls()
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
                under_way = [one for one in under_way if not one.done()]
                while len(under_way) < 100:
                    under_way.append(call.future(request, timeout=30))
                time.sleep(0.01)
            for one in under_way:
                one.cancel()

    threads = [threading.Thread(target=flood) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@scenario()
def ten_thousand_connections(server: Server, load: Load) -> None:
    """Hold 10,000 connections open that say nothing."""
    with _many_connections(server.port, 10_000):
        load.wait_for_rollouts(300)


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


@scenario(http_address="127.0.0.1:0")
def hand_made_requests(server: Server, load: Load) -> None:
    """Send HTTP requests that no client sends, on the HTTP endpoint; 120 connections."""
    port = _http_port(server)
    begin = b"POST /openrlhf HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    attacks = (
        b"\x16\x03\x01" + bytes(500),
        b"GET /" + b"a" * 200_000,
        begin + b"".join(b"X-%d: %s\r\n" % (at, b"y" * 500) for at in range(500)) + b"\r\n",
        begin + b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        begin + b"Transfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n" + b"[" * 50_000,
        begin + b"Content-Length: 200000\r\n\r\n" + b'{"query":' + b"[" * 199_991,
    )
    for _ in range(20):
        for attack in attacks:
            with connected(port) as sock, contextlib.suppress(OSError):
                sock.settimeout(0.5)
                sock.sendall(attack)
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
def replaced_and_truncated_dataset(server: Server, load: Load) -> None:
    """Cut the dataset's file off, have it read again, put it back, and have it read again."""
    file = server.scratch / "dataset.jsonl"
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) // 2 + 7])
    os.kill(server.pid, signal.SIGHUP)
    load.wait_for_rollouts(400)
    file.write_bytes(whole)
    os.kill(server.pid, signal.SIGHUP)
    load.wait_for_rollouts(400)


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
        # In its place at once: what is read is always whole.
        (server.scratch / "new").write_bytes(whole + b"\n" * random.randrange(9))
        (server.scratch / "new").rename(other)
        os.kill(server.pid, signal.SIGHUP)
        time.sleep(0.05)
    if faults:
        raise RuntimeError(f"a change was not made: {faults[0]}")


def _token(folder: Path, stack: ExitStack) -> Mapping[str, str]:
    for side in ("server", "client"):
        write_token(folder / f"token-of-{side}", FIRST_TOKEN)
    # The clients are in this process.
    mine = {"CONSENSUSPR_TOKEN_FILE": str(folder / "token-of-client")}
    stack.enter_context(mock.patch.dict(os.environ, mine))
    return {"CONSENSUSPR_TOKEN_FILE": str(folder / "token-of-server")}


@scenario(prepare=_token)
def replaced_and_truncated_tokens(server: Server, load: Load) -> None:
    """Empty the token file, cut it off, fill it with nonsense, remove it; then rotate the token."""
    mine, theirs = server.scratch / "token-of-client", server.scratch / "token-of-server"
    for content in (b"", FIRST_TOKEN[:5].encode(), random.Random(7).randbytes(5000), None):
        theirs.unlink()
        if content is not None:
            theirs.write_bytes(content)
        time.sleep(4)  # what was read counts for three seconds more
        load.wait_for_rollouts(200)
    second = new_token()
    theirs.write_text(f"{FIRST_TOKEN}\n{second}\n")
    time.sleep(4)
    write_token(mine, second)
    load.wait_for_rollouts(400)
    write_token(theirs, second)
    time.sleep(4)
    with RewardClient(server.address, access=Access(token=FIRST_TOKEN)) as client:
        try:
            client.server_info()
        except AccessDenied:
            return
    raise RuntimeError("a token that was taken away opens the server")


@scenario()
def two_prepare_at_once(server: Server, load: Load) -> None:
    """Prepare one dataset twice at the same time to the same file, and serve from it."""
    prepared = server.scratch / "prepared.index"
    command = [sys.executable, "-m", "consensuspr.cli", "derive", str(SAMPLE / "dataset.jsonl")]
    command += ["--output", str(prepared)]
    both = [subprocess.Popen(command, stdout=subprocess.DEVNULL) for _ in range(2)]
    codes = [one.wait() for one in both]
    if 0 not in codes:
        raise RuntimeError(f"neither prepared it: exit codes {codes}")
    folder = server.scratch / "second"
    folder.mkdir()
    with (
        serving(folder, dataset=prepared) as second,
        Load(second.address, clients=1) as more,
    ):
        more.wait_for_rollouts(AROUND)
    if more.harm():
        raise RuntimeError(str(more.harm()))


# --- what they are made of ------------------------------------------------------------------------


def _fill(filler: Path) -> None:
    """Write a file until its disk is full."""
    with filler.open("wb") as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(1 << 16))


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


def _http_port(server: Server) -> int:
    mark = "HTTP endpoint on http://127.0.0.1:"
    wait_until(lambda: mark in server.log(), "the HTTP endpoint did not start")
    return int(server.log().partition(mark)[2].split()[0])


# --- running --------------------------------------------------------------------------------------

HEADER = [
    "fault", "what happens", "scored", "lost", "wrong", "longest pause", "longest call",
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
    parser.add_argument("--write", type=Path, metavar="FILE", help="write the table into a page")
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
    text = "\n\n".join([f"On {machine()}.", table(HEADER, rows, words=2), *skipped])
    publish({"faults": text}, chosen.write)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
