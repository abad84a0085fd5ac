"""The page of a run, wholly from its results: targets, ratios, figures, plots, and scale on paper.

The plots are one SVG for each series of the suites, the same bytes for the same data, drawn with
matplotlib (``pip install "consensuspr[plot]"``).  Lines differ in colour, marker and dash, so that
they can be told apart in grey print and by colour-blind readers.

The section about scale says how many GPUs a core of the server keeps up with.  Everything in it
that is not named as an assumption comes from the run; where the run has no such figure, the text
says so and the tables have a dash.  Nothing there was measured on a cluster.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.harness import results
from benchmarks.harness.markdown import cell, table
from benchmarks.harness.results import Figure, Run, Series, SuiteResult, Verdict

if TYPE_CHECKING:
    from matplotlib.axes import Axes


_CAVEATS = """## How to read this

- One run on one machine, which may have been shared: seconds and MB/s move by tens of percent from
  run to run. What is compared was measured alternately in the same run, on the same bytes, so
  that **ratios** hold where seconds do not; a note says where a contender got part of the bytes,
  or ran by itself.
- Every contender's answers were checked before its time was taken: nodes and scores have to be
  those written into the texts. Final answers have to agree with the labels as far as the suite says
  there, because labels and checkers differ. A peer that is a matcher is held
  to the nodes that were planted in the texts, not to every rule of our normal form: the peers do
  less than the core, which makes their times flattering.
- Times of one thread are CPU time, best of the rounds; times of threads, of services and of whole
  steps are what a clock on the wall shows. A first call of each, not counted, warms it up.
- A missed target stands here as a miss."""

# Okabe and Ito's palette, yellow left out: it vanishes on white.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#000000", "#56B4E9", "#E69F00")
_MARKERS = ("o", "s", "^", "D", "v", "P", "X")
_DASHES = ("-", "--", "-.", ":")
_STYLE = {
    "font.size": 10,
    "svg.fonttype": "path",  # drawn alike whatever fonts the reader has
    "svg.hashsalt": "consensuspr",
    "axes.spines.top": False,
    "axes.spines.right": False,
}
GPUS = (8, 64, 512, 4_096)
# Assumptions, which the section names as such.
TOKENS_PER_S = (1_000, 10_000)
BYTES_PER_TOKEN = 4
# That of the suites' rollouts, so that figures hold for it.
ROLLOUT_BYTES = 10_000
GENERATING_SHARE = 0.6
HIDDEN_SHARE = 0.01
MACHINE_CORES = 64
LINK_BITS_PER_S = 25e9
MEASURED_PROBLEMS = 1_000_000
DATASETS = (5_577, 100_000, MEASURED_PROBLEMS, 10_000_000)
# Names of figures in the suite ``service``, and the batch that is looked at.
_BATCHES = "server, RewardClient"
_SINGLES = "server, single samples at once"
_REPLY = "reply on the wire"
_ROLLOUTS = 256
# Names in the suite ``ray_calls``; what has more rollouts than one request holds was sent as
# several requests at a time.
_SERVE_ADDS = "Serve adds"
_SERVE_RATIO = "Serve against plain"
_REQUEST_ROLLOUTS = 256
MISSING = "not measured in this run"


def render(run: Run, images: str = ".") -> str:
    """Return the page's Markdown for ``run``; ``images`` is the folder of its plots, from there."""
    parts = [
        "# Performance",
        f"Written by `{run.command}`. "
        "`make bench` prints the table below for your machine, `make bench-full` measures all "
        "sizes.",
        "## Targets and figures",
        _targets(run),
        "\n".join(f"- {note}" for note in results.notes(run)),
        "## Ratios",
        _ratios(run),
        _CAVEATS,
        _machine(run),
    ]
    parts += [_suite(run, suite, images) for suite in run.suites]
    parts += [
        f"## {name}\n\nThis suite failed in this run: {cell(reason)}."
        for name, reason in run.failures.items()
    ]
    parts.append(scale_section(run))
    return "\n\n".join(part for part in parts if part) + "\n"


def _targets(run: Run) -> str:
    return table(
        ["what", "at least", "aim", "figure", "verdict"],
        [
            [row.what, row.at_least, row.aim, row.figure, _bold(row.verdict)]
            for row in results.rows(run)
        ],
    )


def _ratios(run: Run) -> str:
    found = [
        [suite.title, figure.name, _parameters(figure), _number(figure), figure.note]
        for suite in run.suites
        for figure in suite.figures
        if figure.unit == "x"
    ]
    if not found:
        return "No ratios were measured in this run."
    return table(["suite", "what", "of", "ratio", "note"], found)


