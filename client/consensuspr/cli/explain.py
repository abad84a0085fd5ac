"""A response with its node hits marked, as text for a terminal.

Each node has a colour and a number; the number stays where there is no colour.  Hits may
overlap (``5*2=10`` and ``10``): the shorter hit's colour is on top, and every hit carries
its number at both ends where marks are needed.  Only the neighbourhood of hits is shown of
a long response unless all of it is asked for.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from consensuspr.cli.options import (
    Address,
    Alpha,
    AnswerRuleChoice,
    Color,
    DatasetChoice,
    Epoch,
    Json,
    OnUndecidedChoice,
    Reward,
    RolloutsPath,
    SwitchEpoch,
    Timeout,
    reward_spec,
)
from consensuspr.client.files import connect
from consensuspr.console import ColorMode, make_console, one_line, printable
from consensuspr.data import Row, read_rollouts
from consensuspr.errors import InputError
from consensuspr.scoring import OnUndecided, RewardKind, RewardSpec, Score, rollout_from_row

if TYPE_CHECKING:
    from consensuspr.scoring import Explanation, NodeExplanation


# Colours of nodes in turn, all from the 16 that a terminal theme defines.
_COLORS = ("green", "cyan", "magenta", "yellow", "blue", "red")

# A response up to this long is shown whole; of a longer one this much around each hit.
WHOLE_CHARS = 4000
CONTEXT_CHARS = 240

_SUBSCRIPTS = str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")


@dataclass(frozen=True, slots=True)
class Mark:
    """One hit: code points ``[start, end)`` of the response, and the node's number from 1."""

    start: int
    end: int
    number: int


@dataclass(frozen=True, slots=True)
class Marker:
    """How marks are written.

    Attributes:
        brackets: opening and closing sign around each hit; empty where colour does it.
        subscript: write node numbers as subscripts, which needs a Unicode terminal.
    """

    brackets: tuple[str, str] = ("", "")
    subscript: bool = True

    def label(self, number: int) -> str:
        """Return the number of a node as it stands beside a hit."""
        return str(number).translate(_SUBSCRIPTS) if self.subscript else f"_{number}"


def choose_marker(*, color: bool, encoding: str) -> Marker:
    """Return the marker for an output with or without colour and of this encoding."""
    wide = encoding.lower().startswith("utf")
    if color:
        return Marker(subscript=wide)
    return Marker(brackets=("⟦", "⟧") if wide else ("[[", "]]"), subscript=wide)


def node_style(number: int) -> str:
    """Return the style of a node's hits; neighbours in number differ."""
    round_again = (number - 1) // len(_COLORS) % 2
    return f"bold reverse {_color(number)}" + " underline" * round_again


def mark_response(
    response: str, marks: Sequence[Mark], marker: Marker, *, full: bool = False
) -> Text:
    """Return the response as text with every mark in its node's style.

    Args:
        response: the response as the model wrote it.
        marks: hits inside the response, in any order.
        marker: how marks are written.
        full: show all of a long response.
    """
    text = Text()
    end_of_last = 0
    for start, end in _shown_parts(len(response), marks, full):
        _append_gap(text, start - end_of_last)
        _append_part(text, response, start, end, marks, marker)
        end_of_last = end
    _append_gap(text, len(response) - end_of_last)
    return text


def _shown_parts(length: int, marks: Sequence[Mark], full: bool) -> list[tuple[int, int]]:
    """Return the half-open parts to show, in order and apart from each other."""
    if full or length <= WHOLE_CHARS:
        return [(0, length)]
    # Beginning and end orient the reader: the question's restatement and the answer.
    wanted = [(0, CONTEXT_CHARS), (length - CONTEXT_CHARS, length)]
    wanted += [(mark.start - CONTEXT_CHARS, mark.end + CONTEXT_CHARS) for mark in marks]
    parts: list[tuple[int, int]] = []
    for start, end in sorted(wanted):
        start, end = max(start, 0), min(end, length)
        if parts and start <= parts[-1][1]:
            parts[-1] = (parts[-1][0], max(end, parts[-1][1]))
        else:
            parts.append((start, end))
    return parts


