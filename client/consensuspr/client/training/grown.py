"""Datasets that grow with a run, and which of them rewards which epoch.

``consensusbench grow`` and the reward workers share a folder:

- ``ready.json``: the newest dataset that the server serves;
- ``epoch-0002.json``: the dataset that rewards epoch 2.

The worker that meets the first sample of an epoch takes the ready dataset, for all.  So an epoch
has one dataset, nobody waits for one, and a resumed run goes on with that of its epoch.  Each
request names the dataset with its digest, which the server checks.
"""

from __future__ import annotations

import json
import os
import tempfile
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from consensuspr.data import atomic_file
from consensuspr.errors import InputError
from consensuspr.scoring.types import check_digest, check_label

_READY = "ready.json"


@dataclass(frozen=True, slots=True)
class GrownDataset:
    """One of the datasets of a run.

    Attributes:
        name: what requests call it.
        digest: of its content.
        problems: in it.
        with_nodes: those of them that have nodes.
    """

    name: str
    digest: str
    problems: int
    with_nodes: int


class GrownDatasets:
    """The folder of one run.

    Raises:
        InputError: on any call, that the folder cannot be read or written, or holds something else.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._taken: dict[int, GrownDataset] = {}

    def of_epoch(self, epoch: int) -> GrownDataset:
        """Return what rewards an epoch, from 0; where nobody has asked yet, what is ready now."""
        if epoch not in self._taken:
            path = self._path(epoch)
            taken = _read(path) or self._take(path)
            self._taken[epoch] = taken
        return self._taken[epoch]

    def ready(self) -> GrownDataset | None:
        """Return what an epoch that begins now is rewarded by; None before there is any."""
        return _read(self.folder / _READY)

    def publish(self, dataset: GrownDataset) -> None:
        """Let epochs that begin from now on be rewarded by a dataset, which is served by now."""
        with atomic_file(self.folder / _READY) as stream:
            stream.write(json.dumps(asdict(dataset)).encode())

    def taken(self) -> dict[int, GrownDataset]:
        """Return what rewards the epochs that have begun, by epoch in their order."""
        found = {}
        for path in sorted(self.folder.glob("epoch-*.json")):
            dataset = _read(path)
            assert dataset is not None, "nobody removes it"
            found[int(path.stem.removeprefix("epoch-"))] = dataset
        return dict(sorted(found.items()))

    def _path(self, epoch: int) -> Path:
        return self.folder / f"epoch-{epoch:04d}.json"

    def _take(self, path: Path) -> GrownDataset:
        """Take what is ready for an epoch, unless another worker is faster; return what it got."""
        ready = self.ready()
        if ready is None:
            raise InputError(
                f"grown_nodes: {self.folder} has no dataset yet; consensusbench grow puts it there"
            )
        try:
            # Complete before it has its name, and the name is given once: linking to one that is
            # there fails, on network disks too.
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
    """Return the dataset that a file names; None where there is no such file."""
    try:
        row: Any = json.loads(path.read_bytes())
        dataset = GrownDataset(**row)
        check_label("name", dataset.name)
        check_digest(dataset.digest)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _unusable(path, error) from None
    except (InputError, TypeError, ValueError):
        raise InputError(f"grown_nodes: {path} names no dataset of consensusbench grow") from None
    return dataset


def _unusable(path: Path, error: OSError) -> InputError:
    return InputError(f"grown_nodes: {path}: {(error.strerror or str(error)).lower()}")
