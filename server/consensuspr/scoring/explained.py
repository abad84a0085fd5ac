"""An explanation as text: the response with its hits marked, a table of nodes, and the score."""

from __future__ import annotations

import io
import re
from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

from consensuspr.console import count_of, one_line, printable
from consensuspr.scoring.marks import Mark, cut_at_marks, parts_to_show, words_found
from consensuspr.scoring.responses import END_OF_THINKING, scored_from
from consensuspr.scoring.rewards import NcrKind, RewardSpec

if TYPE_CHECKING:
    from consensuspr.scoring.types import Explanation, Score

# Colours of nodes in turn, all from the 16 that a terminal theme defines.
_COLORS = ("green", "cyan", "magenta", "yellow", "blue", "red")
# Expressions of a node that was not found; --full shows all.
_SHOWN_EXPRESSIONS = 3
# Characters of a hit that the table shows; --full shows all.
_WORDS = 240
# How a node is found in other words than its own, by its channel.
_FOUND = {
    "statement": "found as arithmetic with the same numbers",
    "code": "found as a value in code",
    "equation": "found as an equal equation",
}
# Columns of an explanation that is printed in Python.
_WIDTH = 100
# A number, with separators of thousands as prose and LaTeX write them.
_NUMBER = re.compile(r"\d+(?:(?:,|\{,\}|\\,)\d{3}(?!\d))*(?:\.\d+)?", re.ASCII)
# A side of an equation that is a number, with a unit or without.
_RESULT = re.compile(rf"[\s$]*({_NUMBER.pattern})[^\d/*^+-]*", re.ASCII)
# A side that is a name, and a variable, which makes a calculation an equation.
_NAME = re.compile(r"[\s$]*([A-Za-z]\w{0,20})[\s$]*")
_VARIABLE = re.compile(r"(?<![A-Za-z\\])[A-Za-z]{1,2}(?![A-Za-z])")
_QUOTIENT = re.compile(r"(?<!\d)(\d+)\s*/\s*(\d+)")
_RATIO = re.compile(r"\b(\d+)\s*:\s*(?=(\d+)\b)")
_SIGN = r"(?:[-+−*/^·×÷]|\\(?:cdot|times|div)\b|frac\{|\}\{|:(?=[\s\d]))"
# A number of a text, with what makes it part of a name or of a term, or an operand.
_STATED = re.compile(
    rf"^[ \t]*\d+[.)](?=\s)"  # of a list
    rf"|(?:(?P<part>[A-Za-z]|[_^][ {{]*)|(?P<operand>{_SIGN}[ $]*))?"
    rf"(?P<number>{_NUMBER.pattern})"
    rf"(?:(?P<factor>(?=[A-Za-z](?![A-Za-z])|\())|(?P<first>(?=[ $]*{_SIGN})))?",
    re.ASCII | re.MULTILINE,
)
_SEPARATORS = str.maketrans("", "", "{},\\")
_SUBSCRIPTS = str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")


def print_explanation(
    console: Console,
    explanation: Explanation,
    *,
    title: str = "",
    full: bool = False,
    expected: str | None = None,
    problem: str = "",
) -> None:
    """Print a response with its hits marked, its nodes and its score.

    Args:
        full: show all of a long response, and all expressions of a node.
        expected: the ground truth, if it is known.
        problem: text of the problem, if it is known.
    """
    response = explanation.response
    if isinstance(response, bytes):
        response = response.decode(errors="replace")
    marks = [
        Mark(*node.span, number)
        for number, node in enumerate(explanation.nodes, start=1)
        if node.span is not None
    ]
    if title:
        console.print(Text(one_line(title, 200), style="bold"), end="\n\n")
    # A hit must stay on one line to be found in a pipe. A recorded picture has to be wrapped.
    coloured = console.color_system is not None and not console.no_color
    marked = mark_hits(response, marks, brackets=not coloured, full=full)
    console.print(marked, soft_wrap=not console.record, end="\n\n")
    if explanation.nodes:
        console.print(_node_table(explanation, response, full, problem))
        console.print()
    for name, text in _score_lines(explanation, response, expected):
        console.print(Text.assemble((f"{name:7}", "bold"), text))


