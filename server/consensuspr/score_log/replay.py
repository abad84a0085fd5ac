"""A run scored again from its log: every reward bit for bit, or why not.

A row is scored with the dataset that the run keeps, under its own settings.  A reward that changed
for no reason of :class:`Changed` is a defect, of this program or of the log.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
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

    NO_TEXT = "the log does not have its text"
    NO_DATASET = "the run has no copy of its dataset; give it with --dataset FILE"
    OTHER_VERSION = "the run's copy of its dataset is of another release; give --dataset FILE"
    UNKNOWN_SETTINGS = "this release does not know its settings"


class Changed(StrEnum):
    """Why a reward may be another one."""

    VERSION = "another version of matching, answers or scoring"
    UNDECIDED = "the answer check ran out of time"
    LIMITS = "another limit on the size of responses"
    NO_REASON = "unknown reason"


@dataclass(slots=True)
class Replay:
    """A run that was scored again: how many samples, by reason.

    Attributes:
        other_versions: number of samples by scoring version, if it is not this release's.
        examples: the first changed samples, with their logged and new figures.
        left_out: sentences about files of the log that cannot be read.
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


class Datasets:
    """The datasets of runs by digest: those that they keep, and those that are given.

    Args:
        runs: their folders.
        given: dataset files.

    Attributes:
        given: files by digest; they count before those that a run keeps.

    Raises:
        DataError: a given file cannot be read.
    """

    def __init__(self, runs: Sequence[Path], given: Sequence[Path] = ()) -> None:
        self._runs = runs
        self._found: dict[str, DatasetIndex | Unscored] = {}
        self.given: dict[str, Path] = {}
        for path in given:
            self.add(path)

    def add(self, path: Path) -> DatasetIndex:
        """Read one more dataset file."""
        index = DatasetIndex.load(path)
        self._found[index.digest] = index
        self.given[index.digest] = path
        return index

    def of(self, digest: str | None) -> DatasetIndex | Unscored:
        """Return the dataset of a digest, or why there is none; None: the first that was given."""
        if digest is None:
            digest = next(iter([*self.given]), None)
        if digest is None:
            return Unscored.NO_DATASET
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


def options_of(row: Mapping[str, Any]) -> ScoreOptions:
    """Return the options that scored a row, without the name of its dataset.

    Raises:
        InputError, ValueError: a setting is not known here.
    """
    return ScoreOptions.checked(
        read_reward(row["reward_spec"]),
        row["epoch"],
        answer_rule=AnswerRule(row["answer_rule"]),
        on_undecided=OnUndecided(row["on_undecided"]),
        include_spans=True,
    )


def scorable(
    row: Mapping[str, Any], datasets: Datasets, options: ScoreOptions | None = None
) -> tuple[DatasetIndex, Rollout, ScoreOptions] | Unscored:
    """Return all that scores a row again, or why that is not possible.

    Args:
        options: in place of those of the row.
    """
    index = datasets.of(row["dataset_digest"])
    if isinstance(index, Unscored):
        return index
    try:
        options = options or options_of(row)
    except (InputError, ValueError):
        return Unscored.UNKNOWN_SETTINGS
    text = row["response"] if row["response_raw"] is None else row["response_raw"]
    if text is None:
        return Unscored.NO_TEXT
    nodes, budget = read_inline(row["inline"]) if row["inline"] else (None, None)
    names = ("ground_truth", "num_tokens", "data_source", "rollout_id")
    given = {name: row[name] for name in names}
    return index, Rollout(row["problem_id"], text, nodes=nodes, budget=budget, **given), options


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
    indexes: dict[str, DatasetIndex] = {}
    reader = LogReader(run)
    datasets = Datasets([reader.run], [] if dataset is None else [dataset])
    with AnswerVerifier() as verifier:
        for batch in reader.read():
            # Rows that can be scored together.
            groups: dict[tuple[str, ScoreOptions], list[tuple[dict[str, Any], Rollout]]] = {}
            for row in batch.to_pylist():
                found = scorable(row, datasets)
                if isinstance(found, Unscored):
                    result.unscored[found] += 1
                else:
                    index, rollout, options = found
                    indexes[index.digest] = index
                    groups.setdefault((index.digest, options), []).append((row, rollout))
            for (digest, options), pairs in groups.items():
                scorer = Scorer({"default": indexes[digest]}, verifier=verifier)
                scores, _ = scorer.score([rollout for _, rollout in pairs], options)
                for (row, _), score in zip(pairs, scores, strict=True):
                    _compare(row, score, result)
            result.samples += batch.num_rows
            progress(result.samples)
    result.left_out = list(reader.left_out.values())
    return result


def _compare(row: Mapping[str, Any], score: Score, result: Replay) -> None:
    version = row["scoring_version"] or FIRST_SCORING_VERSION
    if version != SCORING_VERSION:
        result.other_versions[version] += 1
    # Equal as numbers is equal bit for bit here: there is no NaN and no -0.
    if (row["reward"], row["status"]) == (score.reward, score.status.value):
        result.same += 1
        return
    versions = (row["normal_form_version"], row["answer_version"], version)
    statuses = {row["status"], score.status.value}
    methods = {row["answer_method"], score.answer_method}
    if versions != (NORMAL_FORM_VERSION, ANSWER_VERSION, SCORING_VERSION):
        reason = Changed.VERSION
    elif statuses & {Status.ANSWER_UNDECIDED, Status.INTERNAL} or methods & LOAD_METHODS:
        reason = Changed.UNDECIDED
    elif Status.OVERSIZE in statuses:
        reason = Changed.LIMITS
    else:
        reason = Changed.NO_REASON
    result.changed[reason] += 1
    if len(result.examples) < MAX_EXAMPLES:
        sample = {name: row[name] for name in ("step", "problem_id", "rollout_id")}
        was = {name: row[name] for name in ("reward", "status", "acc", "ncr", "answer_method")}
        now = {name: getattr(score, name) for name in was} | {"status": score.status.value}
        result.examples.append({**sample, "reason": reason.value, "was": was, "now": now})


def explain_row(
    row: Mapping[str, Any],
    datasets: Datasets,
    verifier: AnswerVerifier,
    options: ScoreOptions | None = None,
) -> Explanation | Unscored:
    """Explain a sample as it was scored, or return why that is not possible."""
    found = scorable(row, datasets, options)
    if isinstance(found, Unscored):
        return found
    index, rollout, options = found
    return Scorer({"default": index}, verifier=verifier).explain(rollout, options)
