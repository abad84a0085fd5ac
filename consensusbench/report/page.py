"""The report: one self-contained HTML file about scored rollouts, which runs only its own script.

Everything in the page that came from a model or a file passes :func:`safe`, once, at the
template's edge: control characters are written out, markup is escaped, and nothing is put into a
script.  A Content-Security-Policy names the digests of the one style sheet and the one script, so
that even a hole in the escaping could load and run nothing.

:func:`write_report` measures, diagnoses, probes and chooses; each section of the page is a function
of what was found; ``assets`` has template, style sheet and script.
"""

from __future__ import annotations

import os
from base64 import b64encode
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from hashlib import sha256
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from jinja2 import Environment, StrictUndefined, Template
from markupsafe import Markup

from consensusbench.evaluation.metrics import (
    Evaluation,
    EvaluationSettings,
    GroupMetrics,
    evaluate,
)
from consensusbench.evaluation.scored import UNKNOWN, ScoredSet, label_order
from consensusbench.evaluation.tables import (
    ACC,
    ALL,
    CHARS,
    NCR,
    NCR_PAPER,
    NCR_WITHOUT_FINAL,
    SIZES,
    TOKENS,
    TPN,
    TPN_MEDIAN,
    WITH_ACC,
    WITH_NCR,
    Figure,
    about_paper,
    pass_figures,
    table_of_groups,
)
from consensusbench.quality.diagnose import (
    Diagnosis,
    DiagnosisReport,
    diagnose,
    read_answers,
    read_leniently,
    share,
)
from consensusbench.quality.probes import (
    ProbeReport,
    ProbeSettings,
    RolloutSurvey,
    attacks_by_source_table,
    attacks_table,
    cheap_notes,
    density_table,
    probe_dataset,
)
from consensusbench.report import ReportSettings
from consensusbench.report.charts import (
    ReportChart,
    SharePart,
    accuracy_scatter,
    alpha_charts,
    length_distribution,
    ncr_distribution,
    node_order,
    share_bars,
    text_position,
    tpn_distribution,
)
from consensusbench.report.data import (
    ProblemSummary,
    RolloutView,
    choose,
    node_look,
    summarize_problems,
    view_rollouts,
)
from consensusbench.report.markup import element, safe
from consensusbench.tables import (
    Cell,
    JsonResult,
    Row,
    Table,
    Value,
    cell_of,
    number,
    percent,
    words,
)
from consensuspr.client.files import chunks
from consensuspr.console import count_of
from consensuspr.data import Row as DataRow
from consensuspr.data import atomic_file
from consensuspr.scoring import DatasetIndex
from consensuspr.scoring.types import Status
from consensuspr.version import VERSION

if TYPE_CHECKING:
    from consensusbench.evaluation.scored import ProblemFacts, ScoredRollout

Rollouts: TypeAlias = "Sequence[ScoredRollout]"

# Longer tables scroll in a box of their own; shorter ones stand whole.
WHOLE_ROWS = 60
# A column's name past this takes several lines in a narrow window.
_LONG_NAME = 14
# Models that get charts of their own: those with the most rollouts.
MAX_MODELS = 12
# More bars than this are longer than a page that anyone scrolls through.
MAX_BARS = 60
# Of the table of problems: a row takes about a kilobyte of the page.
MAX_ROWS = 700
# A picture of rates: its height, the width of a bar, and from bar to bar.
_HEIGHT, _BAR, _STEP = 22.0, 9.0, 12.0


