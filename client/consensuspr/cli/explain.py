"""``consensuspr explain``: show why one rollout got its score.

Each node has a colour and a number; the number stays where there is no colour.  Of overlapping
hits the shorter one's colour is on top, and every hit carries its number where it ends
(:mod:`consensuspr.scoring.marks` cuts the response).
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from pydantic import Field
from rich.console import Console
from rich.table import Table
from rich.text import Text

from consensuspr.cli.options import (
    REWARD_OPTIONS,
    Address,
    DatasetChoice,
    HowToScore,
    Json,
    TlsCa,
    TokenFile,
    access_of,
    with_settings,
)
from consensuspr.console import count_of, make_console, one_line, printable
from consensuspr.errors import InputError
from consensuspr.scoring.marks import Mark, Piece, cut_at_marks, parts_to_show
from consensuspr.scoring.rewards import NcrKind, RewardKind, RewardSpec
from consensuspr.scoring.types import END_OF_THINKING, scored_from

if TYPE_CHECKING:
    from consensuspr.client.verl.dumps import DumpedSample
    from consensuspr.data import Row
    from consensuspr.scoring import Explanation, GuardFigures, NodeExplanation, Score

# Colours of nodes in turn, all from the 16 that a terminal theme defines.
_COLORS = ("green", "cyan", "magenta", "yellow", "blue", "red")
# verl sums rewards by token in 32 bits.
_SINGLE_PRECISION = 1e-5
_SUBSCRIPTS = str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")


class ExplainSettings(HowToScore):
    """How ``explain`` scores and what it shows."""

    full: bool = Field(False, description="Show all of a long response, not only near its hits.")


@with_settings(
    ExplainSettings, prefix="CONSENSUSPR_EXPLAIN", shown={**REWARD_OPTIONS, "full": None}
)
def explain(
    rollouts: Annotated[
        Path,
        typer.Argument(
            metavar="RUN|DUMP|ROLLOUTS",
            show_default=False,
            help="Folder of a run with its score log; verl's own dumps (STEP.jsonl, one or all of "
            "a folder); or rollouts: JSONL, JSONL.gz or Parquet.",
        ),
    ],
    *,
    dataset: DatasetChoice = None,
    rollout_id: Annotated[
        str | None,
        typer.Option(metavar="ID", show_default=False, help="Rollout with this rollout_id."),
    ] = None,
    row: Annotated[
        int | None,
        typer.Option(min=1, show_default=False, help="Of rollouts: the N-th, from 1."),
    ] = None,
    step: Annotated[
        int | None, typer.Option(show_default=False, help="Of a run or dump: samples of this step.")
    ] = None,
    group: Annotated[
        str | None,
        typer.Option(
            metavar="ID", show_default=False, help="Of a run or dump: samples of this group."
        ),
    ] = None,
    problem: Annotated[
        str | None,
        typer.Option(
            metavar="ID", show_default=False, help="Of a run or dump: samples of this problem."
        ),
    ] = None,
    worst: Annotated[
        int,
        typer.Option(
            metavar="K", min=1, help="Of a run or dump: so many, the lowest scores first."
        ),
    ] = 1,
    address: Address = None,
    token_file: TokenFile = None,
    tls_ca: TlsCa = None,
    settings: ExplainSettings,
    as_json: Json = False,
) -> None:
    """Show one rollout with every node hit marked, and how its reward came about.

    ```text
    consensuspr explain rollouts.jsonl --dataset dataset.jsonl --rollout-id r17
    consensuspr explain runs/qwen3-4b --step 40 --worst 3
    consensuspr explain dumps --dataset dataset.jsonl --alpha 0.3 --step 40 --worst 3
    ```

    Samples of a run are scored as they were then, with the dataset that the run keeps (or
    `--dataset`). verl's own dumps (`trainer.rollout_data_dir`, `trainer.validation_data_dir`) know
    neither dataset nor settings: give those of the training; where another score comes out than
    verl has, that is said.

    Each node has a number and a colour; the table below the response says which of its
    expressions was found. Control characters in the response are written out.
    """
    from consensuspr.client.files import connect
    from consensuspr.client.verl.dumps import is_dump
    from consensuspr.scoring import rollout_from_row

    wanted = {"step": step, "group_id": group, "problem_id": problem, "rollout_id": rollout_id}
    wanted = {name: value for name, value in wanted.items() if value is not None}
    dumped = is_dump(rollouts)
    if (dumped or rollouts.is_dir()) and row is not None:
        raise InputError("--row is for a file of rollouts; give --rollout-id, --step or --problem")
    if rollouts.is_dir() and not dumped:
        _explain_run(rollouts, dataset, wanted, worst, settings, as_json)
        return
    options = settings.options(spans=True)
    access = access_of(address, token_file, tls_ca)
    if dumped:
        samples = _of_dump(rollouts, wanted, worst)
        with connect(dataset, address, settings.timeout, access) as connection:
            options = replace(options, dataset=connection.dataset)
            explain_one = connection.client.explain_with
            explained = [(one, explain_one(one.rollout(), options)) for one in samples]
        _show_dumped(explained, settings, as_json)
        return
    chosen = _find(rollouts, rollout_id, row)
    with connect(dataset, address, settings.timeout, access) as connection:
        options = replace(options, dataset=connection.dataset)
        explanation = connection.client.explain_with(rollout_from_row(chosen), options)
    if as_json:
        print(json.dumps(_as_json(explanation)))
        return
    name = chosen.get("rollout_id") or f"row {row}"
    print_explanation(
        make_console(settings.color),
        explanation,
        chosen["response"],
        title=f"{name}, problem {chosen['problem_id']}",
        full=settings.full,
    )


def _as_json(explanation: Explanation) -> dict[str, Any]:
    told = asdict(explanation)
    del told["score"]["channel_numbers"]
    told["score"]["channels"] = explanation.score.channels
    return told


def _explain_run(
    run: Path,
    dataset: str | None,
    wanted: dict[str, Any],
    worst: int,
    settings: ExplainSettings,
    as_json: bool,
) -> None:
    """Explain the samples of a run that were chosen, those with the lowest scores."""
    from consensuspr.score_log import LogReader
    from consensuspr.score_log.replay import Datasets, explain_row
    from consensuspr.scoring import AnswerVerifier

    reader = LogReader(run)
    rows: list[dict[str, Any]] = []
    for batch in reader.read():
        for name, value in wanted.items():
            batch = batch.filter([one == value for one in batch.column(name).to_pylist()])
        # At most so many are held, however many there are.
        rows = sorted([*rows, *batch.to_pylist()], key=_final_score)[:worst]
    if not rows:
        raise _none_of(run, wanted)
    datasets = Datasets(reader.run, None if dataset is None else Path(dataset))
    console = make_console(settings.color)
    with AnswerVerifier() as verifier:
        explained = [(row, explain_row(row, datasets, verifier)) for row in rows]
    if as_json:
        print(json.dumps([_as_json(explanation) for _, explanation in explained]))
        return
    for row, explanation in explained:
        name = row["rollout_id"] or f"sample {row['key'].hex()}"
        title = f"{name}, step {row['step']}, problem {row['problem_id']}"
        print_explanation(console, explanation, row["response"], title=title, full=settings.full)
        if row["penalty"]:
            console.print(f"Trained on {row['final_score']:.3f}, penalty {row['penalty']:.3f}")


def _of_dump(path: Path, wanted: dict[str, Any], worst: int) -> list[DumpedSample]:
    """Return the samples of a dump that were chosen, those with the lowest scores."""
    from consensuspr.client.verl.dumps import read_dump

    nameless: list[DumpedSample] = []

    def chosen() -> Iterator[DumpedSample]:
        for sample in read_dump(path, wanted.get("step")):
            if sample.problem_id is None and not nameless:
                nameless.append(sample)
            if all(getattr(sample, name) == value for name, value in wanted.items()):
                yield sample

    found = heapq.nsmallest(worst, chosen(), key=lambda sample: sample.final_score)
    if not found:
        for sample in nameless if "problem_id" in wanted else ():
            sample.rollout()  # says why
        raise _none_of(path, wanted)
    return found


def _show_dumped(
    explained: list[tuple[DumpedSample, Explanation]], settings: ExplainSettings, as_json: bool
) -> None:
    if as_json:
        print(json.dumps([_as_json(explanation) for _, explanation in explained]))
        return
    console = make_console(settings.color)
    for sample, explanation in explained:
        title = f"{sample.rollout_id or sample.place}, step {sample.step}"
        title += f", problem {sample.problem_id}"
        print_explanation(console, explanation, sample.response, title=title, full=settings.full)
        if sample.penalty:
            console.print(f"Trained on {sample.final_score:.3f}, penalty {sample.penalty:.3f}")
        reward = explanation.score.reward
        if reward is None or not abs(reward - sample.reward) <= _SINGLE_PRECISION:
            status = f", status {one_line(sample.status)}" if sample.status else ""
            console.print(
                f"verl has {sample.reward:.3f}{status}: trained with other settings or another"
                " dataset, or parts of the text are not the policy's",
                markup=False,
            )


def _none_of(path: Path, wanted: dict[str, Any]) -> InputError:
    named = ", ".join(f"{name} {value!r}" for name, value in wanted.items())
    return InputError(f"{path}: holds no sample of {named or 'any kind'}")


def _final_score(row: dict[str, Any]) -> float:
    """Return what a sample was trained on; what has no reward comes first."""
    for name in ("final_score", "reward"):
        if row[name] is not None:
            return float(row[name])
    return float("-inf")


def _find(path: Path, rollout_id: str | None, row: int | None) -> Row:
    """Return the row that was asked for.

    Raises:
        InputError: not exactly one of the two ways to ask was used, or there is no such row.
    """
    from consensuspr.data import read_rollouts

    if (rollout_id is None) == (row is None):
        raise InputError("give either --rollout-id ID or --row N")
    for number, candidate in enumerate(read_rollouts(path), start=1):
        if number == row or (row is None and candidate.get("rollout_id") == rollout_id):
            return candidate
    wanted = f"row {row}" if row is not None else f"rollout_id {rollout_id!r}"
    raise InputError(f"{path}: holds no {wanted} among its {count_of(number, 'rollout')}")


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
    marker = Marker.of(console)
    marks = [
        Mark(*node.span, number)
        for number, node in enumerate(explanation.nodes, start=1)
        if node.span is not None
    ]
    console.print(Text(one_line(title, 200), style="bold"))
    console.print()
    # Long lines are left to the terminal: wrapped here, a hit could not be searched for in a
    # pipe.  A picture has nobody else to wrap them.
    console.print(marker.mark(response, marks, full=full), soft_wrap=not console.record)
    console.print()
    if explanation.nodes:
        console.print(_node_table(explanation.nodes, marker))
        console.print()
    for line in _score_lines(explanation.score, explanation.identity.reward, explanation):
        console.print(line)
    if explanation.identity.reward.after_think:
        console.print(_thoughts_line(response))


@dataclass(frozen=True, slots=True)
class Marker:
    """How hits are marked in a terminal.

    Attributes:
        brackets: opening and closing sign around each hit; empty where colour does it.
        unicode: node numbers are subscripts, and signs more than ASCII.
    """

    brackets: tuple[str, str] = ("", "")
    unicode: bool = True

    @classmethod
    def of(cls, console: Console) -> Marker:
        """Return the marker for a console, by its colours and its encoding."""
        wide = console.encoding.lower().startswith("utf")
        if console.color_system is not None and not console.no_color:
            return cls(unicode=wide)
        return cls(brackets=("⟦", "⟧") if wide else ("[[", "]]"), unicode=wide)

    def mark(self, response: str, marks: Sequence[Mark], *, full: bool = False) -> Text:
        """Return the response as text with every hit in its node's style.

        Args:
            response: the response as the model wrote it.
            marks: hits inside the response, in any order.
            full: show all of a long response.
        """
        text = Text()
        end_of_last, length = 0, len(response)
        for start, end in [(0, length)] if full else parts_to_show(response, marks):
            _append_gap(text, start - end_of_last)
            for piece in cut_at_marks(response, marks, start, end):
                self._append(text, piece)
            end_of_last = end
        _append_gap(text, length - end_of_last)
        return text

    def _append(self, text: Text, piece: Piece) -> None:
        opening, closing = self.brackets
        if opening:
            text.append("".join(opening + self._label(node) for node in piece.begins))
        text.append(printable(piece.text), style=node_style(piece.node) if piece.node else None)
        for node in piece.ends:
            text.append(self._label(node) + closing, style=f"bold {_color(node)}")

    def _label(self, node: int) -> str:
        """Return the number of a node as it stands beside a hit."""
        return str(node).translate(_SUBSCRIPTS) if self.unicode else f"_{node}"


def node_style(node: int) -> str:
    """Return the style of a node's hits, by its number; neighbours differ."""
    return f"bold reverse {_color(node)}" + " underline" * ((node - 1) // len(_COLORS) % 2)


def _color(node: int) -> str:
    return _COLORS[(node - 1) % len(_COLORS)]


def _append_gap(text: Text, skipped: int) -> None:
    if skipped:
        text.append(f"\n⋯ {skipped:,} characters not shown ⋯\n", style="dim")


def _node_table(nodes: tuple[NodeExplanation, ...], marker: Marker) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("Node", justify="right", no_wrap=True)
    table.add_column("")
    table.add_column("What it states", overflow="fold")
    table.add_column("Found as", overflow="fold")
    table.add_column("By", no_wrap=True)
    missed, hit = ("✗", "✓") if marker.unicode else ("no", "yes")
    for number, node in enumerate(nodes, start=1):
        label = one_line(node.label or (node.expressions[0] if node.expressions else ""), 60)
        table.add_row(
            Text(f" {number} ", style=node_style(number) if node.matched else "dim"),
            Text(hit, style="green") if node.matched else Text(missed, style="red"),
            Text(label + _remarks(node)),
            _found(node),
            Text(node.channel),
        )
    return table


def _remarks(node: NodeExplanation) -> str:
    remarks = ["final answer"] * node.is_final + ["does not count"] * (not node.counts)
    return f" ({', '.join(remarks)})" if remarks else ""


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
        lines.append(Text.assemble(("NCR    ", "bold"), f"{score.ncr:.3f}{_share(score, reward)}"))
        if explanation.guard is not None:
            lines.append(_guard_line(score, explanation.guard))
    if score.tpn is not None:
        lines.append(Text.assemble(("TPN    ", "bold"), f"{score.tpn:,.1f} tokens per node"))
    how = _formula(reward, explanation.identity.epoch)
    lines.append(Text.assemble(("Reward ", "bold"), f"{_value(score.reward, '.3f')} = {how}"))
    return lines


def _thoughts_line(response: str) -> Text:
    """Return what of a response is scored with after_think."""
    if END_OF_THINKING in response:
        first = scored_from(response) + 1
        told = f"only what follows the last {END_OF_THINKING}, from character {first:,} on"
    else:
        told = f"nothing: no {END_OF_THINKING} ends the thoughts"
    return Text.assemble(("Scored ", "bold"), told)


def _share(score: Score, reward: RewardSpec) -> str:
    counted = f"{score.num_matched} of {count_of(score.num_nodes, 'node')}"
    if reward.ncr == NcrKind.WEIGHTED:
        counted = f"{_value(score.ncr_raw, '.3f')} of the weights, {counted}"
    if score.guard in (None, 1.0):
        return f" = {counted}"
    return f" = {_value(score.ncr_raw, '.3f')} ({counted}) · {score.guard:.3f} (guard)"


def _guard_line(score: Score, figures: GuardFigures) -> Text:
    told = (
        f"{_value(score.guard, '.3f')}: {count_of(figures.statements, 'value')} stated of "
        f"{figures.max_statements:,.4g} allowed, {count_of(figures.numbers, 'number')} written of "
        f"{figures.max_numbers:,.4g}"
    )
    return Text.assemble(("Guard  ", "bold"), told)


def _value(value: float | None, form: str) -> str:
    return "unknown" if value is None else format(value, form)


def _answer(score: Score) -> str:
    if score.acc is None:
        return ""
    if score.answer is None:
        return " (no final answer found)"
    return f" (answer {one_line(score.answer, 80)!r}, decided by {score.answer_method})"


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
