"""How good datasets of ``consensusbench build`` are: ``python -m benchmarks.construction``.

Each rollout is scored against nodes that were made without its model, or without itself where a
set has one model: a fold holds some rollouts out, all of one model, or every n-th rollout of each
problem where one model wrote the set, and nodes are made from the rest.  The tables are those of
``docs/quality.md``.
"""

from __future__ import annotations

import argparse
import operator
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import compress
from pathlib import Path

import numpy as np

from benchmarks.markdown import demand, page_parser, publish, table
from benchmarks.quality.measure import CALCULATOR, read_gold, write_dataset
from benchmarks.quality.writers import as_program
from consensusbench.construction import BuildJob, OutputPaths, SelectionSettings, build
from consensusbench.evaluation.agreement import Agreement, agreement_of_files
from consensusbench.evaluation.estimates import Estimate
from consensusbench.evaluation.metrics import Consistency, consistency_of, within_problems
from consensusbench.evaluation.scored import ScoredSet, score_files
from consensusbench.extraction.refine import PaperRefiner, RefineSettings
from consensusbench.extraction.rules import RulesExtractor, RulesSettings
from consensusbench.quality.attacks import Attack
from consensusbench.quality.probes import ProbeReport, probe_dataset
from consensuspr.data import Row, open_writer, read_rollouts
from consensuspr.errors import InputError

