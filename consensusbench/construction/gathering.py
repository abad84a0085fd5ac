"""Rollouts files read into the spool, in any number and order.

Nothing is written before all of them have been read: a bad row at the end of the last file
stops a build with nothing done.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

from consensusbench.construction.counts import RolloutCounts
from consensusbench.construction.problem_table import ProblemTable
from consensusbench.construction.selection import SelectionSettings
from consensusbench.construction.spool import RolloutSpool, Spooled
from consensuspr.data import OnError, ReadReport, Row, read_rollouts
from consensuspr.data.json_text import dump_json
from consensuspr.errors import InputError

# A correct solution is a hundredth of it; what is longer is not looked at, and counted.
MAX_RESPONSE_BYTES = 1 << 20

# Columns that say how a rollout was sampled; they are recorded with the rollouts that are used.
SAMPLING_COLUMNS = ("temperature", "top_p", "max_tokens", "seed")


def gather(
    paths: Sequence[str | os.PathLike[str]],
    table: ProblemTable,
    spool: RolloutSpool,
    settings: SelectionSettings,
    on_error: OnError,
    progress: Callable[[int], None] = lambda done: None,
) -> RolloutCounts:
    """Read rollouts into a spool and finish it.

    Args:
        paths: rollouts files.
        table: of the problems; learns what the rows say of theirs.
        spool: takes the rollouts that may be used.
        settings: whose rollouts count.
        on_error: what a bad row does.
        progress: told how many rows are read.

    Returns:
        The counts so far; ``incorrect``, ``undecided``, ``correct``, ``used`` come later.

    Raises:
        DataError: a file is bad.
        InputError: a model that is excluded or asked for wrote none of the rollouts, or no
            model is left, or the labels are to be trusted and no row has one.
    """
    counts = RolloutCounts()
    models: set[str] = set()
    labelled = False
    for path in paths:
        report = ReadReport()
        for row in read_rollouts(path, on_error, report):
            counts.read += 1
            if counts.read % 256 == 0:
                progress(counts.read)
            model = row.get("model") or ""
            models.add(model)
            labelled = labelled or row.get("correct") is not None
            _take(row, model, table, spool, settings, counts)
        counts.skipped += report.skipped
    progress(counts.read)
    _check_models(settings, models)
    if counts.read and counts.other_model == counts.read:
        raise InputError(
            f"--exclude-model and --only-model leave none of the {counts.read:,} rollouts"
        )
    if settings.trust_labels and not labelled:
        raise InputError(
            f"no row of {', '.join(str(path) for path in paths)} has the column correct; leave the "
            "labels out and let the answers be verified"
        )
    spool.finish()
    return counts


def _take(
    row: Row,
    model: str,
    table: ProblemTable,
    spool: RolloutSpool,
    settings: SelectionSettings,
    counts: RolloutCounts,
) -> None:
    if not settings.takes(model):
        counts.other_model += 1
        return
    number = table.number_of(row)
    if number is None:
        counts.unknown_problem += 1
        return
    response: str = row["response"]
    # No character takes more than four bytes: most need not be encoded to know.
    if 4 * len(response) > MAX_RESPONSE_BYTES and (
        len(response.encode("utf-8", "surrogatepass")) > MAX_RESPONSE_BYTES
    ):
        counts.oversize += 1
        return
    rollout = Spooled(row.get("rollout_id"), _sampling(row), response)
    spool.add(number, model, rollout, row.get("correct"))


def _sampling(row: Row) -> str:
    """Return what a row says of its sampling as JSON text, empty where it says nothing."""
    nested = row.get("sampling")
    said: dict[str, Any] = dict(nested) if isinstance(nested, dict) else {}
    said.update({name: row[name] for name in SAMPLING_COLUMNS if row.get(name) is not None})
    known = {name: value for name, value in sorted(said.items()) if value is not None}
    return dump_json(known) if known else ""


def _check_models(settings: SelectionSettings, models: set[str]) -> None:
    """Refuse a name that is not there: a typing error would let a model in unnoticed."""
    for name in (*settings.exclude_models, *settings.only_models):
        if name not in models:
            shown = ", ".join(sorted(filter(None, models))) or "none"
            raise InputError(f"no rollout is of model {name!r}; the models there are: {shown}")
