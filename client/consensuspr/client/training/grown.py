"""Datasets that grow with a run, and which of them rewards which epoch.

``consensusbench grow`` and the reward workers share a folder:

- ``ready.json``: the newest dataset that the server serves;
- ``epoch-0002.json``: the dataset that rewards epoch 2.

The worker that has the first sample of an epoch takes the ready dataset for all workers.  So an
epoch has one dataset, no worker waits for one, and a resumed run continues with that of its epoch.
Each request names the dataset with its digest, which the server checks.
"""

from __future__ import annotations

import json
import os
import tempfile
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from consensuspr.data import atomic_file
from consensuspr.errors import InputError
from consensuspr.scoring.types import check_digest, check_label

_READY = "ready.json"


@dataclass(frozen=True, slots=True)
class GrownDataset:
    """One of the datasets of a run, with its numbers of problems."""

    name: str
    digest: str
    problems: int
    with_nodes: int


class GrownDatasets:
    """The folder of one run; each call raises InputError if the folder is unusable."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._taken: dict[int, GrownDataset] = {}

    def of_epoch(self, epoch: int) -> GrownDataset:
        """Return the dataset of an epoch, from 0; the first call of all workers decides."""
        if epoch not in self._taken:
            path = self.folder / f"epoch-{epoch:04d}.json"
            self._taken[epoch] = _read(path) or self._take(path)
        return self._taken[epoch]

    def ready(self) -> GrownDataset | None:
        """Return the dataset for an epoch that begins now; None before there is any."""
        return _read(self.folder / _READY)

    def publish(self, dataset: GrownDataset) -> None:
        """Use a dataset, which the server has by now, for epochs that begin from now on."""
        with atomic_file(self.folder / _READY) as stream:
            stream.write(json.dumps(asdict(dataset)).encode())

    def taken(self) -> dict[int, GrownDataset]:
        """Return the datasets of the epochs that have begun, by epoch in order."""
        paths = sorted(self.folder.glob("epoch-*.json"))
        found = {int(path.stem.removeprefix("epoch-")): _read(path) for path in paths}
        return {epoch: dataset for epoch, dataset in sorted(found.items()) if dataset is not None}

    def _take(self, path: Path) -> GrownDataset:
        """Take the ready dataset for an epoch, unless another worker was faster."""
        ready = self.ready()
        if ready is None:
            raise InputError(
                f"grown_nodes: {self.folder} has no dataset yet; run consensusbench grow first"
            )
        try:
            # Linking a complete file fails if the name exists, on network disks too.
            descriptor, draft = tempfile.mkstemp(dir=self.folder, prefix=".epoch-")
            with os.fdopen(descriptor, "w") as stream:
                json.dump(asdict(ready), stream)
            with suppress(FileExistsError):
                os.link(draft, path)
            os.unlink(draft)
        except OSError as error:
            raise _unusable(path, error) from None
        taken = _read(path)
        assert taken is not None, "it was linked"
        return taken


def _read(path: Path) -> GrownDataset | None:
    """Return the dataset that a file names, None without the file."""
    try:
        dataset = GrownDataset(**json.loads(path.read_bytes()))
        check_label("name", dataset.name)
        check_digest(dataset.digest)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _unusable(path, error) from None
    except (InputError, TypeError, ValueError):
        raise InputError(f"grown_nodes: {path} is not a file of consensusbench grow") from None
    return dataset


def _unusable(path: Path, error: OSError) -> InputError:
    return InputError(f"grown_nodes: {path}: {(error.strerror or str(error)).lower()}")
