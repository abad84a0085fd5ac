"""The check before the first step: are the server's data those of the training files?

Whoever comes first among the reward workers of a run makes it, in a thread, while verl still
starts its engines; the others wait for what came of it before they reward their first sample.  What
is looked at, and how, is the doctor's: every row of both splits by the code that rewards it.

A check that cannot be made (no server, a defect) ends no run: each worker then says that it rewards
samples of files that nobody has checked, and why.  Where the one that makes it dies, another does.

A dataset class of a user's own makes rows that no file has, and files that this node cannot read
are no fault of the data: both are said, and not checked.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from consensuspr.client.sync import RewardClient
from consensuspr.client.training import RewardSettings
from consensuspr.client.training.grown import GrownDatasets
from consensuspr.client.training.source import chosen_dataset, missing_budgets
from consensuspr.client.verl.config import select
from consensuspr.client.verl.files import RowScan, Split, SplitRows
from consensuspr.client.verl.run_end import actor_is_gone, actor_name, note, read_note
from consensuspr.console import share
from consensuspr.errors import (
    ConsensusPRError,
    DatasetMismatch,
    DeadlineExceeded,
    Overloaded,
    Unavailable,
)
from consensuspr.wire.server_info import DatasetInfo

logger = logging.getLogger(__name__)

_CLAIM, _OUTCOME = "start check by", "start check"
_PAUSE_S = 0.5

# After so long without an answer it is said that the check waits, and again each minute.
_SILENCE_S, _SILENCE_AGAIN_S = 5.0, 60.0


_AWAY = (Unavailable, Overloaded, DeadlineExceeded)


class UnfitDataset(ConsensusPRError):
    """The server's dataset is not the one of the training files."""


def check_once(config: Any, settings: RewardSettings) -> None:
    """Check the files of a run, or wait for the worker that does.

    Raises:
        UnfitDataset: more problems have no reward than ``max_unscorable`` allows.
        ConsensusPRError: the server's dataset is not the one that is expected, or not there.
    """
    claim = _CLAIM
    while not note(claim, actor_name() or "", once=True):
        checker = read_note(claim) or ""
        outcome = _outcome_of(checker, settings.unavailable_limit_s)
        if outcome is None:
            claim = f"{_CLAIM}, behind {checker}"
            continue
        if outcome["unfit"]:
            raise UnfitDataset(outcome["unfit"])
        if outcome["unchecked"]:
            logger.error(
                "samples are rewarded here whose files were not checked before the first step: %s",
                outcome["unchecked"],
            )
        return
    outcome = {"unfit": "", "unchecked": ""}
    try:
        outcome["unchecked"] = check_files(config, settings) or ""
    except ConsensusPRError as error:
        outcome["unfit"] = str(error)
        raise
    except BaseException as error:
        outcome["unchecked"] = f"{type(error).__name__}: {error}"
        raise
    finally:
        note(_OUTCOME, json.dumps(outcome))


def _outcome_of(checker: str, patience_s: float) -> dict[str, str] | None:
    """Return what came of the check that another worker makes; None: that worker is gone.

    Whoever waits says so: a minute of it may be a server that is away, or large files.
    """
    name = checker or "another reward worker"
    began = time.monotonic()
    tell_at = began + _SILENCE_AGAIN_S
    while (told := read_note(_OUTCOME)) is None:
        now = time.monotonic()
        if checker and actor_is_gone(checker):
            logger.error("%s is gone, which checked the files; another worker does", name)
            return None
        if now >= tell_at:
            tell_at = now + _SILENCE_AGAIN_S
            logger.error("samples wait: %s still checks the files of the run", name)
        if now - began > patience_s:
            unchecked = f"{name} has not said for {patience_s:g} s what came of the check"
            return {"unfit": "", "unchecked": unchecked}
        time.sleep(_PAUSE_S)
    outcome: dict[str, str] = json.loads(told)
    return outcome


