"""``consensuspr explain``: show why samples got their scores."""

from __future__ import annotations

import heapq
import json
import logging
import math
from collections.abc import Iterator, Mapping, Sequence
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
    Json,
    RewardCommandSettings,
    TlsCa,
    TokenFile,
    access_of,
    with_settings,
)
from consensuspr.console import count_of, load_core, make_console, one_line, printable
from consensuspr.errors import InputError
from consensuspr.scoring.marks import Mark, cut_at_marks, parts_to_show
from consensuspr.scoring.rewards import NcrKind, RewardSpec
from consensuspr.scoring.types import END_OF_THINKING, Status, scored_from

if TYPE_CHECKING:
    from consensuspr.client.interface import BlockingClient
    from consensuspr.data import Row
    from consensuspr.scoring import Explanation, Score
    from consensuspr.scoring.guard import GuardFigures
    from consensuspr.scoring.types import NodeExplanation, ScoreOptions

logger = logging.getLogger(__name__)

# Colours of nodes in turn, all from the 16 that a terminal theme defines.
_COLORS = ("green", "cyan", "magenta", "yellow", "blue", "red")
_SUBSCRIPTS = str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")


class ExplainSettings(RewardCommandSettings):
    """How ``explain`` scores and shows samples."""

    full: bool = Field(False, description="Show all of a long response, not only near its hits.")


@with_settings(
    ExplainSettings, prefix="CONSENSUSPR_EXPLAIN", shown={**REWARD_OPTIONS, "full": None}
)
def explain(
    rollouts: Annotated[
        Path,
        typer.Argument(
            metavar="RUN|ROLLOUTS",
            help="Folder of a run with its score log, or rollouts: JSONL, JSONL.gz or Parquet.",
        ),
    ],
    *,
    dataset: DatasetChoice = None,
    rollout_id: Annotated[
        str | None, typer.Option(metavar="ID", help="Samples with this rollout_id.")
    ] = None,
    problem: Annotated[
        str | None, typer.Option(metavar="ID", help="Samples of this problem.")
    ] = None,
    step: Annotated[int | None, typer.Option(help="Of a run: samples of this step.")] = None,
    split: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Of a run: samples of this split; a step with a validation has two.",
        ),
    ] = None,
    group: Annotated[
        str | None, typer.Option(metavar="ID", help="Of a run: samples of this group.")
    ] = None,
    row: Annotated[int | None, typer.Option(min=1, help="Of rollouts: the N-th, from 1.")] = None,
    worst: Annotated[
        int, typer.Option(metavar="K", min=1, help="Of these so many, the lowest scores first.")
    ] = 1,
    address: Address = None,
    token_file: TokenFile = None,
    tls_ca: TlsCa = None,
    settings: ExplainSettings,
    as_json: Json = False,
) -> None:
    """Show samples with every node hit marked, and how their rewards came about.

    ```text
    consensuspr explain rollouts.jsonl --dataset dataset.jsonl --rollout-id r17
    consensuspr explain runs/qwen3-4b --step 40 --split train --worst 3
    ```

    Of the samples that match, shows those with the lowest scores, and first those without any.

    Samples of a run are scored as they were then, with the dataset that the run keeps (or
    `--dataset`).

    Each node has a number and a colour; the table below the response shows which of its
    expressions was found. Control characters in the response are written out.
    """
    from consensuspr.client.files import connect

    names = {
        "rollout_id": rollout_id, "problem_id": problem, "step": step, "split": split,
        "group_id": group, "row": row,
    }  # fmt: skip
    wanted = {name: value for name, value in names.items() if value is not None}
    is_run = rollouts.is_dir()
    for name in ("row",) if is_run else ("step", "split", "group_id"):
        if name in wanted:
            kind = "run" if is_run else "file of rollouts"
            raise InputError(f"--{name.removesuffix('_id')} does not go with a {kind}")
    if is_run:
        scoring = settings.model_fields_set - {"full", "color"}
        if scoring or address is not None:
            raise InputError(
                f"--{next(iter(scoring), 'address').replace('_', '-')} does not go with a run: its"
                " samples are scored here, as they were then"
            )
        explained = _of_run(rollouts, dataset, wanted, worst)
    else:
        options = settings.options(spans=True)
        access = access_of(address, token_file, tls_ca)
        with connect(dataset, address, settings.timeout, access) as connection:
            options = replace(options, dataset=connection.dataset_name)
            explained = _of_rollouts(rollouts, wanted, worst, connection.client, options)
    if as_json:
        print(json.dumps([sample.to_json() for sample in explained]))
        return
    console = make_console(settings.color)
    for sample in explained:
        print_explanation(
            console,
            sample.explanation,
            sample.response,
            title=sample.title(),
            full=settings.full,
        )
        for remark in sample.remarks:
            console.print(remark, markup=False)


