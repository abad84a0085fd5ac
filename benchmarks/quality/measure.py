"""How well NCR finds nodes on outside data: GSM8K's gold equations, and two files of rollouts.

A gold node is one calculation of GSM8K's own solution of a problem; its equation is
``expression=value``.  It states the final answer where its value is the answer.

Recall and false positives are pooled over nodes (micro averages), mean NCR is over rollouts
(equation 1 of the paper), AUROC is the probability that a right rollout has the higher NCR of a
right and a wrong one, ties counting half.

Which kinds of derived forms find what the expression as written does not is counted in this
process, on the form that was found first; the kinds hardly ever overlap, because one solution
seldom writes the same step in two ways.  Why a right solution misses a gold equation is sorted by
rules that look at the equation's numbers, at the raw text and at its normal form: each miss gets
the first kind whose test it passes.  They are coarse, and ``docs/quality.md`` says what reading a
sample showed.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property, lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeAlias

import numpy as np

from benchmarks.processes import serving
from benchmarks.texts import json_lines
from consensusbench.evaluation.metrics import Consistency, consistency_of
from consensuspr.client import LocalClient, RewardClient, Rollout
from consensuspr.core import Hit, Matcher, derive_forms, normalize
from consensuspr.core.expressions import evaluate, parse_statement
from consensuspr.data import Node, Problem, open_writer, problem_to_row
from consensuspr.scoring import Score, Status
from consensuspr.wire.server_info import DatasetInfo

GOLD_NODES = Path("data/nodes/gsm8k_test_calc_nodes.jsonl.gz")

# Two files of rollouts for the same problems: what they are called, where they are.
ROLLOUTS = {
    "GPT-3": Path("data/rollouts/gsm8k_gpt3.jsonl.gz"),
    "GPT-3.5, GPT-4o mini": Path("data/rollouts/gsm8k_gpt4o_mini_and_older.jsonl.gz"),
}

# Of one pool; a problem of a dataset may have 1,024 nodes.
MAX_POOL_NODES = 1000

# GSM8K's models were trained to write <<48/2=24>> for a calculator: the node itself.
CALCULATOR = re.compile(r"<<[^<>]*>>")

Client: TypeAlias = RewardClient | LocalClient
# Deriving and loading take seconds; on the pure-Python twin a pass over all nodes takes long.
TIMEOUT_S = 3600.0
# Figures must not depend on what else the machine does: an answer gets all the time it needs.
ANSWER_BUDGET_S = 60.0
# Two ways to use the nodes: with derived forms, and as written.
DERIVED, WRITTEN = "derived", "as written"
# What a policy could print to hit nodes without solving anything.
ENUMERATION = "\n".join(f"={value}" for value in range(301))
_NUMBER = r"(?:\d+(?:\.\d+)?|\.\d+)"
_OPERATION = re.compile(r"[-+*/]")
SPELLING = "numbers spelled in another way"
STEP = "one operation carried out"
FORM_KINDS = (STEP, SPELLING)
_THOUSANDS = re.compile(r"(?<=\d)(?:,|\{,\})(?=\d{3}(?!\d))")
_SENTENCE = re.compile(r"\n|(?<=[.!?])\s")
_SHARE = re.compile(
    rf"({_NUMBER})\s*(?:\\?%|percent)|(\d+)\s*/\s*(\d+)|\\d?frac\{{(\d+)\}}\{{(\d+)\}}"
)
# Signs with what may stand between them and their numbers: words, units, typesetting.
_SIGNS = {
    "+": r"\+",
    "-": r"[-−–]",
    "*": r"(?:\*|×|\\times|\\cdot|[xX])",
    "/": r"(?:/|÷|\\div|\}\s*\{)",
}
_WORDED = {
    "+": r"(?:plus|and|more|added)",
    "-": r"(?:minus|less|from|subtract|remain|left)",
    "*": r"(?:times|multipl|each|of|per|by|every|twice|half)",
    "/": r"(?:divid|into|per|each|by|of)",
}
_GAP = r"[^\d\n=]{0,60}?"


@dataclass(frozen=True, slots=True)
class Response:
    """One rollout: the text without annotations, and whether its answer is right."""

    problem_id: str
    text: str
    correct: bool
    model: str


def read_gold(shared: Path, derive: bool = True) -> list[Problem]:
    """Return the problems that have gold nodes, in the order of the file.

    Without ``derive`` no equal forms are stored in the nodes, and none are made later.
    """
    problems = []
    for row in json_lines(shared / GOLD_NODES):
        nodes = tuple(
            _node(position, gold, row["ground_truth"], derive)
            for position, gold in enumerate(row["nodes"])
        )
        if nodes:
            problems.append(
                Problem(
                    problem_id=row["problem_id"],
                    ground_truth=row["ground_truth"],
                    nodes=nodes,
                    data_source="openai/gsm8k",
                    problem=row["problem"],
                )
            )
    return problems


def _node(position: int, gold: dict[str, str], answer: str, derive: bool) -> Node:
    equation = f"{gold['expr']}={gold['value']}"
    return Node(
        node_id=f"step-{position}",
        label=gold["text"],
        type="equation",
        expressions=(equation,),
        derived=tuple(derive_forms(equation)) if derive else (),
        is_final=_value(gold["value"]) == _value(answer),
    )


def _value(text: str) -> Fraction:
    return Fraction(text.replace(",", ""))


@dataclass(frozen=True, slots=True)
class Pool:
    """A problem without an answer that has the nodes of many, and of each node its owner.

    Rollouts scored against all pools show which nodes of every other problem they hit: the
    exact rate of false positives, with no choice of other problems to add noise.
    """

    problem: Problem
    owners: tuple[str, ...]


def pool(problems: list[Problem], max_nodes: int = MAX_POOL_NODES) -> list[Pool]:
    """Return the nodes of all problems in pools of at most ``max_nodes``, in order."""
    owned = [(problem.problem_id, node) for problem in problems for node in problem.nodes]
    pools = []
    for start in range(0, len(owned), max_nodes):
        part = owned[start : start + max_nodes]
        nodes = tuple(
            replace(node, node_id=f"{owner}/{node.node_id}", is_final=False) for owner, node in part
        )
        problem = Problem(f"pool-{start}", nodes=nodes, data_source="openai/gsm8k")
        pools.append(Pool(problem, tuple(owner for owner, _ in part)))
    return pools


def write_dataset(path: Path, problems: list[Problem]) -> None:
    """Write a dataset that a server can load."""
    with open_writer(path) as out:
        for problem in problems:
            out.write(problem_to_row(problem))


def read_responses(path: Path, problem_ids: set[str]) -> list[Response]:
    """Return the rollouts of these problems, calculator annotations taken out."""
    return [
        Response(
            problem_id=row["problem_id"],
            text=CALCULATOR.sub("", row["response"]),
            correct=row["correct"],
            model=row["model"],
        )
        for row in json_lines(path)
        if row["problem_id"] in problem_ids
    ]


def hit_rate(rows: Iterable[Iterable[bool]]) -> float:
    """Return the share of nodes that are matched, over all rollouts (a row of flags each) together.

    The recall of gold equations for right rollouts, the rate of false positives for
    rollouts of other problems.

    Raises:
        ValueError: there is no node.
    """
    flags = [flag for row in rows for flag in row]
    if not flags:
        raise ValueError("no node was looked for, so there is no rate")
    return sum(flags) / len(flags)


def consistency(rows: Sequence[Sequence[bool]], correct: Sequence[bool]) -> Consistency:
    """Return how NCR goes together with the labels, over rollouts that have a node to reach."""
    ncr = np.array([sum(row) / len(row) if row else float("nan") for row in rows])
    right = np.array(correct, float)
    # As if of one problem: the page gives no intervals, and none are drawn.
    return consistency_of(ncr, right, np.zeros(len(ncr), int), confidence=0.95, seed=0)


@contextmanager
def open_client(datasets: Mapping[str, Path], in_process: bool) -> Iterator[Client]:
    """Yield a client for the datasets, of a server started for it unless ``in_process``."""
    if in_process:
        with LocalClient(datasets, timeout_s=TIMEOUT_S, answer_budget_s=ANSWER_BUDGET_S) as client:
            yield client
        return
    settings = {"CONSENSUSPR_ANSWER_BUDGET_S": str(ANSWER_BUDGET_S)}
    with (
        TemporaryDirectory() as scratch,
        serving(datasets, Path(scratch), settings=settings) as (address, _),
        RewardClient(address, timeout_s=TIMEOUT_S) as client,
    ):
        yield client


def score(client: Client, dataset: str, rollouts: Sequence[Rollout], wanted: Status) -> list[Score]:
    """Score rollouts against a dataset.

    Raises:
        SystemExit: a rollout has another status than the one wanted: figures would be wrong.
    """
    scores = client.score(rollouts, dataset=dataset)
    for rollout, one in zip(rollouts, scores, strict=True):
        if one.status is not wanted:
            raise SystemExit(
                f"a rollout of {rollout.problem_id} has the status {one.status}, "
                f"{wanted} was expected: {one.message}"
            )
    return scores


@dataclass(frozen=True, slots=True)
class Figures:
    """What the report says about one file of rollouts under one set of nodes.

    ``every`` is over all nodes, ``inner`` without those that state the final answer.
    """

    acc_agreement: float
    recall: float
    false_positives: float
    every: Consistency
    inner: Consistency


@dataclass(frozen=True, slots=True)
class Miss:
    """A gold node that a right rollout does not reach, derived forms included."""

    file: str
    response: Response
    node: Node


@dataclass(slots=True)
class Results:
    """All that was measured.

    Attributes:
        figures: by file of rollouts, then by ``DERIVED`` and ``WRITTEN``.
        misses: of all right rollouts, in the order of the files.
        datasets: what the server said about the two datasets.
        enumerated: share of nodes hit by ``ENUMERATION``: equations, and bare values.
        normal_form_version: of the core that was used.
        backend: of the core that was used.
    """

    figures: dict[str, dict[str, Figures]]
    misses: list[Miss]
    datasets: dict[str, DatasetInfo]
    enumerated: tuple[float, float]
    normal_form_version: str
    backend: str


def measure(shared: Path, in_process: bool) -> Results:
    """Score everything; ``in_process`` without a server."""
    gold = {DERIVED: read_gold(shared), WRITTEN: read_gold(shared, derive=False)}
    nodes = {problem.problem_id: problem.nodes for problem in gold[DERIVED]}
    pools = pool(gold[DERIVED])
    figures: dict[str, dict[str, Figures]] = {}
    misses: list[Miss] = []
    with TemporaryDirectory() as folder:
        paths = {}
        for name, problems in gold.items():
            pooled = [one.problem for one in pool(problems)]
            for dataset, rows in ((name, problems), (_pooled(name), pooled)):
                paths[dataset] = Path(folder) / f"{dataset.replace(' ', '-')}.jsonl"
                write_dataset(paths[dataset], rows)
        with open_client(paths, in_process) as client:
            for file, path in ROLLOUTS.items():
                responses = read_responses(shared / path, set(nodes))
                figures[file] = {}
                for name in gold:
                    rollouts = [Rollout(one.problem_id, one.text) for one in responses]
                    scores = score(client, name, rollouts, Status.OK)
                    others = _beside_others(client, _pooled(name), pools, responses)
                    figures[file][name] = _figures(responses, scores, nodes, hit_rate(others))
                    if name == DERIVED:
                        misses += [
                            Miss(file, response, node)
                            for response, one in zip(responses, scores, strict=True)
                            if response.correct
                            for node, hit in zip(
                                nodes[response.problem_id], one.matched, strict=True
                            )
                            if not hit
                        ]
            # The share of equations, and of their bare values, that ENUMERATION hits.
            equations = [Rollout(problem_id, ENUMERATION) for problem_id in nodes]
            values = [
                Rollout(
                    problem_id,
                    ENUMERATION,
                    nodes=[[node.expressions[0].rpartition("=")[2]] for node in own],
                )
                for problem_id, own in nodes.items()
            ]
            by_equations, by_values = (
                hit_rate(one.matched for one in score(client, DERIVED, rollouts, Status.OK))
                for rollouts in (equations, values)
            )
            info = client.server_info()
    return Results(
        figures=figures,
        misses=misses,
        datasets={dataset.name: dataset for dataset in info.datasets},
        enumerated=(by_equations, by_values),
        normal_form_version=info.normal_form_version,
        backend=info.core_backend,
    )


def _pooled(name: str) -> str:
    """Return the name of the dataset with the same nodes in pools."""
    return f"{name} pooled"


def _beside_others(
    client: Client, dataset: str, pools: Iterable[Pool], responses: list[Response]
) -> Iterator[list[bool]]:
    """Score each response against the nodes of all other problems; yield rows of flags."""
    for one_pool in pools:
        rollouts = [Rollout(one_pool.problem.problem_id, one.text) for one in responses]
        scores = score(client, dataset, rollouts, Status.NO_GROUND_TRUTH)
        for response, one in zip(responses, scores, strict=True):
            flags = zip(one.matched, one_pool.owners, strict=True)
            yield [hit for hit, owner in flags if owner != response.problem_id]


def _figures(
    responses: list[Response],
    scores: list[Score],
    nodes: Mapping[str, tuple[Node, ...]],
    false_positives: float,
) -> Figures:
    correct = [one.correct for one in responses]
    every = [one.matched for one in scores]
    inner = [
        [hit for hit, node in zip(row, nodes[one.problem_id], strict=True) if not node.is_final]
        for one, row in zip(responses, every, strict=True)
    ]
    agreeing = sum(bool(of_one.acc) == right for of_one, right in zip(scores, correct, strict=True))
    return Figures(
        acc_agreement=agreeing / len(scores),
        recall=hit_rate(row for row, right in zip(every, correct, strict=True) if right),
        false_positives=false_positives,
        every=consistency(every, correct),
        inner=consistency(inner, correct),
    )


@dataclass(slots=True)
class FormCounts:
    """Counts by kind of derived form, found by it first.

    ``looked_for`` are gold equations in right solutions, ``held_against`` nodes of other problems.
    """

    derived: Counter[str] = field(default_factory=Counter)
    found: Counter[str] = field(default_factory=Counter)
    false: Counter[str] = field(default_factory=Counter)
    looked_for: int = 0
    held_against: int = 0


@lru_cache(maxsize=1 << 16)
def form_kind(equation: str, form: str) -> str:
    """Return the kind of a derived form of a true equation of arithmetic."""
    before, after = (Counter(map(Fraction, re.findall(_NUMBER, text))) for text in (equation, form))
    if after.total() >= before.total() or "%" in form:
        return SPELLING
    gone, come = before - after, after - before
    fractions = {one / other for one in gone for other in gone if other}
    in_a_sum = re.search(r"[-+]", equation.lstrip("+")) is not None
    respelled = not in_a_sum and all(value in fractions and value < 1 for value in come)
    return SPELLING if respelled else STEP


def count_forms(problems: list[Problem], files: Iterable[list[Response]]) -> FormCounts:
    """Count what each kind of form finds in right solutions and in other problems' solutions."""
    counts = FormCounts()
    nodes = {problem.problem_id: problem.nodes for problem in problems}
    for node in (node for problem in problems for node in problem.nodes):
        counts.derived.update(form_kind(node.expressions[0], form) for form in node.derived or ())
    matchers = {problem_id: _matcher(own) for problem_id, own in nodes.items()}
    pools = [(one, _matcher(one.problem.nodes)) for one in pool(problems)]
    for response in (response for responses in files for response in responses):
        own = nodes[response.problem_id]
        if response.correct:
            counts.looked_for += len(own)
            hits = matchers[response.problem_id].hits(response.text)
            counts.found.update(_kinds_found(own, hits))
        for one, matcher in pools:
            others = [owner != response.problem_id for owner in one.owners]
            counts.held_against += sum(others)
            hits = matcher.hits(response.text)
            kept = [hit if other else None for hit, other in zip(hits, others, strict=True)]
            counts.false.update(_kinds_found(one.problem.nodes, kept))
    return counts


