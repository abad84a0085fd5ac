"""What a process has in memory, its own and what it shares, as the kernel counts it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

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
