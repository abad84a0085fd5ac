"""Attacks on a dataset's nodes: the NCR of texts that solve nothing.

The probes score such texts and rollouts of other problems, and report the Node Coverage Rate of
each attack::

    from consensusbench.quality.probes import probe_dataset

    report = probe_dataset("dataset.jsonl", ["rollouts.jsonl"])
    report.attack("comments").overall.ncr

All texts are deterministic, and none uses the nodes.  The first three are as long as a typical
rollout, because an enumeration without a limit hits every number.  The others test the guard
(:mod:`consensuspr.scoring.guard`): equations of the problem's numbers within its budget, two steps
deep beyond it, and the same lines where the guard may fail to count them.  Rollouts of other
problems of the same source give the level of chance.

Three passes, none of which holds a file: the index, the rollouts if any
(:func:`survey_rollouts`), the problems in chunks of one source each.  Memory is that of the index,
of one counter a node, of one bounded sample a source and of a few numbers a rollout.
"""

from __future__ import annotations

import hashlib
import heapq
import os
import re
from array import array
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import astuple, dataclass, field
from enum import StrEnum
from fractions import Fraction
from itertools import count
from statistics import median
from typing import Any, Final, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from consensusbench.tables import Cell, Column, JsonResult, Table, number, percent, words
from consensusbench.tables import Row as TableRow
from consensuspr.client.files import chunks
from consensuspr.console import one_line
from consensuspr.core import BatchResult, Matcher, match_batch
from consensuspr.data import OnError, ReadReport, Row, read_problems, read_rollouts
from consensuspr.errors import InputError
from consensuspr.scoring import DatasetIndex
from consensuspr.scoring.dataset_index import Entry
from consensuspr.scoring.guard import counted, factors_of, least_budget

Bools: TypeAlias = npt.NDArray[np.bool_]
# For each node of a problem what it is matched by.
Patterns: TypeAlias = Sequence[Sequence[str]]


class Attack(StrEnum):
    """A way to earn nodes without solving the problem."""

    ENUMERATION = "enumeration"
    ECHO = "echo"
    QUANTITIES = "quantities"
    PAIRS = "pairs"
    PADDED = "padded"
    DEEP = "deep"
    CODE = "code"
    COMMENTS = "comments"
    PRINTED = "printed"
    SUBSCRIPTS = "subscripts"
    UNRELATED = "unrelated"


DESCRIPTIONS: Final = {
    Attack.ENUMERATION: 'the lines "=0" to "=300"',
    Attack.ECHO: "the text of the problem itself",
    Attack.QUANTITIES: 'counting with the nouns behind the problem\'s numbers, "1 hours" onwards',
    Attack.PAIRS: "pairs of the problem's numbers combined by + - * /, within the guard's budget",
    Attack.PADDED: "all of these pairs, and repeated filler up to 4,096 characters",
    Attack.DEEP: "pairs of pairs: the results of all pairs combined with all numbers and results",
    Attack.CODE: "pairs of pairs as a Python program that writes no result",
    Attack.COMMENTS: "pairs of pairs in Python comments",
    Attack.PRINTED: "pairs of pairs in strings that Python prints",
    Attack.SUBSCRIPTS: "pairs of pairs in LaTeX subscripts",
    Attack.UNRELATED: "rollouts of other problems of the same source: the level of chance",
}

DEFAULT_BUDGET: Final = 2000
# Of an attack two steps deep: some five thousand tokens, as many as a policy often may write.
MAX_DEEP_CHARS: Final = 1 << 14
# As long as a grade-school solution.
SHORT_CHARS: Final = 500
PADDED_CHARS: Final = 1 << 12
# A build measures attacks on each problem, in time proportional to their length.
SHORT_DEEP_CHARS: Final = 1 << 12
PADDING: Final = " Let us think about this step by step, and see what is asked for here."
# Texts of so many problems are held at once: up to some 20 MB.
CHUNK_ATTACKED: Final = 64
# NCR from which an attack counts as having reached a problem.
REACHED: Final = 0.5
CHUNK_PROBLEMS: Final = 512

LAST_ENUMERATED: Final = 300

# A question with more numbers than this has a table in it.
MAX_NUMBERS: Final = 16
# Of a result that is combined further; past it digits are no longer anybody's intermediate value.
MAX_VALUE: Final = 10**9
# Values have at most four decimals, and are counted in units of the last.
_ONE: Final = 10**4

MAX_NOUNS: Final = 4

_COUNTED: Final = re.compile(r"\d[ -]([a-z]{3,24})\b")
_NUMBER: Final = re.compile(r"\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d+)?|(?<![\d.])\.\d+|[a-z]+")
_WHOLE: Final = {
    "one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8,
    "nine": 9, "ten": 10, "eleven": 11, "twelve": 12, "fifteen": 15, "twenty": 20, "thirty": 30,
    "forty": 40, "fifty": 50, "hundred": 100, "thousand": 1000, "dozen": 12, "twice": 2,
    "double": 2, "triple": 3,
}  # fmt: skip
_PARTS: Final = {"half": 2, "third": 3, "quarter": 4}
_WORDS: Final = {word: Fraction(value) for word, value in _WHOLE.items()} | {
    word: Fraction(1, value) for word, value in _PARTS.items()
}