def _machine(run: Run) -> str:
    about = run.machine
    lines = [
        f"- {about.cpu}, {about.cores} cores, {about.memory_bytes / 2**30:.1f} GiB of memory, "
        f"{about.kernel}",
        f"- {about.python}; core: {about.backend}, {about.compiler}, normal form "
        f"{about.normal_form}",
        "- " + ", ".join(f"{name} {version}" for name, version in about.libraries.items()),
        f"- commit {about.commit}{' with changes' if about.dirty else ''}, {run.started}, seed "
        f"{run.seed}, {run.rounds} rounds",
    ]
    lines += [f"- **Warning**: {warning}" for warning in run.warnings]
    states = table(
        ["suite", "begun", "commit", "seconds", "load before", "load after", "others' share"],
        [
            [
                name,
                state.started,
                f"{state.commit}{' with changes' if state.dirty else ''}",
                f"{state.seconds:.0f}",
                f"{state.load_start:g}",
                f"{state.load_end:g}",
                f"{state.others:.0%}",
            ]
            for name, state in run.states.items()
        ],
    )
    return "## Machine\n\n" + "\n".join(lines) + f"\n\n{states}"


def _suite(run: Run, suite: SuiteResult, images: str) -> str:
    command = f"python -m benchmarks{' --full' if run.full else ''} --only {suite.suite}"
    parts = [f"## {suite.title}", f"Measured by `{command}`."]
    if suite.skipped is not None:
        parts.append(f"Not measured in this run: {suite.skipped}.")
    if suite.notes:
        parts.append("\n".join(f"- {note}" for note in suite.notes))
    parts += [
        f"![{series.name}]({images}/{file_name(suite.suite, series)})" for series in suite.series
    ]
    parts += [_figure_table(group) for group in _groups(suite.figures)]
    return "\n\n".join(parts)


def _groups(figures: Iterable[Figure]) -> list[list[Figure]]:
    """Put figures of the same parameters together: each group is one table."""
    groups: dict[tuple[str, ...], list[Figure]] = {}
    for figure in figures:
        groups.setdefault(tuple(figure.parameters), []).append(figure)
    return list(groups.values())


def _figure_table(group: Sequence[Figure]) -> str:
    keys = list(group[0].parameters)
    with_notes = any(figure.note for figure in group)
    return table(
        ["what", *keys, "figure", *(["note"] if with_notes else [])],
        [
            [figure.name]
            + [_value(figure.parameters[key]) for key in keys]
            + [_number(figure)]
            + ([figure.note] if with_notes else [])
            for figure in group
        ],
    )


def _parameters(figure: Figure) -> str:
    return ", ".join(f"{key} {_value(value)}" for key, value in figure.parameters.items())


def _value(value: str | int | float) -> str:
    return value if isinstance(value, str) else f"{value:,}"


def _number(figure: Figure) -> str:
    large = abs(figure.value) >= 1000
    digits = f"{figure.value:,.0f}" if large else f"{figure.value:.3g}"
    return f"{digits}{figure.unit}" if figure.unit in ("x", "%") else f"{digits} {figure.unit}"


def _bold(verdict: Verdict) -> str:
    return f"**{verdict}**" if verdict is Verdict.MISSED else str(verdict)


def file_name(suite: str, series: Series) -> str:
    """Return the name of the file that ``series`` of ``suite`` is drawn into."""
    return f"{suite}-{re.sub(r'[^a-z0-9]+', '-', series.name.lower()).strip('-')}.svg"


def draw(run: Run, folder: Path) -> list[Path]:
    """Draw every series of ``run`` into ``folder``, which is made; return the files."""
    folder.mkdir(parents=True, exist_ok=True)
    files = []
    for suite in run.suites:
        for series in suite.series:
            path = folder / file_name(suite.suite, series)
            _draw(series, path)
            files.append(path)
    return files


def draw_alone(run: Run, folder: Path) -> None:
    """Draw into a folder that is a page's own: SVGs of earlier runs are removed from it."""
    for old in set(folder.glob("*.svg")).difference(draw(run, folder)):
        old.unlink()


