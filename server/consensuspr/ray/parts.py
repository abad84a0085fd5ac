"""What is done with one part of a rollouts file on one core of the cluster; knows no Ray."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from consensuspr.data import DataError, OnError, ReadReport, Row, Unparsed, parse_rollouts
from consensuspr.data.json_text import dump_json_line
from consensuspr.data.unparsed import size_of
from consensuspr.scoring import (
    AnswerVerifier,
    DatasetIndex,
    Identity,
    Rollout,
    Score,
    Scorer,
    rollout_from_row,
    scored_row,
)
from consensuspr.wire.options import ScoreOptions
from consensuspr.wire.requests import as_sent

# Large enough that the hops of a part cost little beside its scoring (some 50 ms), small
# enough that all cores have parts and that one is quickly scored again.
PART_ROWS = 2048
PART_BYTES = 4 << 20

# An answer that is undecided because its machine was busy may be decided a moment later, and
# nobody waits for a file as a trainer does for its rewards.
MAX_REPEATS = 5


@dataclass(frozen=True, slots=True)
class PartOptions:
    """How every part of a file is scored.

    Attributes:
        path: the file of rollouts, as messages name it.
        options: reward, epoch, rules.
        on_error: what a bad row does.
        as_lines: whether to return rows as lines of JSON instead of as objects.
    """

    path: str
    options: ScoreOptions
    on_error: OnError = "stop"
    as_lines: bool = True


@dataclass(slots=True)
class Part:
    """Some rows of a file that follow each other.

    Attributes:
        rows: as they were read.
        damage: of the file, right behind them.
    """

    rows: list[Unparsed] = field(default_factory=list)
    damage: DataError | None = None


@dataclass(slots=True)
class ScoredPart:
    """What became of one part.

    Attributes:
        lines: its rows with their scores as lines of JSON, where that was asked for.
        rows: the same as objects, where it was not.
        counted: data source and score of each row, without what summaries do not count.
        report: good and skipped rows.
        fault: the bad row or the damage at which the part ends early; nothing comes after it.
        identity: under which it was scored, None where no row was.
    """

    lines: bytes = b""
    rows: list[Row] = field(default_factory=list)
    counted: list[tuple[str | None, Score]] = field(default_factory=list)
    report: ReadReport = field(default_factory=ReadReport)
    fault: DataError | None = None
    identity: Identity | None = None


class PartScorer:
    """Scores parts with one dataset, in one thread.

    Args:
        index: the dataset.
        how: the same for all parts.
    """

    def __init__(self, index: DatasetIndex, how: PartOptions) -> None:
        self._index = index
        self._how = how
        self._verifier = AnswerVerifier()
        self._scorer = Scorer({index.name: index}, verifier=self._verifier, threads=1)

    def score(self, part: Part) -> ScoredPart:
        """Parse, check and score the rows of a part in order."""
        done = ScoredPart()
        if part.damage is not None:
            done.fault = DataError(self._how.path, part.damage.line, part.damage.reason)
        good: list[Row] = []
        try:
            good.extend(parse_rollouts(part.rows, self._how.path, self._how.on_error, done.report))
        except DataError as fault:
            # What comes behind it is not wanted, nor is what was good before it.
            done.fault = fault
            return done
        if not good:
            return done
        scores, done.identity = self._score_patiently(
            [as_sent(rollout_from_row(row)) for row in good]
        )
        for row, score in zip(good, scores, strict=True):
            done.counted.append((self._source(row), replace(score, matched=(), spans=None)))
        full = map(scored_row, good, scores)
        if self._how.as_lines:
            done.lines = b"".join(map(dump_json_line, full))
        else:
            done.rows = list(full)
        return done

    def close(self) -> None:
        """End the answer processes."""
        self._verifier.close()

    def _score_patiently(self, rollouts: list[Rollout]) -> tuple[list[Score], Identity]:
        """Score rollouts, those anew whose answers the machine was too busy for."""
        scores, identity = self._score(rollouts)
        for _ in range(MAX_REPEATS):
            busy = [n for n, score in enumerate(scores) if score.undecided_by_load]
            if not busy:
                break
            again, _ = self._score([rollouts[number] for number in busy])
            for number, score in zip(busy, again, strict=True):
                scores[number] = score
        return scores, identity

    def _score(self, rollouts: list[Rollout]) -> tuple[list[Score], Identity]:
        options = self._how.options
        return self._scorer.score(
            rollouts,
            reward=options.reward,
            epoch=options.epoch,
            dataset=options.dataset,
            answer_rule=options.answer_rule,
            on_undecided=options.on_undecided,
            include_spans=options.include_spans,
        )

    def _source(self, row: Row) -> str | None:
        source: str | None = row.get("data_source")
        if source:
            return source
        entry = self._index.entry(row["problem_id"])
        return None if entry is None else entry.data_source


def cut_parts(rows: Iterable[Unparsed]) -> Iterator[Part]:
    """Yield rows in parts that are bounded in number and bytes.

    Damage of the file, which reading raises, has its place behind the rows before it.
    """
    part = Part()
    num_bytes = 0
    try:
        for row in rows:
            part.rows.append(row)
            num_bytes += size_of(row)
            if len(part.rows) >= PART_ROWS or num_bytes >= PART_BYTES:
                yield part
                part, num_bytes = Part(), 0
    except DataError as damage:
        part.damage = damage
    if part.rows or part.damage is not None:
        yield part