# What counts as one number where equations are cut to a budget.
_WRITTEN: Final = re.compile(r"\d+(?:\.\d+)?")

# One response counts with its beginning: an outlier must not fill the sample alone.
MAX_CHARS_EACH: Final = 1 << 17
# Nodes of one automaton: beyond this it leaves the cache and each text takes longer.
POOL_NODES = 1024

KEPT_DENSEST: Final = 10
# A hit in a dozen characters is a bare answer, not a rollout that was stuffed.
MIN_STUFFED_CHARS: Final = 200


def enumeration(budget: int) -> str:
    """Return the lines "=0" to "=300" within a budget of characters."""
    return _within(budget, (f"={value}" for value in range(LAST_ENUMERATED + 1)), "\n")


def quantities(problem: str, budget: int) -> str:
    """Return counted nouns of a problem's text ("1 hours, 1 miles, 2 hours, …") within a budget.

    What a policy would print that has learnt that numbers with the right word pay.
    """
    nouns = nouns_in(problem)
    counted = (f"{value} {noun}" for value in count(1) for noun in nouns)
    return _within(budget, counted if nouns else (), ", ")


def nouns_in(problem: str) -> list[str]:
    """Return the distinct words behind the numbers of a text in order, at most ``MAX_NOUNS``."""
    text = problem.lower()
    found = dict.fromkeys(match[1] for match in _COUNTED.finditer(text))
    if "$" in text:
        found["dollars"] = None
    return list(found)[:MAX_NOUNS]


def numbers_in(problem: str) -> list[Fraction]:
    """Return the distinct positive numbers of a text in order, at most ``MAX_NUMBERS``."""
    found: dict[Fraction, None] = {}
    for match in _NUMBER.finditer(problem.lower()):
        text = match[0].replace(",", "")
        if text[0].isalpha():
            value = _WORDS.get(text)
        elif not text.isascii() or len(text) > 12:
            continue
        else:
            value = Fraction(text)
        if value is not None and 0 < value <= MAX_VALUE:
            found[value] = None
            if len(found) == MAX_NUMBERS:
                break
    return list(found)


@dataclass(frozen=True, slots=True)
class EquationList:
    """EquationList that an attack writes, with what they come to."""

    texts: tuple[str, ...]
    values: tuple[int, ...]  # in units of the last decimal

    @classmethod
    def of(cls, made: Iterable[tuple[str, int]]) -> EquationList:
        """Take all of them."""
        pairs = list(made)
        return cls(tuple(text for text, _ in pairs), tuple(value for _, value in pairs))

    def prose(self, length: int | None = None) -> str:
        """Return a line for each of the first ones."""
        return "\n".join(self.texts[:length])

    def python(self) -> str:
        """Return a program that works them out and writes no value."""
        lines = (f"v{at} = {text.partition('=')[0]}" for at, text in enumerate(self.texts))
        return _fenced(lines)

    def wrapped(self) -> Iterator[tuple[Attack, str]]:
        """Yield the same lines where the guard may fail to count them."""
        yield Attack.COMMENTS, _fenced(f"# {text}" for text in self.texts)
        yield Attack.PRINTED, _fenced(f"print('{text}')" for text in self.texts)
        yield Attack.SUBSCRIPTS, "\n".join(f"$x_{{{text}}}$" for text in self.texts)

    def cut(self, statements: float, numbers: float) -> str:
        """Return the first ones, no more than a budget of the guard allows."""
        values: set[int] = set()
        written: set[str] = set()
        for at, (text, value) in enumerate(zip(self.texts, self.values, strict=True)):
            values.add(value)
            written.update(_WRITTEN.findall(text))
            if len(values) > statements or len(written) > numbers:
                return self.prose(at)
        return self.prose()


def _fenced(lines: Iterable[str]) -> str:
    return "\n".join(["```python", *lines, "```"])


def pairs_of(numbers: list[Fraction]) -> EquationList:
    """Return every pair of numbers combined."""
    return EquationList.of(_up_to(_combined(numbers, 1), MAX_DEEP_CHARS))


def pairs_of_pairs(numbers: list[Fraction], max_chars: int = MAX_DEEP_CHARS) -> EquationList:
    """Return every pair of numbers combined, and the results with all of these."""
    return EquationList.of(_up_to(_combined(numbers, 2), max_chars))


def _within(budget: int, pieces: Iterable[str], separator: str) -> str:
    taken: list[str] = []
    length = 0
    for piece in pieces:
        length += len(piece) + (len(separator) if taken else 0)
        if length > budget:
            break
        taken.append(piece)
    return separator.join(taken)