def _append_gap(text: Text, skipped: int) -> None:
    if skipped:
        text.append(f"\n⋯ {skipped:,} characters not shown ⋯\n", style="dim")


def _append_part(
    text: Text, response: str, start: int, end: int, marks: Sequence[Mark], marker: Marker
) -> None:
    inside = [mark for mark in marks if start <= mark.start and mark.end <= end]
    edges = sorted({start, end, *(m.start for m in inside), *(m.end for m in inside)})
    opening, closing = marker.brackets
    for left, right in pairwise(edges):
        if opening:
            for mark in _widest_first(m for m in inside if m.start == left):
                text.append(opening + marker.label(mark.number))
        covering = [m for m in inside if m.start <= left and right <= m.end]
        top = min(covering, key=lambda m: (m.end - m.start, m.number), default=None)
        style = node_style(top.number) if top else None
        text.append(printable(response[left:right]), style=style)
        for mark in reversed(_widest_first(m for m in inside if m.end == right)):
            text.append(marker.label(mark.number) + closing, style=f"bold {_color(mark.number)}")


def _widest_first(marks: Iterable[Mark]) -> list[Mark]:
    return sorted(marks, key=lambda mark: (mark.start - mark.end, mark.number))


def _color(number: int) -> str:
    return _COLORS[(number - 1) % len(_COLORS)]


# MERGED An explanation as a person reads it: what was asked, the marked response, nodes, score.


def marker_for(console: Console) -> Marker:
    """Return how hits are marked on this console."""
    color = console.color_system is not None and not console.no_color
    return choose_marker(color=color, encoding=console.encoding)


def print_explanation(
    console: Console, explanation: Explanation, response: str, *, title: str, full: bool = False
) -> None:
    """Print an explanation.

    Args:
        console: where to; decides how hits are marked.
        explanation: of the response.
        response: the response as the model wrote it.
        title: which rollout this is.
        full: show all of a long response.
    """
    marker = marker_for(console)
    marks = [
        Mark(*node.span, number)
        for number, node in enumerate(explanation.nodes, start=1)
        if node.span is not None
    ]
    console.print(Text(one_line(title, 200), style="bold"))
    console.print()
    # Long lines are left to the terminal: wrapped here, a hit could not be searched for in a
    # pipe.  A picture has nobody else to wrap them.
    marked = mark_response(response, marks, marker, full=full)
    console.print(marked, soft_wrap=not console.record)
    console.print()
    if explanation.nodes:
        console.print(_node_table(explanation.nodes, marker))
        console.print()
    for line in _score_lines(explanation.score, explanation.identity.reward, explanation):
        console.print(line)


def _node_table(nodes: tuple[NodeExplanation, ...], marker: Marker) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("Node", justify="right", no_wrap=True)
    table.add_column("")
    table.add_column("What it states", overflow="fold")
    table.add_column("Found as", overflow="fold")
    for number, node in enumerate(nodes, start=1):
        label = one_line(node.label or (node.expressions[0] if node.expressions else ""), 60)
        table.add_row(
            Text(f" {number} ", style=node_style(number) if node.matched else "dim"),
            Text(_tick(node.matched, marker), style="green" if node.matched else "red"),
            Text(label + (" (final answer)" if node.is_final else "")),
            _found(node),
        )
    return table


def _tick(matched: bool, marker: Marker) -> str:
    if not marker.subscript:  # an output without Unicode
        return "yes" if matched else "no"
    return "✓" if matched else "✗"


def _found(node: NodeExplanation) -> Text:
    if node.matched:
        return Text(one_line(node.expression))
    looked_for = " | ".join(one_line(expression, 40) for expression in node.expressions[:3])
    more = len(node.expressions) - 3
    return Text(f"not found: {looked_for}" + (f" | {more} more" if more > 0 else ""), style="dim")


