"""Which problems the rows name, with what prompts and ground truths; texts are not kept.

A problem takes some 150 bytes, however long its texts are: hashes stand for them, 64 bits
wide, so that two of a million problems are mistaken for one with a probability of 3e-8.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any

from consensuspr.client.local import LocalClient
from consensuspr.client.sync import RewardClient
from consensuspr.client.training import VALIDATION_SPLITS, ProblemIds, RewardSettings, prompt_digest
from consensuspr.client.verl.sample import Sample
from consensuspr.doctor.checks import consequence
from consensuspr.doctor.findings import Finding, ProgressBar, fail, ok, share, skip, warn
from consensuspr.doctor.verl_config import VerlRun
from consensuspr.errors import DataError, InputError, RewardServiceError
from consensuspr.scoring.rewards import RewardSpec
from consensuspr.scoring.types import AnswerRule, OnUndecided, Rollout, Score, Status

if TYPE_CHECKING:
    import pyarrow as pa


_MASK = (1 << 64) - 1


class Side(StrEnum):
    """What rows are for."""

    TRAIN = "train"
    VALIDATION = "val"


@dataclass(slots=True)
class Tally:
    """How often something was met, and where first."""

    count: int = 0
    first: str = ""

    def add(self, example: str) -> None:
        """Count one more."""
        if not self.count:
            self.first = example
        self.count += 1


@dataclass(slots=True)
class Ambiguous:
    """Problem ids that stand for two things.

    Attributes:
        prompts: with two prompts.
        truths: with two ground truths.
        leaked: in training and validation.
    """

    prompts: Tally = field(default_factory=Tally)
    truths: Tally = field(default_factory=Tally)
    leaked: Tally = field(default_factory=Tally)


class Census:
    """Notes problems and finds ids that stand for two; training rows come first."""

    def __init__(self) -> None:
        self.ambiguous = Ambiguous()
        # By hash of the id: hash of prompt, hash of ground truth, and what was said already.
        self._known: dict[Side, dict[int, int]] = {side: {} for side in Side}
        self._told: set[tuple[str, int]] = set()

    def note(self, side: Side, problem_id: str, prompt: str, truth: str | None, place: str) -> bool:
        """Note a row; return whether its problem is new on its side.

        Args:
            side: of the row.
            problem_id: of the row.
            prompt: digest of it.
            truth: the row's ground truth.
            place: file and row, for examples.
        """
        key = _hash(problem_id)
        now = _hash(prompt) << 64 | _hash(truth or "")
        known = self._known[side]
        before = known.get(key)
        if before is None and side is Side.VALIDATION:
            before = self._known[Side.TRAIN].get(key)
            if before is not None:
                self.ambiguous.leaked.add(f"{problem_id!r}, {place}")
        if before is not None and before != now:
            self._compare(key, before, now, f"{problem_id!r}, {place}")
        if key in known:
            return False
        known[key] = now
        return True

    def num_problems(self, side: Side) -> int:
        """Return how many problems a side has."""
        return len(self._known[side])

    def _compare(self, key: int, before: int, now: int, example: str) -> None:
        for what, tally, one, two in (
            ("prompt", self.ambiguous.prompts, before >> 64, now >> 64),
            ("truth", self.ambiguous.truths, before & _MASK, now & _MASK),
        ):
            if one != two and (what, key) not in self._told:
                self._told.add((what, key))
                tally.add(example)


def _hash(text: str) -> int:
    digest = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "big")


# MERGED Rows of verl's Parquet files, read as training reads them.
#
# A row goes through the very code that takes a sample apart in the reward manager, and only the
# columns that it looks at are read.  Memory is bounded by a batch of rows.

# Prompts are some kilobytes, inline nodes some tens of them.
_BATCH_ROWS = 512

# What a sample is made of, besides the prompt.
_FIELDS = {
    "data_source": (),
    "reward_model": ("ground_truth",),
    "extra_info": ("problem_id", "index", "split", "nodes"),
}


@dataclass(frozen=True, slots=True)
class RowFile:
    """A Parquet file of rows.

    Attributes:
        path: of it.
        prompt_key: column of the prompt (``data.prompt_key``).
    """

    path: Path
    prompt_key: str = "prompt"

    def num_rows(self) -> int:
        """Return how many rows it has, by its footer.

        Raises:
            DataError: it cannot be read.
        """
        import pyarrow.parquet as pq

        with _reading(self.path):
            return int(pq.read_metadata(self.path).num_rows)

    def rows(self) -> Iterator[Mapping[str, Any]]:
        """Yield the fields of every row, in order.

        Raises:
            DataError: it cannot be read, or has no prompts.
        """
        import pyarrow.parquet as pq

        with (
            _reading(self.path),
            pq.ParquetFile(self.path, pre_buffer=False, buffer_size=1 << 20) as file,
        ):
            columns = self._columns(file.schema_arrow)
            for batch in file.iter_batches(batch_size=_BATCH_ROWS, columns=columns):
                yield from batch.to_pylist()

    def _columns(self, schema: pa.Schema) -> list[str]:
        """Return the columns to read, dotted where a part of a column does."""
        import pyarrow as pa

        if self.prompt_key not in schema.names:
            raise DataError(
                str(self.path),
                None,
                f"has no column {self.prompt_key!r} (data.prompt_key); its columns are"
                f" {', '.join(schema.names[:12])}",
            )
        columns = [self.prompt_key]
        for name, parts in _FIELDS.items():
            if name not in schema.names:
                continue
            kind = schema.field(name).type
            if parts and pa.types.is_struct(kind):
                columns += [f"{name}.{part}" for part in parts if kind.get_field_index(part) >= 0]
            else:
                columns.append(name)
        return columns


def sample_of(row: Mapping[str, Any], prompt_key: str) -> Sample:
    """Return the sample that a row becomes, with an empty response.

    Raises:
        InputError: a field has a type that cannot be scored.
    """
    return Sample.of(_OneSample(row, prompt_key))


class _OneSample:
    """A row in the shape of a ``DataProto`` of one sample."""

    def __init__(self, row: Mapping[str, Any], prompt_key: str) -> None:
        self.batch = {"responses": [()]}
        self.non_tensor_batch = {
            **{name: [row.get(name)] for name in _FIELDS},
            "raw_prompt": [row.get(prompt_key)],
            "response_len": [0],
        }


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Turn errors of pyarrow and of the system into one that names the file."""
    import pyarrow as pa

    try:
        yield
    except DataError:
        raise
    except FileNotFoundError:
        raise DataError(str(path), None, "does not exist") from None
    except (pa.ArrowException, OSError, ValueError) as error:
        reason = str(error).strip().partition("\n")[0].rstrip(".")
        raise DataError(str(path), None, f"is not readable Parquet: {reason}") from error