@dataclass(frozen=True, slots=True)
class _Explained:
    """A sample and its explanation.

    Attributes:
        key: in the score log.
        place: in its file.
        final_score: number that the policy was trained on, if known.
        remarks: lines below the explanation.
    """

    response: str
    explanation: Explanation
    problem_id: str
    key: str | None = None
    place: str | None = None
    rollout_id: str | None = None
    step: int | None = None
    split: str | None = None
    group_id: str | None = None
    final_score: float | None = None
    remarks: tuple[str, ...] = ()

    def title(self) -> str:
        """Name it to a person."""
        parts = [self.rollout_id or self.place or f"sample {self.key}"]
        if self.step is not None:
            parts.append(f"step {self.step}")
        if self.split is not None:
            parts.append(f"split {one_line(self.split, 40)}")
        return ", ".join([*parts, f"problem {self.problem_id}"])

    def to_json(self) -> dict[str, Any]:
        """Return its names, and all of the explanation."""
        hidden = ("response", "explanation", "remarks")
        names = [name for name in self.__dataclass_fields__ if name not in hidden]
        explanation = asdict(self.explanation)
        del explanation["score"]["channel_numbers"]
        explanation["score"]["channels"] = self.explanation.score.channels
        return {name: getattr(self, name) for name in names} | explanation


def _of_run(
    run: Path, dataset: str | None, wanted: Mapping[str, Any], worst: int
) -> list[_Explained]:
    """Explain samples of a run, those with the lowest scores."""
    load_core()
    from consensuspr.score_log import LogReader
    from consensuspr.score_log.replay import Datasets, Unscored, explain_row
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
    datasets = Datasets([reader.run], [] if dataset is None else [Path(dataset)])
    names = ("problem_id", "rollout_id", "step", "split", "group_id", "final_score")
    explained, faults = [], []
    with AnswerVerifier() as verifier:
        for row in rows:
            explanation = explain_row(row, datasets, verifier)
            if isinstance(explanation, Unscored):
                faults.append(
                    f"step {row['step']}, problem {row['problem_id']!r} cannot be explained:"
                    f" {explanation} (dataset {row['dataset_digest']})"
                )
                continue
            named = {name: row[name] for name in names}
            explained.append(
                _Explained(
                    row["response"],
                    explanation,
                    key=row["key"].hex(),
                    remarks=_trained_on(row),
                    **named,
                )
            )
    if not explained:
        raise InputError(faults[0])
    for fault in faults:
        logger.warning("%s", fault)
    return explained


def _of_rollouts(
    path: Path, wanted: Mapping[str, Any], worst: int, client: BlockingClient, options: ScoreOptions
) -> list[_Explained]:
    """Explain rollouts of a file, those with the lowest scores."""
    from consensuspr.client.files import chunks
    from consensuspr.data import read_rollouts
    from consensuspr.scoring import rollout_from_row

    def chosen() -> Iterator[Row]:
        for number, row in enumerate(read_rollouts(path), start=1):
            row["row"] = number
            if all(row.get(name) == value for name, value in wanted.items()):
                yield row
            if number == wanted.get("row"):
                return

    def scored() -> Iterator[tuple[float, int, Row]]:
        plain = replace(options, include_spans=False)
        for chunk in chunks(chosen()):
            scores = client.score_with([rollout_from_row(row) for row in chunk], plain)
            for row, score in zip(chunk, scores, strict=True):
                yield -math.inf if score.reward is None else score.reward, row["row"], row

    found = heapq.nsmallest(worst, scored())
    if not found:
        raise _none_of(path, wanted)
    return [
        _Explained(
            row["response"],
            client.explain_with(rollout_from_row(row), options),
            row["problem_id"],
            place=f"row {at}",
            rollout_id=row.get("rollout_id"),
        )
        for _, at, row in found
    ]


def _trained_on(row: Mapping[str, Any]) -> tuple[str, ...]:
    """Return lines on what the policy was trained on, if that is not the reward."""
    final_score, penalty = row["final_score"], row["penalty"] or 0.0
    lines = []
    if row["side"] == "trainer" and row["reward"] is None:
        if final_score is None:
            return ("Not trained on: the sample has no reward",)
        number = final_score - penalty
        by_acc = row["status"] == Status.NO_NODES and number == row["acc"]
        source = "its Acc" if by_acc else "the number that the run's settings give it"
        lines.append(f"Trained on {number:.3f}, {source}, instead of a reward")
    if penalty and final_score is not None:
        lines.append(f"Trained on {final_score:.3f}, penalty {penalty:.3f}")
    return tuple(lines)


def _none_of(path: Path, wanted: Mapping[str, Any]) -> InputError:
    named = ", ".join(f"{name} {value!r}" for name, value in wanted.items())
    return InputError(f"{path}: holds no sample of {named or 'any kind'}")


