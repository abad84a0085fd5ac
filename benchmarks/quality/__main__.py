"""How well NCR finds gold equations of GSM8K: ``python -m benchmarks.quality``.

Nodes are matched with rollouts without a server: the figures are those of the core and of the
guard.  A *family* is the rollouts that models of one kind wrote for GSM8K's test problems.  Recall
and false positives are pooled over nodes.  ``--write docs/quality.md`` updates the tables there.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from benchmarks.markdown import demand, page_parser, publish, share, table
from benchmarks.quality.data import (
    CALCULATOR,
    GOLD_NODES,
    ROLLOUTS,
    Response,
    as_program,
    read_gold,
    read_responses,
    write_dataset,
)
from benchmarks.texts import json_lines
from consensusbench.construction.budgets import Stated, budget_of, stated_in
from consensusbench.evaluation.metrics import within_problems
from consensusbench.quality.attacks import Attack
from consensusbench.quality.probes import ProbeReport, probe_dataset
from consensuspr.core import BatchResult, Matcher, match_batch
from consensuspr.data import Node, Problem
from consensuspr.scoring.guard import (
    GuardBudget,
    GuardCounts,
    counted,
    factors_of,
    figures_of,
    length_of,
)

CODE_WRITERS = "the same as programs"
# Of right rollouts alone: whether the guard lowers them.
GUARDED_FILES = {
    **ROLLOUTS,
    "MATH, Qwen2.5-Math": Path("data/rollouts/math100_qwen25math.jsonl.gz"),
    "AIME, GPT-4o and Claude 3.5": Path("data/rollouts/aime24_gpt4o_claude35.jsonl.gz"),
    "AIME, Qwen3, half of it thinking": Path("data/rollouts/aime24_qwen3_32b.jsonl.gz"),
    "MATH, R1 distilled, thinking": Path("data/rollouts/math_r1distill_long.jsonl.gz"),
    "Olympiad, very long": Path("data/rollouts/olympiad_gptoss120b_very_long.jsonl.gz"),
}
# Nodes of a problem if a file has none: the average that construction keeps.
USUAL_NODES = 4
# Rollouts from which on a budget is stored, as construction asks for.
MIN_SOURCES = 3
# Of one matcher that looks for the nodes of many problems.
POOL_NODES = 1000


@dataclass(frozen=True, slots=True)
class FamilyFigures:
    """Figures of gold nodes on one family's rollouts, with statements or without.

    ``auroc`` and ``within`` are pairs: over all nodes, and without the final ones; guarded.
    ``raw`` is the pair of pooled ones without the guard.
    """

    rollouts: int
    right: int
    recall: float
    false_positives: float
    auroc: tuple[float, float]
    raw: tuple[float, float]
    within: tuple[float, float]
    length: tuple[float, float]
    right_lowered: float


def families(shared: Path) -> dict[str, list[Response]]:
    """Return the families: both files, the models of the second, and both files as programs."""
    known = {problem.problem_id for problem in read_gold(shared)}
    found = {name: read_responses(shared / path, known) for name, path in ROLLOUTS.items()}
    for response in list(found.values())[1]:
        found.setdefault(response.model, []).append(response)
    for name in ROLLOUTS:
        programs = ((one, as_program(one.text)) for one in found[name])
        found[f"{name}, {CODE_WRITERS}"] = [
            replace(one, text=text) for one, text in programs if text is not None
        ]
    return found


def measure(
    problems: Sequence[Problem], responses: Sequence[Response], statements: bool
) -> FamilyFigures:
    """Match responses with the nodes of problems, with or without the statement channel."""
    number_of = {problem.problem_id: at for at, problem in enumerate(problems)}
    problem = np.array([number_of[one.problem_id] for one in responses])
    texts = [one.text for one in responses]
    right = np.array([one.correct for one in responses])
    matchers = [_matcher(one.nodes, statements) for one in problems]
    found = match_batch([matchers[at] for at in problem], texts)
    hits = [found.matched(at) for at in range(len(texts))]
    inner = [
        hit[[not node.is_final for node in problems[at].nodes]]
        for hit, at in zip(hits, problem, strict=True)
    ]
    guard = _guard(found, [len(problems[at].nodes) for at in problem], texts)
    raw = [np.array([row.mean() if len(row) else np.nan for row in rows]) for rows in (hits, inner)]
    every, without_final = (_aurocs(ncr * guard, right, problem) for ncr in raw)
    reached = np.concatenate([row for row, is_right in zip(hits, right, strict=True) if is_right])
    return FamilyFigures(
        rollouts=len(texts),
        right=int(right.sum()),
        recall=float(reached.mean()),
        false_positives=_false_positives(problems, problem, texts, statements),
        auroc=(every[0], without_final[0]),
        raw=(_aurocs(raw[0], right, problem)[0], _aurocs(raw[1], right, problem)[0]),
        within=(every[1], without_final[1]),
        length=_aurocs(np.array([float(len(text)) for text in texts]), right, problem),
        right_lowered=float((guard[right] < 1).mean()),
    )


def _false_positives(
    problems: Sequence[Problem], problem: np.ndarray, texts: Sequence[str], statements: bool
) -> float:
    """Return the share of the nodes of all other problems that texts hit."""
    owned = [(at, node) for at, one in enumerate(problems) for node in one.nodes]
    false = total = 0
    for start in range(0, len(owned), POOL_NODES):
        part = owned[start : start + POOL_NODES]
        owners = np.array([owner for owner, _ in part])
        found = match_batch([_matcher([n for _, n in part], statements)] * len(texts), texts)
        for at, own in enumerate(problem):
            false += int(found.matched(at)[owners != own].sum())
            total += int((owners != own).sum())
    return false / total


def _matcher(nodes: Sequence[Node], statements: bool) -> Matcher:
    return Matcher(
        [node.expressions for node in nodes],
        statements=statements,
        derived=[node.derived or () for node in nodes],
        code="computed",  # the programs are made without the results of their sources
    )


def _guard(found: BatchResult, nodes: Sequence[int], texts: Sequence[str]) -> np.ndarray:
    return np.array(factors_of(counted(found), [None] * len(texts), nodes, texts))


def _aurocs(values: np.ndarray, right: np.ndarray, problem: np.ndarray) -> tuple[float, float]:
    """Return the pooled AUROC and the one within problems."""
    known = ~np.isnan(values)
    values, right, problem = values[known], right[known], problem[known]
    pooled = within_problems(values, right, np.zeros(len(values), np.int64), 0.95).value
    within = within_problems(values, right, problem, 0.95).value
    assert pooled is not None and within is not None, "there are right and wrong rollouts"
    return pooled, within


def families_table(problems: Sequence[Problem], named: Mapping[str, Sequence[Response]]) -> str:
    """Return a row for each family."""
    rows = []
    for name, responses in named.items():
        off, on = (measure(problems, responses, statements) for statements in (False, True))
        rows.append(
            [
                name,
                f"{on.rollouts:,}, {on.right:,}",
                f"{share(off.recall)} → **{share(on.recall)}**",
                f"{off.false_positives:.2%} → {on.false_positives:.2%}",
                f"**{_pair(on.auroc)}**" + ("" if on.auroc == on.raw else f" ({_pair(on.raw)})"),
                _pair(off.auroc),
                f"{share(on.within[0])} / **{share(on.within[1])}**",
                _pair(on.length),
                f"{on.right_lowered:.2%}",
            ]
        )
    headings = (
        "writers", "rollouts, right", "recall", "false positives", "AUROC / without final",
        "patterns alone", "within problems / without final", "length alone: pooled / within",
        "right ones lowered",
    )  # fmt: skip
    return table(headings, rows, 1)


def _pair(values: tuple[float, float]) -> str:
    return " / ".join(map(share, values))


def measure_attacks(shared: Path) -> tuple[ProbeReport, ProbeReport]:
    """Probe the gold nodes, with the default budget and with stored ones."""
    problems = read_gold(shared)
    known = {problem.problem_id for problem in problems}
    most: dict[str, Stated] = {}
    for path in ROLLOUTS.values():
        for one in read_responses(shared / path, known):
            if one.correct:
                stated = most.get(one.problem_id, Stated())
                most[one.problem_id] = stated.most(stated_in([one.text]))
    stored = [
        replace(problem, budget=budget_of(most[problem.problem_id], len(problem.nodes)))
        if problem.problem_id in most
        else problem
        for problem in problems
    ]
    rollouts = [shared / path for path in ROLLOUTS.values()]
    with TemporaryDirectory(prefix="quality-") as folder:
        path = Path(folder) / "gold.jsonl"
        default = probe_dataset(write_dataset(path, problems), rollouts)
        return default, probe_dataset(write_dataset(path, stored), rollouts)


def attacks_table(default: ProbeReport, stored: ProbeReport) -> str:
    """Return a row for each attack, and the NCR of wrong rollouts."""
    rows = []
    for attack in Attack:
        report, figures = default.attack(attack), default.attack(attack).overall
        shares = (figures.ncr_raw, figures.ncr, stored.attack(attack).overall.ncr)
        rows.append([report.description, f"{figures.mean_chars:,.0f}", *map(share, shares)])
    (wrong,), (wrong_stored,) = default.wrong.values(), stored.wrong.values()
    shares = (wrong.ncr_raw, wrong.ncr, wrong_stored.ncr)
    rows.append(["wrong rollouts, to compare with", "–", *map(share, shares)])
    return table(["text", "characters", "unguarded", "default budget", "stored budget"], rows, 1)


def guard_table(shared: Path) -> str:
    """Return for each file how many right rollouts the guard lowers.

    A stored budget is made of the other right rollouts of a problem, of other models' alone if
    there are any.
    """
    rows = []
    for name, path in GUARDED_FILES.items():
        right = [row for row in json_lines(shared / path) if row["correct"]]
        texts = [CALCULATOR.sub("", row["response"]) for row in right]
        found = match_batch([Matcher([])] * len(texts), texts)
        guard = _guard(found, [USUAL_NODES] * len(texts), texts)
        stated = [
            Stated(count.statements, count.numbers, len(text))
            for count, text in zip(counted(found), texts, strict=True)
        ]
        budgets = [_held_out(right, stated, at) for at in range(len(right))]
        lowered = [
            _lowered(row["response"], budget)
            for row, budget in zip(right, budgets, strict=True)
            if budget is not None
        ]
        roots = np.sqrt([len(text) for text in texts])
        rows.append(
            [
                name,
                f"{len(texts):,}",
                f"{np.median(roots**2):,.0f}",
                f"{np.percentile(found.num_values / roots, 99):.2f}",
                f"{np.percentile(found.num_numbers / roots, 99):.2f}",
                f"**{(guard < 1).mean():.2%}**",
                f"{guard.min():.2f}",
                f"{np.mean(lowered):.2%} of {len(lowered):,}" if lowered else "–",
            ]
        )
    headings = (
        "right rollouts of", "there are", "characters, median", "s/√L, 99th percentile",
        "m/√L, 99th percentile", "lowered, default budget", "lowest factor",
        "lowered, stored budget",
    )  # fmt: skip
    return table(headings, rows, 1)


def _held_out(
    rows: Sequence[dict[str, str]], stated: Sequence[Stated], at: int
) -> GuardBudget | None:
    """Return the budget that the other rollouts of a rollout's problem make."""
    same = [n for n, row in enumerate(rows) if row["problem_id"] == rows[at]["problem_id"]]
    foreign = [n for n in same if rows[n]["model"] != rows[at]["model"]]
    sources = foreign or [n for n in same if n != at]
    most = Stated()
    for source in sources:
        most = most.most(stated[source])
    return budget_of(most, USUAL_NODES) if len(sources) >= MIN_SOURCES else None


def _lowered(response: str, budget: GuardBudget) -> bool:
    """Return whether a stored budget lowers the NCR of a response."""
    stated, length = stated_in([response]), length_of(response)
    counts = GuardCounts(stated.statements, stated.numbers, 0)
    return figures_of(counts, budget, USUAL_NODES, length).factor < 1


def main() -> int:
    """Run the benchmark; return the exit code."""
    arguments = page_parser("benchmarks.quality", __doc__).parse_args()
    shared = demand([GOLD_NODES, *GUARDED_FILES.values()])
    blocks = {
        "writers": families_table(read_gold(shared), families(shared)),
        "hacks": attacks_table(*measure_attacks(shared)),
        "guard": guard_table(shared),
    }
    publish(blocks, arguments.write)
    return 0


if __name__ == "__main__":
    sys.exit(main())