def _score_lines(score: Score, reward: RewardSpec, explanation: Explanation) -> list[Text]:
    lines = [Text.assemble(("Status ", "bold"), score.status.value)]
    if score.message:
        lines[0].append(f": {printable(score.message)}")
    lines.append(Text.assemble(("Acc    ", "bold"), _value(score.acc, ".0f"), _answer(score)))
    if score.ncr is not None:
        share = f" = {score.num_matched} of {score.num_nodes} nodes"
        lines.append(Text.assemble(("NCR    ", "bold"), f"{score.ncr:.3f}{share}"))
    if score.tpn is not None:
        lines.append(Text.assemble(("TPN    ", "bold"), f"{score.tpn:,.1f} tokens per node"))
    how = _formula(reward, explanation.identity.epoch)
    lines.append(Text.assemble(("Reward ", "bold"), f"{_value(score.reward, '.3f')} = {how}"))
    return lines


def _value(value: float | None, form: str) -> str:
    return "unknown" if value is None else format(value, form)


def _answer(score: Score) -> Text:
    if score.acc is None:
        return Text()
    if score.answer is None:
        return Text(" (no final answer found)")
    return Text(f" (answer {one_line(score.answer, 80)!r}, decided by {score.answer_method})")


def _formula(reward: RewardSpec, epoch: int) -> str:
    match reward.kind:
        case RewardKind.LINEAR:
            return f"{reward.alpha:g} · Acc + {1 - reward.alpha:g} · NCR"
        case RewardKind.MAX:
            return "max(Acc, NCR)"
        case RewardKind.CURRICULUM:
            stage = "NCR" if epoch < reward.switch_epoch else "Acc"
            return f"{stage} (curriculum, epoch {epoch}, switch at {reward.switch_epoch})"
        case RewardKind.OUTCOME:
            return "Acc"


# MERGED ``consensuspr explain``: show why one rollout got its score.


def explain(
    rollouts: RolloutsPath,
    *,
    dataset: DatasetChoice = None,
    rollout_id: Annotated[
        str | None,
        typer.Option(metavar="ID", show_default=False, help="Rollout with this rollout_id."),
    ] = None,
    row: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", show_default=False, help="The N-th rollout, from 1."),
    ] = None,
    address: Address = None,
    reward: Reward = RewardKind.LINEAR,
    alpha: Alpha = 0.5,
    epoch: Epoch = 0,
    switch_epoch: SwitchEpoch = 1,
    answer_rule: AnswerRuleChoice = None,
    on_undecided: OnUndecidedChoice = OnUndecided.COUNT_WRONG,
    full: Annotated[
        bool,
        typer.Option("--full", help="Show all of a long response, not only around its hits."),
    ] = False,
    timeout: Timeout = None,
    as_json: Json = False,
    color: Color = ColorMode.AUTO,
) -> None:
    """Show one rollout with every node hit marked, and how its reward came about.

    ```text
    consensuspr explain rollouts.jsonl --dataset problems.jsonl --rollout-id r17
    ```

    Each node has a number and a colour; the table below the response says which of its
    expressions was found. Control characters in the response are written out.
    """
    spec = reward_spec(reward, alpha, switch_epoch)
    chosen = _find(rollouts, rollout_id, row)
    with connect(dataset, address, timeout) as connection:
        explanation = connection.client.explain(
            rollout_from_row(chosen),
            reward=spec,
            epoch=epoch,
            dataset=connection.dataset,
            answer_rule=answer_rule,
            on_undecided=on_undecided,
        )
    if as_json:
        print(json.dumps(asdict(explanation)))
        return
    name = chosen.get("rollout_id") or f"row {row}"
    print_explanation(
        make_console(color),
        explanation,
        chosen["response"],
        title=f"{name}, problem {chosen['problem_id']}",
        full=full,
    )


def _find(path: Path, rollout_id: str | None, row: int | None) -> Row:
    """Return the row that was asked for.

    Raises:
        InputError: not exactly one of the two ways to ask was used, or there is no such row.
    """
    if (rollout_id is None) == (row is None):
        raise InputError("give either --rollout-id ID or --row N")
    for number, candidate in enumerate(read_rollouts(path), start=1):
        if number == row or (row is None and candidate.get("rollout_id") == rollout_id):
            return candidate
    wanted = f"row {row}" if row is not None else f"rollout_id {rollout_id!r}"
    raise InputError(f"{path}: holds no {wanted} among its {number:,} rollouts")
