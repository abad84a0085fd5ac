"""The measurements of one number of problems after the other, and what they make of it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.harness.measure import Context, WrongAnswerError
from benchmarks.harness.results import Check, Figure, Series, SuiteResult
from benchmarks.suites.problems import files, loads, service
from consensuspr.scoring.dataset_index import prepare_dataset

MB = 1e6
PAPER = 5577
MILLION = 1_000_000

NOTES = [
    "Problems have 7 nodes of one expression and 3 equal forms each. The content of 5,577 of them "
    "repeats under ids of its own, in no order of ids; nothing that is measured profits from it.",
    "Every load is a process of its own; its time begins when all modules are imported. Loads of "
    "fewer than 50,000 problems are the fastest of some rounds, in which the formats take turns.",
    "Memory is what the process has more than before the load. Own memory is anonymous; mapped "
    "pages are files', shared by all that map them, and the system takes them back when it wants.",
    "A prepared dataset is what `consensuspr derive DATASET --output NAME.index` writes; it is "
    "read once to verify its checksum.",
]


@dataclass(frozen=True)
class Sizes:
    """What is measured.

    Attributes:
        stored: numbers of problems that are loaded with equal forms stored.
        bare: numbers that are loaded without, which makes the forms.
        served: numbers that a server is started with.
        rounds: loads of each file below 50,000 problems.
    """

    stored: tuple[int, ...]
    bare: tuple[int, ...]
    served: tuple[int, ...]
    rounds: int


QUICK = Sizes((1000, PAPER, 10_000, 100_000), (1000, PAPER), (PAPER, 100_000), 3)
FULL = Sizes(
    (1000, PAPER, 10_000, 100_000, 1_000_000),
    (1000, PAPER, 10_000, 100_000),
    (PAPER, 100_000, 1_000_000),
    5,
)


def measure(context: Context, sizes: Sizes) -> SuiteResult:
    """Measure datasets of the sizes given."""
    found = SuiteResult(suite="problems", title="Many problems", notes=list(NOTES))
    found.series = [
        Series(name=name, x_label="problems", y_label=label, log_x=True, log_y=True, lines={})
        for name, label in (
            ("Ready to score", "seconds"),
            ("Resident bytes of each problem", "bytes"),
        )
    ]
    context.say("generating problems")
    pool = files.pool(context.seed, max(sizes.stored))
    smallest = None
    for count in sizes.stored:
        size = _Size(context, sizes, found, pool, count)
        size.measure()
        smallest = smallest or size
        size.report(smallest)
    return found


class _Size:
    """All that is measured with one number of problems."""

    def __init__(
        self,
        context: Context,
        sizes: Sizes,
        found: SuiteResult,
        pool: list[dict[str, Any]],
        count: int,
    ) -> None:
        self._context = context
        self._sizes = sizes
        self._found = found
        self._pool = pool
        self._count = count
        self._rounds = sizes.rounds if count < 50_000 else 1
        self._loads: dict[str, list[loads.Loaded]] = {}

    def measure(self) -> None:
        self._context.say(f"{self._count:,} problems")
        paths = {"prepared": self._path("prepared.index")}
        for name in ("jsonl", "jsonl.gz", "parquet"):
            path = files.write(self._path(name), self._pool, self._count, stored=True)
            if name == "jsonl":
                prepare_dataset(path, paths["prepared"])
            self._figure("on disk", path.stat().st_size / self._count, "B a problem", name)
            paths[name] = path
            if self._rounds == 1:  # large: one file on disk at a time
                self._load({name: path})
                path.unlink()
        self._figure(
            "on disk", paths["prepared"].stat().st_size / self._count, "B a problem", "prepared"
        )
        if self._count in self._sizes.bare:
            paths["jsonl, forms to make"] = files.write(
                self._path("bare.jsonl"), self._pool, self._count, stored=False
            )
        here = {name: path for name, path in paths.items() if path.exists()}
        for _ in range(self._rounds):
            self._load(here)
        self._touch(paths["prepared"])
        if self._count in self._sizes.served:
            self._serve(paths["prepared"])
        for path in here.values():
            path.unlink()

    def _path(self, name: str) -> Path:
        return self._context.scratch / f"problems-{self._count}.{name}"

    def _load(self, paths: dict[str, Path]) -> None:
        for name, path in paths.items():
            self._loads.setdefault(name, []).append(loads.load(path))

    def report(self, smallest: _Size) -> None:
        """Add what the loads have shown.

        Args:
            smallest: the dataset that others are compared with.
        """
        digests = {load.digest for loads in self._loads.values() for load in loads}
        if len(digests) != 1:
            raise WrongAnswerError(f"{self._count} problems have {len(digests)} digests")
        ready, bytes_each = self._found.series
        for name, some in self._loads.items():
            load = _fastest(some)
            grown = load.after.rss - load.before.rss
            self._figure("ready to score", load.seconds, "s", name)
            self._figure("ready to score, CPU time", load.cpu_seconds, "s", name)
            self._figure("more own memory", _own(load) / MB, "MB", name)
            self._figure("more resident when ready", grown / MB, "MB", name)
            self._figure(
                "more resident at the peak", (load.peak - load.before.rss) / MB, "MB", name
            )
            read = load.read.rss - load.before.rss
            self._figure(
                "more resident, every record read", read / self._count, "B a problem", name
            )
            ready.lines.setdefault(name, []).append((self._count, load.seconds))
            bytes_each.lines.setdefault(name, []).append((self._count, max(1, read) / self._count))
        if self._count == PAPER:
            self._check_paper()
        if self._count == max(self._sizes.stored):
            self._check_largest(smallest)

    def _check_paper(self) -> None:
        best = {name: _fastest(some) for name, some in self._loads.items()}
        others = "; ".join(f"{name} {load.seconds:.2f} s" for name, load in best.items())
        load = best["jsonl"]
        note = f"JSONL with equal forms stored, {load.cpu_seconds:.2f} s of CPU time; {others}"
        self._found.checks.append(Check(target="ready_5577_s", value=load.seconds, note=note))
        grown = (load.after.rss - load.before.rss) / MB
        note = (
            f"more resident than before the load; the whole process has {load.after.rss / MB:.0f} "
            f"MB, and {load.peak / MB:.0f} MB at the peak"
        )
        self._found.checks.append(Check(target="ready_5577_mb", value=grown, note=note))

    def _check_largest(self, smallest: _Size) -> None:
        """Check what each further problem takes, at a peak or with every page touched.

        What does not depend on the number of problems (the modules of a format, the heap's
        reserve) is taken off as that of the smallest dataset.
        """
        most = 0.0
        for name, small in smallest._loads.items():
            if name in self._loads:
                grown = _most_grown(self._loads[name]) - _most_grown(small)
                most = max(most, grown / (self._count - smallest._count))
        own = _own(self._loads["prepared"][0]) / self._count
        note = (
            f"of each further problem up to {self._count:,}, the most of any format, at the peak "
            "of loading or with every record read; mapped from a prepared file, "
            f"{own:.1f} bytes of it are the process's own"
        )
        reached = self._count == MILLION
        if not reached:
            note = f"{most:,.0f} bytes {note}; the target is about {MILLION:,}, with --full"
        self._found.checks.append(
            Check(target="million_resident_bytes", value=most if reached else None, note=note)
        )

    def _touch(self, path: Path) -> None:
        touched = loads.touch(path, self._count, self._context.seed)
        for name, value in (
            ("first touch, median", touched.first_p50),
            ("first touch, 99th percentile", touched.first_p99),
            ("later touch, median", touched.later_p50),
            ("later touch, 99th percentile", touched.later_p99),
        ):
            self._figure(name, value, "µs", "prepared")
        self._figure("a compiled matcher", touched.matcher_bytes / 1e3, "kB", "prepared")

    def _serve(self, path: Path) -> None:
        served = service.serve(
            path, self._context.scratch, self._pool, self._count, self._context.seed
        )
        name = f"server, {service.WORKERS} workers"
        self._figure("start to listening", served.seconds, "s", name)
        self._figure("all processes, listening (sum of PSS)", served.fresh.pss / MB, "MB", name)
        self._figure("all processes, used (sum of PSS)", served.used.pss / MB, "MB", name)
        self._figure("workers, used: own memory", served.workers.anonymous / MB, "MB", name)
        self._figure("workers, used: sum of RSS", served.workers.rss / MB, "MB", name)
        self._figure("workers, used: sum of PSS", served.workers.pss / MB, "MB", name)

    def _figure(self, name: str, value: float, unit: str, source: str) -> None:
        parameters: dict[str, str | int | float] = {"problems": self._count, "from": source}
        self._found.figures.append(Figure(name=name, value=value, unit=unit, parameters=parameters))


def _fastest(some: list[loads.Loaded]) -> loads.Loaded:
    return min(some, key=lambda one: one.seconds)


def _most_grown(some: list[loads.Loaded]) -> int:
    return max(max(load.peak, load.read.rss) - load.before.rss for load in some)


def _own(load: loads.Loaded) -> int:
    return load.after.anonymous - load.before.anonymous