def _up_to(made: Iterable[tuple[str, int]], budget: int) -> Iterator[tuple[str, int]]:
    """Yield equations as long as their lines keep within a budget of characters."""
    for equation, value in made:
        budget -= len(equation) + 1
        if budget < 0:
            return
        yield equation, value


def _combined(numbers: list[Fraction], depth: int) -> Iterator[tuple[str, int]]:
    """Yield equations with their values, in levels; each level meets all results before it.

    Values are whole multiples of 10^-4, as ints: fractions take ten times as long.
    """
    scaled = [number * _ONE for number in numbers]
    level = [number.numerator for number in scaled if number.denominator == 1]
    seen = dict.fromkeys(level)
    for done in range(depth):
        results: list[int] = []
        known = list(seen)
        for place, left in enumerate(level):
            # The first level meets itself: a pair once, and a number with itself.
            for right in known if done else known[place:]:
                for equation, value in _equations(left, right):
                    yield equation, value
                    if value not in seen:
                        seen[value] = None
                        results.append(value)
        level = results


def _equations(left: int, right: int) -> Iterator[tuple[str, int]]:
    """Yield what two values come to where that is written with as few decimals."""
    a, b = _decimal(left), _decimal(right)
    larger, smaller = (a, b) if left >= right else (b, a)
    most, least = max(left, right), min(left, right)
    product, beyond = divmod(left * right, _ONE)
    if not beyond and 0 < product <= MAX_VALUE * _ONE:
        yield f"{a}*{b}={_decimal(product)}", product
    if left + right <= MAX_VALUE * _ONE:
        yield f"{a}+{b}={_decimal(left + right)}", left + right
    if most > least:
        yield f"{larger}-{smaller}={_decimal(most - least)}", most - least
    quotient, beyond = divmod(most * _ONE, least)
    if not beyond and quotient <= MAX_VALUE * _ONE:
        yield f"{larger}/{smaller}={_decimal(quotient)}", quotient
    quotient, beyond = divmod(least * _ONE, most)
    if not beyond and quotient:
        yield f"{smaller}/{larger}={_decimal(quotient)}", quotient


def _decimal(scaled: int) -> str:
    """Return a value as it is written."""
    whole, rest = divmod(scaled, _ONE)
    return f"{whole}.{rest:04d}".rstrip("0") if rest else str(whole)


@dataclass(frozen=True, slots=True)
class SurveyedRollout:
    """A rollout of a sample: its problem, and the beginning of its text."""

    problem_id: str
    text: str


@dataclass(slots=True)
class RolloutSample:
    """At most so many rollouts a source, and at most so many characters.

    The rollouts whose content hashes smallest are kept, so that the same rollouts in other files,
    or in another order, give the same sample and the same findings.
    """

    per_source: int = 256
    max_chars: int = 2 << 20
    # By source: (negated hash, rollout), the largest hash on top, and the characters held.
    _kept: dict[str, list[tuple[int, SurveyedRollout]]] = field(default_factory=dict)
    _chars: dict[str, int] = field(default_factory=dict)
    # By source: the smallest negated hash that may still come in.  What hashes larger than a
    # rollout that had to go must stay out even where it is short enough, or order would matter.
    _least: dict[str, int] = field(default_factory=dict)

    def add(self, source: str, problem_id: str, response: str) -> None:
        """Offer a rollout."""
        rank = -_hash(problem_id, response)
        heap = self._kept.setdefault(source, [])
        if rank < self._least.get(source, rank) or any(rank == kept for kept, _ in heap):
            return  # the same text for the same problem tells nothing new
        text = response[:MAX_CHARS_EACH]
        heapq.heappush(heap, (rank, SurveyedRollout(problem_id, text)))
        chars = self._chars.get(source, 0) + len(text)
        while len(heap) > self.per_source or (chars > self.max_chars and len(heap) > 1):
            gone, dropped = heapq.heappop(heap)
            chars -= len(dropped.text)
            self._least[source] = gone + 1
        self._chars[source] = chars

    def of(self, source: str) -> list[SurveyedRollout]:
        """Return the sample of a source, in the order of its hashes."""
        return [one for _, one in sorted(self._kept.get(source, ()), key=lambda kept: -kept[0])]

    def typical_chars(self, source: str) -> int | None:
        """Return the median length of the sample of a source; None without one."""
        lengths = [len(one.text) for _, one in self._kept.get(source, ())]
        return round(median(lengths)) if lengths else None


def _hash(problem_id: str, response: str) -> int:
    digest = hashlib.blake2b(digest_size=8)
    digest.update(problem_id.encode("utf-8", "surrogatepass") + b"\0")
    digest.update(response.encode("utf-8", "surrogatepass"))
    return int.from_bytes(digest.digest())


