"""Datasets that grow with a run: one for each epoch, whatever becomes ready meanwhile."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from consensuspr.client.training.grown import GrownDataset, GrownDatasets
from consensuspr.errors import InputError


def dataset(number: int) -> GrownDataset:
    return GrownDataset(f"grown-{number}", f"sha256:{number:064x}", 10, number)


def test_an_epoch_keeps_what_was_ready_when_it_began(tmp_path: Path) -> None:
    maker, worker = GrownDatasets(tmp_path), GrownDatasets(tmp_path)
    maker.publish(dataset(0))
    assert worker.of_epoch(0) == dataset(0)
    maker.publish(dataset(1))
    maker.publish(dataset(2))
    late = GrownDatasets(tmp_path)
    assert worker.of_epoch(0) == late.of_epoch(0) == dataset(0)
    assert late.of_epoch(1) == dataset(2)
    maker.publish(dataset(3))
    assert worker.of_epoch(1) == dataset(2)
    # A run that is resumed, in a new process, goes on where it was.
    assert GrownDatasets(tmp_path).of_epoch(1) == dataset(2)
    assert maker.ready() == dataset(3)
    assert maker.taken() == {0: dataset(0), 1: dataset(2)}


def test_workers_that_begin_an_epoch_at_once_agree(tmp_path: Path) -> None:
    maker = GrownDatasets(tmp_path)
    maker.publish(dataset(0))
    for epoch in range(20):
        barrier = threading.Barrier(9)
        got: list[GrownDataset] = []

        def work(
            epoch: int = epoch, barrier: threading.Barrier = barrier, got: list[GrownDataset] = got
        ) -> None:
            worker = GrownDatasets(tmp_path)
            barrier.wait()
            got.append(worker.of_epoch(epoch))

        workers = [threading.Thread(target=work) for _ in range(8)]
        for one in workers:
            one.start()
        barrier.wait()
        maker.publish(dataset(epoch + 1))
        for one in workers:
            one.join()
        assert len(got) == 8
        assert len(set(got)) == 1
        assert maker.taken()[epoch] == got[0]
    assert not list(tmp_path.glob(".*"))


def test_without_a_dataset_no_epoch_begins(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="has no dataset yet; run consensusbench grow first"):
        GrownDatasets(tmp_path).of_epoch(0)
