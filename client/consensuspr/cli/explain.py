"""``consensuspr explain``: show why samples got their scores."""

from __future__ import annotations

import heapq
import json
import logging
import math
import re
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer
from pydantic import Field
from rich.console import Console
from rich.table import Table
from rich.text import Text

from consensuspr.cli.options import (
    MORE_REWARD_OPTIONS,
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
from consensuspr.scoring.marks import Mark, cut_at_marks, parts_to_show, words_found
from consensuspr.scoring.rewards import NcrKind, RewardSpec
from consensuspr.scoring.types import END_OF_THINKING, Status, scored_from

if TYPE_CHECKING:
    from consensuspr.client.files import Connection
    from consensuspr.data import Row
    from consensuspr.scoring import Explanation, Score
    from consensuspr.scoring.types import ScoreOptions

logger = logging.getLogger(__name__)

# Colours of nodes in turn, all from the 16 that a terminal theme defines.
_COLORS = ("green", "cyan", "magenta", "yellow", "blue", "red")
# Expressions of a node that was not found; --full shows all.
_SHOWN_EXPRESSIONS = 3
# How a node is found in other words than its own, by its channel.
_FOUND = {
    "statement": "found as arithmetic with the same numbers",
    "code": "found as a value in code",
    "equation": "found as an equal equation",
}
# A number, with separators of thousands as prose and LaTeX write them.
_NUMBER = re.compile(r"\d+(?:(?:,|\{,\}|\\,)\d{3}(?!\d))*(?:\.\d+)?", re.ASCII)
# A side of an equation that is a number, with a unit or without.
_RESULT = re.compile(rf"[\s$]*({_NUMBER.pattern})[^\d/*^+-]*", re.ASCII)
_SEPARATORS = str.maketrans("", "", "{},\\")
_SUBSCRIPTS = str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")


class ExplainSettings(RewardCommandSettings):
    """How ``explain`` scores and shows samples."""

    full: bool = Field(
        False, description="Show all of a long response, not only the text near its hits."
    )


@with_settings(
    ExplainSettings,
    prefix="CONSENSUSPR_EXPLAIN",
    shown={"full": None},
    more={**REWARD_OPTIONS, **MORE_REWARD_OPTIONS},
)
def explain(
    rollouts: Annotated[
        Path,
        typer.Argument(
            metavar="RUN|ROLLOUTS",
            help="Folder of a run with a score log, or a file of rollouts.",
        ),
    ],
    *,
    dataset: DatasetChoice = None,
    rollout_id: Annotated[
        str | None, typer.Option(metavar="ID", help="Only rollouts with this rollout_id.")
    ] = None,
    problem: Annotated[
        str | None, typer.Option(metavar="ID", help="Only samples of this problem.")
    ] = None,
    step: Annotated[
        int | None, typer.Option(metavar="N", help="Run: only samples of this training step.")
    ] = None,
    split: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Run: only samples of this split, such as train."),
    ] = None,
    group: Annotated[
        str | None, typer.Option(metavar="ID", help="Run: only samples of this group.")
    ] = None,
    row: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="File: only the rollout in this row, from 1."),
    ] = None,
    worst: Annotated[
        int | None,
        typer.Option(metavar="K", min=1, help="Number of samples, lowest scores first. Default: 1"),
    ] = None,
    best: Annotated[
        int | None,
        typer.Option(metavar="K", min=1, help="Number of samples, highest scores first."),
    ] = None,
    address: Address = None,
    token_file: TokenFile = None,
    tls_ca: TlsCa = None,
    settings: ExplainSettings,
    as_json: Json = False,
) -> None:
    """Explain rewards: show responses with every node hit marked.

    ```text
    consensuspr explain rollouts.jsonl --dataset dataset.jsonl --rollout-id r17
    consensuspr explain runs/qwen3-4b --step 40 --split train --worst 3
    ```

    Each node has a number and a colour. The table below the response shows which expression of a
    node was found, and where it came from.

    Samples of a run are scored with the settings and the dataset of the run. Samples without a
    score are the worst.
    """
    from consensuspr.client.files import connect
    from consensuspr.scoring.scorer import reward_in_training

    names = {
        "rollout_id": rollout_id, "problem_id": problem, "step": step, "split": split,
        "group_id": group, "row": row,
    }  # fmt: skip
    wanted = {name: value for name, value in names.items() if value is not None}
    if not rollouts.exists():
        raise InputError(f"{rollouts}: no such file or directory")
    if worst is not None and best is not None:
        raise InputError("give --worst or --best, not both")
    order = Order(best or worst or 1, -1.0 if best else 1.0)
    is_run = rollouts.is_dir()
    kind, unfit = "file of rollouts", ["step", "split", "group_id"]
    if is_run:
        # Its samples are scored here, as they were then.
        kind, unfit = "run", ["row", "address", *settings.model_fields_set - {"full", "color"}]
    given = {**wanted, **settings.model_dump(exclude_unset=True), "address": address}
    for name in unfit:
        if given.get(name) is not None:
            option = name.removesuffix("_id").replace("_", "-")
            raise InputError(f"--{option} has no effect on a {kind}; remove it")
    if is_run:
        samples = _of_run(rollouts, dataset, wanted, order)
    else:
        access = access_of(address, token_file, tls_ca)
        with connect(dataset, address, settings.timeout, access) as connection:
            options = replace(settings.options(), dataset=connection.dataset_name)
            samples = _of_rollouts(rollouts, wanted, order, connection, options)
    if as_json:
        print(json.dumps([_to_json(row, explanation) for row, explanation in samples]))
        return
    console = make_console(settings.color)
    for number, (sample, explanation) in enumerate(samples):
        if number:
            console.print()
        response, title = sample["response"], _title(sample)
        print_explanation(
            console,
            explanation,
            response,
            title=title,
            full=settings.full,
            expected=sample["ground_truth"],
        )
        if not is_run and settings.unanswered is None:
            trained = reward_in_training(response, explanation.score, explanation.identity)
            if trained is not None:
                console.print(
                    f"In training the reward would be {trained:.3f}: the response has no marked"
                    ' answer, and unanswered is "zero" there',
                    markup=False,
                )
        for line in _trained_on(sample):
            console.print(line, markup=False)