# MERGED Going through all rows once: what is wrong with them, and which problems they name.

# Between two movements of the progress bar.
_BAR_ROWS = 64


@dataclass(slots=True)
class SideCount:
    """The rows of one side.

    Attributes:
        files: that were named.
        rows: in all files that could be read.
        bad_rows: that no reward can be given for, as they are.
        bad_files: that cannot be read, with the reason.
    """

    files: int = 0
    rows: int = 0
    bad_rows: Tally = field(default_factory=Tally)
    bad_files: list[str] = field(default_factory=list)


class Survey:
    """Reads the files of both sides.

    Args:
        id_format: ``problem_id_format`` of the reward.
        prompt_key: column of the prompts.
        questioner: who asks the server; None where it cannot be asked.
    """

    def __init__(self, id_format: str, prompt_key: str, questioner: Questioner | None) -> None:
        self.census = Census()
        self.sides = {side: SideCount() for side in Side}
        self.server_error: RewardServiceError | None = None
        self._prompt_key = prompt_key
        self._questioner = questioner
        # One for all files: a worker sees samples of training and validation.
        self._ids = ProblemIds(id_format)

    def run(self, files: Mapping[Side, Sequence[str]], progress: ProgressBar) -> None:
        """Read all rows of all files."""
        found = {
            side: [opened for path in files[side] if (opened := self._file(side, path))]
            for side in Side
        }
        total = sum(rows for some in found.values() for _, rows in some)
        with progress("reading", total, "rows") as advance_to:
            done = 0
            for side, some in found.items():
                for file, rows in some:
                    self._read(side, file, partial(_advance, advance_to, done))
                    done += rows
        self._finish()

    def _file(self, side: Side, path: str) -> tuple[RowFile, int] | None:
        count = self.sides[side]
        count.files += 1
        file = RowFile(Path(os.path.expanduser(path)), self._prompt_key)
        try:
            if "://" in path:
                raise DataError(path, None, "is not on this machine, and was not looked at")
            return file, file.num_rows()
        except DataError as error:
            count.bad_files.append(str(error))
            return None

    def _read(self, side: Side, file: RowFile, advance_to: Callable[[int], None]) -> None:
        count = self.sides[side]
        before = count.rows
        try:
            for number, row in enumerate(file.rows(), 1):
                count.rows += 1
                place = f"{file.path.name} row {number}"
                try:
                    self._note(side, sample_of(row, self._prompt_key), place)
                except InputError as error:
                    count.bad_rows.add(f"{place}: {error}")
                if number % _BAR_ROWS == 0:
                    advance_to(number)
            advance_to(count.rows - before)
        except DataError as error:
            count.bad_files.append(str(error))

    def _note(self, side: Side, sample: Sample, place: str) -> None:
        """Take a row in.

        Raises:
            InputError: it cannot be rewarded as it is.
        """
        prompt = _checked_prompt(sample.prompt)
        rollout = sample.rollout("", self._ids)
        new = self.census.note(
            side, rollout.problem_id, prompt_digest(prompt), rollout.ground_truth, place
        )
        if new and self._questioner is not None:
            try:
                self._questioner.ask(Question(side, rollout, place, sample.split))
            except RewardServiceError as error:
                self._give_up(error)

    def _finish(self) -> None:
        if self._questioner is not None:
            try:
                self._questioner.finish()
            except RewardServiceError as error:
                self._give_up(error)

    def _give_up(self, error: RewardServiceError) -> None:
        """Ask no more; one failure is enough, and the rows can still be read."""
        self.server_error = error
        self._questioner = None


