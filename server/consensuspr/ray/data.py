"""A file of rollouts scored by all cores of a Ray cluster, through Ray Data.

::

    read (one task, on this node) ──▶ score (an actor a core, all nodes) ──▶ this process
      raw rows, cut into parts          parse, check, score, write as JSON      in file order

Parts come back in the order of the file.  Parts of a node that dies are scored again elsewhere;
this process and its node must live.  ``work_on_parts`` also builds datasets.
"""

from __future__ import annotations

import inspect
import logging
import os
import pickle
import sys
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager, redirect_stdout
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import Any

from consensuspr.data import DataError, OnError, ReadReport, Row
from consensuspr.data.readers import Unparsed, parse_rollouts, read_unparsed
from consensuspr.data.writers import dump_json_line
from consensuspr.errors import ConsensusPRError
from consensuspr.ray.node import require_ray
from consensuspr.scoring import (
    AnswerVerifier,
    DatasetIndex,
    Identity,
    Score,
    Scorer,
    rollout_from_row,
    scored_row,
)
from consensuspr.scoring.scorer import reward_in_training
from consensuspr.scoring.types import ScoreOptions
from consensuspr.wire.codec import as_sent

# Large enough that the hops of a part cost little beside its scoring (some 50 ms), small
# enough that all cores have parts and that one is quickly scored again.
PART_ROWS = 2048
PART_BYTES = 4 << 20

_COLUMN = "part"


@dataclass(frozen=True, slots=True)
class PartOptions:
    """How every part of a file is scored, and whether rows come back as JSON or as objects."""

    path: str
    options: ScoreOptions
    on_error: OnError = "stop"
    as_lines: bool = True


@dataclass(slots=True)
class FilePart:
    """Some rows of a file that follow each other, and damage of the file right behind them."""

    rows: list[Unparsed] = field(default_factory=list)
    damage: DataError | None = None


@dataclass(slots=True)
class ScoredPart:
    """The scored rows of one part, as lines or as objects, and the counts."""

    lines: bytes = b""
    rows: list[Row] = field(default_factory=list)
    # Of each row: data source, score without what summaries do not count, lower in training.
    counted: list[tuple[str | None, Score, bool]] = field(default_factory=list)
    report: ReadReport = field(default_factory=ReadReport)
    fault: DataError | None = None  # at which the part, and with it the file, ends early
    identity: Identity | None = None  # under which it was scored, None if no row was


class PartScorer:
    """Scores parts with one dataset, in one thread."""

    def __init__(self, index: DatasetIndex, options: PartOptions) -> None:
        self._index = index
        self._options = options
        self._verifier = AnswerVerifier()
        self._scorer = Scorer({index.name: index}, verifier=self._verifier, threads=1)

    def score(self, part: FilePart) -> ScoredPart:
        """Parse, check and score the rows of a part in order."""
        options, done = self._options, ScoredPart()
        if part.damage is not None:
            done.fault = DataError(options.path, part.damage.line, part.damage.reason)
        rows: list[Row] = []
        try:
            rows.extend(parse_rollouts(part.rows, options.path, options.on_error, done.report))
        except DataError as fault:
            done.fault = fault
            return done
        if not rows:
            return done
        rollouts = [as_sent(rollout_from_row(row)) for row in rows]
        scores, done.identity = self._scorer.score(rollouts, options.options)
        for row, score in zip(rows, scores, strict=True):
            source = row.get("data_source") or self._index.data_source(row["problem_id"])
            trained = reward_in_training(row["response"], score, done.identity)
            light = replace(score, matched=(), spans=None)
            done.counted.append((source, light, trained is not None))
        scored = map(scored_row, rows, scores)
        if options.as_lines:
            done.lines = b"".join(map(dump_json_line, scored))
        else:
            done.rows = list(scored)
        return done

    def close(self) -> None:
        """End the answer processes."""
        self._verifier.close()


def cut_parts(rows: Iterable[Unparsed]) -> Iterator[FilePart]:
    """Yield rows in parts that are bounded in number and bytes.

    Damage of the file, which reading raises, has its place behind the rows before it.
    """
    part = FilePart()
    num_bytes = 0
    try:
        for row in rows:
            part.rows.append(row)
            num_bytes += _num_bytes(row[1])
            if len(part.rows) >= PART_ROWS or num_bytes >= PART_BYTES:
                yield part
                part, num_bytes = FilePart(), 0
    except DataError as damage:
        part.damage = damage
    if part.rows or part.damage is not None:
        yield part


def _num_bytes(content: bytes | Row | DataError) -> int:
    """Return about how many bytes a row takes."""
    if isinstance(content, dict):
        content = content.get("response") or b""
    return len(content) if isinstance(content, str | bytes) else 0


def score_parts(index: DatasetIndex, options: PartOptions) -> Generator[ScoredPart, None, None]:
    """Yield the scored parts of a file in order; the file's path is as seen from here."""
    with connected() as ray:
        arguments = (ray.put(index), options)  # the object store holds the index once a node
        yield from work_on_parts("scoring", options.path, _read, _scoring, arguments)