def check_files(config: Any, settings: RewardSettings) -> str | None:
    """Check training and validation files against the server; errors are those above.

    Returns:
        Why they were not checked, or not to their end; that was logged.  None: they were.
    """
    if select(config, "data", "custom_cls", "path") is not None:
        logger.warning("data.custom_cls makes the rows: they are not checked before the first step")
        return None
    files = {
        Split.TRAIN: _paths(select(config, "data", "train_files")),
        Split.VALIDATION: _paths(select(config, "data", "val_files")),
    }
    with RewardClient(settings.address, settings.timeout_s, access=settings.access) as client:
        try:
            dataset = _dataset_when_there(client, settings)
        except _AWAY as error:
            logger.error("the files are not checked before the first step: %s", error)
            return str(error)
        default_budget = missing_budgets(dataset, settings)
        if default_budget is not None:
            logger.warning("%s (consensusbench build --budgets adds them)", default_budget)
        prompt_key = str(select(config, "data", "prompt_key") or "prompt")
        scan = RowScan(settings, prompt_key, (client, dataset.name))
        scan.run(files, _no_progress)
    unchecked = None
    if scan.server_error is not None:
        unchecked = f"the files could not be checked to their end: {scan.server_error}"
        logger.error("%s", unchecked)
    unfit = [told for split, rows in scan.rows.items() if (told := _unfit(split, rows, settings))]
    if unfit:
        raise UnfitDataset(
            f"{'; '.join(unfit)}; serve the dataset of these files, or drop the rows"
        )
    return unchecked


def _dataset(client: RewardClient, settings: RewardSettings) -> DatasetInfo:
    """Return the dataset that samples will be scored with, of the right content."""
    name, digest = settings.dataset, settings.expect_digest
    if settings.grown_nodes is not None:
        ready = GrownDatasets(settings.grown_nodes).ready()
        name, digest = (None, None) if ready is None else (ready.name, ready.digest)
    dataset = chosen_dataset(client.server_info(_SILENCE_S), name, settings.address)
    if digest not in (None, dataset.digest):
        raise DatasetMismatch.of(dataset.name, dataset.digest, digest)
    return dataset


def _dataset_when_there(client: RewardClient, settings: RewardSettings) -> DatasetInfo:
    """Return the dataset; while no server answers, ask again, as a sample does.

    Raises:
        ConsensusPRError: the answer is a refusal, or the settings do not let samples wait longer.
    """
    passing = (*_AWAY, DatasetMismatch) if settings.on_other_digest == "wait" else _AWAY
    began = time.monotonic()
    tell_at = began
    while True:
        try:
            return _dataset(client, settings)
        except passing as error:
            now = time.monotonic()
            # With a stand-in no sample waits.
            stand_in = settings.dataset_path is not None or settings.on_unavailable == "raise"
            if stand_in or now - began > settings.unavailable_limit_s:
                raise
            if now >= tell_at:
                tell_at = now + _SILENCE_AGAIN_S
                logger.error("the check of the files waits for the server: %s", error)
            time.sleep(_PAUSE_S)


def _unfit(split: Split, rows: SplitRows, settings: RewardSettings) -> str | None:
    """Return why a split cannot be trained on; say what is wrong and can be lived with."""
    name = "training" if split is Split.TRAIN else "validation"
    for reason in rows.bad_files:
        logger.warning("%s rows are not checked before the first step: %s", name, reason)
    problems = [f"{found.count:,} {why} (the first: {found.first})"
                for why, found in rows.unscorable.items()]  # fmt: skip
    if rows.bad_rows.count:
        problems.append(f"{rows.bad_rows.count:,} rows not to be read ({rows.bad_rows.first})")
    if rows.other_truth.count:
        logger.error(
            "%s of %d %s problems have another ground truth in the row than at the server; the"
            " row's decides (the first: %s)",
            share(rows.other_truth.count, rows.asked), rows.asked, name, rows.other_truth.first,
        )  # fmt: skip
    if not problems:
        return None
    finding = (
        f"{share(rows.num_unscorable, rows.num_checked)} of {rows.num_checked:,} {name} problems"
        f" have no reward: {'; '.join(problems)}"
    )
    if rows.exceeds(settings):
        return finding
    logger.error("%s; the run goes on (max_unscorable=%g)", finding, settings.max_unscorable)
    return None


def _paths(files: Any) -> Sequence[str]:
    if files is None:
        return ()
    return (files,) if isinstance(files, str) else tuple(map(str, files))


@contextmanager
def _no_progress(_what: str, _total: int | None, _unit: str) -> Iterator[Callable[[int], None]]:
    yield lambda done: None