def _advance(advance_to: Callable[[int], None], before: int, read: int) -> None:
    advance_to(before + read)


def _checked_prompt(prompt: object) -> str | Sequence[Mapping[str, object]]:
    if isinstance(prompt, str) and prompt:
        return prompt
    if isinstance(prompt, list) and prompt and all(isinstance(m, Mapping) for m in prompt):
        return prompt
    raise InputError(f"the prompt must be chat messages, got {str(prompt)[:80]!r}")


# MERGED What the server makes of each problem: known, with nodes, with the same ground truth?
#
# Each problem is asked for once, as a rollout without a ground truth: only then does the status
# of an unknown problem differ from that of a known one without nodes.  Its response is the row's
# ground truth in a box, so that Acc tells whether the server has the same; nothing is decided
# from that alone, since a long or unbalanced truth does not survive a box.

# In one call: its answer is waited for, and inline nodes may make it large.
BATCH = 512

_LONGEST_TRUTH = 200


@dataclass(slots=True)
class Question:
    """A problem to ask for.

    Attributes:
        side: whose row it is.
        rollout: of the row; what is asked is made from it.
        place: file and row, for examples.
        split: what the row says.
    """

    side: Side
    rollout: Rollout
    place: str
    split: str | None = None

    @property
    def truth(self) -> str:
        """The row's own ground truth, empty where it has none."""
        return (self.rollout.ground_truth or "").strip()

    def as_asked(self) -> Rollout:
        """Return the rollout to score."""
        return Rollout(
            problem_id=self.rollout.problem_id,
            response=f"\\boxed{{{self.truth}}}" if _fits_a_box(self.truth) else "",
            nodes=self.rollout.nodes,
        )


@dataclass(slots=True)
class Answers:
    """What the server said about the problems of one side.

    Attributes:
        asked: problems.
        known: of them in the dataset; those with inline nodes are not asked for.
        inline: of them with nodes in the row.
        with_nodes: of them with nodes, wherever from.
        unscorable: without reward, by reason.
        other_truth: whose ground truth in the row is not the server's.
        never_rewarded: all of ``unscorable``.
    """

    asked: int = 0
    known: int = 0
    inline: int = 0
    with_nodes: int = 0
    unscorable: dict[str, Tally] = field(default_factory=dict)
    other_truth: Tally = field(default_factory=Tally)

    @property
    def never_rewarded(self) -> int:
        """Return how many problems have no reward."""
        return sum(tally.count for tally in self.unscorable.values())


