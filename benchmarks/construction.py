"""How good datasets of ``consensusbench build`` are: ``python -m benchmarks.construction``.

Each rollout is scored against nodes that were made without its model, or without itself where one
model wrote the set: a fold holds some rollouts out, all of one model, or every n-th rollout of each
problem, and nodes are made from the other ones.  The tables are those of ``docs/quality.md``.
"""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.markdown import demand, page_parser, publish, share, table
from benchmarks.quality.data import CALCULATOR, as_program, read_gold, write_dataset
from consensusbench.construction import BuildJob, OutputPaths, SelectionSettings, build
from consensusbench.evaluation.agreement import Agreement, agreement_of_files
from consensusbench.evaluation.estimates import Estimate
from consensusbench.evaluation.metrics import consistency_of, within_problems
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
        files: names below ``data/rollouts`` of the folder of outside data.
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

    def paths(self) -> list[str]:
        """Return the paths of its files in the folder of outside data."""
        return [f"data/rollouts/{file}.jsonl.gz" for file in self.files]

    def rows(self, shared: Path) -> list[Row]:
        """Return its rollouts, without calculator calls."""
        return [
            row | {"response": CALCULATOR.sub("", row["response"])}
            for path in self.paths()
            for row in read_rollouts(shared / path)
        ]


_GSM8K = ("gsm8k_gpt3", "gsm8k_gpt4o_mini_and_older")
SETS = (
    RolloutSet("GSM8K", _GSM8K, variants=3),
    RolloutSet("GSM8K, programs by nodes of prose", _GSM8K, held_as_programs=True),
    RolloutSet("GSM8K, prose by nodes of programs", _GSM8K, sources_as_programs=True),
    RolloutSet("MATH", ("math100_qwen25math",), folds=4),
    RolloutSet("AIME 2024", ("aime24_gpt4o_claude35", "aime24_qwen3_32b")),
    RolloutSet("Olympiad, very long", ("olympiad_gptoss120b_very_long",), folds=4),
    RolloutSet("MATH, long (one source)", ("math_r1distill_long",), min_rollouts=1, min_support=1),
)


@dataclass(frozen=True, slots=True)
class Variant:
    """Settings of construction.

    Attributes:
        rollouts_per_problem: correct rollouts that are read, at most.
        formulas_only: without phrases and values.
    """

    name: str
    rollouts_per_problem: int = 256
    formulas_only: bool = False


VARIANTS = (
    Variant("all correct rollouts"),
    Variant("five of them (the default)", rollouts_per_problem=5),
    Variant("all, formulas only", formulas_only=True),
)


def splits_of(rollout_set: RolloutSet, rows: list[Row]) -> list[list[bool]]:
    """Return for each fold of a set which rollouts it holds out."""
    if not rollout_set.folds:
        models = sorted({row["model"] for row in rows})
        return [[row["model"] == model for row in rows] for model in models]
    seen: Counter[str] = Counter()
    places = []  # of each rollout among those of its problem
    for row in rows:
        places.append(seen[row["problem_id"]])
        seen[row["problem_id"]] += 1
    folds = rollout_set.folds
    return [[place % folds == fold for place in places] for fold in range(folds)]


def measure(rollout_set: RolloutSet, variant: Variant, shared: Path) -> list[str]:
    """Return the row of a set; each rollout is scored once, by nodes made without it."""
    rows = rollout_set.rows(shared)
    scored: list[ScoredSet] = []
    chance: list[tuple[float, int]] = []
    for number, held in enumerate(splits_of(rollout_set, rows), 1):
        _log(f"{rollout_set.name}, {variant.name}: fold {number}")
        with tempfile.TemporaryDirectory(prefix="construction-") as name:
            sources, held_out = Path(name) / "sources.jsonl", Path(name) / "held-out.jsonl"
            for path, wanted, programs in (
                (held_out, True, rollout_set.held_as_programs),
                (sources, False, rollout_set.sources_as_programs),
            ):
                chosen = [row for row, is_held in zip(rows, held, strict=True) if is_held == wanted]
                _write(path, _programs(chosen) if programs else chosen)
            try:
                dataset = _build(rollout_set, variant, sources)
            except InputError as error:  # no problem has enough correct rollouts
                _log(str(error))
                continue
            scored.append(score_files([held_out], dataset))
            chance += [
                (attack.overall.ncr, attack.overall.problems)
                for attack in probe_dataset(dataset, [held_out]).attacks
                if attack.attack is Attack.UNRELATED
            ]
    num_problems = len({row["problem_id"] for row in rows})
    return [rollout_set.name, variant.name, *_cells(scored, chance, num_problems)]


