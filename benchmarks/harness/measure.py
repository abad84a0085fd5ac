"""Answers before times: a contender that is wrong is not measured."""

from __future__ import annotations

import gc
import importlib.metadata
import os
import platform
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict


class WrongAnswerError(Exception):
    """A contender's answer is not the known one; the text names both."""


def require(
    contender: str, found: Sequence[Sequence[bool]], expected: Sequence[Sequence[bool]]
) -> None:
    """Demand that ``contender`` found just the nodes that each text is known to reach.

    ``found`` and ``expected`` hold one row a text with one flag a node.  Raises
    WrongAnswerError, which names the first text that differs.
    """
    if len(found) != len(expected):
        raise WrongAnswerError(
            f"{contender} answered for {len(found)} texts, and there are {len(expected)}"
        )
    for index, (row, known) in enumerate(zip(found, expected, strict=True)):
        if list(row) != list(known):
            raise WrongAnswerError(
                f"{contender} found nodes {_indexes(row)} in text {index}, which reaches "
                f"{_indexes(known)} of {len(known)}"
            )


def _indexes(row: Sequence[bool]) -> list[int]:
    return [index for index, flag in enumerate(row) if flag]


# MERGED What a suite is told: how much to measure, with which seed, on which data.

REPOSITORY = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Context:
    """The settings of one run of one suite.

    ``data`` is the folder that holds ``rollouts/`` and ``problems/``, None where there is none:
    generated text stands in.  ``scratch`` exists, is empty and is removed after the suite.
    """

    full: bool
    seed: int
    rounds: int
    data: Path | None
    scratch: Path

    def say(self, text: str) -> None:
        """Write one line of progress to standard error."""
        print(f"  {text}", file=sys.stderr, flush=True)


# MERGED What a run ran on: the machine, the interpreter, the compiled core, the libraries, the commit.
#
# Only what a figure may depend on: no host name, no user, no path.

LIBRARIES = (
    "numpy",
    "grpcio",
    "protobuf",
    "pyahocorasick",
    "ahocorasick_rs",
    "math-verify",
    "sympy",
    "uvloop",
    "fastapi",
    "verl",
    "ray",
)


class Machine(BaseModel):
    """The machine and the build; ``memory_bytes`` is all of it, ``dirty`` is the checkout's."""

    model_config = ConfigDict(extra="forbid")

    cpu: str
    cores: int
    memory_bytes: int
    kernel: str
    python: str
    backend: str
    compiler: str
    normal_form: str
    libraries: dict[str, str]
    commit: str
    dirty: bool


def describe() -> Machine:
    """Look at this machine and this installation."""
    from consensuspr import core

    return Machine(
        cpu=_cpu(),
        cores=len(os.sched_getaffinity(0)),
        memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        kernel=f"{platform.system()} {platform.release()} {platform.machine()}",
        python=f"{platform.python_implementation()} {platform.python_version()}",
        backend=core.BACKEND,
        compiler=_compiler(Path(core.__file__).parent / "native"),
        normal_form=core.NORMAL_FORM_VERSION,
        libraries=_libraries(),
        commit=_git("rev-parse", "--short=12", "HEAD") or "unknown",
        dirty=bool(_git("status", "--porcelain", "--untracked-files=no")),
    )