def _draw(series: Series, path: Path) -> None:
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(7.2, 4.0), layout="constrained")
        axes = figure.add_subplot()
        for number, (name, points) in enumerate(series.lines.items()):
            axes.plot(
                [x for x, _ in points],
                [y for _, y in points],
                label=name,
                color=_COLOURS[number % len(_COLOURS)],
                marker=_MARKERS[number % len(_MARKERS)],
                linestyle=_DASHES[number % len(_DASHES)],
                markersize=5,
                linewidth=1.6,
            )
        _scale(axes, series)
        axes.set_xlabel(series.x_label)
        axes.set_ylabel(series.y_label)
        axes.set_title(series.name, loc="left", fontsize=11)
        axes.grid(True, which="major", color="#dddddd", linewidth=0.6)
        axes.set_axisbelow(True)
        figure.legend(loc="outside right upper", frameon=False, fontsize=9)
        figure.savefig(path, format="svg", metadata={"Date": None, "Creator": None})


def _scale(axes: Axes, series: Series) -> None:
    import matplotlib.ticker

    if series.log_x:
        axes.set_xscale("log")
    else:
        axes.set_xlim(left=0)
    if series.log_y:
        axes.set_yscale("log")
    else:
        axes.set_ylim(bottom=0)
    for axis, is_log in ((axes.xaxis, series.log_x), (axes.yaxis, series.log_y)):
        if is_log:
            low, high = axis.get_view_interval()
            # Powers of ten alone would leave an axis of one decade with a single tick.
            steps = (1.0,) if high / low > 200 else (1.0, 2.0, 5.0)
            axis.set_major_locator(matplotlib.ticker.LogLocator(subs=steps))
            axis.set_minor_locator(matplotlib.ticker.NullLocator())
        axis.set_major_formatter(matplotlib.ticker.FuncFormatter(lambda value, _: short(value)))


def short(value: float) -> str:
    """Write a tick as a person would: 200, 1k, 1M, 0.05."""
    for factor, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= factor:
            return f"{value / factor:g}{letter}"
    return f"{value:g}"


@dataclass(frozen=True)
class Constants:
    """What a run says about one server; None where it says nothing.

    Attributes:
        core_bytes_per_s: text that is scored a second where server and client share one core.
        singles: time of single samples over that of a batch.
        second_core: how many times as fast two threads are as one.
        problem_bytes: resident bytes of a problem, in a dataset of a million.
        serve_hops: (rollouts of a request, milliseconds that Ray Serve adds to it).
        serve_rate: throughput through Ray Serve as a share of the plain server's.
        reply_bytes: of one rollout's score on the wire.
    """

    core_bytes_per_s: float | None
    singles: float | None
    second_core: float | None
    problem_bytes: float | None
    serve_hops: tuple[tuple[int, float], ...]
    serve_rate: float | None
    reply_bytes: float | None


@dataclass(frozen=True)
class Row:
    """What so many GPUs need; two numbers are those of the slowest and the fastest GPU.

    ``cores`` is for batches, ``single_cores`` for samples that are sent one by one.
    """

    gpus: int
    text_bytes_per_s: tuple[float, float]
    rollouts_per_s: tuple[float, float]
    cores: tuple[int, int] | None
    single_cores: tuple[int, int] | None


def scale_section(run: Run) -> str:
    """Return the part of the page about scale, as Markdown with its heading."""
    found = constants(run)
    parts = [
        "## Scale, on paper",
        "Computed from the figures of this run; nothing below was measured on a cluster.",
        _assumptions(),
        "\n".join(f"- {sentence}" for sentence in _sentences(found)),
        _cluster_table([row(gpus, found) for gpus in GPUS]),
        _memory_table(found),
    ]
    return "\n\n".join(parts)


def constants(run: Run) -> Constants:
    """Look up what the sentences and tables are computed from."""
    checks = {
        check.target: check.value
        for suite in run.suites
        for check in suite.checks
        if check.value is not None
    }
    microseconds = _service(run, _BATCHES, "1")
    return Constants(
        core_bytes_per_s=None if microseconds is None else ROLLOUT_BYTES / microseconds * 1e6,
        singles=_over(_service(run, _SINGLES, "all"), _service(run, _BATCHES, "all")),
        second_core=checks.get("second_core"),
        problem_bytes=checks.get("million_resident_bytes"),
        serve_hops=tuple(
            (rollouts, milliseconds)
            for rollouts, milliseconds in _by_rollouts(run, _SERVE_ADDS)
            if rollouts <= _REQUEST_ROLLOUTS
        ),
        serve_rate=next(
            (
                1 / ratio
                for rollouts, ratio in _by_rollouts(run, _SERVE_RATIO)
                if rollouts > _REQUEST_ROLLOUTS
            ),
            None,
        ),
        reply_bytes=_service(run, _REPLY, "1"),
    )