class Order(NamedTuple):
    """Number of samples to explain; sign 1: the lowest scores first, -1: the highest."""

    number: int
    sign: float

    def key(self, sample: Row) -> float:
        """Return the sorting key: final score, else reward; a sample without one is the worst."""
        known = (sample[name] for name in ("final_score", "reward") if sample[name] is not None)
        return self.sign * float(next(known, -math.inf))


# Names of a sample in --json; a run has the key, a file of rollouts the place.
_NAMES = (
    *("problem_id", "key", "place", "rollout_id"),
    *("step", "split", "group_id", "final_score"),
)


def _title(sample: Row) -> str:
    parts = [sample.get("rollout_id") or sample.get("place") or f"sample {sample['key']}"]
    if sample.get("step") is not None:
        parts.append(f"step {sample['step']}")
    if sample.get("split") is not None:
        parts.append(f"split {one_line(sample['split'], 40)}")
    return ", ".join([*parts, f"problem {sample['problem_id']}"])


def _to_json(sample: Row, explanation: Explanation) -> dict[str, Any]:
    fields = asdict(explanation)
    del fields["score"]["channel_numbers"]
    fields["score"]["channels"] = explanation.score.channels
    return {name: sample.get(name) for name in _NAMES} | fields


def _of_run(
    run: Path, dataset: str | None, wanted: Mapping[str, Any], order: Order
) -> list[tuple[Row, Explanation]]:
    """Explain samples of a run, those that are first in an order of final scores."""
    load_core()
    import pyarrow as pa

    from consensuspr.score_log import LogReader
    from consensuspr.score_log.replay import Datasets, Unscored, explain_row
    from consensuspr.scoring import AnswerVerifier

    reader = LogReader(run)
    rows: list[Row] = []
    for batch in reader.read():
        for name, value in wanted.items():
            kept = [found == value for found in batch.column(name).to_pylist()]
            # Typed, because the type of an empty list is unknown.
            batch = batch.filter(pa.array(kept, pa.bool_()))
        # At most so many are held, however many there are.
        rows = heapq.nsmallest(order.number, [*rows, *batch.to_pylist()], order.key)
    datasets = Datasets([reader.run], [] if dataset is None else [Path(dataset)])
    samples, faults = [], []
    with AnswerVerifier() as verifier:
        for row in rows:
            explanation = explain_row(row, datasets, verifier)
            if isinstance(explanation, Unscored):
                faults.append(
                    f"step {row['step']}, problem {row['problem_id']!r} cannot be explained:"
                    f" {explanation} (dataset {row['dataset_digest']})"
                )
            else:
                index = datasets.of(row["dataset_digest"])
                if not row["ground_truth"] and not isinstance(index, Unscored):
                    row["ground_truth"] = index.ground_truth(row["problem_id"])
                samples.append(({**row, "key": row["key"].hex()}, explanation))
    if not samples:
        raise InputError(faults[0]) if faults else _none_of(run, wanted)
    for fault in faults:
        logger.warning("%s", fault)
    return samples


