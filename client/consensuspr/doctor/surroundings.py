"""Where the run's processes are: can all of them reach the server, the dataset and the log?"""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Iterator
from pathlib import Path

from consensuspr.client.training import RewardSettings
from consensuspr.doctor.findings import Finding, fail, ok, warn
from consensuspr.doctor.verl_run import VerlRun

# A worker is a process that decodes and waits; one per core of a large node is plenty.
_MANY_WORKERS = 128


def check_address(run: VerlRun, address: str, settings: RewardSettings) -> Iterator[Finding]:
    """Say whether reward workers on all nodes reach the server that was asked here.

    Args:
        run: whose workers.
        address: that was asked.
        settings: whose address the workers use.
    """
    if address != settings.address:
        yield warn(
            "address",
            f"{address} was asked here, the run will ask {settings.address}",
            f"set +reward.reward_kwargs.address={address}, or leave out --address",
        )
    nodes = run.get("trainer.nnodes")
    if not isinstance(nodes, int) or nodes < 2:
        return
    if is_local(settings.address):
        yield fail(
            "address",
            f"{settings.address} is each node itself, and trainer.nnodes is {nodes}: reward"
            " workers on the other nodes would find no server",
            "set +reward.reward_kwargs.address to the server's name in the network, and serve on"
            " it (--address 0.0.0.0:PORT)",
        )
    else:
        yield ok("address", f"{settings.address}, for workers on {nodes} nodes")


def is_local(address: str) -> bool:
    """Tell whether an address means the machine that uses it."""
    if address.startswith("unix:"):
        return True
    host = address.rpartition(":")[0].rpartition("/")[2].strip("[]")
    if host == "localhost":
        return True
    try:
        found = ipaddress.ip_address(host)
    except ValueError:
        return False
    return found.is_loopback or found.is_unspecified


def check_workers(run: VerlRun) -> Iterator[Finding]:
    """Look at the number of reward workers."""
    workers, nodes = run.get("reward.num_workers"), run.get("trainer.nnodes")
    if not isinstance(workers, int) or workers < 1:
        yield fail(
            "workers", f"reward.num_workers must be 1 or more, got {workers!r}", "set it to 8"
        )
    elif workers > _MANY_WORKERS:
        yield warn(
            "workers",
            f"reward.num_workers={workers}: each is a process with a tokenizer of its own",
            "8 to 64 do; each has hundreds of samples on the way at a time",
        )
    else:
        where = f", one after the other on {nodes} nodes" if nodes != 1 else ""
        yield ok("workers", f"{workers} reward workers{where}")


def check_paths(run: VerlRun | None, settings: RewardSettings) -> Iterator[Finding]:
    """Look at the folder of the score log, and how paths are written."""
    nodes = run.get("trainer.nnodes") if run else 1
    for name in ("score_log", "dataset_path"):
        path: Path | None = getattr(settings, name)
        if path is not None and not path.is_absolute():
            yield warn(
                name.replace("_", " "),
                f"{path} is taken from the folder in which Ray starts a worker, not from here",
                "give the whole path",
            )
    if settings.score_log is not None:
        yield _writable(settings.score_log, isinstance(nodes, int) and nodes > 1)


def _writable(folder: Path, several_nodes: bool) -> Finding:
    """Say whether a folder, which need not be there yet, can be written to."""
    place = folder.absolute()
    while not place.exists() and place != place.parent:
        place = place.parent
    if not place.is_dir():
        return fail("score log", f"{place} is no folder", "choose another for score_log")
    if not os.access(place, os.W_OK | os.X_OK):
        return fail("score log", f"{place} cannot be written to", "choose another for score_log")
    where = "; each node writes its own, unless the folder is shared" if several_nodes else ""
    return ok("score log", f"{folder} can be written to{where}")