def _final_score(row: dict[str, Any]) -> float:
    """Return the sort key of a sample: its final score; without a reward it comes first."""
    for name in ("final_score", "reward"):
        if row[name] is not None:
            return float(row[name])
    return -math.inf


def print_explanation(
    console: Console, explanation: Explanation, response: str, *, title: str, full: bool = False
) -> None:
    """Print a response with its hits marked, its nodes and its score.

    Args:
        full: show all of a long response.
    """
    marks = [
        Mark(*node.span, number)
        for number, node in enumerate(explanation.nodes, start=1)
        if node.span is not None
    ]
    console.print(Text(one_line(title, 200), style="bold"))
    console.print()
    # A hit must stay on one line to be found in a pipe. A recorded picture has to be wrapped.
    coloured = console.color_system is not None and not console.no_color
    marked = mark_hits(response, marks, brackets=not coloured, full=full)
    console.print(marked, soft_wrap=not console.record)
    console.print()
    if explanation.nodes:
        console.print(_node_table(explanation.nodes))
        console.print()
    for line in _score_lines(explanation.score, explanation.identity.reward, explanation):
        console.print(line)
    if explanation.identity.reward.after_think:
        console.print(_thoughts_line(response))


def mark_hits(
    response: str, marks: Sequence[Mark], *, brackets: bool = False, full: bool = False
) -> Text:
    """Return the response as text with every hit in its node's style, followed by its number.

    Args:
        brackets: also enclose hits, for a console without colour.
        full: show all of a long response.
    """
    text = Text()
    opening, closing = ("⟦", "⟧") if brackets else ("", "")
    end_of_last, length = 0, len(response)
    for start, end in [(0, length)] if full else parts_to_show(response, marks):
        _append_gap(text, start - end_of_last)
        for piece in cut_at_marks(response, marks, start, end):
            if brackets:
                text.append("".join(opening + _label(node) for node in piece.begins))
            text.append(printable(piece.text), style=node_style(piece.node) if piece.node else None)
            for node in piece.ends:
                text.append(_label(node) + closing, style=f"bold {_color(node)}")
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


def _node_table(nodes: tuple[NodeExplanation, ...]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("Node", justify="right", no_wrap=True)
    table.add_column("")
    table.add_column("What it states", overflow="fold")
    table.add_column("Found as", overflow="fold")
    table.add_column("By", no_wrap=True)
    for number, node in enumerate(nodes, start=1):
        label = one_line(node.label or (node.expressions[0] if node.expressions else ""), 60)
        table.add_row(
            Text(f" {number} ", style=node_style(number) if node.matched else "dim"),
            Text("✓", style="green") if node.matched else Text("✗", style="red"),
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
    hidden = len(node.expressions) - 3
    ending = f" | {hidden} more" if hidden > 0 else ""
    return Text(f"not found: {looked_for}{ending}", style="dim")


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
    formula = reward.formula(explanation.identity.epoch)
    lines.append(Text.assemble(("Reward ", "bold"), f"{_value(score.reward, '.3f')} = {formula}"))
    return lines


def _thoughts_line(response: str) -> Text:
    """Return which part of a response is scored with after_think."""
    if END_OF_THINKING in response:
        first = scored_from(response) + 1
        part = f"only the text after the last {END_OF_THINKING}, from character {first:,} on"
    else:
        part = f"nothing: the response has no {END_OF_THINKING}"
    return Text.assemble(("Scored ", "bold"), part)


def _share(score: Score, reward: RewardSpec) -> str:
    counted = f"{score.num_matched} of {count_of(score.num_nodes, 'node')}"
    if reward.ncr == NcrKind.WEIGHTED:
        counted = f"{_value(score.ncr_raw, '.3f')} of the weights, {counted}"
    if score.ncr == 0 and score.ncr_raw:  # the guard's factor is above 0
        return f" ({counted}, without a marked final answer: unanswered={reward.unanswered})"
    if score.guard in (None, 1.0):
        return f" = {counted}"
    return f" = {_value(score.ncr_raw, '.3f')} ({counted}) · {score.guard:.3f} (guard)"


def _guard_line(score: Score, figures: GuardFigures) -> Text:
    counts = (
        f"{_value(score.guard, '.3f')}: {count_of(figures.statements, 'value')} stated of "
        f"{figures.max_statements:,.4g} allowed, {count_of(figures.numbers, 'number')} written of "
        f"{figures.max_numbers:,.4g}"
    )
    return Text.assemble(("Guard  ", "bold"), counts)


def _value(value: float | None, form: str) -> str:
    return "unknown" if value is None else format(value, form)


def _answer(score: Score) -> str:
    if score.acc is None:
        return ""
    if score.answer is None:
        return " (no final answer found)"
    return f" (answer {one_line(score.answer, 80)!r}, decided by {score.answer_method})"
