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
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.harness import results
from benchmarks.harness.results import Figure, Run, Series, SuiteResult, Verdict
from benchmarks.markdown import cell, table

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
# Of the slowest GPU and of the fastest.
GPU_BYTES_PER_S = (TOKENS_PER_S[0] * BYTES_PER_TOKEN, TOKENS_PER_S[1] * BYTES_PER_TOKEN)
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
# The step that the section about one is about, and the cores that its rewards may have.
STEP_ROLLOUTS, STEP_TOKENS = 2_048, 4_096
STEP_CORES = (1, 8)
STEP_GPUS = (8, 64, 512)
# Of the suite ``step``: a rollout in verl's own worker, and the latest of a hundred single samples.
_IN_WORKER = "verl's worker, a rollout"
_REWARDED = {"side": "consensuspr's manager, tokens decoded", "cores": "all on one core"}
_UNREWARDED = {"side": "reward of nothing, tokens decoded", "cores": "all on one core"}
_LATEST = "one sample at 40/s, p99"
MISSING = "not measured in this run"


def render(run: Run) -> str:
    """Return the page's Markdown for ``run``; its plots are beside it, see :func:`draw`."""
    parts = [
        "# Performance",
        f"Written by `{run.command}`. "
        "`make bench` prints the table below for your machine, `make bench-full` measures all "
        "sizes.",
        "## Targets and figures",
        targets_block(run),
        "## What a training step waits",
        step_block(run),
        "## Ratios",
        _ratios(run),
        _CAVEATS,
        f"## Suites\n\n{_states(run)}",
    ]
    parts += [_suite(run, suite) for suite in run.suites]
    parts += [
        f"## {name}\n\nThis suite failed in this run: {cell(reason)}."
        for name, reason in run.failures.items()
    ]
    parts.append(scale_section(run))
    return "\n\n".join(part for part in parts if part) + "\n"


def targets_block(run: Run) -> str:
    """Return the table of targets, what is to be said of its figures, and what was measured on."""
    judged = [
        [row.what, row.at_least, row.aim, row.figure, _bold(row.verdict)]
        for row in results.rows(run)
    ]
    about = run.machine
    lines = [
        f"{about.cpu}, {about.cores} cores, {about.memory_bytes / 2**30:.1f} GiB of memory, "
        f"{about.kernel}",
        f"{about.python}; core: {about.backend}, {about.compiler}, normal form {about.normal_form}",
        ", ".join(f"{name} {version}" for name, version in about.libraries.items()),
        f"commit {about.commit}{' with changes' if about.dirty else ''}, {run.started}, seed "
        f"{run.seed}, {run.rounds} rounds",
        *(f"**Warning**: {warning}" for warning in run.warnings),
    ]
    parts = [
        table(["what", "at least", "aim", "figure", "verdict"], judged),
        "\n".join(f"- {note}" for note in results.notes(run)),
        "Measured on:",
        "\n".join(f"- {line}" for line in lines),
    ]
    return "\n\n".join(part for part in parts if part)


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