@dataclass(frozen=True, slots=True)
class WrittenReport(JsonResult):
    """What was written, in numbers."""

    path: str
    size_bytes: int
    rollouts: int
    rollouts_shown: int
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ChartScope:
    """The same charts for all rollouts, or for those of one model; a note is a line below them."""

    name: str
    title: str
    charts: tuple[ReportChart, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Section:
    """A part of the page: charts of one scope at a time, then tables, then small print."""

    name: str
    title: str
    about: tuple[str, ...] = ()
    scopes: tuple[ChartScope, ...] = ()
    tables: tuple[Table, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Page:
    """All that the page says; ``warnings`` are what a reader must know before any number."""

    title: str
    facts: tuple[tuple[str, str], ...]
    warnings: tuple[str, ...]
    sections: tuple[Section, ...]
    views: tuple[RolloutView, ...]
    choice: str
    footer: tuple[str, ...]

    @property
    def first_scoped(self) -> str:
        """Name of the section that carries the choice of the scope, empty if none does."""
        return next((s.name for s in self.sections if len(s.scopes) > 1), "")

    def values(self, name: str) -> Sequence[str]:
        """Return the distinct values that the rollouts can be filtered by, in the tables' order."""
        read: dict[str, Callable[[RolloutView], str]] = {
            "model": lambda view: view.rollout.model,
            "source": lambda view: view.rollout.data_source,
            "side": lambda view: view.side.value,
            "kind": lambda view: view.kind,
        }
        found = {read[name](view) for view in self.views}
        return sorted(found, key=lambda value: label_order(value or UNKNOWN))


@dataclass(frozen=True, slots=True)
class HtmlCell:
    """A cell as the template writes it; ``sort_key`` is what the page's script compares."""

    text: str
    sort_key: str
    note: str
    href: str
    picture: Markup | None


def html_cells(table: Table, row: Row) -> Iterator[HtmlCell]:
    """Yield the cells of a row: numbers sort exactly, text as it is, nothing last."""
    for column, cell in zip(table.columns, map(cell_of, row), strict=True):
        key = "" if cell.value is None else str(cell.value)
        picture = None if cell.picture is None else Markup(cell.picture)
        text = column.show(cell.value) if picture is None else ""
        yield HtmlCell(text, key, column.note(cell), cell.href, picture)


def render(page: Page) -> bytes:
    """Return the page as UTF-8."""
    style, script = _asset("page.css"), _asset("page.js")
    policy = (
        f"default-src 'none'; style-src {_digest(style)}; script-src {_digest(script)}; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    text = _template().render(
        page=page,
        policy=policy,
        style=Markup(style),
        script=Markup(script),
        look=node_look,
        cells=html_cells,
        whole_rows=WHOLE_ROWS,
        long_name=_LONG_NAME,
    )
    return text.encode("utf-8")


def _asset(name: str) -> str:
    return (
        resources.files("consensusbench.report.assets").joinpath(name).read_text(encoding="utf-8")
    )


def _digest(text: str) -> str:
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"


@cache
def _template() -> Template:
    environment = Environment(
        autoescape=True, finalize=safe, undefined=StrictUndefined, keep_trailing_newline=True
    )
    return environment.from_string(_asset("page.html.j2"))


# What each status other than OK means for the figures; docs/evaluate.md says more.
_MEANING = {
    Status.ANSWER_UNDECIDED: "the answer check came to no verdict; counted as wrong",
    Status.NO_NODES: "their problem has no nodes; no NCR",
    Status.NO_GROUND_TRUTH: "nothing says what is right; no Acc",
    Status.UNKNOWN_PROBLEM: "the dataset does not have their problem; neither Acc nor NCR",
    Status.INVALID_NODES: "their nodes were not usable; no NCR",
    Status.OVERSIZE: "too long to be scored; neither Acc nor NCR",
    Status.INTERNAL: "a defect while scoring; neither Acc nor NCR",
}


def facts_of(
    scored: ScoredSet, evaluation: Evaluation, dataset: str, digest: str
) -> tuple[tuple[str, str], ...]:
    """Return name and value of all that the figures depend on.

    Folders are left out of paths: a page travels, and they are nobody else's concern.
    """
    models = sorted({rollout.model or "(none named)" for rollout in scored.rollouts})
    files = _listed([Path(path).name for path in scored.files])
    sources = sorted({rollout.data_source or "(none)" for rollout in scored.rollouts})
    facts = [
        ("Dataset", f"{Path(dataset).name}, {digest}"),
        ("Problems of the dataset", f"{len(scored.problems):,}"),
        *_answered(scored),
        ("Rollouts", f"{len(scored.rollouts):,} of {files}"),
        ("Models", _listed(models)),
        ("Sources", _listed(sources)),
        ("Statuses", _statuses(scored)),
    ]
    identity = scored.identity
    if identity is not None:
        facts.append(
            (
                "Scored by",
                f"consensuspr {identity.server_version}, normal form "
                f"{identity.normal_form_version}, answers {identity.answer_version}, "
                f"answer rule {identity.answer_rule.value}",
            )
        )
    if scored.num_stored:
        facts.append(("Scores from the files", f"{scored.num_stored:,} rollouts"))
    if evaluation.tokenizer is not None:
        tokenizer = _tokenizer_name(evaluation.tokenizer)
        facts.append(("Tokens", f"{evaluation.num_tokenized:,} rollouts counted by {tokenizer}"))
    return tuple(facts)


def warnings_of(scored: ScoredSet) -> tuple[str, ...]:
    """Return what makes figures mean less than they seem to, one sentence each."""
    warnings = []
    for status, rollouts in scored.statuses.items():
        if status is not Status.OK:
            first = scored.messages.get(status)
            example = f" The first: {first}." if first else ""
            warnings.append(
                f"{rollouts:,} rollouts have status {status.value}: {_MEANING[status]}.{example}"
            )
    by_load = sum(rollout.undecided_by_load for rollout in scored.rollouts)
    if by_load:
        warnings.append(
            f"{by_load:,} answers stayed undecided because the machine was busy: score them again."
        )
    if scored.skipped_rows:
        warnings.append(f"{count_of(scored.skipped_rows, 'bad row')} of the files passed over.")
    if not any(rollout.num_tokens for rollout in scored.rollouts):
        warnings.append("No rollout has a length in tokens: there is no TPN.")
    return tuple(warnings)


def _answered(scored: ScoredSet) -> list[tuple[str, str]]:
    """Return how many problems have rollouts, how many of them have no nodes, and the nodes."""
    nodes = {
        rollout.problem_id: (
            len(scored.problems[rollout.problem_id].node_ids)
            if rollout.problem_id in scored.problems
            else 0
        )
        for rollout in scored.rollouts
    }
    for rollout in scored.rollouts:  # which may have brought nodes of their own
        nodes[rollout.problem_id] = max(nodes[rollout.problem_id], len(rollout.matched))
    with_nodes = [count for count in nodes.values() if count]
    told = f"{len(nodes):,}"
    without = len(nodes) - len(with_nodes)
    if without:
        told += f", of them {without:,} without nodes"
    facts = [("Problems with rollouts", told)]
    if with_nodes:
        each = sum(with_nodes) / len(with_nodes)
        facts.append(
            (
                "Nodes",
                f"{sum(with_nodes):,} of {len(with_nodes):,} problems with rollouts "
                f"({each:.1f} a problem)",
            )
        )
    return facts


def _statuses(scored: ScoredSet) -> str:
    counts = scored.statuses
    told = sorted(counts, key=lambda status: (status is not Status.OK, status.value))
    return ", ".join(f"{status.value} {counts[status]:,}" for status in told)


def _tokenizer_name(tokenizer: str) -> str:
    """Return a tokenizer's name on the hub, or that of its file or folder."""
    path = Path(tokenizer)
    return path.resolve().name if path.exists() else tokenizer


def _listed(names: list[str], most: int = 12) -> str:
    shown = ", ".join(names[:most])
    more = len(names) - most
    return f"{shown} and {more:,} more" if more > 0 else shown


def results_section(evaluation: Evaluation) -> Section:
    """Return the headline table, the breakdowns and how NCR and Acc go together."""
    models = evaluation.breakdown("model")
    groups = list(models.groups) if models else []
    if len(groups) != 1:
        groups.append(evaluation.overall)
    tables = [_results("model", ("model",), groups, evaluation), _consistency(groups)]
    for dimension in ("source", "difficulty"):
        for by in ((dimension,), ("model", dimension)):
            breakdown = evaluation.breakdown(*by)
            if breakdown and len({group.key[dimension] for group in breakdown.groups}) > 1:
                tables.append(_results(" and ".join(by), by, breakdown.groups, evaluation))
    confidence = f"{100 * evaluation.settings.confidence:g} %"
    populations = (
        " Acc is over the rollouts with Acc, those whose answer could be judged; NCR over those "
        "with NCR, whose problem has nodes."
        if evaluation.overall.has_populations
        else ""
    )
    tpn = (
        "TPN: mean number of tokens for each node reached, over rollouts that reach one. "
        if evaluation.overall.nodes.tpn.value is not None
        else ""
    )
    return Section(
        "results",
        "Results",
        (
            f"Small figures are {confidence} confidence intervals, clustered by problem; "
            f"a dash is a value that nothing is known of.{populations}",
        ),
        tables=tuple(tables),
        notes=(
            "Acc: share of right answers. NCR: mean share of a problem's nodes that a rollout "
            f"reaches; w/o final: without the nodes that state the answer. {tpn}D_NCR: mean NCR "
            "of right minus that of wrong rollouts. AUROC: how often a right rollout has the "
            "higher NCR of a right and a wrong one (50 % is chance). AUCPR: average precision "
            "(chance: the prevalence, which is the share of right rollouts).",
            *about_paper(evaluation.overall),
        ),
    )


def _results(
    name: str, by: Sequence[str], groups: Sequence[GroupMetrics], evaluation: Evaluation
) -> Table:
    apart = evaluation.overall.has_populations
    figures = [
        *SIZES,
        *((WITH_ACC,) if apart else ()),
        ACC,
        *pass_figures(evaluation.settings.ks),
        *((WITH_NCR,) if apart else ()),
        NCR,
        NCR_WITHOUT_FINAL,
        NCR_PAPER,
        TPN,
        TPN_MEDIAN,
        TOKENS,
        CHARS,
    ]
    keys = [Figure(words(one.capitalize()), _key(one)) for one in by]
    caption, sortable = f"Results by {name}", len(groups) > 2
    return table_of_groups(
        caption, keys, [groups], figures, sortable=sortable
    ).without_empty_columns()


def _key(dimension: str) -> Callable[[GroupMetrics], Value]:
    return lambda group: group.key.get(dimension, ALL)


def _consistency(groups: Sequence[GroupMetrics]) -> Table:
    columns = [
        words("Model"),
        words("Nodes"),
        number("Right"),
        number("Wrong"),
        *map(percent, ("NCR right", "NCR wrong", "D_NCR", "AUROC", "AUCPR", "Prevalence")),
    ]
    rows = [
        [
            group.key.get("model", ALL),
            nodes,
            found.num_right,
            found.num_wrong,
            found.ncr_right,
            found.ncr_wrong,
            found.d_ncr,
            found.auroc,
            found.aucpr,
            found.prevalence,
        ]
        for group in groups
        for nodes, found in (
            ("all", group.nodes.consistency),
            ("without final", group.nodes_without_final.consistency),
            ("all, paper's matching", group.nodes.consistency_paper),
            ("without final, paper's", group.nodes_without_final.consistency_paper),
        )
        if found is not None
    ]
    return Table("Does NCR tell right rollouts from wrong ones?", columns, [rows])


def scopes_of(rollouts: Rollouts) -> list[tuple[str, str, Rollouts]]:
    """Return name, title and rollouts of each scope: all, then the models with most rollouts."""
    scopes: list[tuple[str, str, Rollouts]] = [("all", "All models", rollouts)]
    counts = Counter(rollout.model for rollout in rollouts)
    if len(counts) > 1:
        largest = sorted(counts, key=lambda model: (-counts[model], model))[:MAX_MODELS]
        largest.sort(key=lambda model: label_order(model or UNKNOWN))
        for at, model in enumerate(largest, start=1):
            own = [rollout for rollout in rollouts if rollout.model == model]
            scopes.append((f"model-{at}", model or "(no model named)", own))
    return scopes


def distribution_section(rollouts: Rollouts, problems: Mapping[str, ProblemFacts]) -> Section:
    """Return NCR against Acc, and how NCR, positions, TPN and lengths are distributed."""

    def charts(own: Rollouts) -> tuple[ReportChart, ...]:
        return (
            ncr_distribution(own),
            accuracy_scatter(summarize_problems(own, problems)),
            text_position(own),
            node_order(own),
            tpn_distribution(own),
            length_distribution(own),
        )

    return _section(
        "distributions",
        "Distributions",
        "Right and wrong rollouts side by side. Point at a mark for its figures.",
        rollouts,
        charts,
    )


def reward_section(rollouts: Rollouts) -> Section:
    """Return what the rewards of the paper's section 4.2 would do to these rollouts."""
    return _section(
        "rewards",
        "Rewards",
        "What the linear reward would tell a trainer about these rollouts as its weight α moves "
        "from the process (0) to the outcome (1). Nothing was trained for it.",
        rollouts,
        alpha_charts,
    )


def _section(
    name: str,
    title: str,
    about: str,
    rollouts: Rollouts,
    charts: Callable[[Rollouts], tuple[ReportChart, ...]],
) -> Section:
    scopes = tuple(
        _scope(scope, scope_title, charts(own)) for scope, scope_title, own in scopes_of(rollouts)
    )
    models = len({rollout.model for rollout in rollouts})
    notes = (
        (f"Charts of their own have the {MAX_MODELS} models with most rollouts, of {models:,}.",)
        if models > MAX_MODELS
        else ()
    )
    return Section(name, title, (about,), scopes, notes=notes)


def _scope(name: str, title: str, charts: Sequence[ReportChart]) -> ChartScope:
    """Return the charts that show something, and a line about each of the others."""
    return ChartScope(
        name,
        title,
        tuple(chart for chart in charts if chart.svg is not None),
        tuple(f"{chart.title}: {chart.empty}" for chart in charts if chart.svg is None),
    )


def probe_section(report: ProbeReport) -> Section:
    """Return the attacks with what they earn, and how densely real rollouts hit their nodes."""
    tables = [attacks_table(report)]
    if any(len(attack.by_source) > 1 for attack in report.attacks):
        tables.append(attacks_by_source_table(report))
    if report.density:
        tables.append(density_table(report))
    return Section(
        "probes",
        "Reward hacking",
        (
            "Texts that solve nothing, scored against every problem: what they earn, a policy "
            "could earn without reasoning.",
        ),
        tables=tuple(tables),
    )


# Of each class: what it is, and what is put into it, with its thresholds.
_CLASSES = {
    Diagnosis.ALMOST_CORRECT: (
        "a wrong answer after nearly all of the nodes",
        "a wrong answer with an NCR of {almost_ncr:g} or more and {almost_hits:g} nodes reached or "
        "more.",
    ),
    Diagnosis.FORMAT_ERROR: (
        "a right answer that is not where or as it was asked for",
        "a right answer that is not where or as it was asked for; it shows only where the rule "
        "asked for is stricter than auto (--answer-rule).",
    ),
    Diagnosis.DIRECT_ANSWER: (
        "a right answer in a few words, without the nodes",
        "a right answer with an NCR of {direct_ncr:g} or less, in {direct_chars:g} characters or "
        "less, or in {direct_chars_per_node:g} or less for each node of its problem.",
    ),
    Diagnosis.REDUNDANT_THINKING: (
        "a right answer after far more text than is usual",
        "a right answer with {redundant_per_node:g} times the usual length for each node reached "
        "and {redundant_length:g} times the usual length in all, or one that goes on for "
        "{redundant_tail:g} times the usual length after the final answer's node.",
    ),
    Diagnosis.SOUND: (
        "a right answer, none of the others",
        "a right answer that is none of the others.",
    ),
    Diagnosis.WRONG: (
        "a wrong answer, none of the others",
        "a wrong answer that is none of the others.",
    ),
    Diagnosis.UNSCORED: (
        "no score to judge by; its share is of all rollouts",
        "no score to judge by; the share is of all rollouts.",
    ),
}
# The order of a bar, from what an outcome reward pays to what it does not.
_BAR_ORDER = (
    Diagnosis.SOUND,
    Diagnosis.REDUNDANT_THINKING,
    Diagnosis.DIRECT_ANSWER,
    Diagnosis.FORMAT_ERROR,
    Diagnosis.ALMOST_CORRECT,
    Diagnosis.WRONG,
    Diagnosis.UNSCORED,
)


def diagnosis_section(report: DiagnosisReport) -> Section:
    """Return the share and the number of each class of the paper's figure 1."""
    limits = report.thresholds.model_dump()
    shown = [one for one in Diagnosis if one is not Diagnosis.UNSCORED or report.total[one]]
    by_model: dict[str, Counter[Diagnosis]] = {}
    for (model, _), counts in report.groups.items():
        by_model.setdefault(model or UNKNOWN, Counter()).update(counts)
    rows = [((model,), by_model[model]) for model in sorted(by_model, key=label_order)]
    if len(rows) > 1:
        rows.append(((ALL,), report.total))
    tables = [_classes("Classes by model", ("Model",), rows, shown)]
    if len({source for _, source in report.groups}) > 1:
        named = [((m or UNKNOWN, s or UNKNOWN), n) for (m, s), n in report.groups.items()]
        both = sorted(named, key=lambda one: tuple(map(label_order, one[0])))
        tables.append(_classes("Classes by model and source", ("Model", "Source"), both, shown))
    return Section(
        "diagnosis",
        "Diagnosis",
        (
            "What an outcome reward misjudges, each rollout in one class (figure 1 of the paper). "
            "Small: the number of rollouts. The rollouts below can be filtered by these classes.",
        ),
        scopes=(ChartScope("all", "All models", (_class_bars(rows, shown),)),),
        tables=tuple(tables),
        notes=(
            *(f"{one.words.capitalize()}: {_CLASSES[one][1].format(**limits)}" for one in shown),
            "These NCRs are without final nodes, where a problem has others.",
        ),
    )


# Labels of a row, and how many rollouts are in which class.
_ClassCounts: TypeAlias = tuple[tuple[str, ...], Counter[Diagnosis]]


def _class_bars(groups: Sequence[_ClassCounts], shown: Sequence[Diagnosis]) -> ReportChart:
    largest = sorted(groups, key=lambda group: -group[1].total())[:MAX_BARS]
    drawn = [group for group in groups if group in largest]
    order = [one for one in _BAR_ORDER if one in shown]
    parts = [
        SharePart(one.words, one.words[0].upper(), f"c-{one.words.split()[0]}") for one in order
    ]
    chart = share_bars(
        "diagnosis",
        "Classes by model",
        "An outcome reward pays S, R and D alike, and F, A and W nothing.",
        parts,
        [(key[0], [counts[one] for one in order]) for key, counts in drawn],
    )
    if not (left_out := len(groups) - len(drawn)):
        return chart
    note = f"{left_out:,} models with fewer rollouts are left out here; the table below has all."
    return replace(chart, notes=(note,))


def _classes(
    caption: str,
    names: Sequence[str],
    groups: Sequence[_ClassCounts],
    shown: Sequence[Diagnosis],
) -> Table:
    columns = [*map(words, names), number("Rollouts")]
    columns += [percent(one.words.capitalize(), hint=_CLASSES[one][0]) for one in shown]
    rows: list[Row] = [
        [
            *key,
            counts.total(),
            *(Cell(share(counts, one), note=f"{counts[one]:,}") for one in shown),
        ]
        for key, counts in groups
    ]
    return Table(caption, columns, [rows], sortable=len(rows) > 2)


_PROBLEM_COLUMNS = (
    words("Problem"),
    words("Source"),
    words("Difficulty"),
    number("Rollouts"),
    percent("Acc"),
    percent("NCR"),
    percent("NCR right", hint="mean NCR of the rollouts whose answer is right"),
    percent("NCR wrong", hint="mean NCR of the rollouts whose answer is wrong"),
    number("Nodes"),
    words("Each node reached", hint="share of the rollouts that reached it"),
)


def problem_section(problems: Sequence[ProblemSummary], anchors: Mapping[str, str]) -> Section:
    """Return the table, the problems in which Acc and NCR disagree most first.

    ``anchors`` has for a problem id the element id of a rollout in the page.
    """
    ordered = sorted(problems, key=lambda p: (-p.surprise, p.problem_id))[:MAX_ROWS]
    notes = (
        (f"The {len(ordered):,} of {len(problems):,} problems in which Acc and NCR disagree most.",)
        if len(ordered) < len(problems)
        else ()
    )
    rows: list[Row] = [
        [
            Cell(one.problem_id, href=f"#{anchors[one.problem_id]}")
            if one.problem_id in anchors
            else one.problem_id,
            one.data_source,
            one.difficulty,
            one.rollouts,
            one.acc,
            one.ncr,
            one.ncr_right,
            one.ncr_wrong,
            len(one.node_rates),
            _rates(one),
        ]
        for one in ordered
    ]
    table = Table("Problems", _PROBLEM_COLUMNS, [rows], sortable=True)
    return Section(
        "problems",
        "Problems",
        (
            "Sorted by how far Acc and NCR disagree; the headings sort otherwise. Bars: how many "
            "of the rollouts reached each node, in node order. A link leads to a rollout below.",
        ),
        tables=(table.without_empty_columns(),),
        notes=notes,
    )


def _rates(problem: ProblemSummary) -> Cell:
    """Return one bar a node; it sorts by the node that is reached least."""
    rates = problem.node_rates
    if not rates:
        return Cell("no nodes")
    bars = []
    for at, rate in enumerate(rates):
        label = problem.labels[at] if at < len(problem.labels) else ""
        final = ", final answer" if at < len(problem.is_final) and problem.is_final[at] else ""
        x, height = at * _STEP, rate * _HEIGHT
        back = element("rect", class_="rate-back", x=x, y=0.0, width=_BAR, height=_HEIGHT)
        bar = element("rect", class_="rate", x=x, y=_HEIGHT - height, width=_BAR, height=height)
        tip = f"node {at + 1} ({label[:60]}{final}): {100 * rate:.0f} %"
        bars.append(element("g", back, bar, data_tip=tip))
    said = ", ".join(f"{100 * rate:.0f} %" for rate in rates)
    picture = element(
        "svg",
        *bars,
        class_="rates",
        viewBox=f"0 0 {len(rates) * _STEP:g} {_HEIGHT:g}",
        role="img",
        aria_label=f"nodes reached: {said}",
    )
    return Cell(min(rates), picture=picture)


def write_report(
    scored: ScoredSet,
    dataset: str | os.PathLike[str],
    output: str | os.PathLike[str],
    settings: ReportSettings | None = None,
    *,
    figures: EvaluationSettings | None = None,
    progress: Callable[[int], None] = lambda done: None,
) -> WrittenReport:
    """Write the page about scored rollouts, complete or not at all.

    Args:
        scored: at least one rollout, scored with spans; its files are read again.
        progress: told how many problems are probed.

    Raises:
        InputError: a file has changed since, or the output cannot be written.
    """
    page = gather(scored, dataset, settings or ReportSettings(), figures, progress)
    written = render(page)
    with atomic_file(output) as stream:
        stream.write(written)
    return WrittenReport(
        os.fspath(output), len(written), len(scored.rollouts), len(page.views), page.warnings
    )


def gather(
    scored: ScoredSet,
    dataset: str | os.PathLike[str],
    settings: ReportSettings,
    figures: EvaluationSettings | None,
    progress: Callable[[int], None],
) -> Page:
    """Return the page about scored rollouts; the arguments are those of :func:`write_report`."""
    on_error = scored.on_error
    name = os.fspath(dataset)
    evaluation = evaluate(scored, dataset=name, settings=figures)
    rule = settings.answer_rule
    # Answers are read a second time only where that can matter.
    readings = None if read_leniently(scored, rule) else read_answers(scored, rule)
    diagnosed = diagnose(scored, readings=readings)
    diagnoses = {
        (rollout.file, rollout.row): found
        for rollout, found in zip(scored.rollouts, diagnosed.verdicts, strict=True)
    }
    chosen = choose(scored.rollouts, diagnoses, settings.max_rollouts)
    views = view_rollouts(scored, chosen, dataset, diagnoses, settings)
    index = DatasetIndex.load(dataset, on_error=on_error)
    probe = None
    if not settings.no_probes:
        survey = RolloutSurvey(index)
        for chunk in chunks(_judged_rows(scored)):
            survey.take(chunk)
        probe = probe_dataset(
            dataset,
            None,
            ProbeSettings(on_error=on_error),
            index=index,
            survey=survey,
            progress=progress,
        )
    return Page(
        title=settings.title or f"ConsensusBench report: {Path(name).name}",
        facts=facts_of(scored, evaluation, name, index.digest),
        warnings=(*warnings_of(scored), *(() if probe is None else cheap_notes(probe.cheap))),
        sections=_sections(scored, evaluation, diagnosed, probe, views),
        views=tuple(views),
        choice=_choice(scored, views),
        footer=(
            f"Made by consensusbench {VERSION}. The page is complete in itself: it loads "
            "nothing and sends nothing.",
        ),
    )


def _judged_rows(scored: ScoredSet) -> Iterator[DataRow]:
    """Yield the rollouts' rows, each labelled as it was judged here."""
    for rollout, row in scored.rows():
        yield (
            row if rollout.acc is None or rollout.undecided else row | {"correct": rollout.acc == 1}
        )


def _sections(
    scored: ScoredSet,
    evaluation: Evaluation,
    diagnosed: DiagnosisReport,
    probe: ProbeReport | None,
    views: Sequence[RolloutView],
) -> tuple[Section, ...]:
    anchors: dict[str, str] = {}
    for view in views:
        anchors.setdefault(view.rollout.problem_id, view.anchor)
    problems = summarize_problems(scored.rollouts, scored.problems)
    return (
        results_section(evaluation),
        distribution_section(scored.rollouts, scored.problems),
        reward_section(scored.rollouts),
        *(() if probe is None else (probe_section(probe),)),
        diagnosis_section(diagnosed),
        problem_section(problems, anchors),
    )


def _choice(scored: ScoredSet, views: Sequence[RolloutView]) -> str:
    if len(views) == len(scored.rollouts):
        chosen = f"All {len(views):,} rollouts."
    else:
        chosen = (
            f"{len(views):,} of {len(scored.rollouts):,} rollouts, chosen so that every model "
            "shows every kind: half of them those in which accuracy and coverage disagree most, "
            "half of them picked evenly."
        )
    if any(view.rollout.matched for view in views) and not views[-1].rollout.matched:
        chosen += " Those without nodes come last."
    cut = sum(view.left_out > 0 for view in views)
    left_out = sum(view.left_out for view in views)
    if cut:
        chosen += (
            f" Of {cut:,} long ones, {left_out:,} characters are left out, away from the hits."
        )
    return chosen + " The first place of each node is marked with its colour and its number."
