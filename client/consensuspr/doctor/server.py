"""The server: does it answer, is it of this version, has it the dataset that is meant?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from consensuspr.client.sync import RewardClient
from consensuspr.doctor.findings import Finding, fail, ok, warn
from consensuspr.errors import (
    DataError,
    DeadlineExceeded,
    InputError,
    RewardServiceError,
    Unavailable,
)
from consensuspr.version import VERSION
from consensuspr.wire.info import DatasetInfo, ServerInfo

# Long enough for a server that is just starting, short enough for a wrong address.
_CONNECT_TIMEOUT_S = 10.0

# Of a digest; enough to tell two by eye.
_SHOWN = 19


@dataclass(frozen=True, slots=True)
class Server:
    """A server that answered.

    Attributes:
        client: connected; the caller closes it.
        info: what it says about itself.
    """

    client: RewardClient
    info: ServerInfo


def meet(address: str, timeout_s: float) -> tuple[Server | None, Finding]:
    """Ask a server who it is."""
    try:
        client = RewardClient(address, timeout_s)
    except InputError as error:
        return None, fail("server", str(error), "give its address as HOST:PORT")
    try:
        info = client.server_info(min(timeout_s, _CONNECT_TIMEOUT_S))
    except RewardServiceError as error:
        client.close()
        away = isinstance(error, Unavailable | DeadlineExceeded)
        return None, fail(
            "server",
            f"{address}: {error}",
            f"start it: consensuspr serve --dataset PATH --address {address}"
            if away
            else "install the same version of consensuspr on both sides",
        )
    core = "compiled core" if info.core_backend == "native" else "pure-Python core"
    found = f"{address} answers: version {info.server_version}, {core}"
    if info.core_backend == "native":
        return Server(client, info), ok("server", found)
    return Server(client, info), warn(
        "server", found, "install it where there is a C compiler; this core is many times slower"
    )


def check_versions(info: ServerInfo) -> Iterator[Finding]:
    """Compare the server's versions with those of this install."""
    from consensuspr.core import NORMAL_FORM_VERSION
    from consensuspr.scoring.answers import ANSWER_VERSION

    pairs = {
        "release": (info.server_version, VERSION),
        "normal form": (info.normal_form_version, NORMAL_FORM_VERSION),
        "answers": (info.answer_version, ANSWER_VERSION),
    }
    other = [
        f"{name} {server} there and {here} here"
        for name, (server, here) in pairs.items()
        if server != here
    ]
    if other:
        yield warn(
            "versions",
            ", ".join(other),
            "install the same version on both sides; scores made here may differ from the server's",
        )
    else:
        yield ok(
            "versions",
            f"protocol {info.protocol_version}, normal form {info.normal_form_version}, answers"
            f" {info.answer_version}, as here",
        )


def choose_dataset(info: ServerInfo, name: str | None) -> tuple[DatasetInfo | None, Finding]:
    """Find the dataset that samples will be scored with."""
    names = ", ".join(repr(dataset.name) for dataset in info.datasets)
    if name is None and len(info.datasets) > 1:
        return None, fail(
            "dataset",
            f"the server has several ({names}) and none is named",
            "set +reward.reward_kwargs.dataset=NAME",
        )
    for dataset in info.datasets:
        if name in (None, dataset.name):
            return dataset, ok(
                "dataset",
                f"{dataset.name!r}: {dataset.num_problems:,} problems,"
                f" {dataset.num_without_nodes:,} of them without nodes,"
                f" {dataset.digest[:_SHOWN]}…",
            )
    return None, fail(
        "dataset",
        f"the server has no {name!r}, it has {names}",
        "correct reward.reward_kwargs.dataset, or serve it: --dataset NAME=PATH",
    )


def check_file(path: Path, role: str, dataset: DatasetInfo | None) -> Finding:
    """Compare the content of a dataset file with the server's dataset.

    Args:
        path: of the file.
        role: what it is for, the setting or option that names it.
        dataset: the server's; None where it is not known.
    """
    from consensuspr.scoring import DatasetIndex

    try:
        digest = DatasetIndex.load(path).digest
    except DataError as error:
        return fail("dataset file", f"{role}: {error}", "correct the path or the file")
    if dataset is None:
        return ok("dataset file", f"{role}: {path}, {digest[:_SHOWN]}…")
    if digest != dataset.digest:
        return fail(
            "dataset file",
            f"{role}: {path} ({digest[:_SHOWN]}…) is not the server's {dataset.name!r}"
            f" ({dataset.digest[:_SHOWN]}…)",
            "serve this file, or name the one that is served",
        )
    return ok("dataset file", f"{role}: {path} has the content of {dataset.name!r}")