@dataclass(frozen=True, slots=True)
class AttackFigures:
    """What one attack earns over a group of problems.

    Attributes:
        ncr: guarded, what the reward uses.
        ncr_raw: without the guard.
        ncr_without_final: guarded, over nodes that do not state the final answer, and over
            problems that have such nodes; None where none has.
        share_reached: share of the problems of which it reaches a guarded NCR of 0.5 or more.
        hits_per_1000_chars: nodes hit by 1,000 characters of it.
    """

    problems: int
    ncr: float
    ncr_raw: float
    ncr_without_final: float | None
    share_reached: float
    mean_chars: float
    hits_per_1000_chars: float


@dataclass(frozen=True, slots=True)
class WorstProblem:
    """A problem of which an attack earns much, and the nodes that it hits."""

    problem_id: str
    data_source: str
    ncr: float
    node_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class AttackReport(JsonResult):
    """One attack: overall, by data source, and where it earns most (that earn anything)."""

    attack: Attack
    overall: AttackFigures
    by_source: dict[str, AttackFigures]
    worst: tuple[WorstProblem, ...]

    @property
    def description(self) -> str:
        """What its text is."""
        return DESCRIPTIONS[self.attack]

    def to_json(self) -> dict[str, Any]:
        """Return every field, and the description."""
        return JsonResult.to_json(self) | {"description": self.description}


@dataclass(frozen=True, slots=True)
class DensityFigures:
    """How densely real rollouts of one source hit the nodes of their own problem.

    A policy that stuffs its rollouts with nodes shows by a density far above these.  Figures are
    over rollouts of known problems with nodes, those of tokens over the ones that say theirs.
    """

    rollouts: int
    ncr: float
    median_chars: float
    median_per_1000_chars: float
    p99_per_1000_chars: float
    median_per_1000_tokens: float | None
    p99_per_1000_tokens: float | None


@dataclass(frozen=True, slots=True)
class WrongFigures:
    """What the wrong rollouts of one source earn on average, guarded and without the guard.

    A rollout is wrong where its row says so (``correct``, or ``acc`` where it was scored).
    """

    rollouts: int
    ncr: float
    ncr_raw: float


@dataclass(frozen=True, slots=True)
class CheapAttack:
    """An attack that earns more of a source than wrong rollouts do on average."""

    attack: Attack
    data_source: str
    ncr: float
    ncr_wrong: float


@dataclass(frozen=True, slots=True)
class DenseRollout:
    """A rollout with more hits for its length than nearly all of its source."""

    problem_id: str
    rollout_id: str
    data_source: str
    ncr: float
    chars: int
    hits_per_1000_chars: float


@dataclass(frozen=True, slots=True)
class ProbeReport(JsonResult):
    """All probes of one dataset.

    Attributes:
        budgets: characters that an attack may have, by data source.
        attacks: in the order of :class:`Attack`; the level of chance is among them where
            rollouts of at least two problems of a source were given.
        wrong: by data source; none where no rollout says that it is wrong.
        cheap: the attacks that pay better than being wrong does, the dearest first.
    """

    digest: str
    budgets: dict[str, int]
    attacks: tuple[AttackReport, ...]
    wrong: dict[str, WrongFigures]
    cheap: tuple[CheapAttack, ...]
    density: dict[str, DensityFigures]
    densest: tuple[DenseRollout, ...]
    unknown_rollouts: int

    def attack(self, attack: Attack | str) -> AttackReport:
        """Return one attack's report."""
        reports: dict[str, AttackReport] = {report.attack: report for report in self.attacks}
        return reports[attack]


def match_unrelated(
    problems: Sequence[tuple[str, Patterns]], sample: Sequence[SurveyedRollout], threads: int = 0
) -> list[Bools]:
    """Look for the nodes of problems of one source in the rollouts of other problems.

    The nodes of many problems go into one automaton, so that a text is read once for a thousand
    nodes and not once for each problem: a set of 17,000 problems takes seconds.

    Args:
        problems: (id, patterns of its nodes).
        sample: of the source's rollouts; those of a problem itself are left out for it.

    Returns:
        For each problem (rollouts of others, nodes): True where a node was found.
    """
    owners = np.array([one.problem_id for one in sample], dtype=object)
    texts = [one.text for one in sample]
    results: list[Bools] = []
    for pool in _pools(problems):
        matcher = Matcher([node for _, patterns in pool for node in patterns])
        matched = match_batch([matcher] * len(texts), texts, threads=threads)
        hits = np.array([matched.matched(row) for row in range(len(texts))], dtype=np.bool_)
        hits = hits.reshape(len(texts), matcher.num_nodes)
        start = 0
        for problem_id, patterns in pool:
            own = hits[:, start : start + len(patterns)]
            results.append(own[owners != problem_id])
            start += len(patterns)
    return results


def hit_rates(hits: Bools) -> npt.NDArray[np.float64]:
    """Return for each node the share of rollouts that hit it; 0 where there are none."""
    rates: npt.NDArray[np.float64] = hits.sum(axis=0) / max(len(hits), 1)
    return rates