def _matcher(nodes: Iterable[Node]) -> Matcher:
    return Matcher([[*node.expressions, *(node.derived or ())] for node in nodes])


def _kinds_found(nodes: Iterable[Node], hits: Iterable[Hit | None]) -> list[str]:
    """Return the kinds of the derived forms among the hits."""
    return [
        form_kind(node.expressions[0], hit.expression)
        for node, hit in zip(nodes, hits, strict=True)
        if hit is not None and hit.expression not in node.expressions
    ]


@dataclass
class Case:
    """A miss with what the tests look at."""

    miss: Miss

    @cached_property
    def equation(self) -> str:
        """The gold equation."""
        return self.miss.node.expressions[0]

    @cached_property
    def left(self) -> str:
        """Its left side."""
        return self.equation.rpartition("=")[0].lstrip("+")

    @cached_property
    def value(self) -> Fraction:
        """Its right side."""
        return Fraction(self.equation.rpartition("=")[2])

    @cached_property
    def operands(self) -> list[Fraction]:
        """The numbers of its left side."""
        return [Fraction(number) for number in re.findall(_NUMBER, self.left)]

    @cached_property
    def text(self) -> str:
        """The response without thousands separators."""
        return _THOUSANDS.sub("", self.miss.response.text)

    @cached_property
    def sentences(self) -> list[tuple[str, set[Fraction]]]:
        """Its sentences and lines, with the numbers that they hold."""
        return [(part, _numbers(part)) for part in _SENTENCE.split(self.text)]

    @cached_property
    def numbers(self) -> set[Fraction]:
        """All numbers that it holds."""
        return set().union(*(numbers for _, numbers in self.sentences))

    @cached_property
    def normal(self) -> str:
        """Its normal form."""
        return normalize(self.miss.response.text)