@dataclass(frozen=True)
class Moment:
    """Clock and processor time at one moment, to be compared with those at a later one.

    ``busy`` is the processor time of the whole machine, ``own`` that of this process and of its
    children that have ended, in seconds; ``load`` is the load average of the last minute.
    """

    wall: float
    busy: float
    own: float
    load: float

    @classmethod
    def now(cls) -> Moment:
        """Look at the clocks."""
        first = Path("/proc/stat").read_text(encoding="ascii").partition("\n")[0]
        user, nice, system, _idle, _iowait, irq, softirq, steal = map(int, first.split()[1:9])
        times = os.times()
        return cls(
            wall=time.monotonic(),
            busy=(user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK"),
            own=times.user + times.system + times.children_user + times.children_system,
            load=os.getloadavg()[0],
        )

    def others_since(self, earlier: Moment) -> float:
        """Return the share of the machine's processor time that others took, 0 to 1.

        What the hypervisor took counts among the others.
        """
        spent = (self.busy - earlier.busy) - (self.own - earlier.own)
        there = (self.wall - earlier.wall) * (os.cpu_count() or 1)
        return min(1.0, max(0.0, spent / there)) if there > 0 else 0.0


def _cpu() -> str:
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "model name":
            return value.strip()
    return platform.processor() or "unknown"


def _compiler(folder: Path) -> str:
    """Return the compiler that wrote the core's modules: it signs them, in a section of theirs."""
    found: set[str] = set()
    for module in sorted(folder.glob("*.so")):
        signed = re.findall(rb"GCC: \([^)\0]*\) [0-9.]+|clang version [0-9.]+", module.read_bytes())
        found.update(text.decode() for text in signed)
    return ", ".join(sorted(found)) or "unknown"


def _libraries() -> dict[str, str]:
    versions: dict[str, str] = {}
    for name in LIBRARIES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue  # an optional one: the suite that needs it says that it was skipped
    return versions


def _git(*words: str) -> str:
    done = subprocess.run(
        ["git", "-C", str(REPOSITORY), *words], capture_output=True, text=True, check=False
    )
    return done.stdout.strip()


# MERGED What a process has in memory, its own and what it shares, as the kernel counts it.

_PROC = Path("/proc")


@dataclass(frozen=True, slots=True)
class Resident:
    """Bytes of one process, or of several added up.

    Attributes:
        rss: all that is resident.
        anonymous: of it, what is of no file: the process's own, never given back to a file.
        mapped: of it, pages of files, which are shared by all that map them.
        pss: resident, each shared page divided by the number of processes that have it; added
            up over processes, no page counts twice.
    """

    rss: int = 0
    anonymous: int = 0
    mapped: int = 0
    pss: int = 0

    def __add__(self, other: Resident) -> Resident:
        return Resident(
            rss=self.rss + other.rss,
            anonymous=self.anonymous + other.anonymous,
            mapped=self.mapped + other.mapped,
            pss=self.pss + other.pss,
        )


def resident(pid: int | str = "self") -> Resident:
    """Return what a process holds now.

    Raises OSError where the process is gone or the kernel does not tell (Linux alone does).
    """
    sizes = {}
    for line in (_PROC / str(pid) / "smaps_rollup").read_text(encoding="ascii").splitlines():
        name, _, rest = line.partition(":")
        if rest.endswith(" kB"):
            sizes[name] = int(rest.split()[0]) * 1024
    rss, anonymous = sizes["Rss"], sizes["Anonymous"]
    return Resident(rss=rss, anonymous=anonymous, mapped=rss - anonymous, pss=sizes["Pss"])


def forget_peak() -> None:
    """Begin anew with the peak of this process."""
    (_PROC / "self/clear_refs").write_text("5", encoding="ascii")


def peak() -> int:
    """Return the most bytes that were resident since :func:`forget_peak`."""
    for line in (_PROC / "self/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise OSError("the kernel does not tell the peak of resident memory")


def family(pid: int) -> list[int]:
    """Return a process and all that came of it and still live."""
    found = [pid]
    for one in found:
        for task in (_PROC / str(one) / "task").glob("*/children"):
            found.extend(map(int, task.read_text(encoding="ascii").split()))
    return found


# MERGED Clocks and memory: how a time or a number of bytes is taken.
#
# On a machine that others use too, a time alone says little.  What is compared is therefore
# measured alternately: in each round every contender runs once, in an order that turns by one, so
# that a slow moment hits all of them.  Ratios of the best (or the median) rounds are what holds.

# A shorter timed part would measure the clock and the loop around it.
SHORTEST_S = 0.005
_STATUS = Path("/proc/self/status")
_CLEAR_REFS = Path("/proc/self/clear_refs")


@dataclass(frozen=True)
class Timing:
    """The seconds that one call took, in each round."""

    all: tuple[float, ...]

    @property
    def best(self) -> float:
        """Seconds of the fastest round."""
        return min(self.all)

    @property
    def median(self) -> float:
        """Seconds of the middle round."""
        return statistics.median(self.all)


@dataclass(frozen=True)
class Memory:
    """Resident bytes of this process before and after a call, and the most during it."""

    before: int
    after: int
    peak: int


def interleaved(
    contenders: Mapping[str, Callable[[], object]],
    rounds: int,
    clock: Callable[[], float] = time.perf_counter,
    shortest_s: float = SHORTEST_S,
) -> dict[str, Timing]:
    """Time every contender once a round, in an order that turns by one each round.

    A first call of each, not counted, warms it up and tells how often it has to be repeated for
    a timed part of at least ``shortest_s``; the times returned are those of one call.  The
    garbage collector rests while the clock runs.  ``clock`` is ``time.process_time`` for work
    of one thread and ``time.perf_counter`` for what users wait for.

    Raises ValueError where there is nothing to measure.
    """
    if rounds < 1 or not contenders:
        raise ValueError(f"needs rounds >= 1 and a contender, got {rounds} and {len(contenders)}")
    names = list(contenders)
    loops = {name: _loops(contenders[name], clock, shortest_s) for name in names}
    seconds: dict[str, list[float]] = {name: [] for name in names}
    for round_ in range(rounds):
        turn = round_ % len(names)
        gc.collect()
        for name in names[turn:] + names[:turn]:
            seconds[name].append(_time(contenders[name], loops[name], clock))
    return {name: Timing(tuple(values)) for name, values in seconds.items()}


def peak_memory(function: Callable[[], object]) -> Memory:
    """Call ``function`` and return what this process held before, after and at most.

    The result of the call is still held when ``after`` is read.  The kernel keeps the peak, so
    that short ones and those of threads count too.  Raises OSError where it does not (Linux
    alone has it).
    """
    gc.collect()
    _CLEAR_REFS.write_text("5", encoding="ascii")
    before = _status_bytes("VmRSS")
    held = function()
    after, peak = _status_bytes("VmRSS"), _status_bytes("VmHWM")
    del held
    return Memory(before, after, max(peak, before, after))


def _loops(function: Callable[[], object], clock: Callable[[], float], shortest_s: float) -> int:
    loops = 1
    function()
    while (spent := loops * _time(function, loops, clock)) < shortest_s:
        # Aim a little past the goal, and never more than 100 times on from one look.
        loops = max(loops + 1, min(loops * 100, int(1.2 * loops * shortest_s / max(spent, 1e-9))))
    return loops


def _time(function: Callable[[], object], loops: int, clock: Callable[[], float]) -> float:
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        if loops == 1:
            start = clock()
            function()
            return clock() - start
        repeats = range(loops)
        start = clock()
        for _ in repeats:
            function()
        return (clock() - start) / loops
    finally:
        if was_enabled:
            gc.enable()


def _status_bytes(field: str) -> int:
    for line in _STATUS.read_text(encoding="ascii").splitlines():
        name, _, value = line.partition(":")
        if name == field:
            return int(value.split()[0]) * 1024
    raise OSError(f"{_STATUS} has no {field}: peak memory cannot be read on this system")