def _pools(problems: Sequence[tuple[str, Patterns]]) -> list[list[tuple[str, Patterns]]]:
    """Return the problems in groups of at most :data:`POOL_NODES` nodes, or of one problem."""
    pools: list[list[tuple[str, Patterns]]] = []
    size = POOL_NODES
    for problem in problems:
        if size + len(problem[1]) > POOL_NODES:
            pools.append([])
            size = 0
        pools[-1].append(problem)
        size += len(problem[1])
    return pools


@dataclass(slots=True)
class OwnHits:
    """How many rollouts of a problem were looked at, and (nodes,) how many of them hit each."""

    rollouts: int
    hits: npt.NDArray[np.int64]


def _density(rollouts: array[float]) -> DensityFigures:
    """Return the figures of a source's rollouts: NCR, characters, hits per 1,000, for each."""
    ncr, chars, per_1000_chars, per_1000_tokens = np.array(rollouts).reshape(-1, 4).T
    tokens = per_1000_tokens[~np.isnan(per_1000_tokens)]
    return DensityFigures(
        rollouts=len(ncr),
        ncr=float(ncr.mean()),
        median_chars=float(np.median(chars)),
        median_per_1000_chars=float(np.median(per_1000_chars)),
        p99_per_1000_chars=float(np.percentile(per_1000_chars, 99)),
        median_per_1000_tokens=float(np.median(tokens)) if len(tokens) else None,
        p99_per_1000_tokens=float(np.percentile(tokens, 99)) if len(tokens) else None,
    )


class RolloutSurvey:
    """What rollouts say about the nodes of a dataset.

    Attributes:
        own: by problem id; problems without nodes and without rollouts are not in it.
        sample: rollouts by the data source of their problem.
    """

    def __init__(self, index: DatasetIndex, threads: int = 0) -> None:
        self.own: dict[str, OwnHits] = {}
        self.sample = RolloutSample()
        self.read = ReadReport()
        self.unknown = 0
        self._index = index
        self._threads = threads
        # By source: NCR, characters, hits per 1,000 characters and tokens (or NaN) of each rollout.
        self._density: dict[str, array[float]] = defaultdict(lambda: array("d"))
        self._densest: list[tuple[float, int, DenseRollout]] = []
        # By source: rollouts that say they are wrong, the sums of their NCR and unguarded NCR.
        self._wrong: dict[str, tuple[int, float, float]] = {}
        self._seen = 0

    def density(self) -> dict[str, DensityFigures]:
        """Return how densely rollouts hit their own nodes, by source."""
        return {source: _density(rollouts) for source, rollouts in self._density.items()}

    def wrong(self) -> dict[str, WrongFigures]:
        """Return what wrong rollouts earn, by source."""
        return {
            source: WrongFigures(rollouts, ncr / rollouts, raw / rollouts)
            for source, (rollouts, ncr, raw) in self._wrong.items()
        }

    def densest(self) -> tuple[DenseRollout, ...]:
        """Return the rollouts with the most hits for their length, the first the densest."""
        return tuple(one for _, _, one in sorted(self._densest, key=lambda kept: -kept[0]))

    def take(self, rows: Sequence[Row]) -> None:
        """Count a chunk of rows."""
        known = []
        for row in rows:
            self._seen += 1
            entry = self._index.entry(row["problem_id"])
            if entry is None:
                self.unknown += 1
            elif row["response"]:
                self.sample.add(entry.data_source, entry.problem_id, row["response"])
                if entry.num_nodes:
                    known.append((row, entry, self._seen))
        matched = match_batch(
            [entry.matcher for _, entry, _ in known],
            [row["response"] for row, _, _ in known],
            threads=self._threads,
        )
        guard = _guard(
            [entry for _, entry, _ in known], [row["response"] for row, _, _ in known], matched
        )
        for at, (row, entry, position) in enumerate(known):
            self._count(row, entry.data_source, matched.matched(at), float(guard[at]), position)

    def _count(self, row: Row, source: str, hit: Bools, guard: float, position: int) -> None:
        nothing = OwnHits(0, np.zeros(len(hit), dtype=np.int64))
        own = self.own.setdefault(row["problem_id"], nothing)
        own.rollouts += 1
        own.hits += hit
        chars = len(row["response"])
        hits = int(hit.sum())
        ncr = hits / len(hit)
        if row.get("correct", row.get("acc")) in (False, 0):
            rollouts, guarded, raw = self._wrong.get(source, (0, 0.0, 0.0))
            self._wrong[source] = (rollouts + 1, guarded + guard * ncr, raw + ncr)
        per_1000 = 1000 * hits / chars
        tokens = row.get("num_tokens")
        per_1000_tokens = 1000 * hits / tokens if tokens and tokens > 0 else float("nan")
        self._density[source].extend((ncr, chars, per_1000, per_1000_tokens))
        if hits and chars >= MIN_STUFFED_CHARS:
            name = row.get("rollout_id") or f"row {position}"
            dense = DenseRollout(row["problem_id"], name, source, ncr, chars, per_1000)
            # Earlier rows win a tie, so that the same files give the same list.
            heapq.heappush(self._densest, (per_1000, -position, dense))
            if len(self._densest) > KEPT_DENSEST:
                heapq.heappop(self._densest)


