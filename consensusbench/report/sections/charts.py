"""Distributions, positions and rewards, for all rollouts and for each model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

from consensusbench.evaluation.columns import UNKNOWN, label_order
from consensusbench.report.charts.accuracy_scatter import accuracy_scatter
from consensusbench.report.charts.alpha_sensitivity import alpha_charts
from consensusbench.report.charts.chart import Chart
from consensusbench.report.charts.distributions import (
    length_distribution,
    ncr_distribution,
    tpn_distribution,
)
from consensusbench.report.charts.position_curves import node_order, text_position
from consensusbench.report.page import Scope, Section
from consensusbench.report.problems import summarize_problems

if TYPE_CHECKING:
    from consensusbench.evaluation.scored import ProblemFacts, ScoredRollout

Rollouts: TypeAlias = "Sequence[ScoredRollout]"

# Models that get charts of their own: those with the most rollouts.
MAX_MODELS = 12


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

    def charts(own: Rollouts) -> tuple[Chart, ...]:
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
    charts: Callable[[Rollouts], tuple[Chart, ...]],
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


def _scope(name: str, title: str, charts: Sequence[Chart]) -> Scope:
    """Return the charts that show something, and a line about each of the others."""
    return Scope(
        name,
        title,
        tuple(chart for chart in charts if chart.svg is not None),
        tuple(f"{chart.title}: {chart.empty}" for chart in charts if chart.svg is None),
    )