def row(gpus: int, found: Constants) -> Row:
    """Return what ``gpus`` GPUs need of the server."""
    slow, fast = (gpus * tokens * BYTES_PER_TOKEN for tokens in TOKENS_PER_S)

    def cores(rate: float | None) -> tuple[int, int] | None:
        return None if rate is None else (math.ceil(slow / rate), math.ceil(fast / rate))

    return Row(
        gpus,
        (slow, fast),
        (slow / ROLLOUT_BYTES, fast / ROLLOUT_BYTES),
        cores(found.core_bytes_per_s),
        cores(_over(found.core_bytes_per_s, found.singles)),
    )


def gpus_per_core(found: Constants) -> tuple[float, float] | None:
    """Return how many of the fastest and of the slowest GPUs one core keeps up with."""
    if found.core_bytes_per_s is None:
        return None
    slow, fast = (tokens * BYTES_PER_TOKEN for tokens in TOKENS_PER_S)
    return found.core_bytes_per_s / fast, found.core_bytes_per_s / slow


def _service(run: Run, name: str, cores: str) -> float | None:
    """Return the service's figure of this name for one batch; those with a note are others'."""
    for figure in _figures(run, "service"):
        where = figure.parameters.get("rollouts"), figure.parameters.get("cores")
        if figure.name == name and where == (_ROLLOUTS, cores) and not figure.note:
            return figure.value
    return None


def _by_rollouts(run: Run, name: str) -> list[tuple[int, float]]:
    """Return what Ray's suite found under this name, by rollouts of a batch."""
    return sorted(
        (int(figure.parameters["rollouts"]), figure.value)
        for figure in _figures(run, "ray_calls")
        if figure.name == name
    )