def survey_rollouts(
    paths: Iterable[str | os.PathLike[str]],
    index: DatasetIndex,
    *,
    threads: int = 0,
    on_error: OnError = "stop",
    progress: Callable[[int], None] = lambda done: None,
) -> RolloutSurvey:
    """Read rollouts files once.

    Raises:
        DataError: a file is bad, or a row of it and ``on_error`` is ``"stop"``.
    """
    survey = RolloutSurvey(index, threads)
    done = 0
    for path in paths:
        report = ReadReport()
        for chunk in chunks(read_rollouts(path, on_error, report)):
            survey.take(chunk)
            done += len(chunk)
            progress(done)
        survey.read.rows += report.rows
        survey.read.skipped += report.skipped
        survey.read.reasons += report.reasons
    return survey


@dataclass(frozen=True, slots=True)
class ProbeSettings:
    """How to probe.

    Attributes:
        budget_chars: characters that an attack may have; None for the median length of the
            source's rollouts, or 2,000 where there are none.

    Raises:
        InputError: the budget is below 1.
    """

    budget_chars: int | None = None
    worst: int = 5
    threads: int = 0
    on_error: OnError = "stop"

    def __post_init__(self) -> None:
        if self.budget_chars is not None and self.budget_chars < 1:
            raise InputError(
                f"an attack needs a budget of at least 1 character, got {self.budget_chars}"
            )


def probe_dataset(
    dataset: str | os.PathLike[str],
    rollouts: Iterable[str | os.PathLike[str]] | None = None,
    settings: ProbeSettings = ProbeSettings(),
    *,
    index: DatasetIndex | None = None,
    survey: RolloutSurvey | None = None,
    progress: Callable[[int], None] = lambda done: None,
) -> ProbeReport:
    """Measure what can be had from a dataset's nodes without solving a problem.

    Args:
        rollouts: files of rollouts of these problems; without them there is no level of chance,
            and attacks are as long as ``settings`` say.

    Raises:
        DataError: a file is bad.
    """
    if index is None:
        index = DatasetIndex.load(dataset, on_error=settings.on_error)
    if survey is None:
        survey = survey_rollouts(
            rollouts or (), index, threads=settings.threads, on_error=settings.on_error
        )
    tallies: dict[Attack, _Tally] = defaultdict(lambda: _Tally(settings.worst))
    budgets: dict[str, int] = {}
    done = 0
    for chunk in chunks_by_source(_targets(dataset, index, settings.on_error)):
        source = chunk[0][0].data_source
        if source not in budgets:
            budgets[source] = (
                settings.budget_chars or survey.sample.typical_chars(source) or DEFAULT_BUDGET
            )
        _attack(chunk, budgets[source], tallies, settings.threads)
        _chance(chunk, survey, tallies, settings.threads)
        done += len(chunk)
        progress(done)
    attacks = tuple(tallies[one].report(one) for one in Attack if one in tallies)
    wrong = survey.wrong()
    return ProbeReport(
        digest=index.digest,
        budgets=budgets,
        attacks=attacks,
        wrong=wrong,
        cheap=cheap_attacks(
            (one.attack, source, figures.ncr, wrong[source].ncr)
            for one in attacks
            if one.attack is not Attack.UNRELATED
            for source, figures in one.by_source.items()
            if source in wrong
        ),
        density=survey.density(),
        densest=survey.densest(),
        unknown_rollouts=survey.unknown,
    )


# A problem with nodes, and its text.
_Target: TypeAlias = tuple[Entry, str]
ItemT = TypeVar("ItemT")


def chunks_by_source(items: Iterable[tuple[str, ItemT]]) -> Iterator[list[ItemT]]:
    """Yield items in chunks of one data source each, given with the source of each."""
    waiting: dict[str, list[ItemT]] = defaultdict(list)
    for source, item in items:
        waiting[source].append(item)
        if len(waiting[source]) == CHUNK_PROBLEMS:
            yield waiting.pop(source)
    yield from waiting.values()


def _targets(
    dataset: str | os.PathLike[str], index: DatasetIndex, on_error: OnError
) -> Iterator[tuple[str, _Target]]:
    """Yield the problems with nodes, and their sources."""
    for problem in read_problems(dataset, on_error):
        entry = index.entry(problem.problem_id)
        assert entry is not None, "the index is of this dataset"
        if problem.nodes:
            yield problem.data_source, (entry, problem.problem)


def cheap_attacks(
    earned: Iterable[tuple[Attack | str, str, float, float]],
) -> tuple[CheapAttack, ...]:
    """Return the attacks that pay better than being wrong does, the dearest first.

    Args:
        earned: attack, data source, NCR of the attack, and mean NCR of wrong rollouts.
    """
    found = [
        CheapAttack(Attack(attack), source, ncr, ncr_wrong)
        for attack, source, ncr, ncr_wrong in earned
        if ncr > ncr_wrong
    ]
    return tuple(sorted(found, key=lambda one: (one.ncr_wrong - one.ncr, one.attack.value)))