def _numbers(text: str) -> set[Fraction]:
    return {Fraction(number) for number in re.findall(_NUMBER, text)}


def _number_pattern(text: str) -> str:
    """Return a pattern of a number in any of its decimal spellings, standing alone."""
    value = Fraction(text)
    whole, _, decimals = text.partition(".")
    decimals = decimals.rstrip("0")
    fraction = rf"\.{decimals}0*" if decimals else r"(?:\.0+)?"
    return rf"(?<![\d.]){'0?' if value < 1 else whole.lstrip('0')}{fraction}(?![\d]|\.\d)"


@lru_cache(maxsize=4096)
def _binary_patterns(equation: str) -> tuple[re.Pattern[str], re.Pattern[str]] | None:
    """Return patterns of ``a op b = v`` with words between, and of the operation in words."""
    match = re.fullmatch(rf"({_NUMBER})([-+*/])({_NUMBER})=({_NUMBER})", equation)
    if match is None:
        return None
    first, sign, second, value = match.groups()
    a, b, v = map(_number_pattern, (first, second, value))
    orders = [(a, b), (b, a)] if sign in "+*" else [(a, b)]
    signed = "|".join(f"{x}{_GAP}{_SIGNS[sign]}{_GAP}{y}{_GAP}={_GAP}{v}" for x, y in orders)
    orders = [(a, b), (b, a)]
    worded = "|".join(f"{x}{_GAP}{_WORDED[sign]}{_GAP}{y}{_GAP}{v}" for x, y in orders)
    return re.compile(signed), re.compile(worded)


