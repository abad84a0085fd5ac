"""A run scored again from its log: every reward bit for bit, or why not.

A row is scored with the dataset that the run keeps, under its own settings.  A reward that changed
for no reason of :class:`Changed` is a defect, of this program or of the log.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from enum import StrEnum
from pathlib import Path
from typing import Any

from consensuspr.core import NORMAL_FORM_VERSION
from consensuspr.errors import DataError, InputError
from consensuspr.score_log.reader import LogReader
from consensuspr.score_log.schema import read_inline, read_reward
from consensuspr.score_log.writer import dataset_path
from consensuspr.scoring import ANSWER_VERSION, AnswerVerifier, DatasetIndex, Scorer
from consensuspr.scoring.types import (
    FIRST_SCORING_VERSION,
    LOAD_METHODS,
    SCORING_VERSION,
    AnswerRule,
    Explanation,
    OnUndecided,
    Rollout,
    Score,
    ScoreOptions,
    Status,
)

MAX_EXAMPLES = 20  # of changed rewards


class Unscored(StrEnum):
    """Why a sample was not scored again."""

    NO_TEXT = "its text was not kept"
    NO_DATASET = "its dataset is not kept; give it with --dataset FILE"
    OTHER_VERSION = "its dataset is kept for other versions; give it with --dataset FILE"
    UNKNOWN_SETTINGS = "its settings are not known here"


class Changed(StrEnum):
    """Why a reward may be another one."""

    VERSION = "other versions of matching, of answers or of scoring"
    UNDECIDED = "an answer was left open by its budget or a busy machine"
    LIMITS = "a limit on the size of responses differs"
    NO_REASON = "no reason is known"


@dataclass(slots=True)
class Replay:
    """A run that was scored again: how many samples, by reason.

    Attributes:
        other_versions: number of samples by scoring version, if it is not this release's.
        examples: the first changed samples, with what they had and have.
        left_out: sentences about what of the log could not be read.
    """

    samples: int = 0
    same: int = 0
    changed: Counter[str] = field(default_factory=Counter)
    unscored: Counter[str] = field(default_factory=Counter)
    other_versions: Counter[str] = field(default_factory=Counter)
    examples: list[dict[str, Any]] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)

    @property
    def unexplained(self) -> int:
        """How many rewards changed without a reason."""
        return self.changed[Changed.NO_REASON]

    def to_json(self) -> dict[str, Any]:
        """Return all of it by name."""
        found = {each.name: getattr(self, each.name) for each in fields(self)}
        return {**found, "unexplained": self.unexplained}


def rollout_of(row: Mapping[str, Any]) -> Rollout | None:
    """Return the rollout of a row as it was scored; None if its text was not kept."""
    text: str | bytes | None = row["response_raw"]
    if text is None:
        text = row["response"]
    if text is None:
        return None
    nodes, budget = read_inline(row["inline"]) if row["inline"] else (None, None)
    columns = ("ground_truth", "num_tokens", "data_source", "rollout_id")
    given = {name: row[name] for name in columns}
    return Rollout(row["problem_id"], text, nodes=nodes, budget=budget, **given)


def options_of(row: Mapping[str, Any]) -> ScoreOptions:
    """Return how a row was scored, whatever its dataset is called.

    Raises:
        InputError: a setting is not known here.
    """
    return ScoreOptions.checked(
        read_reward(row["reward_spec"]),
        row["epoch"],
        answer_rule=AnswerRule(row["answer_rule"]),
        on_undecided=OnUndecided(row["on_undecided"]),
        include_spans=True,
    )


class Datasets:
    """The datasets of runs by digest: those that they keep, and those that are given.

    Args:
        runs: their folders.
        given: dataset files.

    Raises:
        DataError: a given file cannot be read.
    """

    def __init__(self, runs: Sequence[Path], given: Sequence[Path] = ()) -> None:
        self._runs = runs
        self._found: dict[str, DatasetIndex | Unscored] = {}
        for path in given:
            self.add(path)

    def add(self, given: Path) -> DatasetIndex:
        """Read one more dataset file, which counts before one of its digest that a run keeps."""
        index = DatasetIndex.load(given)
        self._found[index.digest] = index
        return index

    def of(self, digest: str) -> DatasetIndex | Unscored:
        """Return the dataset of a digest, or why there is none."""
        if digest not in self._found:
            kept = (dataset_path(run, digest) for run in self._runs)
            path = next((path for path in kept if path.is_file()), None)
            try:
                self._found[digest] = (
                    Unscored.NO_DATASET if path is None else DatasetIndex.open(path)
                )
            except DataError:
                self._found[digest] = Unscored.OTHER_VERSION
        return self._found[digest]


def replay(
    run: Path, dataset: Path | None = None, progress: Callable[[int], None] = lambda done: None
) -> Replay:
    """Score a run again.

    Args:
        run: its folder.
        dataset: a file, for samples whose dataset the run does not keep.
        progress: called with the number of samples that are done.

    Raises:
        InputError: there is no score log, or the dataset cannot be read.
    """
    result = Replay()
    reader = LogReader(run)
    datasets = Datasets([reader.run], [] if dataset is None else [dataset])
    with AnswerVerifier() as verifier:
        for batch in reader.read():
            for rows, rollouts, options, index in _groups(batch.to_pylist(), datasets, result):
                scorer = Scorer({"default": index}, verifier=verifier)
                scores, _ = scorer.score(rollouts, options)
                for row, score in zip(rows, scores, strict=True):
                    _compare(row, score, result)
            result.samples += batch.num_rows
            progress(result.samples)
    result.left_out = list(reader.left_out.values())
    return result


def _groups(
    rows: Sequence[dict[str, Any]], datasets: Datasets, result: Replay
) -> Iterator[tuple[list[dict[str, Any]], list[Rollout], ScoreOptions, DatasetIndex]]:
    """Yield the rows that can be scored together; count the others."""
    groups: dict[tuple[str, ScoreOptions], list[tuple[dict[str, Any], Rollout]]] = {}
    for row in rows:
        digest = row["dataset_digest"]
        index = datasets.of(digest)
        if isinstance(index, Unscored):
            result.unscored[index] += 1
            continue
        try:
            options = options_of(row)
        except (InputError, ValueError):
            result.unscored[Unscored.UNKNOWN_SETTINGS] += 1
            continue
        rollout = rollout_of(row)
        if rollout is None:
            result.unscored[Unscored.NO_TEXT] += 1
        else:
            groups.setdefault((digest, options), []).append((row, rollout))
    for (digest, options), pairs in groups.items():
        index = datasets.of(digest)
        assert isinstance(index, DatasetIndex)
        yield [row for row, _ in pairs], [rollout for _, rollout in pairs], options, index


def _compare(row: Mapping[str, Any], score: Score, result: Replay) -> None:
    version = row["scoring_version"] or FIRST_SCORING_VERSION
    if version != SCORING_VERSION:
        result.other_versions[version] += 1
    # Equal as numbers is equal bit for bit here: there is no NaN and no -0.
    if (row["reward"], row["status"]) == (score.reward, score.status.value):
        result.same += 1
        return
    reason = _reason(row, score)
    result.changed[reason] += 1
    if len(result.examples) < MAX_EXAMPLES:
        sample = {name: row[name] for name in ("step", "problem_id", "rollout_id")}
        was = {name: row[name] for name in ("reward", "status", "acc", "ncr", "answer_method")}
        now = {name: getattr(score, name) for name in was} | {"status": score.status.value}
        result.examples.append({**sample, "reason": reason.value, "was": was, "now": now})


def _reason(row: Mapping[str, Any], score: Score) -> Changed:
    versions = (
        row["normal_form_version"],
        row["answer_version"],
        row["scoring_version"] or FIRST_SCORING_VERSION,
    )
    if versions != (NORMAL_FORM_VERSION, ANSWER_VERSION, SCORING_VERSION):
        return Changed.VERSION
    statuses = {row["status"], score.status.value}
    methods = {row["answer_method"], score.answer_method}
    if statuses & {Status.ANSWER_UNDECIDED, Status.INTERNAL} or methods & LOAD_METHODS:
        return Changed.UNDECIDED
    if Status.OVERSIZE in statuses:
        return Changed.LIMITS
    return Changed.NO_REASON


def explain_row(
    row: Mapping[str, Any], datasets: Datasets, verifier: AnswerVerifier
) -> Explanation:
    """Explain a sample as it was scored.

    Raises:
        InputError: it cannot be scored again, with the reason.
    """
    index = datasets.of(row["dataset_digest"])
    rollout = rollout_of(row)
    if isinstance(index, Unscored) or rollout is None:
        why = index if isinstance(index, Unscored) else Unscored.NO_TEXT
        raise InputError(
            f"step {row['step']}, problem {row['problem_id']!r} cannot be explained: {why}"
            f" (dataset {row['dataset_digest']})"
        )
    return Scorer({"default": index}, verifier=verifier).explain(rollout, options_of(row))
