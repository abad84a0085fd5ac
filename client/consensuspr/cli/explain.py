"""``consensuspr explain``: show why samples got their scores."""

from __future__ import annotations

import heapq
import json
import logging
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer
from pydantic import Field

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
    flag,
    with_settings,
)
from consensuspr.console import load_core, make_console, one_line
from consensuspr.errors import MAX_KNOWN, InputError, did_you_mean, no_such_path
from consensuspr.scoring.explained import print_explanation
from consensuspr.scoring.types import Status

if TYPE_CHECKING:
    from consensuspr.client.files import Connection
    from consensuspr.data import Row
    from consensuspr.scoring import Explanation
    from consensuspr.scoring.types import ScoreOptions

logger = logging.getLogger(__name__)


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
        typer.Option(
            metavar="K", min=1, help="Explain the K samples with the lowest scores. Default: 1"
        ),
    ] = None,
    best: Annotated[
        int | None,
        typer.Option(metavar="K", min=1, help="Explain the K samples with the highest scores."),
    ] = None,
    wrong: Annotated[
        bool,
        flag("--wrong", "Only wrong answers; with --best, those that reach most nodes first."),
    ] = False,
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
    wanted: dict[str, Any] = {name: value for name, value in names.items() if value is not None}
    if not rollouts.exists():
        raise InputError(no_such_path(rollouts))
    if wrong:
        wanted["acc"] = 0.0
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
        samples, total = _of_run(rollouts, dataset, wanted, order)
    else:
        access = access_of(address, token_file, tls_ca)
        with connect(dataset, address, settings.timeout, access) as connection:
            options = replace(settings.options(), dataset=connection.dataset_name)
            samples, total = _of_rollouts(rollouts, wanted, order, connection, options)
    if as_json:
        print(json.dumps([_to_json(row, explanation) for row, explanation in samples]))
        return
    console = make_console(settings.color)
    texts = _problem_texts(dataset, [sample for sample, _ in samples])
    for number, (sample, explanation) in enumerate(samples):
        if number:
            console.print()
        print_explanation(
            console,
            explanation,
            title=_title(sample),
            full=settings.full,
            expected=sample["ground_truth"],
            problem=texts.get(sample["problem_id"], ""),
        )
        if not is_run and settings.unanswered is None:
            trained = reward_in_training(
                sample["response"], explanation.score, explanation.identity
            )
            if trained is not None:
                console.print(
                    f"In training the reward would be {trained:.3f}: the response has no marked"
                    ' answer, and unanswered is "zero" there',
                    markup=False,
                )
        for line in _trained_on(sample):
            console.print(line, markup=False)
    if total > len(samples):
        ends = "highest" if best else "lowest"
        console.print(
            f"\n{len(samples):,} of {total:,} samples, {ends} scores first; show more with"
            " --worst K or --best K",
            style="dim",
        )


class Order(NamedTuple):
    """Number of samples to explain; sign 1: the lowest scores first, -1: the highest."""

    number: int
    sign: float

    def key(self, sample: Row) -> tuple[float, float]:
        """Return the sorting key: final score, else reward; of equal ones NCR.

        A sample without a value is the worst.
        """
        known = (sample[name] for name in ("final_score", "reward") if sample[name] is not None)
        ncr = -math.inf if sample["ncr"] is None else sample["ncr"]
        return self.sign * float(next(known, -math.inf)), self.sign * ncr


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
) -> tuple[list[tuple[Row, Explanation]], int]:
    """Explain samples of a run, those that are first in an order; also return how many it has."""
    load_core()
    import pyarrow as pa

    from consensuspr.score_log import LogReader
    from consensuspr.score_log.replay import Datasets, Unscored, explain_row
    from consensuspr.scoring import AnswerVerifier

    reader = LogReader(run)
    rows: list[Row] = []
    total, met = 0, {name: set[Any]() for name in wanted}
    for batch in reader.read():
        for name, value in wanted.items():
            found = batch.column(name).to_pylist()
            if len(met[name]) <= MAX_KNOWN:
                met[name].update(found)
            kept = [each == value for each in found]
            # Typed, because the type of an empty list is unknown.
            batch = batch.filter(pa.array(kept, pa.bool_()))
        total += batch.num_rows
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
        raise InputError(faults[0]) if faults else _none_of(run, wanted, met)
    for fault in faults:
        logger.warning("%s", fault)
    return samples, total


def _of_rollouts(
    path: Path,
    wanted: Mapping[str, Any],
    order: Order,
    connection: Connection,
    options: ScoreOptions,
) -> tuple[list[tuple[Row, Explanation]], int]:
    """Explain rollouts of a file, those that are first in an order; also return how many."""
    from consensuspr.client.files import chunks
    from consensuspr.data import read_rollouts
    from consensuspr.scoring import rollout_from_row

    client = connection.client
    total, met = 0, {name: set[Any]() for name in wanted}

    def chosen() -> Iterator[Row]:
        for number, row in enumerate(read_rollouts(path), start=1):
            row |= {"row": number, "acc": wanted.get("acc")}  # Acc is filtered when it is scored
            for name in wanted:
                if len(met[name]) <= MAX_KNOWN:
                    met[name].add(row.get(name))
            if all(row.get(name) == value for name, value in wanted.items()):
                yield row
            if number == wanted.get("row"):
                return

    def scored() -> Iterator[tuple[tuple[float, float], int, Row]]:
        nonlocal total
        for chunk in chunks(chosen()):
            scores = client.score_with([rollout_from_row(row) for row in chunk], options)
            for row, score in zip(chunk, scores, strict=True):
                if row["acc"] in (None, score.acc):
                    total += 1
                    values = {"final_score": None, "reward": score.reward, "ncr": score.ncr}
                    yield order.key(values), row["row"], row

    samples = []
    for _, at, row in heapq.nsmallest(order.number, scored()):
        names = ("problem_id", "rollout_id", "response", "problem")
        sample = {name: row.get(name) for name in names}
        sample |= {"place": f"row {at}", "ground_truth": connection.ground_truth(row)}
        samples.append((sample, client.explain_with(rollout_from_row(row), options)))
    if not samples:
        raise _none_of(path, wanted, met)
    return samples, total


def _problem_texts(dataset: str | None, samples: Sequence[Row]) -> dict[str, str]:
    """Return texts of the problems of samples, by id: their own, else those of a dataset file."""
    from consensuspr.data import read_problems
    from consensuspr.scoring.dataset_index import is_index

    texts = {each["problem_id"]: each.get("problem") for each in samples}
    missing = {problem_id for problem_id, text in texts.items() if not text}
    if missing and dataset is not None and os.path.isfile(dataset) and not is_index(dataset):
        for problem in read_problems(dataset):
            if problem.problem_id in missing:
                texts[problem.problem_id] = problem.problem
                missing.remove(problem.problem_id)
            if not missing:
                break
    return {problem_id: text for problem_id, text in texts.items() if type(text) is str}


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


def _none_of(path: Path, wanted: Mapping[str, Any], met: Mapping[str, set[Any]]) -> InputError:
    """Return an error that no sample has the wanted values.

    Args:
        met: values that the samples have, by name; not all if they are more than
            :data:`MAX_KNOWN`, and then there is no hint.
    """
    named = ", ".join(f"{name} {value!r}" for name, value in wanted.items())
    near = (
        did_you_mean(value, [each for each in met[name] if type(each) is str])
        for name, value in wanted.items()
        if type(value) is str and value not in met[name]
    )
    return InputError(f"{path} has no sample{f' with {named}' * bool(named)}{next(near, '')}")