def _guard(
    entries: Sequence[Entry], texts: Sequence[str], matched: BatchResult
) -> npt.NDArray[np.float64]:
    """Return the (n,) factors of the guard for texts that were matched for these problems."""
    budgets, nodes = [one.budget for one in entries], [one.num_nodes for one in entries]
    return factors_of(*counted(matched), budgets, nodes, texts)


def _attack(
    chunk: Sequence[_Target], budget: int, tallies: dict[Attack, _Tally], threads: int
) -> None:
    for start in range(0, len(chunk), CHUNK_ATTACKED):
        tries = [
            (entry, attack, text)
            for entry, problem in chunk[start : start + CHUNK_ATTACKED]
            for attack, text in _attacks(problem, entry, budget)
        ]
        entries, texts = [entry for entry, _, _ in tries], [text for _, _, text in tries]
        matched = match_batch([entry.matcher for entry in entries], texts, threads=threads)
        guard = _guard(entries, texts, matched)
        for row, (entry, attack, text) in enumerate(tries):
            hits = matched.matched(row).astype(float)
            tallies[attack].add(entry, hits, hits * guard[row], len(text))


def _attacks(problem: str, entry: Entry, budget: int) -> Iterator[tuple[Attack, str]]:
    """Yield the attacks on a problem; without a problem's text only the enumeration."""
    yield Attack.ENUMERATION, enumeration(budget)
    if not problem.strip():
        return
    yield Attack.ECHO, problem
    yield Attack.QUANTITIES, quantities(problem, budget)
    numbers = numbers_in(problem)
    pairs, deep = pairs_of(numbers), pairs_of_pairs(numbers)
    statements, written, _ = entry.budget or least_budget(entry.num_nodes)
    yield Attack.PAIRS, pairs.cut(statements, written)
    text = pairs.prose()
    yield Attack.PADDED, text + "\n" + PADDING * (max(PADDED_CHARS - len(text), 0) // len(PADDING))
    yield Attack.DEEP, deep.prose()
    yield Attack.CODE, deep.python()
    yield from deep.wrapped()


def short_attacks(problem: str, budget: tuple[int, int, int]) -> Iterator[tuple[Attack, str]]:
    """Yield the attacks on one problem that a build measures."""
    if problem.strip():
        numbers = numbers_in(problem)
        yield Attack.QUANTITIES, quantities(problem, SHORT_CHARS)
        yield Attack.PAIRS, pairs_of(numbers).cut(*budget[:2])
        yield from pairs_of_pairs(numbers, SHORT_DEEP_CHARS).wrapped()


def _chance(
    chunk: Sequence[_Target], survey: RolloutSurvey, tallies: dict[Attack, _Tally], threads: int
) -> None:
    sample = survey.sample.of(chunk[0][0].data_source)
    if not sample:
        return
    texts = [one.text for one in sample]
    owners = np.array([one.problem_id for one in sample], dtype=object)
    chars = float(np.mean([len(text) for text in texts]))
    problems = [
        (entry.problem_id, [node.expressions + (node.derived or ()) for node in entry.nodes])
        for entry, _ in chunk
    ]
    counted = match_batch([Matcher([])] * len(texts), texts, threads=threads)
    for (entry, _), hits in zip(chunk, match_unrelated(problems, sample, threads), strict=True):
        if len(hits):
            guard = _guard([entry] * len(texts), texts, counted)[owners != entry.problem_id]
            guarded = hits * guard[:, None]
            reached = float((guarded.mean(axis=1) >= REACHED).mean())
            rates = hit_rates(hits)
            tallies[Attack.UNRELATED].add(entry, rates, guarded.mean(axis=0), chars, reached)


@dataclass(slots=True)
class _Tally:
    """What one attack earns of each problem, and the problems where it earns most."""

    num_worst: int
    # By source, for each problem: NCR, the same unguarded, the guarded one without final nodes (NaN
    # without others), share of the texts that reach half of the nodes, characters of the text,
    # nodes that it hits.
    by_source: dict[str, list[tuple[float, ...]]] = field(default_factory=dict)
    problems: int = 0
    worst: list[tuple[float, int, WorstProblem]] = field(default_factory=list)

    def add(
        self,
        entry: Entry,
        rates: npt.NDArray[np.float64],
        guarded: npt.NDArray[np.float64],
        chars: float,
        reached: float | None = None,
    ) -> None:
        """Count one problem.

        Args:
            rates: (nodes,) 1 where the text hits a node, or the share of texts that do.
            guarded: (nodes,) the same, each hit counted with its text's guard.
            reached: share of the texts that reach half of the nodes; None for one text.
        """
        ncr = float(guarded.mean())
        others = guarded[[not node.is_final for node in entry.nodes]]
        without_final = float(others.mean()) if len(others) else float("nan")
        reached = float(ncr >= REACHED) if reached is None else reached
        row = (ncr, float(rates.mean()), without_final, reached, chars, float(rates.sum()))
        self.by_source.setdefault(entry.data_source, []).append(row)
        self.problems += 1
        if ncr > 0:
            order = np.argsort(-rates, kind="stable")
            hit = tuple(entry.nodes[at].node_id for at in order if rates[at] > 0)
            one = WorstProblem(entry.problem_id, entry.data_source, ncr, hit)
            heapq.heappush(self.worst, (ncr, -self.problems, one))
            if len(self.worst) > self.num_worst:
                heapq.heappop(self.worst)

    def report(self, attack: Attack) -> AttackReport:
        ordered = sorted(self.worst, key=lambda kept: (-kept[0], -kept[1]))
        return AttackReport(
            attack=attack,
            overall=_figures([row for rows in self.by_source.values() for row in rows]),
            by_source={source: _figures(rows) for source, rows in self.by_source.items()},
            worst=tuple(one for _, _, one in ordered),
        )


def _figures(rows: list[tuple[float, ...]]) -> AttackFigures:
    ncr, raw, without_final, reached, chars, hits = np.array(rows).T
    known = without_final[~np.isnan(without_final)]
    return AttackFigures(
        problems=len(rows),
        ncr=float(ncr.mean()),
        ncr_raw=float(raw.mean()),
        ncr_without_final=float(known.mean()) if len(known) else None,
        share_reached=float(reached.mean()),
        mean_chars=float(chars.mean()),
        hits_per_1000_chars=float(1000 * hits.sum() / chars.sum()) if chars.any() else 0.0,
    )


# What an attack earns, in every table of attacks: the fields of AttackFigures, in their order.
_EARNED: Final = (
    number("Problems"),
    percent("NCR", decimals=2),
    percent("unguarded", decimals=2),
    percent("without final", decimals=2),
    Column("NCR ≥ 50 %", scale=100.0, decimals=1),
    number("Characters"),
    number("Hits / 1,000 chars", decimals=2),
)


def attacks_table(report: ProbeReport) -> Table:
    """Return what attacks earn overall, with what they are and where they earn most."""
    rows = [
        [
            Cell(one.attack.value.replace("_", " "), note=one.description),
            *astuple(one.overall),
            ", ".join(f"{w.problem_id} ({100 * w.ncr:.0f} %)" for w in one.worst[:3]),
        ]
        for one in report.attacks
    ]
    return Table("What attacks earn", [words("Attack"), *_EARNED, words("earns most on")], [rows])


def attacks_by_source_table(report: ProbeReport) -> Table:
    """Return what attacks earn of each data source, and of all where there are several."""
    rows: list[TableRow] = []
    for one in report.attacks:
        sources = list(one.by_source.items())
        if len(sources) > 1:
            sources.append(("all", one.overall))
        rows += [
            [one.attack.value, source or "(none)", *astuple(figures)] for source, figures in sources
        ]
    columns = [words("Attack"), words("Data source"), *_EARNED]
    return Table("What attacks earn, by source", columns, [rows], sortable=True)


def density_table(report: ProbeReport) -> Table:
    """Return how densely real rollouts of each source hit their own nodes."""
    columns = [
        words("Real rollouts of"),
        number("Rollouts"),
        percent("NCR", decimals=2),
        number("Characters, median"),
    ]
    for unit in ("chars", "tokens"):
        columns.append(number(f"Hits / 1,000 {unit}, median", decimals=2))
        columns.append(number("99th percentile", decimals=2))
    # The fields of the figures stand in the order of the columns.
    rows = [[source or "(none)", *astuple(one)] for source, one in report.density.items()]
    return Table("How densely rollouts hit their own nodes", columns, [rows])


def cheap_notes(cheap: Sequence[CheapAttack]) -> Iterator[str]:
    """Yield a sentence for each source of which an attack earns more than being wrong does."""
    named: set[str] = set()
    for one in cheap:
        if one.data_source in named:
            continue
        named.add(one.data_source)
        more = sum(other.data_source == one.data_source for other in cheap) - 1
        others = f" ({more + 1} attacks score more than these)" if more else ""
        yield (
            f"attack `{one.attack.value}` scores {100 * one.ncr:.1f} % NCR on "
            f"{one_line(one.data_source) or 'problems without a source'}; wrong rollouts score "
            f"{100 * one.ncr_wrong:.1f} %{others}: store budgets if problems have none "
            "(consensusbench build --budgets), or drop nodes that need no reasoning"
        )


def worst_notes(report: ProbeReport) -> Iterator[str]:
    """Yield for each attack the problem of which it earns most."""
    for one in report.attacks:
        for worst in one.worst[:1]:
            yield (
                f"attack `{one.attack.value}` scores most on {one_line(worst.problem_id)!r}: "
                f"{100 * worst.ncr:.1f} % NCR by {one_line(', '.join(worst.node_ids), 80)}"
            )
