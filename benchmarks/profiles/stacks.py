"""Stacks as py-spy writes them, cleaned: no waiting, no interpreter, no nameless addresses."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

# A stack that holds one of these is a thread that waits, for work or for the interpreter's lock.
_WAITING = re.compile(
    r"^(epoll_wait|poll|select|accept4?|futex|sem_(timed)?wait|pthread_cond_(timed)?wait"
    r"|pthread_cond_clockwait|PyThread_acquire_lock_timed|take_gil|os_read(_impl)?|read|nanosleep"
    r"|clock_nanosleep|os_waitpid(_impl)?|wait4) \("
)
_ADDRESS = re.compile(r"^0x[0-9a-f]+ \((.*)\)$")
_LINE = re.compile(r":\d+\)$")
# The one part of the interpreter that is work of its own.
_COLLECTOR = "gc_collect_main"
_LIBRARY = re.compile(r"/(?:[^/]*site-packages|lib/python3\.\d+)/")


def cleaned(lines: Iterable[str]) -> Counter[tuple[str, ...]]:
    """Return how often each stack was seen at work, outermost frame first.

    Args:
        lines: of py-spy's ``raw`` format, ``frame;frame;frame count``.
    """
    counts: Counter[tuple[str, ...]] = Counter()
    for line in lines:
        text, _, count = line.rstrip().rpartition(" ")
        frames = text.split(";")
        if any(_WAITING.match(frame) for frame in frames):
            continue
        stack: list[str] = []
        for frame in frames:
            name = _named(frame)
            if name is not None and (not stack or stack[-1] != name):
                stack.append(name)
        if stack:
            counts[tuple(stack)] += int(count)
    return counts


def shares(counts: Counter[tuple[str, ...]]) -> list[tuple[float, str]]:
    """Return each frame's share of all samples, what it calls included, the largest first."""
    total = sum(counts.values())
    within: Counter[str] = Counter()
    for stack, count in counts.items():
        for frame in set(stack):
            within[frame] += count
    return [(count / total, frame) for frame, count in within.most_common()]


def _named(frame: str) -> str | None:
    """Return a frame as it is drawn; None: left out."""
    if frame.startswith(("process ", "thread (")):
        return None
    if frame.startswith(_COLLECTOR):
        return "garbage collection"
    if "(libpython" in frame or ".c:" in frame or ".c.h:" in frame:
        return None
    address = _ADDRESS.match(frame)
    if address is not None and address[1].startswith("libc"):
        return None  # where every thread begins
    if address is not None:
        return address[1].rpartition("/")[2].split(".cpython")[0]
    return _LINE.sub(")", _LIBRARY.sub("", frame)).replace(".cpython-311-x86_64-linux-gnu", "")
