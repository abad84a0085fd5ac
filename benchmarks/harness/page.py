"""The page ``docs/performance.md``, written wholly from the results of one run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from benchmarks.harness import plots, scaling, table
from benchmarks.harness.results import Figure, Run, SuiteResult
from benchmarks.harness.targets import Verdict

# Relative to the page.
IMAGES = "images/performance"

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


def render(run: Run) -> str:
    """Return the page's Markdown for ``run``."""
    parts = [
        "# Performance",
        f"Written by `{run.command} --write docs/performance.md`; do not edit it by hand. "
        "`make bench` prints the table below for your machine, `make bench-full` measures all "
        "sizes.",
        "## Targets and figures",
        _targets(run),
        "\n".join(f"- {note}" for note in table.notes(run)),
        "## Ratios",
        _ratios(run),
        _CAVEATS,
        _machine(run),
    ]
    parts += [_suite(run, suite) for suite in run.suites]
    parts += [
        f"## {name}\n\nThis suite failed in this run: {_cell(reason)}."
        for name, reason in run.failures.items()
    ]
    parts.append(scaling.section(run))
    return "\n\n".join(part for part in parts if part) + "\n"


def _targets(run: Run) -> str:
    return _table(
        ["what", "at least", "aim", "figure", "verdict"],
        [
            [row.what, row.at_least, row.aim, row.figure, _bold(row.verdict)]
            for row in table.rows(run)
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
    return _table(["suite", "what", "of", "ratio", "note"], found)


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
    states = _table(
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


def _suite(run: Run, suite: SuiteResult) -> str:
    command = f"python -m benchmarks{' --full' if run.full else ''} --only {suite.suite}"
    parts = [f"## {suite.title}", f"Measured by `{command}`."]
    if suite.skipped is not None:
        parts.append(f"Not measured in this run: {suite.skipped}.")
    if suite.notes:
        parts.append("\n".join(f"- {note}" for note in suite.notes))
    parts += [
        f"![{series.name}]({IMAGES}/{plots.file_name(suite.suite, series)})"
        for series in suite.series
    ]
    parts += [_figures(group) for group in _groups(suite.figures)]
    return "\n\n".join(parts)


def _groups(figures: Iterable[Figure]) -> list[list[Figure]]:
    """Put figures of the same parameters together: each group is one table."""
    groups: dict[tuple[str, ...], list[Figure]] = {}
    for figure in figures:
        groups.setdefault(tuple(figure.parameters), []).append(figure)
    return list(groups.values())


def _figures(group: Sequence[Figure]) -> str:
    keys = list(group[0].parameters)
    with_notes = any(figure.note for figure in group)
    return _table(
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


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(map(_cell, line)) + " |" for line in lines)


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())