def as_text(explanation: Explanation) -> str:
    """Return what :func:`print_explanation` prints, without colours."""
    file = io.StringIO()
    print_explanation(
        Console(file=file, width=_WIDTH, color_system=None, highlight=False), explanation
    )
    return "\n".join(line.rstrip() for line in file.getvalue().splitlines())


def mark_hits(
    response: str, marks: Sequence[Mark], *, brackets: bool = False, full: bool = False
) -> Text:
    """Return the response as text with every hit in its node's style, followed by its number.

    Args:
        brackets: also enclose hits, for a console without colour. Hits that begin or end together
            share a bracket.
        full: show all of a long response.
    """
    text = Text()
    opening, closing = ("⟦", "⟧") if brackets else ("", "")
    end_of_last, length = 0, len(response)
    for start, end in [(0, length)] if full else parts_to_show(response, marks):
        _append_gap(text, start - end_of_last)
        for piece in cut_at_marks(response, marks, start, end):
            if brackets and piece.begins:
                text.append(opening + ",".join(map(_label, piece.begins)))
            text.append(printable(piece.text), style=node_style(piece.node) if piece.node else None)
            for at, node in enumerate(sorted(piece.ends)):
                text.append("," * bool(at))
                text.append(_label(node), style=f"bold {_color(node)}")
            text.append(closing * bool(piece.ends))
        end_of_last = end
    _append_gap(text, length - end_of_last)
    return text


def _label(node: int) -> str:
    return str(node).translate(_SUBSCRIPTS)