class Questioner:
    """Asks the server, some hundred problems at a time.

    Args:
        client: of the server, or of its dataset.
        dataset: name there.
        settings: of the reward, which says what a problem needs.
    """

    def __init__(
        self,
        client: RewardClient | LocalClient,
        dataset: str | None,
        settings: RewardSettings,
    ) -> None:
        self._client = client
        self._dataset = dataset
        self._settings = settings
        self._waiting: list[Question] = []
        self.answers = {side: Answers() for side in Side}

    def ask(self, question: Question) -> None:
        """Take a question; it is asked with others.

        Raises:
            RewardServiceError: the server failed.
        """
        self._waiting.append(question)
        if len(self._waiting) >= BATCH:
            self.finish()

    def finish(self) -> None:
        """Ask what is still waiting.

        Raises:
            RewardServiceError: the server failed.
        """
        if not self._waiting:
            return
        scores = self._client.score(
            [question.as_asked() for question in self._waiting],
            RewardSpec.outcome(),
            dataset=self._dataset,
            answer_rule=AnswerRule.AUTO,
            on_undecided=OnUndecided.MASK,
        )
        for question, score in zip(self._waiting, scores, strict=True):
            self._count(question, score)
        self._waiting.clear()

    def _count(self, question: Question, score: Score) -> None:
        answers = self.answers[question.side]
        answers.asked += 1
        example = f"{question.rollout.problem_id!r}, {question.place}"
        if question.rollout.nodes is not None:
            answers.inline += 1
        elif score.status is not Status.UNKNOWN_PROBLEM:
            answers.known += 1
        answers.with_nodes += bool(score.num_nodes)
        # Masked, an undecided answer has no reward: 0 is a verdict.
        if score.reward == 0 and _fits_a_box(question.truth):
            answers.other_truth.add(example)
        reason = self._why_unscorable(question, score)
        if reason is not None:
            answers.unscorable.setdefault(reason, Tally()).add(example)

    def _why_unscorable(self, question: Question, score: Score) -> str | None:
        """Return why a sample of the problem would have no reward; None where it has one."""
        if score.status is Status.INVALID_NODES:
            return f"with inline nodes that the server refuses: {score.message}"
        if score.status in (Status.OVERSIZE, Status.INTERNAL):
            return f"with status {score.status}: {score.message}"
        acc = 0.0 if question.truth or score.acc is not None else math.nan
        if (
            self._settings.validate_by_acc
            and question.split in VALIDATION_SPLITS
            and not math.isnan(acc)
        ):
            return None
        ncr = 0.0 if score.num_nodes else math.nan
        rewards = [self._settings.spec.compute([acc], [ncr], epoch)[0] for epoch in self._epochs()]
        if not any(math.isnan(reward) for reward in rewards):
            return None
        if score.status is Status.UNKNOWN_PROBLEM and not question.truth:
            return "unknown to the server, and without ground truth"
        if score.status is Status.UNKNOWN_PROBLEM:
            return "unknown to the server"
        return "without ground truth" if score.num_nodes else "without nodes"

    def _epochs(self) -> Iterator[int]:
        """Yield an epoch of each stage of the reward."""
        settings = self._settings
        if settings.reward != "curriculum":
            yield 0
        elif settings.epoch is not None:
            yield settings.epoch
        else:
            yield from {0, settings.switch_epoch}


def _fits_a_box(truth: str) -> bool:
    """Tell whether a ground truth in ``\\boxed{…}`` is read as it stands."""
    if not truth or len(truth) > _LONGEST_TRUTH or not truth.isprintable() or "boxed" in truth:
        return False
    depth = 0
    for character in truth:
        depth += (character == "{") - (character == "}")
        if depth < 0:
            return False
    return depth == 0


# MERGED What the survey of the rows says about them.


def check_rows(survey: Survey) -> Iterator[Finding]:
    """Say whether every row can be read and names its problem."""
    for side, count in survey.sides.items():
        if count.files:
            yield from _rows(side, count, survey)