def _over(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else one / other


def _figures(run: Run, suite: str) -> Iterator[Figure]:
    for result in run.suites:
        if result.suite == suite:
            yield from result.figures


def _assumptions() -> str:
    slow, fast = TOKENS_PER_S
    return "\n".join(
        [
            "Assumed, and not measured:",
            "",
            f"- a GPU writes {slow:,} to {fast:,} tokens a second while it generates, a token is "
            f"{BYTES_PER_TOKEN} bytes of text, a rollout {ROLLOUT_BYTES:,} bytes "
            f"({ROLLOUT_BYTES // BYTES_PER_TOKEN:,} tokens);",
            f"- GPUs generate for {GENERATING_SHARE:.0%} of a step and train in the rest;",
            f"- a machine has {MACHINE_CORES} cores for the server and a link of "
            f"{LINK_BITS_PER_S / 1e9:g} Gbit/s.",
        ]
    )


def _sentences(found: Constants) -> Iterator[str]:
    yield _about_core(found)
    yield _about_step_end(found)
    yield _about_machine(found)
    yield _about_serve(found)
    yield _about_network(found)
    yield (
        "**Workers**: one for each core that the server has (`--workers`), each with one matching "
        "thread; the table says how many cores. Workers share nothing but the dataset's pages, so "
        "that more machines are more workers, behind any gRPC load balancer."
    )


def _about_core(found: Constants) -> str:
    fed = gpus_per_core(found)
    if fed is None:
        return f"**One core**: {MISSING} (suite `service`)."
    assert found.core_bytes_per_s is not None
    singles = (
        f"what single samples cost more was {MISSING}"
        if found.singles is None
        else f"a rollout sent as a single sample takes {found.singles:.2g}x as long as in a batch, "
        "and a core keeps up with as many times fewer GPUs"
    )
    return (
        f"**One core** scores {_bytes(found.core_bytes_per_s)}/s of text in batches of "
        f"{_ROLLOUTS}, with all that server and client do for it (suite `service`, both on the "
        f"same core). Rewards keep pace with {_count(fed[0])} GPUs that write "
        f"{TOKENS_PER_S[1]:,} tokens/s, or {_count(fed[1])} that write {TOKENS_PER_S[0]:,}: "
        f"rate / (tokens/s × {BYTES_PER_TOKEN} bytes); {singles}."
    )


def _about_step_end(found: Constants) -> str:
    fed = gpus_per_core(found)
    if fed is None:
        return f"**All at the end of a step**: {MISSING} (suite `service`)."
    few, many = (HIDDEN_SHARE * gpus / GENERATING_SHARE for gpus in fed)
    return (
        "**All at the end of a step**, where no rollout is sent before the last one is written: "
        f"rewards take {HIDDEN_SHARE:.0%} of the step where a core serves {_count(few)} to "
        f"{_count(many)} GPUs ({HIDDEN_SHARE:g} × rate / ({GENERATING_SHARE:g} × tokens/s × "
        f"{BYTES_PER_TOKEN} bytes)), and less the more cores there are."
    )


def _about_machine(found: Constants) -> str:
    link = tuple(LINK_BITS_PER_S / (8 * BYTES_PER_TOKEN * tokens) for tokens in TOKENS_PER_S)
    wire = (
        f"its link is full at {_count(link[1])} GPUs of {TOKENS_PER_S[1]:,} tokens/s and "
        f"{_count(link[0])} of {TOKENS_PER_S[0]:,}"
    )
    fed = gpus_per_core(found)
    if fed is None or found.second_core is None:
        return f"**One machine is outgrown**: by its cores {MISSING}; {wire}."
    cores = MACHINE_CORES * found.second_core / 2
    return (
        f"**One machine is outgrown** by its cores at {_count(cores * fed[0])} to "
        f"{_count(cores * fed[1])} GPUs, if all of them add up as the second does here "
        f"({found.second_core:.3g}x with two); {wire}."
    )


def _about_serve(found: Constants) -> str:
    if not found.serve_hops:
        return f"**Ray Serve**: what its hop adds was {MISSING} (suite `ray_calls`)."
    hops = ", ".join(
        f"{added:+.2g} ms with {_plural(rollouts)}" for rollouts, added in found.serve_hops
    )
    rate = (
        ""
        if found.serve_rate is None
        else f"; with several under way it carries {found.serve_rate:.0%} of what the plain server "
        "does"
    )
    return f"**Ray Serve** adds a hop to each request, one at a time: {hops}{rate}."


def _about_network(found: Constants) -> str:
    slow, fast = (tokens * BYTES_PER_TOKEN for tokens in TOKENS_PER_S)
    into = (
        f"**Network**: {_bytes(slow)}/s to {_bytes(fast)}/s of text into the server for each GPU "
        "that generates"
    )
    if found.reply_bytes is None:
        return f"{into}; the size of replies was {MISSING}."
    share = found.reply_bytes / ROLLOUT_BYTES
    return (
        f"{into}, and {_bytes(slow * share)}/s to {_bytes(fast * share)}/s of scores back "
        f"({found.reply_bytes:,.0f} bytes a rollout)."
    )


def _cluster_table(rows: Sequence[Row]) -> str:
    return table(
        ["GPUs", "text", "rollouts/s", "link", "cores, batches", "cores, single samples"],
        [
            [
                f"{one.gpus:,}",
                " – ".join(f"{_bytes(rate)}/s" for rate in one.text_bytes_per_s),
                " – ".join(_count(rate) for rate in one.rollouts_per_s),
                " – ".join(_bits(8 * rate) for rate in one.text_bytes_per_s),
                _cores(one.cores),
                _cores(one.single_cores),
            ]
            for one in rows
        ],
        0,
    )


def _memory_table(found: Constants) -> str:
    if found.problem_bytes is None:
        return f"Memory of large datasets: {MISSING} (suite `problems`, with `--full`)."
    return "\n\n".join(
        [
            f"Memory of a dataset, at {found.problem_bytes:,.0f} resident bytes a problem, "
            f"measured with {MEASURED_PROBLEMS:,}, which is the most that any format takes (suite "
            "`problems`); the rows of other sizes are this times their number. A prepared file is "
            "mapped, and all workers of a machine share it:",
            table(
                ["problems", "resident"],
                [[f"{count:,}", _bytes(count * found.problem_bytes)] for count in DATASETS],
                0,
            ),
        ]
    )


def _bytes(value: float) -> str:
    for unit, size in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if value >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value:.3g} bytes"


def _count(value: float) -> str:
    """Write a number of things: whole from ten on, with as many digits as are sure."""
    if value < 10:
        return f"{value:.2g}"
    return f"{float(f'{value:.2g}'):,.0f}"


def _bits(value: float) -> str:
    return f"{value / 1e9:.3g} Gbit/s" if value >= 1e9 else f"{value / 1e6:.3g} Mbit/s"


def _cores(span: tuple[int, int] | None) -> str:
    if span is None:
        return "–"
    low, high = span
    return f"{low:,}" if low == high else f"{low:,} – {high:,}"


def _plural(rollouts: int) -> str:
    return f"{rollouts:,} rollout" + ("" if rollouts == 1 else "s")
