"""Tasks run by all cores of a Ray cluster, through Ray Data.

::

    tasks on disk ──▶ read (one task of Ray, on this node) ──▶ work (an actor a core, all nodes)
                                                              └─▶ this process, in order

The tasks are written to one file first, since Ray Data reads where it pleases and this process
verifies answers meanwhile.  An actor has a worker process of its own, the same that runs
problems on one machine: limits, and what a problem that ends its process leaves, are the same.
A node that dies takes nothing along; its problems are worked on elsewhere.

consensuspr and the module of the extractor must be installed on every node.
"""

from __future__ import annotations

import logging
import pickle
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from consensusbench.construction.processes import WorkerProcess
from consensusbench.construction.values import Finished, Item, Stream, Task
from consensusbench.construction.work import Plan
from consensuspr.errors import ConsensusPRError
from consensuspr.ray.require import require_ray

# Problems that travel together; enough that the hops cost little beside the work.
PART_PROBLEMS = 16
PART_CHARS = 4 << 20

_COLUMN = "part"


class RayEngine:
    """Runs tasks on a Ray cluster.

    Connects to the cluster that ``RAY_ADDRESS`` names or that runs on this machine, and starts
    one on this machine where there is none.

    Args:
        plan: what is done with each.
        folder: of this machine, for the file of tasks.

    Raises:
        InputError: Ray is not installed.
    """

    def __init__(self, plan: Plan, folder: Path) -> None:
        self._ray = require_ray()
        require_ray("ray.data")
        self._plan = plan
        self._folder = folder

    def run(self, items: Iterable[Item]) -> Stream:
        """Yield what became of each item, in order.

        Raises:
            ConsensusPRError: the cluster failed, or a worker cannot be started.
        """
        with tempfile.NamedTemporaryFile(prefix="tasks-", dir=self._folder) as tasks:
            if not _write_parts(items, tasks):
                return
            tasks.flush()
            ray = self._ray
            if not ray.is_initialized():
                ray.init(log_to_driver=False, logging_level=logging.ERROR)
            # Its plans and bars are of no interest; what fails is raised.
            logging.getLogger("ray.data").setLevel(logging.ERROR)
            try:
                for batch in self._dataset(tasks.name).iter_batches(
                    batch_size=1, batch_format="pyarrow", prefetch_batches=1
                ):
                    yield from _value(batch)
            except ray.exceptions.RayError as error:
                said = str(error).strip().splitlines()
                raise ConsensusPRError(
                    f"building on Ray failed: {said[-1] if said else error!r}"
                ) from error

    def _dataset(self, path: str) -> Any:
        """Return the Ray dataset whose only column holds the finished parts, one a row."""
        ray = self._ray
        here = {"ray.io/node-id": ray.get_runtime_context().get_node_id()}
        context = ray.data.DataContext.get_current().copy()
        context.execution_options.preserve_order = True
        context.enable_progress_bars = False
        # Every part is a block of its own, and with it a unit of work.
        context.target_max_block_size = 1
        cores = max(1, int(ray.cluster_resources().get("CPU", 1)))
        with ray.data.DataContext.current(context):
            return (
                ray.data.from_items([{"path": path}], override_num_blocks=1)
                # Without a core of its own, which would keep one of a small node from working.
                .map_batches(
                    _read, batch_size=1, batch_format="pyarrow", num_cpus=0, label_selector=here
                )
                .map_batches(
                    _Work,
                    batch_size=1,
                    batch_format="pyarrow",
                    compute=ray.data.ActorPoolStrategy(min_size=1, max_size=cores),
                    num_cpus=1,
                    fn_constructor_args=(pickle.dumps(self._plan),),
                )
            )


def _write_parts(items: Iterable[Item], stream: Any) -> int:
    """Write items in parts that are bounded in number and length; return how many parts."""
    part: list[Item] = []
    num_chars = parts = 0
    for item in items:
        part.append(item)
        if isinstance(item, Task):
            num_chars += item.num_chars
        if len(part) >= PART_PROBLEMS or num_chars >= PART_CHARS:
            pickle.dump(part, stream, protocol=pickle.HIGHEST_PROTOCOL)
            part, num_chars, parts = [], 0, parts + 1
    if part:
        pickle.dump(part, stream, protocol=pickle.HIGHEST_PROTOCOL)
        parts += 1
    return parts


def _read(batch: Any) -> Iterator[Any]:
    """Read the file of tasks and yield its parts."""
    with open(batch.column("path")[0].as_py(), "rb") as stream:
        while True:
            try:
                part = pickle.load(stream)
            except EOFError:
                return
            yield _table(part)


class _Work:
    """Works on parts on one core.

    Args:
        plan: pickled, what is done with each task.
    """

    def __init__(self, plan: bytes) -> None:
        self._worker = WorkerProcess(pickle.loads(plan))

    def __call__(self, batch: Any) -> Any:
        return _table([self._finished(item) for item in _value(batch)])

    def _finished(self, item: Item) -> Finished:
        return (item.group, self._worker.run(item)) if isinstance(item, Task) else item


def _table(value: object) -> Any:
    import pyarrow as pa

    return pa.table({_COLUMN: pa.array([pickle.dumps(value)], pa.large_binary())})


def _value(batch: Any) -> Any:
    return pickle.loads(batch.column(_COLUMN)[0].as_buffer())
