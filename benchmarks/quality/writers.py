"""Who writes must not matter: gold nodes by family of writers, what cheap texts earn, the guard.

Everything is matched in this process, without a server: the figures are those of the core and of
the guard.  A *family* is what models of one kind wrote about GSM8K's test problems.  Program code
is rare in the outside data, so that a set of it is made by rule: each step that a solution writes
as an equation becomes a line of Python, with names in place of what was worked out before, in one
of three styles (:func:`as_program`).  It has the steps of its source and not one of its words.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from benchmarks.markdown import table
from benchmarks.quality.measure import (
    CALCULATOR,
    ROLLOUTS,
    Response,
    pool,
    read_gold,
    read_responses,
    write_dataset,
)
from benchmarks.texts import json_lines
from consensusbench.construction.budgets import Stated, budget_of, stated_in
from consensusbench.evaluation.metrics import within_problems
from consensusbench.extraction.rules import read_chains
from consensusbench.extraction.statements import Truth, truth_of
from consensusbench.quality.attacks import Attack
from consensusbench.quality.probes import ProbeReport, ProbeSettings, probe_dataset
from consensuspr.core import BatchResult, Matcher, match_batch
from consensuspr.data import Node, Problem
from consensuspr.scoring.guard import GuardBudget, allowed, counted, factors, factors_of, length_of

CODE_WRITERS = "the same as programs"
# Of right rollouts alone: whether the guard lowers them.
GUARDED_FILES = (
    *ROLLOUTS.items(),
    ("MATH, Qwen2.5-Math", Path("data/rollouts/math100_qwen25math.jsonl.gz")),
    ("AIME, GPT-4o and Claude 3.5", Path("data/rollouts/aime24_gpt4o_claude35.jsonl.gz")),
    ("AIME, Qwen3, half of it thinking", Path("data/rollouts/aime24_qwen3_32b.jsonl.gz")),
    ("MATH, R1 distilled, thinking", Path("data/rollouts/math_r1distill_long.jsonl.gz")),
    ("Olympiad, very long", Path("data/rollouts/olympiad_gptoss120b_very_long.jsonl.gz")),
)
# Nodes of a problem where a file has none of its own: what construction keeps on average.
USUAL_NODES = 4

_NUMBER = re.compile(r"\d+(?:\.\d+)?")
_ARITHMETIC = re.compile(r"[\d.()+*/^-]+")


def as_program(response: str) -> str | None:
    """Return the steps of a response as Python, None where it writes none as an equation."""
    names: dict[str, str] = {}
    lines: list[str] = []
    seen: set[str] = set()
    for chain in read_chains(response):
        for link in chain:
            step = _step(link.left, link.right)
            if link.relation not in "=≈" or step is None or step in seen:
                continue
            seen.add(step)
            name = f"step_{len(lines) + 1}"
            worked_out = _NUMBER.sub(lambda number: names.get(number[0], number[0]), step)
            lines.append(f"{name} = {worked_out.replace('^', '**')}")
            # A value that was given may come again: what was worked out last is meant.
            names[link.right if _NUMBER.fullmatch(link.right) else link.left] = name
    if not lines:
        return None
    last = f"step_{len(lines)}"
    style = hashlib.blake2b(response.encode(), digest_size=1).digest()[0] % 3
    if style == 0:
        code = "\n".join(["```python", *lines, f"print({last})", "```"])
    elif style == 1:
        body = "\n".join(f"    {line}" for line in [*lines, f"return {last}"])
        code = f"```python\ndef solution():\n{body}\n\nprint(solution())\n```"
    else:
        code = "\n".join([*lines, f"print({last})"]) + "\n"
    return f"{code}\n"


def _step(left: str, right: str) -> str | None:
    """Return the side of an equation that is worked out; None where neither or both are."""
    for side, other in ((left, right), (right, left)):
        if (
            _NUMBER.fullmatch(other)
            and _ARITHMETIC.fullmatch(side)
            and not _NUMBER.fullmatch(side)
            and truth_of(f"{side}={other}") in (Truth.TRUE, Truth.ROUNDED)
        ):
            return side.lstrip("+")
    return None


@dataclass(frozen=True, slots=True)
class FamilyFigures:
    """What gold nodes say of one family's rollouts, with statements or without.

    ``auroc`` and ``within`` are pairs: over all nodes, and without the final ones; guarded.
    ``raw`` is the pair of pooled ones without the guard.
    """

    name: str
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
    known = {problem.problem_id for problem in read_gold(shared, derive=False)}
    found: dict[str, list[Response]] = {}
    for name, path in ROLLOUTS.items():
        found[name] = read_responses(shared / path, known)
    for one in list(found.values())[1]:
        found.setdefault(one.model, []).append(one)
    for name in ROLLOUTS:
        programs = ((one, as_program(one.text)) for one in found[name])
        found[f"{name}, {CODE_WRITERS}"] = [
            replace(one, text=text) for one, text in programs if text is not None
        ]
    return found


def measure_families(
    shared: Path, named: Iterable[tuple[str, Sequence[Response]]], statements: bool
) -> list[FamilyFigures]:
    """Match each family with the gold nodes, with or without the statement channel."""
    problems = {problem.problem_id: problem for problem in read_gold(shared)}
    matchers = {
        problem_id: _matcher(problem.nodes, statements) for problem_id, problem in problems.items()
    }
    pools = [
        (_matcher(one.problem.nodes, statements), np.array(one.owners, dtype=object))
        for one in pool(list(problems.values()))
    ]
    figures = []
    for name, responses in named:
        texts = [one.text for one in responses]
        found = match_batch([matchers[one.problem_id] for one in responses], texts)
        hits = [found.matched(at) for at in range(len(texts))]
        own = [problems[one.problem_id] for one in responses]
        inner = [
            row[[not node.is_final for node in problem.nodes]]
            for row, problem in zip(hits, own, strict=True)
        ]
        guard = _guard(found, [len(problem.nodes) for problem in own], texts)
        right = np.array([one.correct for one in responses])
        false = total = 0
        for matcher, owners in pools:
            pooled = match_batch([matcher] * len(texts), texts)
            for at, one in enumerate(responses):
                other = owners != one.problem_id
                false += int(pooled.matched(at)[other].sum())
                total += int(other.sum())
        numbers = {problem_id: at for at, problem_id in enumerate(problems)}
        of = np.array([numbers[one.problem_id] for one in responses])
        raw = [_ncr(rows) for rows in (hits, inner)]
        pairs = [_aurocs(ncr * guard, right, of) for ncr in raw]
        reached = np.concatenate(
            [row for row, is_right in zip(hits, right, strict=True) if is_right]
        )
        figures.append(
            FamilyFigures(
                name,
                len(texts),
                int(right.sum()),
                float(reached.mean()),
                false / total,
                (pairs[0][0], pairs[1][0]),
                (_aurocs(raw[0], right, of)[0], _aurocs(raw[1], right, of)[0]),
                (pairs[0][1], pairs[1][1]),
                _aurocs(np.array([float(len(text)) for text in texts]), right, of),
                float((guard[right] < 1).mean()),
            )
        )
    return figures


def _matcher(nodes: Sequence[Node], statements: bool) -> Matcher:
    return Matcher(
        [node.expressions for node in nodes],
        statements=statements,
        derived=[node.derived or () for node in nodes],
        code="computed",  # the programs are made without the results of their sources
    )


def _ncr(rows: Sequence[np.ndarray]) -> np.ndarray:
    return np.array([row.mean() if len(row) else np.nan for row in rows])


def _guard(found: BatchResult, nodes: Sequence[int], texts: Sequence[str]) -> np.ndarray:
    return factors_of(*counted(found), [None] * len(texts), nodes, texts)


def _aurocs(values: np.ndarray, right: np.ndarray, problem: np.ndarray) -> tuple[float, float]:
    """Return the pooled AUROC and the one within problems."""
    known = ~np.isnan(values)
    values, right, problem = values[known], right[known], problem[known]
    pooled = within_problems(values, right, np.zeros(len(values), np.int64), 0.95).value
    within = within_problems(values, right, problem, 0.95).value
    assert pooled is not None and within is not None, "there are right and wrong rollouts"
    return pooled, within


def families_table(off: Sequence[FamilyFigures], on: Sequence[FamilyFigures]) -> str:
    """Return a row for each family."""
    headings = (
        "writers", "rollouts, right", "recall", "false positives", "AUROC / without final",
        "patterns alone", "within problems / without final", "length alone: pooled / within",
        "right ones lowered",
    )  # fmt: skip
    rows = [
        [
            new.name,
            f"{new.rollouts:,}, {new.right:,}",
            f"{_share(old.recall)} → **{_share(new.recall)}**",
            f"{old.false_positives:.2%} → {new.false_positives:.2%}",
            f"**{_pair(new.auroc)}**" + ("" if new.auroc == new.raw else f" ({_pair(new.raw)})"),
            _pair(old.auroc),
            f"{_share(new.within[0])} / **{_share(new.within[1])}**",
            _pair(new.length),
            f"{new.right_lowered:.2%}",
        ]
        for old, new in zip(off, on, strict=True)
    ]
    return table(headings, rows, 1)


def _share(value: float) -> str:
    return f"{value:.3f}".replace("0.", ".", 1)


def _pair(values: tuple[float, float]) -> str:
    return " / ".join(map(_share, values))


def measure_attacks(shared: Path, folder: Path) -> tuple[ProbeReport, ProbeReport]:
    """Probe the gold nodes, with the default budget and with stored ones."""
    problems = read_gold(shared)
    known = {problem.problem_id for problem in problems}
    most: dict[str, Stated] = {}
    for path in ROLLOUTS.values():
        for one in read_responses(shared / path, known):
            if one.correct:
                stated = most.get(one.problem_id, Stated())
                most[one.problem_id] = stated.most(stated_in([one.text]))
    stored = [_with_budget(problem, most.get(problem.problem_id)) for problem in problems]
    reports = []
    for name, dataset in (("default", problems), ("stored", stored)):
        path = folder / f"{name}.jsonl"
        write_dataset(path, dataset)
        rollouts = [shared / file for file in ROLLOUTS.values()]
        reports.append(probe_dataset(path, rollouts, ProbeSettings()))
    return reports[0], reports[1]


def _with_budget(problem: Problem, stated: Stated | None) -> Problem:
    if stated is None:
        return problem
    return replace(problem, budget=budget_of(stated, len(problem.nodes)))


def attacks_table(default: ProbeReport, stored: ProbeReport) -> str:
    """Return a row for each attack, and what wrong rollouts earn."""
    rows = [
        [
            default.attack(attack).description,
            f"{default.attack(attack).overall.mean_chars:,.0f}",
            *(
                _share(value)
                for value in (
                    default.attack(attack).overall.ncr_raw,
                    default.attack(attack).overall.ncr,
                    stored.attack(attack).overall.ncr,
                )
            ),
        ]
        for attack in Attack
    ]
    (wrong,), (wrong_stored,) = default.wrong.values(), stored.wrong.values()
    shares = [_share(value) for value in (wrong.ncr_raw, wrong.ncr, wrong_stored.ncr)]
    rows.append(["wrong rollouts, to compare with", "–", *shares])
    return table(["text", "characters", "unguarded", "default budget", "stored budget"], rows, 1)


def guard_table(shared: Path) -> str:
    """Return for each file how many right rollouts the guard lowers.

    A stored budget is made of the right rollouts of a problem but the one that is looked at, and
    of other models' alone where there are any; without one the default budget counts.
    """
    rows = []
    for name, path in GUARDED_FILES:
        right = [row for row in json_lines(shared / path) if row["correct"]]
        texts = [CALCULATOR.sub("", row["response"]) for row in right]
        found = match_batch([Matcher([])] * len(texts), texts)
        guard = _guard(found, [USUAL_NODES] * len(texts), texts)
        stated = [
            Stated(int(values), int(numbers), len(text))
            for values, numbers, text in zip(*counted(found), texts, strict=True)
        ]
        lowered, known = 0, 0
        for at, row in enumerate(right):
            budget = _held_out(right, stated, at, row)
            if budget is not None:
                known += 1
                lowered += _lowered(row["response"], budget)
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
                f"{lowered / known:.2%} of {known:,}" if known else "–",
            ]
        )
    headings = (
        "right rollouts of", "there are", "characters, median", "s/√L, 99th percentile",
        "m/√L, 99th percentile", "lowered, default budget", "lowest factor",
        "lowered, stored budget",
    )  # fmt: skip
    return table(headings, rows, 1)


def _held_out(
    rows: Sequence[dict[str, str]], stated: Sequence[Stated], at: int, row: dict[str, str]
) -> GuardBudget | None:
    same = [
        other
        for other in range(len(rows))
        if other != at and rows[other]["problem_id"] == row["problem_id"]
    ]
    foreign = [other for other in same if rows[other]["model"] != row["model"]]
    most = Stated()
    for other in foreign or same:
        most = most.most(stated[other])
    # As many rollouts as construction asks for.
    return budget_of(most, USUAL_NODES) if len(foreign or same) >= 3 else None


def _lowered(response: str, budget: GuardBudget) -> bool:
    """Return whether a stored budget lowers the NCR of a response."""
    stated = replace(stated_in([response]), length=length_of(response))
    limits = allowed([budget], [USUAL_NODES], [stated.length])
    return bool(factors([stated.statements], [stated.numbers], *limits)[0] < 1)
