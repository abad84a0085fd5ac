"""Metrics of scored rollouts: Acc, pass@k, NCR, TPN, and how well NCR predicts Acc.

:func:`evaluate` returns an :class:`Evaluation` with the metrics of all rollouts and of groups by
model, source and difficulty.  ``docs/guides/evaluate.md`` defines every figure.

AUROC and AUCPR are scikit-learn's ``roc_auc_score`` and ``average_precision_score`` with right
rollouts as positives.  Trapezoids under a precision-recall curve are not used: NCR has few
distinct values, and a line between two points of that curve is not achievable.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from typing import Any, Final

import numpy as np

from consensusbench import require
from consensusbench.evaluation.estimates import (
    LENGTH,
    MAX_NAMED,
    ONE_PROBLEM,
    REPLICATES,
    SHARE,
    Estimate,
    check_confidence,
    mean_estimate,
    percentile_interval,
    problem_weights,
    ratio_estimate,
)
from consensusbench.evaluation.scored import (
    UNKNOWN,
    Bools,
    Columns,
    Floats,
    Ints,
    ScoredSet,
    columns_of,
    label_order,
    per_node,
)
from consensusbench.tables import JsonResult
from consensuspr.errors import InputError
from consensuspr.scoring.types import Status
from consensuspr.version import VERSION

# Changes when a key of the JSON form is renamed, removed or gets another meaning.
SCHEMA: Final = "consensusbench.evaluation/2"
DIMENSIONS: Final = ("model", "source", "difficulty")
# A group beside those of the dimensions; there is one if some rollouts are not in it.
REASONING: Final = {"reasoning": "own reasoning"}

# Of intervals from 2, 3, 5 and 10 simulated problems at a level of 95 %, 44, 65, 83 and 90 % held
# the true AUROC.
MIN_PROBLEMS: Final = 10
# Reasons why a figure of consistency has no interval.
ONE_CLASS: Final = "no right or no wrong rollouts"
TOO_FEW: Final = "too few right or wrong rollouts for resampling"
FEW_PROBLEMS: Final = "fewer than 10 problems, too few for resampling"
ALL_ALIKE: Final = "all resamples give the same value"
_AUROC: Final = "measuring AUROC and AUCPR"


@dataclass(frozen=True, slots=True)
class EvaluationSettings:
    """Settings of figures; ``ks`` are those of pass@k, ascending and distinct."""

    ks: tuple[int, ...] = (1,)
    confidence: float = 0.95


def pass_at_k(samples: Ints, right: Ints, k: int) -> Floats:
    """Return the unbiased estimate of each problem (Chen et al. 2021, equation 1).

    Args:
        samples: (p,) number of samples n of each problem.
        right: (p,) number of right samples c, 0 <= c <= n.
        k: at least 1.

    Returns:
        (p,) values in [0, 1]; NaN if n < k.
    """
    # C(n-c, k) / C(n, k) as a product of k factors in [0, 1]: nothing overflows or cancels.
    if k > samples.max(initial=0):
        return np.full(len(samples), np.nan)
    all_wrong = np.ones(len(samples))
    for drawn in range(k):
        all_wrong *= np.maximum(samples - right - drawn, 0) / np.maximum(samples - drawn, 1)
    return np.where(samples >= k, 1.0 - all_wrong, np.nan)


def pass_at_k_estimate(
    acc: Floats, problem: Ints, k: int, confidence: float
) -> tuple[Estimate, list[int]]:
    """Return pass@k over the problems of rollouts, and the problems with fewer than k samples.

    NaN in ``acc`` is no sample.
    """
    known = ~np.isnan(acc)
    numbers, at = np.unique(problem, return_inverse=True)
    samples = np.bincount(at[known], minlength=len(numbers))
    right = np.bincount(at[known], weights=acc[known], minlength=len(numbers)).astype(np.int64)
    estimate = mean_estimate(pass_at_k(samples, right, k), numbers, confidence, bounds=SHARE)
    counted = replace(estimate, count=int(samples[samples >= k].sum()))
    return counted, numbers[samples < k].tolist()


@dataclass(frozen=True, slots=True)
class Consistency:
    """How NCR and Acc go together, over the rollouts that have both.

    ``figures`` are ``d_ncr`` (mean NCR of right minus that of wrong rollouts), ``auroc``,
    ``aucpr``, ``within`` (the AUROC within problems) and ``prevalence`` (the share of right ones).
    """

    figures: dict[str, Estimate]
    ncr_right: float | None
    ncr_wrong: float | None
    num_right: int
    num_wrong: int


def consistency_of(ncr: Floats, acc: Floats, problem: Ints, confidence: float) -> Consistency:
    """Measure how NCR and Acc go together; (n,) each, NaN if unknown."""
    known = ~(np.isnan(ncr) | np.isnan(acc))
    ncr, problem, right = ncr[known], problem[known], acc[known] == 1.0
    numbers, cluster = np.unique(problem, return_inverse=True)
    num_right, num_wrong = int(right.sum()), int((~right).sum())
    ncr_right = float(ncr[right].mean()) if num_right else None
    ncr_wrong = float(ncr[~right].mean()) if num_wrong else None
    no_value = Estimate(None, count=len(ncr), problems=len(numbers), no_interval=ONE_CLASS)
    figures = dict.fromkeys(("d_ncr", "auroc", "aucpr", "within"), no_value)
    if ncr_right is not None and ncr_wrong is not None:
        metrics = require("sklearn.metrics", _AUROC)
        values = {
            "d_ncr": ncr_right - ncr_wrong,
            "auroc": float(metrics.roc_auc_score(right, ncr)),
            "aucpr": float(metrics.average_precision_score(right, ncr)),
        }
        if len(numbers) < MIN_PROBLEMS:
            reason = ONE_PROBLEM if len(numbers) < 2 else FEW_PROBLEMS
            for name, value in values.items():
                figures[name] = replace(no_value, value=value, no_interval=reason)
        else:
            replicates = _replicates(ncr, right, cluster, len(numbers))
            for (name, value), drawn in zip(values.items(), replicates, strict=True):
                figures[name] = _resampled(replace(no_value, value=value), drawn, confidence)
        figures["within"] = within_problems(ncr, right, cluster, confidence)
    share_right = num_right / len(ncr) if len(ncr) else None
    figures["prevalence"] = replace(no_value, value=share_right, no_interval="")
    return Consistency(figures, ncr_right, ncr_wrong, num_right, num_wrong)


def within_problems(values: Floats, right: Bools, problem: Ints, confidence: float) -> Estimate:
    """Return the mean AUROC within problems that have right and wrong rollouts; (n,) each."""
    order = np.argsort(problem, kind="stable")
    values, right, problem = values[order], right[order], problem[order]
    starts = np.flatnonzero(np.diff(problem, prepend=-1, append=-1))
    mixed = [
        slice(start, end)
        for start, end in pairwise(starts.tolist())
        if 0 < right[start:end].sum() < end - start
    ]
    aurocs = np.array([auroc(values[part], right[part]) for part in mixed], dtype=np.float64)
    estimate = mean_estimate(aurocs, np.arange(len(mixed)), confidence, bounds=SHARE)
    return replace(estimate, count=sum(part.stop - part.start for part in mixed))


def auroc(values: Floats | Ints, right: Bools) -> float:
    """Return the chance that a right one has the higher value of a right and a wrong one."""
    above = values[right][:, None] - values[~right][None, :]
    return float((above > 0).mean() + (above == 0).mean() / 2)


def _resampled(estimate: Estimate, replicates: Floats, confidence: float) -> Estimate:
    interval = percentile_interval(replicates, confidence)
    if interval is None:
        return replace(estimate, no_interval=TOO_FEW)
    # Equal ends, as of an AUROC of 1: resampling cannot measure the distance from it.
    if interval[0] == interval[1]:
        return replace(estimate, no_interval=ALL_ALIKE)
    return replace(estimate, low=interval[0], high=interval[1], no_interval="")


def _replicates(ncr: Floats, right: Bools, cluster: Ints, problems: int) -> list[Floats]:
    """Return (r,) values of D_NCR, AUROC and AUCPR over resampled problems.

    All three follow from the counts of right and wrong rollouts by NCR, which are linear in how
    often each problem was drawn: a block of replicates is two products of matrices.
    """
    sparse = require("scipy.sparse", "resampling problems")
    levels, level = np.unique(ncr, return_inverse=True)
    counts = [
        sparse.csr_array(
            (np.ones(int(of.sum())), (cluster[of], level[of])), shape=(problems, len(levels))
        )
        for of in (right, ~right)
    ]
    blocks = [
        weighted_figures(levels, weights @ counts[0], weights @ counts[1])
        for weights in problem_weights(problems)
    ]
    return [np.concatenate(figures) for figures in zip(*blocks, strict=True)]


def weighted_figures(levels: Floats, right: Floats, wrong: Floats) -> tuple[Floats, Floats, Floats]:
    """Return D_NCR, AUROC and AUCPR of rollouts that are counted by their NCR.

    Args:
        levels: (v,) the distinct values of NCR, ascending.
        right: (b, v) right rollouts of each value, in each replicate.
        wrong: (b, v) wrong ones.

    Returns:
        Three (b,) arrays, NaN where a replicate lacks right or wrong rollouts.
    """
    all_right, all_wrong = right.sum(axis=1), wrong.sum(axis=1)
    both = (all_right > 0) & (all_wrong > 0)
    per_right = np.divide(1.0, all_right, out=np.full(len(both), np.nan), where=both)
    per_wrong = np.divide(1.0, all_wrong, out=np.full(len(both), np.nan), where=both)
    d_ncr = (right @ levels) * per_right - (wrong @ levels) * per_wrong
    # Mann and Whitney: wrong ones below each right one, and half of those level with it.
    below = np.cumsum(wrong, axis=1) - wrong / 2
    auroc = (right * below).sum(axis=1) * per_right * per_wrong
    # Everything at or above a value is called right; recall grows by the right ones at it.
    true = np.cumsum(right[:, ::-1], axis=1)[:, ::-1]
    called = true + np.cumsum(wrong[:, ::-1], axis=1)[:, ::-1]
    precision = np.divide(true, called, out=np.zeros_like(true), where=called > 0)
    aucpr = (right * precision).sum(axis=1) * per_right
    aucpr[~both] = np.nan
    return d_ncr, auroc, aucpr


@dataclass(frozen=True, slots=True)
class GroupMetrics(JsonResult):
    """All figures of one group of rollouts; ``docs/guides/evaluate.md`` defines them.

    Attributes:
        key: its label by dimension.
        num_undecided: answers that could not be decided, which count as wrong.
        num_right, num_wrong: of the rollouts that have an Acc and an NCR.
        num_without_match: rollouts none of whose nodes was found.
        left_out: of pass@k, how many problems have fewer than k samples, and the first of them.
        figures: by name.  NCR and its figures are guarded; ``_raw`` ones are not and are absent
            if the guard lowers nothing; ``_paper`` ones are of the paper's own NCR (patterns
            alone, no guard) and absent if unknown or the same.  ``_without_final`` ones are over
            the nodes that are not final.
    """

    key: dict[str, str]
    num_rollouts: int
    num_problems: int
    statuses: dict[str, int]
    num_undecided: int
    num_right: int
    num_wrong: int
    num_without_match: int
    left_out: dict[str, tuple[int, tuple[str, ...]]]
    figures: dict[str, Estimate]

    @property
    def acc_if_undecided_were_right(self) -> float | None:
        """Acc if every undecided answer were right."""
        acc = self.figures["acc"]
        return None if acc.value is None else acc.value + self.num_undecided / acc.count


def measure(
    columns: Columns,
    problem_ids: tuple[str, ...],
    key: dict[str, str],
    settings: EvaluationSettings,
) -> GroupMetrics:
    """Return all figures of some rollouts."""
    problem, acc, confidence = columns.problem, columns.acc, settings.confidence
    tokens, counts = columns.tokens, Counter(columns.status.tolist())

    def share(values: Floats) -> Estimate:
        return mean_estimate(values, problem, confidence, bounds=SHARE)

    def length(values: Floats) -> Estimate:
        return mean_estimate(values, problem, confidence, bounds=LENGTH)

    figures, left_out = {"acc": share(acc)}, {}
    for k in settings.ks:
        figures[f"pass@{k}"], few = pass_at_k_estimate(acc, problem, k, confidence)
        if few:
            names = tuple(problem_ids[number] for number in few[:MAX_NAMED])
            left_out[f"pass@{k}"] = len(few), names
    for suffix in ("_without_final", ""):
        nodes, hits, plain_hits = (
            getattr(columns, f"{name}{suffix}") for name in ("nodes", "hits", "plain_hits")
        )
        raw, paper = per_node(hits, nodes), per_node(plain_hits, nodes)
        ncr = raw * columns.guard
        kinds = {"": ncr}
        if (raw > ncr).any():
            kinds["_raw"] = raw
        # Over the same rollouts as ours, or not at all.
        if (np.isnan(paper) == np.isnan(ncr)).all() and (np.abs(paper - ncr) > 0).any():
            kinds["_paper"] = paper
        for kind, values in kinds.items():
            found = consistency_of(values, acc, problem, confidence)
            named = {"ncr": share(values), **found.figures}
            figures |= {f"{name}{kind}{suffix}": figure for name, figure in named.items()}
        counted = ~np.isnan(tokens) & (nodes > 0)
        pooled = tokens[counted], hits[counted].astype(np.float64), problem[counted]
        figures[f"tpn{suffix}"] = length(per_node(tokens, hits))
        figures[f"tpn_pooled{suffix}"] = ratio_estimate(*pooled, confidence, bounds=LENGTH)
    right = (acc == 1.0) & (columns.nodes > 0)
    lowered = (columns.guard[right] < 1.0).astype(np.float64)
    judged, chars = ~np.isnan(acc), columns.chars.astype(np.float64)
    figures |= {
        "right_lowered": mean_estimate(lowered, problem[right], confidence, bounds=SHARE),
        # The control: how well length alone predicts Acc.
        "length_within": within_problems(
            chars[judged], acc[judged] == 1.0, problem[judged], confidence
        ),
        "tokens": length(tokens),
        "chars": length(chars),
    }
    return GroupMetrics(
        key=key,
        num_rollouts=len(columns),
        num_problems=len(np.unique(problem)),
        statuses={status.value: counts[status.value] for status in Status if status in counts},
        num_undecided=int(columns.undecided.sum()),
        num_right=found.num_right,
        num_wrong=found.num_wrong,
        num_without_match=int(((nodes > 0) & (hits == 0)).sum()),
        left_out=left_out,
        figures=figures,
    )


@dataclass(frozen=True, slots=True)
class Breakdown(JsonResult):
    """Groups by one or two of :data:`DIMENSIONS`, or the one of :data:`REASONING`."""

    by: tuple[str, ...]
    groups: tuple[GroupMetrics, ...]


@dataclass(frozen=True, slots=True)
class Evaluation(JsonResult):
    """Metrics of rollouts on a dataset.

    ``identity`` is None if all rollouts were already scored; ``messages`` holds the message of
    the first rollout of each status other than OK.
    """

    settings: EvaluationSettings
    overall: GroupMetrics
    breakdowns: tuple[Breakdown, ...]
    dataset: str
    files: tuple[str, ...]
    identity: dict[str, object] | None
    num_stored: int
    skipped_rows: int
    num_problems_without_rollouts: int
    tokenizer: str | None
    num_tokenized: int
    messages: dict[str, str]

    def breakdown(self, *by: str) -> Breakdown | None:
        """Return the groups by exactly these dimensions, if there are any."""
        return next((found for found in self.breakdowns if found.by == by), None)

    def to_json(self) -> dict[str, Any]:
        """Return everything ready for ``json.dumps``."""
        row = JsonResult.to_json(self)
        settings: dict[str, Any] = row.pop("settings")
        return {"schema": SCHEMA, "version": VERSION, "replicates": REPLICATES} | settings | row


def evaluate(
    scored: ScoredSet,
    *,
    dataset: str = "",
    by: Sequence[str] = DIMENSIONS,
    settings: EvaluationSettings = EvaluationSettings(),
) -> Evaluation:
    """Evaluate scored rollouts.

    If some rollouts do not reason themselves (:func:`scored.reasons_itself`), the others are the
    first group.

    Args:
        by: dimensions to group by.  With ``model`` and several models, the others are given for
            each model.

    Raises:
        InputError: a dimension is unknown or a setting is out of its range.
    """
    check(by, settings)
    columns, problem_ids = columns_of(scored)
    crossed = "model" in by and len(np.unique(columns.model)) > 1
    breakdowns, own = [], columns.own_reasoning
    if own.any() and not own.all():
        group = measure(columns.where(own), problem_ids, REASONING, settings)
        breakdowns.append(Breakdown(tuple(REASONING), (group,)))
    for dimension in DIMENSIONS:
        if dimension in by and (getattr(columns, dimension) != UNKNOWN).any():
            keys = ("model", dimension) if crossed and dimension != "model" else (dimension,)
            breakdowns.append(Breakdown(keys, _groups(columns, problem_ids, keys, settings)))
    return Evaluation(
        settings=settings,
        overall=measure(columns, problem_ids, {}, settings),
        breakdowns=tuple(breakdowns),
        dataset=dataset,
        files=scored.files,
        identity=None if scored.identity is None else asdict(scored.identity),
        num_stored=scored.num_stored,
        skipped_rows=scored.skipped_rows,
        num_problems_without_rollouts=len(scored.problems.keys() - set(problem_ids)),
        tokenizer=scored.tokenizer,
        num_tokenized=scored.num_tokenized,
        messages={status.value: message for status, message in scored.messages.items()},
    )


def check(by: Sequence[str], settings: EvaluationSettings) -> None:
    """Check the settings before anything is scored.

    Raises:
        InputError: a setting is out of its range, or a package is missing.
    """
    require("sklearn.metrics", _AUROC)
    for dimension in by:
        if dimension not in DIMENSIONS:
            known = ", ".join(DIMENSIONS)
            raise InputError(f"groups are by {known}, not by {dimension!r}")
    check_confidence(settings.confidence)
    if not settings.ks or min(settings.ks) < 1 or list(settings.ks) != sorted(set(settings.ks)):
        raise InputError(f"k must be distinct, ascending and 1 or more, got {settings.ks}")


def _groups(
    columns: Columns,
    problem_ids: tuple[str, ...],
    by: tuple[str, ...],
    settings: EvaluationSettings,
) -> tuple[GroupMetrics, ...]:
    labels = [getattr(columns, dimension) for dimension in by]
    keys = sorted(
        set(zip(*[column.tolist() for column in labels], strict=True)),
        key=lambda key: [label_order(label) for label in key],
    )
    groups = []
    for key in keys:
        inside = np.logical_and.reduce([a == b for a, b in zip(labels, key, strict=True)])
        key_by = dict(zip(by, key, strict=True))
        groups.append(measure(columns.where(inside), problem_ids, key_by, settings))
    return tuple(groups)
