"""What a run ran on: the machine, the interpreter, the compiled core, the libraries, the commit.

Only what a figure may depend on: no host name, no user, no path.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from benchmarks.measure import REPOSITORY

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
    from consensuspr.loadtest.result import processor

    return Machine(
        cpu=processor(),
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
