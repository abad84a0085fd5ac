"""The check at the start: does the server have the problems of the training files?

The first reward worker makes it in a thread, with the doctor's code.  Files that do not fit end the
run.  A check that cannot be made (no server, files on another node, a dataset class of the user's
own) is logged and ends nothing.
"""

from __future__ import annotations

import logging
from typing import Any

from consensuspr.client.local import LocalClient
from consensuspr.client.rpc import RewardClient
from consensuspr.client.training import RewardSettings
from consensuspr.client.training.grown import GrownDatasets
from consensuspr.client.training.source import AWAY, chosen_dataset, local_client
from consensuspr.client.verl.config import file_names, select
from consensuspr.client.verl.files import FAIL, TRAIN, VALIDATION, WARN, RowScan
from consensuspr.client.verl.run_end import end_run
from consensuspr.errors import ConsensusPRError, DatasetMismatch
from consensuspr.wire.server_info import DatasetInfo

logger = logging.getLogger(__name__)


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
        logger.warning("data.custom_cls builds the rows, so they are not checked")
        return
    files = {
        TRAIN: file_names(select(config, "data", "train_files")),
        VALIDATION: file_names(select(config, "data", "val_files")),
    }
    if settings.address is None:
        opened: RewardClient | LocalClient = local_client(settings)
    else:
        opened = RewardClient(settings.address, settings.timeout_s, access=settings.access)
    with opened as client:
        dataset = _dataset_of_run(client, settings)
        has_nodes = dataset.num_without_nodes < dataset.num_problems
        guards = settings.guard and settings.reward != "outcome"
        if has_nodes and guards and not dataset.num_with_budgets:
            logger.warning(
                "dataset %r stores no guard budgets; the default budget applies"
                " (consensusbench build --budgets adds them)",
                dataset.name,
            )
        prompt_key = str(select(config, "data", "prompt_key") or "prompt")
        scan = RowScan(settings, (client, dataset.name), prompt_key)
        scan.run(files)
    unfit = []
    for finding in scan.findings():
        kind, sentence = finding.check.split()[-1], f"{finding.check}: {finding.found}"
        # A file may be on other nodes alone, and a server that failed may be back.
        cannot_tell = kind == "files" or (kind == "problems" and scan.server_error is not None)
        if finding.level is FAIL and not cannot_tell:
            unfit.append(sentence)
        elif finding.level in (FAIL, WARN):
            logger.error("%s", sentence)
    if unfit:
        raise UnfitDataset(
            f"{'; '.join(unfit)}; serve the dataset of these files, or drop the rows"
        )


def _dataset_of_run(client: RewardClient | LocalClient, settings: RewardSettings) -> DatasetInfo:
    """Return the dataset that samples will be scored with; wait for the server as a sample does."""
    # With a local dataset no sample waits.
    waits = settings.dataset_path is None and settings.on_unavailable == "wait"
    info = client.server_info(settings.unavailable_limit_s if waits else settings.timeout_s)
    name, digest = settings.dataset, settings.expect_digest
    if settings.grown_nodes is not None:
        ready = GrownDatasets(settings.grown_nodes).ready()
        name, digest = (None, None) if ready is None else (ready.name, ready.digest)
    dataset = chosen_dataset(info, name, settings.address)
    if digest not in (None, dataset.digest):
        raise DatasetMismatch.of(dataset.name, dataset.digest, digest)
    return dataset
