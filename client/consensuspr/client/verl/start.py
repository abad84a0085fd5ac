"""The check at the start: does the server have the problems of the training files?

The first reward worker makes it in a thread, with the doctor's code.  Files that do not fit end the
run.  A check that cannot be made (no server, files on another node, a dataset class of the user's
own) is logged and ends nothing.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from consensuspr.client.rpc import RewardClient
from consensuspr.client.training import RewardSettings
from consensuspr.client.training.grown import GrownDatasets
from consensuspr.client.training.source import AWAY, chosen_dataset, missing_budgets
from consensuspr.client.verl.config import select
from consensuspr.client.verl.files import RowScan, Split, SplitRows
from consensuspr.client.verl.run_end import end_run
from consensuspr.console import share
from consensuspr.errors import ConsensusPRError, DatasetMismatch
from consensuspr.wire.server_info import DatasetInfo

logger = logging.getLogger(__name__)

# Between two looks at a server that is away or has another dataset.
_PAUSE_S = 5.0


class UnfitDataset(ConsensusPRError):
    """The server's dataset is not the one of the training files."""


def check_at_start(config: Any, settings: RewardSettings) -> None:
    """Check the files of a run; end the run if they do not fit."""
    try:
        check_files(config, settings)
    except AWAY as error:
        logger.error("the files are not checked: %s", error)
    except ConsensusPRError as error:
        end_run(str(error))
    except Exception:  # a defect of the check must not end a run
        logger.exception("the files are not checked")


def check_files(config: Any, settings: RewardSettings) -> None:
    """Check training and validation files against the server.

    Raises:
        UnfitDataset: more problems have no reward than ``max_unscorable`` allows.
        ConsensusPRError: the server's dataset is not the expected one, or no server answers.
    """
    if select(config, "data", "custom_cls", "path") is not None:
        logger.warning("data.custom_cls makes the rows: they are not checked")
        return
    files = {
        Split.TRAIN: _paths(select(config, "data", "train_files")),
        Split.VALIDATION: _paths(select(config, "data", "val_files")),
    }
    with RewardClient(settings.address, settings.timeout_s, access=settings.access) as client:
        dataset = _dataset_when_there(client, settings)
        default_budget = missing_budgets(dataset, settings)
        if default_budget is not None:
            logger.warning("%s (consensusbench build --budgets adds them)", default_budget)
        prompt_key = str(select(config, "data", "prompt_key") or "prompt")
        scan = RowScan(settings, prompt_key, (client, dataset.name))
        scan.run(files, _no_progress)
    if scan.server_error is not None:
        logger.error("the files are not checked to their end: %s", scan.server_error)
    unfit = [text for split, rows in scan.rows.items() if (text := _unfit(split, rows, settings))]
    if unfit:
        raise UnfitDataset(
            f"{'; '.join(unfit)}; serve the dataset of these files, or drop the rows"
        )


def _dataset_when_there(client: RewardClient, settings: RewardSettings) -> DatasetInfo:
    """Return the dataset that samples will be scored with; wait for the server as a sample does."""
    passing = (*AWAY, DatasetMismatch) if settings.on_other_digest == "wait" else AWAY
    # With a local dataset no sample waits.
    waits = settings.dataset_path is None and settings.on_unavailable == "wait"
    give_up_at = time.monotonic() + (settings.unavailable_limit_s if waits else 0)
    while True:
        try:
            return _dataset(client, settings)
        except passing as error:
            if time.monotonic() > give_up_at:
                raise
            logger.warning("the check of the files waits for the server: %s", error)
            time.sleep(_PAUSE_S)


def _dataset(client: RewardClient, settings: RewardSettings) -> DatasetInfo:
    name, digest = settings.dataset, settings.expect_digest
    if settings.grown_nodes is not None:
        ready = GrownDatasets(settings.grown_nodes).ready()
        name, digest = (None, None) if ready is None else (ready.name, ready.digest)
    dataset = chosen_dataset(client.server_info(), name, settings.address)
    if digest not in (None, dataset.digest):
        raise DatasetMismatch.of(dataset.name, dataset.digest, digest)
    return dataset


def _unfit(split: Split, rows: SplitRows, settings: RewardSettings) -> str | None:
    """Return why a split cannot be trained on; log faults that can be tolerated."""
    name = "training" if split is Split.TRAIN else "validation"
    for reason in rows.bad_files:
        logger.warning("%s rows are not checked: %s", name, reason)
    if rows.other_truth.count:
        logger.error(
            "%s of %d %s problems have another ground truth in the row than at the server; the"
            " row's counts (the first: %s)",
            share(rows.other_truth.count, rows.asked),
            rows.asked,
            name,
            rows.other_truth.first,
        )
    reasons = {**rows.unscorable, "that cannot be read": rows.bad_rows}
    faults = [f"{n.count:,} {why} (the first: {n.first})" for why, n in reasons.items() if n.count]
    if not faults:
        return None
    finding = (
        f"{share(rows.num_unscorable, rows.num_checked)} of {rows.num_checked:,} {name} problems"
        f" have no reward: {'; '.join(faults)}"
    )
    if rows.exceeds(settings):
        return finding
    logger.error("%s; the run goes on (max_unscorable=%g)", finding, settings.max_unscorable)
    return None


def _paths(files: Any) -> Sequence[str]:
    return (files,) if isinstance(files, str) else tuple(map(str, files or ()))


@contextmanager
def _no_progress(_name: str, _total: int | None, _unit: str) -> Iterator[Callable[[int], None]]:
    yield lambda done: None
