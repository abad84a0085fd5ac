"""Enumerations inside wrappers: a wrapped list must not earn more than the same list in prose.

A *line* wrapper rewrites each equation of an enumeration, a *text* wrapper encloses the joined
lines; any two of them combine.  ``python -m benchmarks.quality.wrappers`` scores each wrapper on
three sets of nodes, with the guard's budgets, and prints the worst first.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple, TypeAlias

import numpy as np

from benchmarks.markdown import demand, page_parser, publish, table
from benchmarks.measure import REPOSITORY
from benchmarks.quality.data import GOLD_NODES, read_gold, write_dataset
from consensusbench.quality.attacks import numbers_in, pairs_of_pairs, prose
from consensuspr.client import LocalClient, Rollout
from consensuspr.data import read_problems

AIME_NODES = Path("data/nodes/aime24_read_nodes.jsonl.gz")
SAMPLE = REPOSITORY / "examples/sample/dataset.jsonl"
MAX_PROBLEMS = 120
# A wrapper fails if it earns more than LIMIT where the plain lines earn at most PLAIN_LIMIT.
LIMIT = 0.10
PLAIN_LIMIT = 0.05

Rewrite: TypeAlias = Callable[[str], str]

TEMPLATES: Final = tomllib.loads((Path(__file__).parent / "wrappers.toml").read_text("utf-8"))

_NUMBER: Final = re.compile(r"\d+(?:\.\d+)?")
_DIGITS: Final = re.compile(r"(?<=\d)(?=\d)")
_TOKEN: Final = re.compile(r"\d+(?:\.\d+)?|[-+*/=]")
_RUN: Final = re.compile(r"(.{1,3}?)\1{9,}")
_ONES: Final = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen "
    "sixteen seventeen eighteen nineteen"
).split()
_TENS: Final = "twenty thirty forty fifty sixty seventy eighty ninety".split()


def inside(template: str) -> Rewrite:
    """Return a rewrite that puts a text at the `@` of a template, or its sides at `@l`, `@r`."""

    def rewrite(text: str) -> str:
        left, _, value = text.partition("=")
        if "@l" in template:
            return template.replace("@l", left).replace("@r", value)
        return template.replace("@", text)

    return rewrite


def numbers_as(spell: Rewrite) -> Rewrite:
    """Return a rewrite of each number."""
    return lambda text: _NUMBER.sub(lambda found: spell(found[0]), text)


def glued(separator: str) -> Rewrite:
    """Return a rewrite with a separator between the digits of each number."""
    return lambda text: _DIGITS.sub(lambda found: separator, text)


def tokens_as(template: str, separator: str) -> Rewrite:
    """Return a rewrite of each number and each sign."""
    return lambda text: separator.join(map(inside(template), _TOKEN.findall(text)))


def joined_by(separator: str) -> Rewrite:
    """Return a rewrite with other line breaks."""
    return lambda text: text.replace("\n", separator)


def translated(old: str, new: str) -> Rewrite:
    """Return a rewrite of each character of ``old`` to that of ``new``."""
    return lambda text: text.translate(str.maketrans(old, new))


def in_words(number: str) -> str:
    """Return a whole number below 1,000 in English."""
    if not number.isdigit() or int(number) > 999:
        return number
    hundreds, value = divmod(int(number), 100)
    if hundreds:
        return f"{_ONES[hundreds]} hundred" + (f" {in_words(str(value))}" if value else "")
    if value >= 20:
        return _TENS[value // 10 - 2] + (f"-{_ONES[value % 10]}" if value % 10 else "")
    return _ONES[value]


def _digits(zero: str) -> str:
    """Return the digits of another script."""
    return "".join(chr(ord(zero) + digit) for digit in range(10))


_OTHER_LINES: Final[dict[str, Rewrite]] = {
    "plain": lambda line: line,
    "full-width signs": lambda line: line.translate({c: c + 0xFEE0 for c in range(33, 127)}),
    "superscript digits": translated("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹"),
    "circled digits": translated("0123456789", "⓪①②③④⑤⑥⑦⑧⑨"),
    "thousands": numbers_as(lambda number: f"{int(number):,}" if number.isdigit() else number),
    "scientific": numbers_as(lambda number: f"{float(number):e}"),
    "hexadecimal": numbers_as(lambda number: hex(int(number)) if number.isdigit() else number),
    "number words": numbers_as(in_words),
    "words": lambda line: line.replace("*", " times ").replace("+", " plus ").replace("=", " is "),
    "\\times": lambda line: line.replace("*", "\\times "),
    "×, ÷": translated("*/", "×÷"),
    "fractions": lambda line: re.sub(r"([\d.]+)/([\d.]+)", r"\\frac{\1}{\2}", line),
    "value first": lambda line: "=".join(reversed(line.split("="))),
}
# A line wrapper rewrites one equation, a text wrapper the joined lines.
LINES: Final[Mapping[str, Rewrite]] = (
    _OTHER_LINES
    | {template: inside(template) for template in TEMPLATES["lines"] + TEMPLATES["sides"]}
    | {f"numbers {one}": numbers_as(inside(one)) for one in TEMPLATES["numbers"]}
    | {f"digits glued by {glue}": glued(glue) for glue in TEMPLATES["glue"]}
    | {
        f"digits from {zero}": translated("0123456789", _digits(zero))
        for zero in TEMPLATES["zeros"]
    }
    | {f"tokens {one}": tokens_as(one, "") for one in TEMPLATES["tokens"]}
    | {f"tokens by {glue}": tokens_as("@", glue) for glue in TEMPLATES["token_separators"]}
)
TEXTS: Final[Mapping[str, Rewrite]] = (
    {"plain": lambda text: text}
    | {template: inside(template) for template in TEMPLATES["texts"]}
    | {f"joined by {separator}": joined_by(separator) for separator in TEMPLATES["separators"]}
)


class Earned(NamedTuple):
    """Means over the problems of a set."""

    ncr: float
    ncr_raw: float
    guard: float
    chars: float


@dataclass(frozen=True, slots=True)
class WrapperFigures:
    """NCR of one wrapper, by set of nodes."""

    line: str
    text: str
    earned: dict[str, Earned]

    @property
    def name(self) -> str:
        """The parts of the wrapper."""
        parts = [ascii(part)[1:-1] for part in (self.line, self.text) if part != "plain"]
        return _RUN.sub(r"\1…\1", " in ".join(parts)) or "plain"

    def excess(self, plain: WrapperFigures) -> tuple[float, str]:
        """Return the highest NCR among sets where plain lines earn little, and the set."""
        return max(
            (
                (earned.ncr, name)
                for name, earned in self.earned.items()
                if plain.earned[name].ncr <= PLAIN_LIMIT
            ),
            default=(0.0, ""),
        )


def measure(
    datasets: Mapping[str, Path], wrappers: Iterable[tuple[str, str]]
) -> Iterator[WrapperFigures]:
    """Score wrapped pairs of pairs on all problems of all datasets, in this process."""
    with LocalClient(datasets) as client:
        lists = {
            name: [
                (problem.problem_id, prose(pairs_of_pairs(numbers_in(problem.problem))))
                for problem in read_problems(path)
            ]
            for name, path in datasets.items()
        }
        for line, text in wrappers:
            earned: dict[str, Earned] = {}
            for name, problems in lists.items():
                rollouts = [Rollout(one, wrapped(lines, line, text)) for one, lines in problems]
                scores = client.score(rollouts, dataset=name)
                figures = [
                    (score.ncr, score.ncr_raw, score.guard, len(rollout.response))
                    for score, rollout in zip(scores, rollouts, strict=True)
                ]
                earned[name] = Earned(*map(float, np.array(figures, float).mean(axis=0)))
            yield WrapperFigures(line, text, earned)


def wrapped(lines: str, line: str, text: str) -> str:
    """Return an enumeration inside a line wrapper and a text wrapper."""
    return TEXTS[text]("\n".join(map(LINES[line], lines.split("\n"))))


def wrappers_table(figures: Sequence[WrapperFigures], plain: WrapperFigures) -> str:
    """Return a row for each wrapper, plain lines on top."""
    rows = []
    for wrapper in (plain, *figures):
        _, dataset_name = wrapper.excess(plain)
        *shares, chars = wrapper.earned[dataset_name]
        shares += [earned.ncr for earned in wrapper.earned.values()]
        cells = [f"{share:.3f}" for share in shares]
        rows.append([f"`{wrapper.name}`", dataset_name, *cells[:3], f"{chars:,.0f}", *cells[3:]])
    headings = ["wrapper", "most of", "NCR", "raw", "guard", "characters", *plain.earned]
    return table(headings, rows, 2)


def chosen() -> Iterator[tuple[str, str]]:
    """Yield each wrapper alone, and the paired ones of the templates."""
    yield from ((line, "plain") for line in LINES)
    yield from (("plain", text) for text in TEXTS if text != "plain")
    for text in TEMPLATES["paired_texts"]:
        yield from ((line, text) for line in TEMPLATES["paired_lines"])


def main() -> int:
    """Print the figures; return 1 if a wrapper earns more than the limit."""
    parser = page_parser("benchmarks.quality.wrappers", __doc__)
    parser.add_argument("--show", type=int, default=0, help="rows to print (all)")
    arguments = parser.parse_args()
    shared = demand([GOLD_NODES, AIME_NODES])
    with TemporaryDirectory(prefix="wrappers-") as folder:
        sets = {
            "gsm8k": read_gold(shared),
            "aime": list(read_problems(shared / AIME_NODES)),
            "sample": list(read_problems(SAMPLE)),
        }
        paths = {name: Path(folder) / f"{name}.jsonl" for name in sets}
        for name, problems in sets.items():
            # Without ground truths no answer is checked.
            with_nodes = [replace(one, ground_truth=None) for one in problems if one.nodes]
            step = max(len(with_nodes) // MAX_PROBLEMS, 1)
            write_dataset(paths[name], with_nodes[::step][:MAX_PROBLEMS])
        plain, *figures = measure(paths, [("plain", "plain"), *chosen()])
    ordered = sorted(figures, key=lambda one: -one.excess(plain)[0])
    failed = [one for one in ordered if one.excess(plain)[0] > LIMIT]
    shown = wrappers_table(ordered[: arguments.show or None], plain)
    verdict = f"{len(failed)} of {len(figures)} wrappers earn more than {LIMIT:.2f}."
    publish({"wrappers": f"{shown}\n\n{verdict}"}, arguments.write)
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