def _states(run: Run) -> str:
    return table(
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


def _suite(run: Run, suite: SuiteResult) -> str:
    command = f"python -m benchmarks{' --full' if run.full else ''} --only {suite.suite}"
    parts = [f"## {suite.title}", f"Measured by `{command}`."]
    if suite.skipped is not None:
        parts.append(f"Not measured in this run: {suite.skipped}.")
    if suite.notes:
        parts.append("\n".join(f"- {note}" for note in suite.notes))
    parts += [f"![{series.name}](./{file_name(suite.suite, series)})" for series in suite.series]
    # Figures of the same parameters stand together: each group is one table.
    groups: dict[tuple[str, ...], list[Figure]] = {}
    for figure in suite.figures:
        groups.setdefault(tuple(figure.parameters), []).append(figure)
    parts += [_figure_table(group) for group in groups.values()]
    return "\n\n".join(parts)


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

    @property
    def gpus_per_core(self) -> tuple[float, float] | None:
        """How many of the fastest and of the slowest GPUs one core keeps up with."""
        if self.core_bytes_per_s is None:
            return None
        return self.core_bytes_per_s / GPU_BYTES_PER_S[1], self.core_bytes_per_s / GPU_BYTES_PER_S[
            0
        ]


def constants(run: Run) -> Constants:
    """Look up what the sentences and tables are computed from."""
    values = {check.target: check.value for suite in run.suites for check in suite.checks}

    def figures(suite: str, name: str, **of: str) -> dict[int, float]:
        """Return the figures of this name by rollouts; those with a note are others'."""
        return {
            int(figure.parameters["rollouts"]): figure.value
            for one in run.suites
            if one.suite == suite
            for figure in one.figures
            if figure.name == name and not figure.note and of.items() <= figure.parameters.items()
        }

    microseconds = figures("service", _BATCHES, cores="1").get(_ROLLOUTS)
    singles = figures("service", _SINGLES, cores="all").get(_ROLLOUTS)
    batches = figures("service", _BATCHES, cores="all").get(_ROLLOUTS)
    hops = sorted(figures("ray_calls", _SERVE_ADDS).items())
    slower = sorted(figures("ray_calls", _SERVE_RATIO).items())
    in_several_requests = [ratio for rollouts, ratio in slower if rollouts > _REQUEST_ROLLOUTS]
    return Constants(
        core_bytes_per_s=microseconds and ROLLOUT_BYTES / microseconds * 1e6,
        singles=singles and batches and singles / batches,
        second_core=values.get("second_core"),
        problem_bytes=values.get("million_resident_bytes"),
        serve_hops=tuple(hop for hop in hops if hop[0] <= _REQUEST_ROLLOUTS),
        serve_rate=1 / in_several_requests[0] if in_several_requests else None,
        reply_bytes=figures("service", _REPLY, cores="1").get(_ROLLOUTS),
    )


def scale_section(run: Run) -> str:
    """Return the part of the page about scale, as Markdown with its heading."""
    found = constants(run)
    headings = ["GPUs", "text", "rollouts/s", "link", "cores, batches", "cores, single samples"]
    parts = [
        "## Scale, on paper",
        "Computed from the figures of this run; nothing below was measured on a cluster.",
        "Assumed, and not measured:",
        f"- a GPU writes {TOKENS_PER_S[0]:,} to {TOKENS_PER_S[1]:,} tokens a second while it "
        f"generates, a token is {BYTES_PER_TOKEN} bytes of text, a rollout {ROLLOUT_BYTES:,} bytes "
        f"({ROLLOUT_BYTES // BYTES_PER_TOKEN:,} tokens);\n"
        f"- GPUs generate for {GENERATING_SHARE:.0%} of a step and train in the rest;\n"
        f"- a machine has {MACHINE_CORES} cores for the server and a link of "
        f"{LINK_BITS_PER_S / 1e9:g} Gbit/s.",
        "\n".join(f"- {sentence}" for sentence in _sentences(found)),
        table(headings, [cluster_row(gpus, found) for gpus in GPUS], 0),
    ]
    if found.problem_bytes is None:
        parts.append(f"Memory of large datasets: {MISSING} (suite `problems`, with `--full`).")
    else:
        sizes = [[f"{count:,}", _bytes(count * found.problem_bytes)] for count in DATASETS]
        parts += [
            f"Memory of a dataset, at {found.problem_bytes:,.0f} resident bytes a problem, "
            f"measured with {MEASURED_PROBLEMS:,}, which is the most that any format takes (suite "
            "`problems`); the rows of other sizes are this times their number. A prepared file is "
            "mapped, and all workers of a machine share it:",
            table(["problems", "resident"], sizes, 0),
        ]
    return "\n\n".join(parts)


def _sentences(found: Constants) -> Iterator[str]:
    slow, fast = GPU_BYTES_PER_S
    fed, rate = found.gpus_per_core, found.core_bytes_per_s
    if fed is None or rate is None:
        yield f"**One core**: {MISSING} (suite `service`)."
        yield f"**All at the end of a step**: {MISSING} (suite `service`)."
    else:
        singles = (
            f"what single samples cost more was {MISSING}"
            if found.singles is None
            else f"a rollout sent as a single sample takes {found.singles:.2g}x as long as in a "
            "batch, and a core keeps up with as many times fewer GPUs"
        )
        yield (
            f"**One core** scores {_bytes(rate)}/s of text in batches of {_ROLLOUTS}, with all "
            "that server and client do for it (suite `service`, both on the same core). Rewards "
            f"keep pace with {_count(fed[0])} GPUs that write {TOKENS_PER_S[1]:,} tokens/s, or "
            f"{_count(fed[1])} that write {TOKENS_PER_S[0]:,}: "
            f"rate / (tokens/s × {BYTES_PER_TOKEN} bytes); {singles}."
        )
        few, many = (HIDDEN_SHARE * gpus / GENERATING_SHARE for gpus in fed)
        yield (
            "**All at the end of a step**, where no rollout is sent before the last one is "
            f"written: rewards take {HIDDEN_SHARE:.0%} of the step where a core serves "
            f"{_count(few)} to {_count(many)} GPUs ({HIDDEN_SHARE:g} × rate / "
            f"({GENERATING_SHARE:g} × tokens/s × {BYTES_PER_TOKEN} bytes)), and less the more "
            "cores there are."
        )
    wire = (
        f"its link is full at {_count(LINK_BITS_PER_S / 8 / fast)} GPUs of {TOKENS_PER_S[1]:,} "
        f"tokens/s and {_count(LINK_BITS_PER_S / 8 / slow)} of {TOKENS_PER_S[0]:,}"
    )
    if fed is None or found.second_core is None:
        yield f"**One machine is outgrown**: by its cores {MISSING}; {wire}."
    else:
        cores = MACHINE_CORES * found.second_core / 2
        yield (
            f"**One machine is outgrown** by its cores at {_count(cores * fed[0])} to "
            f"{_count(cores * fed[1])} GPUs, if all of them add up as the second does here "
            f"({found.second_core:.3g}x with two); {wire}."
        )
    if found.serve_hops:
        hops = ", ".join(
            f"{added:+.2g} ms with {rollouts:,} rollout{'' if rollouts == 1 else 's'}"
            for rollouts, added in found.serve_hops
        )
        under_way = (
            ""
            if found.serve_rate is None
            else (
                f"; with several under way it carries {found.serve_rate:.0%} of what the plain "
                "server does"
            )
        )
        yield f"**Ray Serve** adds a hop to each request, one at a time: {hops}{under_way}."
    else:
        yield f"**Ray Serve**: what its hop adds was {MISSING} (suite `ray_calls`)."
    into = (
        f"**Network**: {_bytes(slow)}/s to {_bytes(fast)}/s of text into the server for each GPU "
        "that generates"
    )
    if found.reply_bytes is None:
        yield f"{into}; the size of replies was {MISSING}."
    else:
        share = found.reply_bytes / ROLLOUT_BYTES
        yield (
            f"{into}, and {_bytes(slow * share)}/s to {_bytes(fast * share)}/s of scores back "
            f"({found.reply_bytes:,.0f} bytes a rollout)."
        )
    yield (
        "**Workers**: one for each core that the server has (`--workers`), each with one matching "
        "thread; the table says how many cores. Workers share nothing but the dataset's pages, so "
        "that more machines are more workers, behind any gRPC load balancer."
    )


def step_block(run: Run) -> str:
    """Return what share of a training step waits for rewards, and how many GPUs a core feeds."""

    def figure(name: str, of: Mapping[str, str]) -> float | None:
        for suite in run.suites:
            for one in suite.figures:
                if (
                    suite.suite == "step"
                    and one.name == name
                    and of.items() <= one.parameters.items()
                ):
                    return one.value
        return None

    text = STEP_ROLLOUTS * STEP_TOKENS * BYTES_PER_TOKEN
    cost, idle = figure(_IN_WORKER, _REWARDED), figure(_IN_WORKER, _UNREWARDED)
    latest_ms = figure(_LATEST, {"reward": "consensuspr"})
    asked = (
        f"A step of {STEP_ROLLOUTS:,} rollouts of {STEP_TOKENS:,} tokens, {_bytes(text)} of text"
    )
    if cost is None or idle is None or latest_ms is None:
        return f"{asked}: {MISSING} (suite `step`, in the environment with verl)."
    rollouts = text / ROLLOUT_BYTES
    core_s, rate = cost * rollouts / 1e6, ROLLOUT_BYTES / cost * 1e6
    slow, fast = (rate / each for each in GPU_BYTES_PER_S)
    rows = []
    for gpus in STEP_GPUS:
        steps = [
            STEP_ROLLOUTS * STEP_TOKENS / (gpus * tokens) / GENERATING_SHARE
            for tokens in TOKENS_PER_S
        ]
        waits = [latest_ms / 1e3, *(core_s / cores for cores in STEP_CORES)]
        rows.append(
            [
                f"{gpus:,}",
                " – ".join(f"{seconds:,.3g} s" for seconds in steps),
                *(
                    " – ".join(_percent(wait / (seconds + wait)) for seconds in steps)
                    for wait in waits
                ),
            ]
        )
    at_the_end = [
        f"all at the end, {cores} core{'' if cores == 1 else 's'}" for cores in STEP_CORES
    ]
    return "\n\n".join(
        [
            f"{asked}: rewards take {core_s:.2g} s of one core. That is all that verl's own"
            " reward worker does for them (cutting into samples, decoding tokens, sending) and"
            " the server's scoring (suite `step`). A reward of nothing takes"
            f" {idle * rollouts / 1e6:.2g} s there, because verl decodes all the same.",
            f"**One core feeds** {_count(fast)} GPUs that write {TOKENS_PER_S[1]:,} tokens/s, or"
            f" {_count(slow)} that write {TOKENS_PER_S[0]:,}, worker and server together.",
            "The share of a step that waits for rewards. *Streamed*, as verl hands samples over:"
            f" only the last one waits, {latest_ms:.2g} ms (99th percentile). *All at the end*: no"
            " rollout is sent before the last one is written.",
            table(["GPUs", "step", "streamed", *at_the_end], rows, 0),
            "Assumed, and not measured: a step takes tokens / (GPUs × tokens/s) /"
            f" {GENERATING_SHARE:g}, because GPUs generate for {GENERATING_SHARE:.0%} of it and"
            f" train in the rest; a GPU writes {TOKENS_PER_S[0]:,} to {TOKENS_PER_S[1]:,} tokens/s,"
            f" and a token is {BYTES_PER_TOKEN} bytes. Of two numbers the first is of slow GPUs.",
        ]
    )


def cluster_row(gpus: int, found: Constants) -> list[str]:
    """Return what ``gpus`` GPUs need of the server; of two numbers the first is of slow GPUs."""
    text = [gpus * rate for rate in GPU_BYTES_PER_S]
    rate = found.core_bytes_per_s
    per_core = (rate, rate and found.singles and rate / found.singles)
    cores = [
        "–"
        if rate is None
        else " – ".join(dict.fromkeys(f"{math.ceil(each / rate):,}" for each in text))
        for rate in per_core
    ]
    return [
        f"{gpus:,}",
        " – ".join(f"{_bytes(each)}/s" for each in text),
        " – ".join(_count(each / ROLLOUT_BYTES) for each in text),
        " – ".join(_bits(8 * each) for each in text),
        *cores,
    ]


def _percent(share: float) -> str:
    return "< 0.01 %" if share < 1e-4 else f"{100 * share:.2g} %"


def _bytes(value: float) -> str:
    for unit, size in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if value >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value:.3g} bytes"


def _bits(value: float) -> str:
    return f"{value / 1e9:.3g} Gbit/s" if value >= 1e9 else f"{value / 1e6:.3g} Mbit/s"


def _count(value: float) -> str:
    """Write a number of things: whole from ten on, with as many digits as are sure."""
    return f"{value:.2g}" if value < 10 else f"{float(f'{value:.2g}'):,.0f}"