def _read(path: str) -> Iterator[FilePart]:
    return cut_parts(read_unparsed(path))


def _scoring(index: Any, options: PartOptions) -> Callable[[Any], ScoredPart]:
    return PartScorer(require_ray().get(index), options).score


@contextmanager
def connected() -> Iterator[Any]:
    """Connect to a Ray cluster, with Ray Data; yield Ray.

    The cluster is that of ``RAY_ADDRESS``, one that runs on this machine, or one that is started
    here.  A process that was connected before stays connected.

    Raises:
        InputError: Ray is not installed.
    """
    ray = require_ray()
    require_ray("ray.data")
    # Failures are raised.
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    before = ray.is_initialized()
    # Ray prints events of nodes at any time; they are not part of a command's output.
    with redirect_stdout(sys.stderr):
        if not before:
            ray.init(log_to_driver=False, logging_level=logging.ERROR)
        try:
            yield ray
        finally:
            if not before:
                ray.shutdown()


def work_on_parts(
    doing: str,
    path: str | os.PathLike[str],
    read: Callable[[str], Iterator[Any]],
    make: Callable[..., Callable[[Any], Any]],
    arguments: tuple[Any, ...],
) -> Iterator[Any]:
    """Have all cores of the cluster work on the parts of a file; yield the results in order.

    Call it while ``connected``.

    Args:
        doing: the work, for the message of a failure.
        path: of the file, on this node.
        read: yields the parts of the file at a path; runs on this node.
        make: called once a core with the arguments; returns a function of one part.
        arguments: pickled, as are parts and results.

    Raises:
        ConsensusPRError: the cluster failed, or ``make`` or its function raised.
    """
    ray = require_ray()
    node = ray.get_runtime_context().get_node_id()
    # Ray 2.41 has one way to place a stage, and Ray 2.64 only the other.
    if "label_selector" in inspect.signature(ray.data.Dataset.map_batches).parameters:
        here = {"label_selector": {"ray.io/node-id": node}}
    else:
        strategies = require_ray("ray.util.scheduling_strategies")
        affinity = strategies.NodeAffinitySchedulingStrategy(node, soft=False)
        here = {"scheduling_strategy": affinity}
    cores = max(1, int(ray.cluster_resources().get("CPU", 1)))
    one_part = {"batch_size": 1, "batch_format": "pyarrow"}
    try:
        with _set_for_new_datasets(ray.data.DataContext.get_current()):
            made = (
                ray.data.from_items([{"path": os.path.abspath(path)}], override_num_blocks=1)
                # No core of its own, else it would wait for one on a small node; and were its
                # demands those of the next stage, Ray Data would make one stage of both.
                .map_batches(_parts, fn_args=(read,), num_cpus=0, **here, **one_part)
                .map_batches(
                    _Working,
                    compute=ray.data.ActorPoolStrategy(min_size=1, max_size=cores),
                    num_cpus=1,
                    fn_constructor_args=(make, arguments),
                    **one_part,
                )
            )
        for batch in made.iter_batches(prefetch_batches=1, **one_part):
            yield _value(batch)
    except ray.exceptions.RayError as error:
        lines = str(error).strip().splitlines() or [repr(error)]
        raise ConsensusPRError(f"{doing} on Ray failed: {lines[-1]}") from error


@contextmanager
def _set_for_new_datasets(context: Any) -> Iterator[None]:
    """Set the options of Ray Data for datasets made meanwhile, which copy them.

    Ray 2.41 has neither ``DataContext.copy`` nor ``DataContext.current``.
    """
    options = deepcopy(context.execution_options)
    options.preserve_order = True
    # Every part is a block of its own, and with it a unit of work; Ray Data would put dozens
    # of them together.
    wanted = {
        "execution_options": options,
        "enable_progress_bars": False,
        "target_max_block_size": 1,
    }
    before = {name: getattr(context, name) for name in wanted}
    try:
        for name, value in wanted.items():
            setattr(context, name, value)
        yield
    finally:
        for name, value in before.items():
            setattr(context, name, value)


def _parts(batch: Any, read: Callable[[str], Iterator[Any]]) -> Iterator[Any]:
    for part in read(batch.column("path")[0].as_py()):
        yield _table(part)


class _Working:
    def __init__(self, make: Callable[..., Callable[[Any], Any]], arguments: tuple[Any, ...]):
        self._work = make(*arguments)

    def __call__(self, batch: Any) -> Any:
        return _table(self._work(_value(batch)))


def _table(value: object) -> Any:
    import pyarrow as pa

    return pa.table({_COLUMN: pa.array([pickle.dumps(value)], pa.large_binary())})


def _value(batch: Any) -> Any:
    return pickle.loads(batch.column(_COLUMN)[0].as_buffer())
