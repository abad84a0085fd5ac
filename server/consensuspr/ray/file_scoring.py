"""A file of rollouts scored by all cores of a Ray cluster, through Ray Data.

::

    read (one task, on this node) ──▶ score (an actor a core, all nodes) ──▶ this process
      raw rows, cut into parts          parse, check, score, write as JSON      in file order

- The file is read where this process runs; only the dataset's snapshot and the parts travel.
- Parts come back in the order of the file.  What is under way is bounded by Ray Data's
  budget of each node's object store, past which it stops reading.
- A node that dies takes nothing along: its parts are scored again elsewhere, which is safe
  because scoring is a pure function.  This process and its node must live.

consensuspr must be installed on every node, in the same version.
"""

from __future__ import annotations

import logging
import os
import pickle
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

from consensuspr.data import atomic_file, read_unparsed
from consensuspr.errors import ConsensusPRError
from consensuspr.ray.parts import PartOptions, PartScorer, ScoredPart, cut_parts
from consensuspr.ray.require import require_ray
from consensuspr.ray.snapshots import open_shared
from consensuspr.scoring import DatasetIndex

_COLUMN = "part"


def score_parts(index: DatasetIndex, how: PartOptions) -> Generator[ScoredPart, None, None]:
    """Yield the scored parts of a file in order.

    Connects to the cluster that ``RAY_ADDRESS`` names or that runs on this machine, and
    starts one on this machine where there is none.

    Args:
        index: the dataset.
        how: the file, and how to score it; its path as seen from this process.

    Raises:
        InputError: Ray is not installed.
        ConsensusPRError: scoring failed for another reason than a row or the file.
    """
    ray = require_ray()
    require_ray("ray.data")
    if not ray.is_initialized():
        ray.init(log_to_driver=False, logging_level=logging.ERROR)
    # Its plans and bars are of no interest; what fails is raised.
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    try:
        for batch in _dataset(ray, index, how).iter_batches(
            batch_size=1, batch_format="pyarrow", prefetch_batches=1
        ):
            part: ScoredPart = pickle.loads(batch.column(_COLUMN)[0].as_buffer())
            yield part
    except ray.exceptions.RayError as error:
        said = str(error).strip().splitlines()
        raise ConsensusPRError(f"scoring on Ray failed: {said[-1] if said else error!r}") from error


def _dataset(ray: Any, index: DatasetIndex, how: PartOptions) -> Any:
    """Return the Ray dataset whose only column holds the scored parts, one a row."""
    here = {"ray.io/node-id": ray.get_runtime_context().get_node_id()}
    context = ray.data.DataContext.get_current().copy()
    context.execution_options.preserve_order = True
    context.enable_progress_bars = False
    # Every part is a block of its own, and with it a unit of work; Ray Data would put dozens
    # of them together.
    context.target_max_block_size = 1
    cores = max(1, int(ray.cluster_resources().get("CPU", 1)))
    with ray.data.DataContext.current(context):
        return (
            ray.data.from_items([{"path": os.path.abspath(how.path)}], override_num_blocks=1)
            # No core of its own, else it would wait for one on a small node; and were its
            # demands those of the next stage, Ray Data would make one stage of both.
            .map_batches(
                _read, batch_size=1, batch_format="pyarrow", num_cpus=0, label_selector=here
            )
            .map_batches(
                _Score,
                batch_size=1,
                batch_format="pyarrow",
                compute=ray.data.ActorPoolStrategy(min_size=1, max_size=cores),
                num_cpus=1,
                fn_constructor_args=(
                    ray.put(bytes(index.image.buffer)),
                    index.name,
                    index.digest,
                    how,
                ),
            )
        )


def _table(value: object) -> Any:
    import pyarrow as pa

    return pa.table({_COLUMN: pa.array([pickle.dumps(value)], pa.large_binary())})


def _read(batch: Any) -> Iterator[Any]:
    """Read the file and yield its parts, unparsed."""
    for part in cut_parts(read_unparsed(batch.column("path")[0].as_py())):
        yield _table(part)


class _Score:
    """Scores parts on one core.

    Args:
        image: reference of the dataset's snapshot in the object store.
        name: of the dataset.
        digest: of the dataset.
        how: as for :func:`score_parts`.
    """

    def __init__(self, image: Any, name: str, digest: str, how: PartOptions) -> None:
        def write(path: Path) -> None:
            with atomic_file(path) as stream:
                stream.write(require_ray().get(image))

        self._scorer = PartScorer(open_shared(digest, name, write), how)

    def __call__(self, batch: Any) -> Any:
        part = pickle.loads(batch.column(_COLUMN)[0].as_buffer())
        return _table(self._scorer.score(part))