@lru_cache(maxsize=4096)
def _left_forms(left: str) -> tuple[str, ...]:
    return tuple(normalize(form) for form in (left, *derive_forms(left)))


def _rounded(case: Case) -> bool:
    statement = parse_statement(case.left)
    return statement is not None and evaluate(statement.sides[0]) != case.value


def _words_between(case: Case) -> bool:
    patterns = _binary_patterns(case.equation)
    return patterns is not None and patterns[0].search(case.text) is not None


def _operation_in_words(case: Case) -> bool:
    patterns = _binary_patterns(case.equation)
    return patterns is not None and any(
        case.value in numbers and patterns[1].search(sentence)
        for sentence, numbers in case.sentences
        if "=" not in sentence
    )


def _operation_found(case: Case) -> list[tuple[str, str]]:
    """Return what stands left and right of each place where the operation is written."""
    return [
        (case.normal[: match.start()][-1:], case.normal[match.end() :][:1])
        for form in _left_forms(case.left)
        for match in re.finditer(rf"(?<![\d.]){re.escape(form)}(?![\d]|\.\d)", case.normal)
    ]


def _inside_longer(case: Case) -> bool:
    return any(
        (left and left in "+-*/(^") or (right and right in "+-*/)^")
        for left, right in _operation_found(case)
    )