def _of_rollouts(
    path: Path,
    wanted: Mapping[str, Any],
    order: Order,
    connection: Connection,
    options: ScoreOptions,
) -> list[tuple[Row, Explanation]]:
    """Explain rollouts of a file, those that are first in an order of rewards."""
    from consensuspr.client.files import chunks
    from consensuspr.data import read_rollouts
    from consensuspr.scoring import rollout_from_row

    client = connection.client

    def chosen() -> Iterator[Row]:
        for number, row in enumerate(read_rollouts(path), start=1):
            row["row"] = number
            if all(row.get(name) == value for name, value in wanted.items()):
                yield row
            if number == wanted.get("row"):
                return

    def scored() -> Iterator[tuple[float, int, Row]]:
        for chunk in chunks(chosen()):
            scores = client.score_with([rollout_from_row(row) for row in chunk], options)
            for row, score in zip(chunk, scores, strict=True):
                key = order.key({"final_score": None, "reward": score.reward})
                yield key, row["row"], row

    samples = []
    for _, at, row in heapq.nsmallest(order.number, scored()):
        sample = {name: row.get(name) for name in ("problem_id", "rollout_id", "response")}
        sample |= {"place": f"row {at}", "ground_truth": connection.ground_truth(row)}
        samples.append((sample, client.explain_with(rollout_from_row(row), options)))
    if not samples:
        raise _none_of(path, wanted)
    return samples


def _trained_on(sample: Row) -> list[str]:
    """Return lines on the score that the trainer used, if that is not the reward."""
    final_score, penalty = sample.get("final_score"), sample.get("penalty") or 0.0
    lines = []
    if sample.get("side") == "trainer" and sample["reward"] is None:
        if final_score is None:
            return ["The trainer did not use this sample: it has no reward"]
        number = final_score - penalty
        by_acc = sample["status"] == Status.NO_NODES and number == sample["acc"]
        source = "Acc" if by_acc else "the settings of the run"
        lines.append(f"No reward; the trainer used {number:.3f} from {source}")
    if penalty and final_score is not None:
        lines.append(f"The trainer used {final_score:.3f}, with a penalty of {penalty:.3f}")
    return lines


def _none_of(path: Path, wanted: Mapping[str, Any]) -> InputError:
    named = ", ".join(f"{name} {value!r}" for name, value in wanted.items())
    return InputError(f"{path} has no sample" + (f" with {named}" if named else ""))


def print_explanation(
    console: Console,
    explanation: Explanation,
    response: str,
    *,
    title: str,
    full: bool = False,
    expected: str | None = None,
) -> None:
    """Print a response with its hits marked, its nodes and its score.

    Args:
        full: show all of a long response, and all expressions of a node.
        expected: the ground truth, if it is known.
    """
    marks = [
        Mark(*node.span, number)
        for number, node in enumerate(explanation.nodes, start=1)
        if node.span is not None
    ]
    console.print(Text(one_line(title, 200), style="bold"), end="\n\n")
    # A hit must stay on one line to be found in a pipe. A recorded picture has to be wrapped.
    coloured = console.color_system is not None and not console.no_color
    marked = mark_hits(response, marks, brackets=not coloured, full=full)
    console.print(marked, soft_wrap=not console.record, end="\n\n")
    if explanation.nodes:
        console.print(_node_table(explanation, response, full))
        console.print()
    for name, text in _score_lines(explanation, response, expected):
        console.print(Text.assemble((f"{name:7}", "bold"), text))


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


def _node_table(explanation: Explanation, response: str, full: bool) -> Table:
    start = scored_from(response) if explanation.identity.reward.after_think else 0
    values = {_number(each) for each in _NUMBER.findall(response, start)}
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
        words = words_found(response, node.span, node.expression)
        if words and node.channel in _FOUND:
            found.append(f"\n{_FOUND[node.channel]}: ", style="dim")
            found.append(one_line(words))
        if not node.matched:
            texts = node.expressions if full else node.expressions[:_SHOWN_EXPRESSIONS]
            shown = " | ".join(one_line(text, 1000 if full else 40) for text in texts)
            hidden = len(node.expressions) - len(texts)
            ending = f" | {hidden} more" if hidden else ""
            hint = _value_without_calculation(node.expressions, values)
            found = Text(f"not found: {shown}{ending}{hint}", style="dim")
        table.add_row(
            Text(f" {number} ", style=node_style(number) if node.matched else "dim"),
            Text("✓", style="green") if node.matched else Text("✗", style="red"),
            Text(label + (f" ({', '.join(remarks)})" if remarks else "")),
            found,
            Text(node.channel),
        )
    return table


def _value_without_calculation(expressions: Iterable[str], values: Container[float]) -> str:
    """Return a hint if the result of a calculation is among the numbers of the response."""
    for expression in expressions:
        left, _, right = expression.rpartition("=")
        result = _RESULT.fullmatch(right)
        if result and len(_NUMBER.findall(left)) > 1 and _number(result[1]) in values:
            return f" (the value {result[1]} occurs, but not this calculation)"
    return ""


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