def _rows(side: Side, count: SideCount, survey: Survey) -> Iterator[Finding]:
    check = f"{side} rows"
    for reason in count.bad_files:
        yield fail(check, reason, "correct the path or the file")
    problems = survey.census.num_problems(side)
    if count.bad_rows.count:
        yield fail(
            check,
            f"{share(count.bad_rows.count, count.rows)} of {count.rows:,} cannot be rewarded, the"
            f" first: {count.bad_rows.first}",
            "correct these rows",
        )
    elif count.rows or not count.bad_files:
        level = ok if count.rows else warn
        files = "1 file" if count.files == 1 else f"{count.files:,} files"
        yield level(check, f"{count.rows:,} in {files}, {problems:,} problems")


def check_ids(survey: Survey) -> Iterator[Finding]:
    """Say which ids stand for two things."""
    found = survey.census.ambiguous
    if not any(count.rows for count in survey.sides.values()):
        return
    if found.prompts.count:
        yield warn(
            "problem ids",
            f"{found.prompts.count:,} with two prompts, the first: {found.prompts.first}",
            "give each problem an id of its own, unless the prompts ask for the same",
        )
    if found.truths.count:
        yield warn(
            "problem ids",
            f"{found.truths.count:,} with two ground truths, the first: {found.truths.first}",
            "give each problem an id of its own; a row's own ground truth decides over its Acc",
        )
    if not found.prompts.count and not found.truths.count:
        yield ok("problem ids", "each stands for one prompt and one ground truth")
    if not all(count.rows for count in survey.sides.values()):
        return
    if found.leaked.count:
        problems = survey.census.num_problems(Side.VALIDATION)
        yield warn(
            "leakage",
            f"{share(found.leaked.count, problems)} of the validation problems are training"
            f" problems, the first: {found.leaked.first}",
            "validate on other problems",
        )
    else:
        yield ok("leakage", "no validation problem is a training problem")


def check_problems(
    survey: Survey, answers: dict[Side, Answers] | None, run: VerlRun | None, reward: RewardSettings
) -> Iterator[Finding]:
    """Say which problems the server knows, and which will have no reward."""
    for side, count in survey.sides.items():
        if not count.files:
            continue
        if answers is None:
            yield skip(f"{side} problems", "not asked for: there is no server or dataset to ask")
        elif survey.server_error is not None:
            yield fail(
                f"{side} problems",
                f"the server failed while they were asked for: {survey.server_error}",
                "look at its log",
            )
        elif answers[side].asked:
            yield _problems(side, answers[side], run, reward)
            yield from _truths(side, answers[side])


def _problems(side: Side, answers: Answers, run: VerlRun | None, reward: RewardSettings) -> Finding:
    check, asked = f"{side} problems", answers.asked
    bare = asked - answers.inline
    known = f"{share(answers.known, bare)} of {bare:,} known to the server"
    if answers.inline:
        known = f"{answers.inline:,} with nodes in the row" + (f", {known}" if bare else "")
    found = f"{known}, {share(answers.with_nodes, asked)} have nodes"
    if not answers.unscorable:
        return ok(check, found)
    reasons = "; ".join(
        f"{tally.count:,} {reason} (the first: {tally.first})"
        for reason, tally in answers.unscorable.items()
    )
    found = (
        f"{share(answers.never_rewarded, asked)} of {asked:,} have no reward under"
        f" reward={reward.reward}: {reasons}"
    )
    if reward.on_unscorable == "raise":
        return fail(
            check,
            f"{found}; {consequence(run, training=side is Side.TRAIN)}",
            "serve the dataset of these rows, or drop them",
        )
    return warn(
        check,
        f"{found}; they get on_unscorable={reward.on_unscorable:g}",
        "serve the dataset of these rows, or drop them",
    )


def _truths(side: Side, answers: Answers) -> Iterator[Finding]:
    other = answers.other_truth
    if other.count:
        yield warn(
            f"{side} truths",
            f"{share(other.count, answers.asked)} of {answers.asked:,} problems have another ground"
            f" truth in the row than at the server, the first: {other.first}",
            "the row's decides in training; export the rows from the dataset that is served",
        )
