"""An explanation as a person reads it: what was asked, the marked response, nodes, score."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

from consensuspr.cli.console import one_line, printable
from consensuspr.cli.marking import Mark, Marker, choose_marker, mark_response, node_style
from consensuspr.scoring import RewardKind, RewardSpec, Score

if TYPE_CHECKING:  # at run time these would load the core
    from consensuspr.scoring import Explanation, NodeExplanation


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