CONFIDENCE = 0.95
_HEADINGS = (
    "set", "nodes made from", "problems", "nodes (final)", "held out: right, wrong",
    "NCR right / wrong", "D_NCR", "AUROC", "AUCPR (chance)", "without final: D_NCR", "AUROC",
    "within problems", "length alone, within", "right ones lowered", "chance NCR",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class RolloutSet:
    """Rollouts that are evaluated together.

    Attributes:
        files: below the folder of outside data.
        folds: 0: leave one model out; n: leave every n-th rollout of a problem out.
        min_rollouts, min_support: where they are not the defaults.
        variants: how many of the variants are measured.
        held_as_programs, sources_as_programs: the held-out rollouts, or those that nodes are made
            from, are rewritten as program code by rule.
    """

    name: str
    files: tuple[str, ...]
    folds: int = 0
    min_rollouts: int = 3
    min_support: int = 2
    variants: int = 1
    held_as_programs: bool = False
    sources_as_programs: bool = False


_GSM8K = (
    "data/rollouts/gsm8k_gpt3.jsonl.gz",
    "data/rollouts/gsm8k_gpt4o_mini_and_older.jsonl.gz",
)
SETS = (
    RolloutSet("GSM8K", _GSM8K, variants=3),
    RolloutSet("GSM8K, programs by nodes of prose", _GSM8K, held_as_programs=True),
    RolloutSet("GSM8K, prose by nodes of programs", _GSM8K, sources_as_programs=True),
    RolloutSet("MATH", ("data/rollouts/math100_qwen25math.jsonl.gz",), folds=4),
    RolloutSet(
        "AIME 2024",
        (
            "data/rollouts/aime24_gpt4o_claude35.jsonl.gz",
            "data/rollouts/aime24_qwen3_32b.jsonl.gz",
        ),
    ),
    RolloutSet(
        "Olympiad, very long", ("data/rollouts/olympiad_gptoss120b_very_long.jsonl.gz",), folds=4
    ),
    RolloutSet(
        "MATH, long (one source)",
        ("data/rollouts/math_r1distill_long.jsonl.gz",),
        min_rollouts=1,
        min_support=1,
    ),
)


def read_set(one: RolloutSet, shared: Path) -> list[Row]:
    """Return the rollouts of a set, calculator calls taken out."""
    return [
        row | {"response": CALCULATOR.sub("", row["response"])}
        for file in one.files
        for row in read_rollouts(shared / file)
    ]


def splits_of(one: RolloutSet, rows: list[Row]) -> list[list[bool]]:
    """Return for each fold of a set which rollouts it holds out."""
    if not one.folds:
        models = sorted({row["model"] for row in rows})
        return [[row["model"] == model for row in rows] for model in models]
    seen: Counter[str] = Counter()
    places = []  # of each rollout among those of its problem
    for row in rows:
        places.append(seen[row["problem_id"]])
        seen[row["problem_id"]] += 1
    return [[place % one.folds == fold for place in places] for fold in range(one.folds)]


@dataclass(frozen=True, slots=True)
class Variant:
    """Settings of construction.

    Attributes:
        name: what is different.
        rollouts_per_problem: correct rollouts that are looked at; None for all.
        phrases, values: of :class:`RulesSettings`.
    """

    name: str
    rollouts_per_problem: int | None = None
    phrases: bool = True
    values: bool = True


VARIANTS = (
    Variant("all correct rollouts"),
    Variant("five of them (the default)", rollouts_per_problem=5),
    Variant("all, formulas only", phrases=False, values=False),
)


@dataclass(frozen=True, slots=True)
class Figures:
    """What one variant is worth on one set.

    Attributes:
        problems: that got nodes in at least one fold, of those there are.
        all_problems: of the set.
        nodes: a problem, over folds.
        finals: nodes that state the final answer, a problem.
        scored: held-out rollouts of problems with nodes.
        every, inner: consistency of NCR with Acc, over all nodes and without final ones.
        length: AUROC of length alone within problems; None without such problems.
        lowered: share of the right rollouts that the guard lowers.
        chance: NCR of rollouts of other problems; None where nothing was drawn.
    """

    problems: int
    all_problems: int
    nodes: float
    finals: float
    scored: int
    every: Consistency
    inner: Consistency
    length: Estimate
    lowered: float
    chance: float | None


def measure(
    one: RolloutSet, variant: Variant, shared: Path, report: Callable[[str], None]
) -> Figures:
    """Return the figures of a set; each rollout is scored once, by nodes made without it."""
    rows = read_set(one, shared)
    scored: list[ScoredSet] = []
    chance: list[tuple[float, int]] = []
    for number, held in enumerate(splits_of(one, rows), 1):
        report(f"{one.name}, {variant.name}: fold {number}")
        with tempfile.TemporaryDirectory(prefix="construction-") as name:
            sources, held_out = Path(name) / "sources.jsonl", Path(name) / "held-out.jsonl"
            kept, given = compress(rows, held), compress(rows, map(operator.not_, held))
            _write(held_out, _programs(kept) if one.held_as_programs else kept)
            _write(sources, _programs(given) if one.sources_as_programs else given)
            try:
                dataset = _build(one, variant, sources)
            except InputError as error:  # no problem has enough correct rollouts
                report(str(error))
                continue
            scored.append(score_files([held_out], dataset))
            chance += [
                (attack.overall.ncr, attack.overall.problems)
                for attack in probe_dataset(dataset, [held_out]).attacks
                if attack.attack is Attack.UNRELATED
            ]
    return _pooled(scored, chance, len({row["problem_id"] for row in rows}))


def _pooled(
    scored: Sequence[ScoredSet], chance: Sequence[tuple[float, int]], all_problems: int
) -> Figures:
    """Return the figures of the held-out rollouts of all folds together."""
    facts = [facts for fold in scored for facts in fold.problems.values()]
    known = [
        (
            rollout.problem_id,
            rollout.ncr,
            rollout.ncr_without_final(of_one),
            rollout.acc,
            rollout.num_chars,
            rollout.guard < 1,
        )
        for fold in scored
        for rollout in fold.rollouts
        if (of_one := fold.problems.get(rollout.problem_id)) is not None
        if rollout.ncr is not None and rollout.acc is not None
    ]
    number = {name: at for at, name in enumerate(dict.fromkeys(row[0] for row in known))}
    problem = np.array([number[row[0]] for row in known])
    ncr, inner, acc, chars, lowered = (
        np.array([row[at] for row in known], float) for at in (1, 2, 3, 4, 5)
    )
    weights = [count for _, count in chance]
    return Figures(
        problems=len(number),
        all_problems=all_problems,
        nodes=float(np.mean([len(one.node_ids) for one in facts])),
        finals=float(np.mean([sum(one.is_final) for one in facts])),
        scored=len(ncr),
        every=consistency_of(ncr, acc, problem, CONFIDENCE, 0),
        inner=consistency_of(inner, acc, problem, CONFIDENCE, 0),
        length=within_problems(chars, acc == 1, problem, CONFIDENCE),
        lowered=float(lowered[acc == 1].mean()),
        chance=float(np.average([rate for rate, _ in chance], weights=weights))
        if sum(weights)
        else None,
    )


@dataclass(frozen=True, slots=True)
class WholeFigures:
    """What nodes are worth that all rollouts of a set make.

    ``probes`` say what cheap texts earn, ``agreement`` is with the steps that people annotated.
    """

    variant: Variant
    probes: ProbeReport
    agreement: Agreement


def measure_whole(
    one: RolloutSet, shared: Path, report: Callable[[str], None]
) -> list[WholeFigures]:
    """Probe the nodes of a GSM8K set and compare them with its gold steps, by variant."""
    figures = []
    rows = read_set(one, shared)
    for variant in VARIANTS:
        report(f"{one.name}, {variant.name}: as a whole")
        with tempfile.TemporaryDirectory(prefix="construction-") as name:
            rollouts, gold = Path(name) / "rollouts.jsonl", Path(name) / "gold.jsonl"
            _write(rollouts, rows)
            write_dataset(gold, read_gold(shared))
            dataset = _build(one, variant, rollouts)
            probes = probe_dataset(dataset, [rollouts])
            figures.append(WholeFigures(variant, probes, agreement_of_files(dataset, gold)))
    return figures


def _programs(rows: Iterable[Row]) -> Iterator[Row]:
    """Rewrite rollouts as programs, with the answer that they gave; leave the rest out."""
    for row in rows:
        code = as_program(row["response"])
        if code is not None:
            yield row | {"response": f"{code}\n#### {row['final_answer']}"}


def _write(path: Path, rows: Iterable[Row]) -> None:
    with open_writer(path) as out:
        for row in rows:
            out.write(row)


def _build(one: RolloutSet, variant: Variant, rollouts: Path) -> Path:
    """Build a dataset from a file of rollouts, beside it; return its path."""
    dataset = rollouts.with_name("dataset.jsonl")
    rules = RulesSettings(
        min_support=one.min_support, phrases=variant.phrases, values=variant.values
    )
    build(
        BuildJob(
            (rollouts,),
            OutputPaths(dataset),
            RulesExtractor(rules),
            PaperRefiner(RefineSettings(min_support=one.min_support)),
            selection=SelectionSettings(
                rollouts_per_problem=variant.rollouts_per_problem, min_rollouts=one.min_rollouts
            ),
            workers=2,
        )
    )
    return dataset


def figures_table(rows: Iterable[tuple[str, str, Figures]]) -> str:
    """Return a row for each set and variant."""
    cells = []
    for name, variant, one in rows:
        every, inner = one.every, one.inner
        cells.append(
            [
                name,
                variant,
                f"{one.problems} of {one.all_problems}",
                f"{one.nodes:.2f} ({one.finals:.2f})",
                f"{every.num_right:,}, {every.num_wrong:,}",
                f"{_share(every.ncr_right)} / {_share(every.ncr_wrong)}",
                _share(every.d_ncr.value),
                f"**{_share(every.auroc.value)}**{_interval(every.auroc)}",
                f"{_share(every.aucpr.value)} ({_share(every.prevalence)})",
                _share(inner.d_ncr.value),
                f"**{_share(inner.auroc.value)}**{_interval(inner.auroc)}",
                f"**{_share(inner.within.value)}**{_interval(inner.within)}",
                _share(one.length.value),
                f"{one.lowered:.2%}",
                "–" if one.chance is None else f"{one.chance:.2%}",
            ]
        )
    return table(_HEADINGS, cells, 2)


def attacks_table(figures: Sequence[WholeFigures]) -> str:
    """Return a row for each attack: the NCR that it earns."""
    rows = [
        [attack.description] + [f"{one.probes.attacks[index].overall.ncr:.1%}" for one in figures]
        for index, attack in enumerate(figures[0].probes.attacks)
    ]
    return table(["text", *(one.variant.name for one in figures)], rows, 1)


def agreement_table(figures: Sequence[WholeFigures]) -> str:
    """Return a row for each variant: consistency, recall and precision."""
    rows = []
    for one in figures:
        shares = (one.agreement.consistency, one.agreement.recall, one.agreement.precision)
        cells = [f"{_share(share.value)}{_interval(share)}" for share in shares]
        rows.append([one.variant.name, f"{len(one.agreement.problems)}", *cells])
    return table(["nodes made from", "problems", "consistency", "recall", "precision"], rows, 1)


def _share(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}".replace("0.", ".", 1)


def _interval(estimate: Estimate) -> str:
    if estimate.low is None or estimate.high is None:
        return ""
    return f" ({_share(estimate.low)}–{_share(estimate.high)})"


def main() -> int:
    """Run the benchmark; return the exit code."""
    arguments = _arguments()
    demand(arguments.shared, [file for one in SETS for file in one.files])
    wanted = [one for one in SETS if arguments.only in (None, one.name)]
    rows: list[tuple[str, str, Figures]] = []
    for one in wanted:
        for variant in VARIANTS[: one.variants]:
            rows.append((one.name, variant.name, measure(one, variant, arguments.shared, _tell)))
            _tell(figures_table(rows[-1:]))
    blocks = {"construction": figures_table(rows)}
    if SETS[0] in wanted:
        whole = measure_whole(SETS[0], arguments.shared, _tell)
        blocks |= {"attacks": attacks_table(whole), "agreement": agreement_table(whole)}
    publish(blocks, arguments.write)
    return 0


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _arguments() -> argparse.Namespace:
    parser = page_parser("benchmarks.construction", __doc__)
    parser.add_argument("--only", metavar="SET", help="one set, by its name")
    arguments = parser.parse_args()
    if arguments.only and arguments.write:
        parser.error("--write needs all sets; leave --only out")
    return arguments


if __name__ == "__main__":
    sys.exit(main())