def _other_share(case: Case) -> bool:
    shares = set()
    for percent, above, below, upper, lower in _SHARE.findall(case.text):
        if percent:
            shares |= {Fraction(percent) / 100, 1 - Fraction(percent) / 100}
        elif int(below or lower):
            shares.add(Fraction(int(above or upper), int(below or lower)))
    absent = [number for number in case.operands if number not in case.numbers]
    if not absent or case.value not in case.numbers:
        return False
    return all(number and (number in shares or 1 / number in shares) for number in absent)


def _other_numbers(case: Case) -> bool:
    results = re.findall(rf"=\s*({_NUMBER})(?![\d]|\.\d)", case.normal)
    return case.value in {Fraction(number) for number in results}


MISS_KINDS: dict[str, Callable[[Case], bool]] = {
    "gold node without an operation": lambda case: not _OPERATION.search(case.left),
    "gold result rounded": _rounded,
    "words or units between the numbers": _words_between,
    "operation in words": _operation_in_words,
    "part of a longer expression": _inside_longer,
    "operation without its result beside it": lambda case: bool(_operation_found(case)),
    "another share (fraction, percent)": _other_share,
    "same result from other numbers": _other_numbers,
    "result stated without an equation": lambda case: case.value in case.numbers,
    "result never stated": lambda case: True,
}


def kind_of(miss: Miss) -> str:
    """Return the first kind whose test the miss passes."""
    case = Case(miss)
    return next(kind for kind, test in MISS_KINDS.items() if test(case))


def count_kinds(misses: Iterable[Miss]) -> dict[str, Counter[str]]:
    """Return the number of misses of each kind, by file of rollouts."""
    counts: dict[str, Counter[str]] = {}
    for miss in misses:
        counts.setdefault(miss.file, Counter())[kind_of(miss)] += 1
    return counts