def _cells(
    scored: list[ScoredSet], chance: list[tuple[float, int]], num_problems: int
) -> list[str]:
    """Return the figures of the held-out rollouts of all folds together."""
    known = [
        rollout
        for fold in scored
        for rollout in fold.rollouts
        if rollout.facts is not None and rollout.ncr is not None and rollout.acc is not None
    ]
    nodes = [facts.is_final for fold in scored for facts in fold.problems.values()]
    numbers: dict[str, int] = {}
    problem = np.array([numbers.setdefault(one.problem_id, len(numbers)) for one in known])
    acc = np.array([one.acc for one in known], float)
    every, inner = (
        consistency_of(np.array(ncr, float), acc, problem, CONFIDENCE)
        for ncr in ([one.ncr for one in known], [one.ncr_without_final for one in known])
    )
    chars = np.array([one.num_chars for one in known], float)
    length = within_problems(chars, acc == 1, problem, CONFIDENCE)
    lowered = np.mean([one.guard < 1 for one in known if one.acc == 1])
    rates, weights = [rate for rate, _ in chance], [count for _, count in chance]
    finals = np.mean([sum(is_final) for is_final in nodes])
    return [
        f"{len(numbers)} of {num_problems}",
        f"{np.mean([len(is_final) for is_final in nodes]):.2f} ({finals:.2f})",
        f"{every.num_right:,}, {every.num_wrong:,}",
        f"{share(every.ncr_right)} / {share(every.ncr_wrong)}",
        share(every.figures["d_ncr"].value),
        _with_interval(every.figures["auroc"], "**"),
        f"{share(every.figures['aucpr'].value)} ({share(every.figures['prevalence'].value)})",
        share(inner.figures["d_ncr"].value),
        _with_interval(inner.figures["auroc"], "**"),
        _with_interval(inner.figures["within"], "**"),
        share(length.value),
        f"{lowered:.2%}",
        f"{np.average(rates, weights=weights):.2%}" if sum(weights) else "–",
    ]


def _with_interval(estimate: Estimate, mark: str = "") -> str:
    shown = f"{mark}{share(estimate.value)}{mark}"
    if estimate.low is None:
        return shown
    return f"{shown} ({share(estimate.low)}–{share(estimate.high)})"


def measure_whole(
    rollout_set: RolloutSet, shared: Path
) -> Iterator[tuple[str, ProbeReport, Agreement]]:
    """Probe the nodes that all rollouts of a GSM8K set make; compare them with its gold steps."""
    rows = rollout_set.rows(shared)
    for variant in VARIANTS:
        _log(f"{rollout_set.name}, {variant.name}: as a whole")
        with tempfile.TemporaryDirectory(prefix="construction-") as name:
            rollouts, gold = Path(name) / "rollouts.jsonl", Path(name) / "gold.jsonl"
            _write(rollouts, rows)
            write_dataset(gold, read_gold(shared))
            dataset = _build(rollout_set, variant, rollouts)
            probes = probe_dataset(dataset, [rollouts])
            yield variant.name, probes, agreement_of_files(dataset, gold)


def _programs(rows: Iterable[Row]) -> Iterator[Row]:
    """Rewrite rollouts as programs, with their answers; leave out those without equations."""
    for row in rows:
        code = as_program(row["response"])
        if code is not None:
            yield row | {"response": f"{code}\n#### {row['final_answer']}"}


def _write(path: Path, rows: Iterable[Row]) -> None:
    with open_writer(path) as out:
        for row in rows:
            out.write(row)


def _build(rollout_set: RolloutSet, variant: Variant, rollouts: Path) -> Path:
    """Build a dataset from a file of rollouts, beside it; return its path."""
    dataset = rollouts.with_name("dataset.jsonl")
    values = phrases = not variant.formulas_only
    rules = RulesSettings(min_support=rollout_set.min_support, phrases=phrases, values=values)
    build(
        BuildJob(
            (rollouts,),
            OutputPaths(dataset),
            RulesExtractor(rules),
            PaperRefiner(RefineSettings(min_support=rollout_set.min_support)),
            selection=SelectionSettings(
                rollouts_per_problem=variant.rollouts_per_problem,
                min_rollouts=rollout_set.min_rollouts,
            ),
            workers=2,
        )
    )
    return dataset


def attacks_table(whole: list[tuple[str, ProbeReport, Agreement]]) -> str:
    """Return a row for each attack: the NCR that it earns."""
    rows = [
        [attack.description, *(f"{probes.attacks[at].overall.ncr:.1%}" for _, probes, _ in whole)]
        for at, attack in enumerate(whole[0][1].attacks)
    ]
    return table(["text", *(variant_name for variant_name, _, _ in whole)], rows, 1)


def agreement_table(whole: list[tuple[str, ProbeReport, Agreement]]) -> str:
    """Return a row for each variant: consistency, recall and precision."""
    rows = []
    for variant_name, _, found in whole:
        shares = map(_with_interval, (found.consistency, found.recall, found.precision))
        rows.append([variant_name, f"{len(found.problems)}", *shares])
    return table(["nodes made from", "problems", "consistency", "recall", "precision"], rows, 1)


def main() -> int:
    """Run the benchmark; return the exit code."""
    parser = page_parser("benchmarks.construction", __doc__)
    parser.add_argument("--only", metavar="SET", help="one set, by its name")
    arguments = parser.parse_args()
    if arguments.only and arguments.write:
        parser.error("--write needs all sets; leave --only out")
    shared = demand(file for rollout_set in SETS for file in rollout_set.paths())
    wanted = [chosen for chosen in SETS if arguments.only in (None, chosen.name)]
    rows = []
    for rollout_set in wanted:
        for variant in VARIANTS[: rollout_set.variants]:
            rows.append(measure(rollout_set, variant, shared))
            _log(" | ".join(rows[-1]))
    blocks = {"construction": table(_HEADINGS, rows, 2)}
    if SETS[0] in wanted:
        whole = [*measure_whole(SETS[0], shared)]
        blocks |= {"attacks": attacks_table(whole), "agreement": agreement_table(whole)}
    publish(blocks, arguments.write)
    return 0


def _log(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