def node_style(node: int) -> str:
    """Return the style of a node's hits, by its number; neighbours differ."""
    return f"bold reverse {_color(node)}" + " underline" * ((node - 1) // len(_COLORS) % 2)


def _color(node: int) -> str:
    return _COLORS[(node - 1) % len(_COLORS)]


def _append_gap(text: Text, skipped: int) -> None:
    if skipped:
        text.append(f"\n⋯ {skipped:,} characters not shown ⋯\n", style="dim")


def _node_table(explanation: Explanation, response: str, full: bool, problem: str) -> Table:
    start = scored_from(response) if explanation.identity.reward.after_think else 0
    given = {_number(each) for each in _NUMBER.findall(problem)}
    values = set(_values_stated(response, start)) - given
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("Node", justify="right", no_wrap=True)
    table.add_column("")
    table.add_column("What it states", overflow="fold")
    table.add_column("Expression", overflow="fold")
    table.add_column("By", no_wrap=True)
    for number, node in enumerate(explanation.nodes, start=1):
        label = one_line(node.label or (node.expressions[0] if node.expressions else ""), 100)
        remarks = ["final answer"] * node.is_final + ["does not count"] * (not node.counts)
        found = Text(one_line(node.expression))
        words = words_found(response, node.span, node.expression, None if full else _WORDS)
        if words and node.channel in _FOUND:
            found.append(f"\n{_FOUND[node.channel]}: ", style="dim")
            found.append(one_line(words))
        if not node.matched:
            texts = node.expressions if full else node.expressions[:_SHOWN_EXPRESSIONS]
            shown = " | ".join(one_line(text, 1000 if full else 40) for text in texts)
            hidden = len(node.expressions) - len(texts)
            ending = f" | {hidden} more" if hidden else ""
            hint = _hint(node.expressions[0], response, values) if node.expressions else ""
            found = Text(f"not found: {shown}{ending}{hint}", style="dim")
        table.add_row(
            Text(f" {number} ", style=node_style(number) if node.matched else "dim"),
            Text("✓", style="green") if node.matched else Text("✗", style="red"),
            Text(label + (f" ({', '.join(remarks)})" if remarks else "")),
            found,
            Text(node.channel),
        )
    return table


def _values_stated(response: str, start: int) -> Iterator[float]:
    """Yield the numbers of a response that can be results.

    These are not numbers of list items, exponents, indices and coefficients, nor operands of one
    digit, which are too common.
    """
    for found in _STATED.finditer(response, start):
        number = found["number"]
        if number and found["part"] is None and found["factor"] is None:
            operand = found["operand"] is not None or found["first"] is not None
            if len(number) > 1 or not operand:
                yield _number(number)


def _hint(expression: str, response: str, values: Collection[float]) -> str:
    """Return a hint if a response states the value of an expression, but not how it comes about.

    Args:
        values: numbers that the response states and the problem does not.
    """
    left, _, right = expression.rpartition("=")
    result, name = _RESULT.fullmatch(right), _NAME.fullmatch(left)
    if result is None or _number(result[1]) not in values:
        return ""
    if name:
        return f" (the value {result[1]} occurs, but not as {name[1]})"
    if _VARIABLE.search(left) or len(_NUMBER.findall(left)) < 2:
        return ""
    ratios = set(_RATIO.findall(response))
    for above, below in _QUOTIENT.findall(left):
        if (above, below) in ratios:
            return f" ({above}:{below} occurs, but ':' is not read as division)"
    return f" (the value {result[1]} occurs, but not this calculation)"


def _number(text: str) -> float:
    return float(text.translate(_SEPARATORS))


def _score_lines(
    explanation: Explanation, response: str, expected: str | None
) -> Iterator[tuple[str, str]]:
    """Yield the lines of the score: a name and its text."""
    score, reward = explanation.score, explanation.identity.reward
    yield "Status", score.status + (f": {printable(score.message)}" if score.message else "")
    answer = ""
    if score.acc is not None:
        found = "no final answer found"
        if score.answer is not None:
            found = f"answer '{one_line(score.answer, 80)}'"
        wanted = "" if expected is None else f", expected '{one_line(expected, 80)}'"
        answer = f" ({found}{wanted})"
    yield "Acc", _value(score.acc, ".0f") + answer
    if score.ncr is not None:
        yield "NCR", f"{score.ncr:.3f}{_sum_of_ncr(score, reward)}"
        if explanation.guard is not None:
            figures = explanation.guard
            yield (
                "Guard",
                f"{_value(score.guard, '.3f')}: {count_of(figures.statements, 'result')} of"
                f" calculations (max {figures.max_statements:,.4g}),"
                f" {count_of(figures.numbers, 'number')} (max {figures.max_numbers:,.4g})"
                + (
                    f", {count_of(figures.equations, 'equation')}"
                    f" (max {figures.max_equations:,.4g})"
                    if figures.equations
                    else ""
                ),
            )
    if score.tpn is not None:
        yield "TPN", f"{score.tpn:,.1f} tokens per node"
    formula = reward.formula(explanation.identity.epoch)
    yield "Reward", f"{_value(score.reward, '.3f')} = {formula}"
    if reward.after_think:
        part = f"nothing: the response has no {END_OF_THINKING}"
        if END_OF_THINKING in response:
            first = scored_from(response) + 1
            part = f"only the text after the last {END_OF_THINKING}, from character {first:,} on"
        yield "Scored", part


def _sum_of_ncr(score: Score, reward: RewardSpec) -> str:
    counted = f"{score.num_matched} of {count_of(score.num_nodes, 'node')}"
    raw = _value(score.ncr_raw, ".3f")
    if reward.ncr != NcrKind.PLAIN:
        summed = "weights" if reward.ncr == NcrKind.WEIGHTED else "positions"
        counted = f"{raw} of the {summed}, {counted}"
    if score.ncr == 0 and score.ncr_raw:  # the guard's factor is above 0
        return f" ({counted}, without a marked final answer: unanswered={reward.unanswered})"
    if score.guard in (None, 1.0):
        return f" = {counted}"
    return f" = {raw} ({counted}) · {score.guard:.3f} (guard)"


def _value(value: float | None, form: str) -> str:
    return "unknown" if value is None else format(value, form)
