"""Datasets that change while real servers serve them, with several workers and under load."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import grpc
import psutil
import pytest

from consensuspr.cli import main
from consensuspr.client import LocalClient, RewardClient, Rollout
from consensuspr.client.admin import AdminClient, PutMode
from consensuspr.errors import (
    DatasetMismatch,
    InvalidRequest,
    Unavailable,
    UnknownDataset,
)
from consensuspr.server.config import load_config
from consensuspr.server.datasets import ServedDatasets
from consensuspr.server.processes import Message
from consensuspr.v1 import DATASET_DIGEST_KEY
from consensuspr.v1.scoring_pb2_grpc import ScoringServiceStub
from tests.commands import runner
from tests.processes import wait_for
from tests.rows import write_rows
from tests.server.conftest import request_of
from tests.servers import ANY_PORT, ServeProcess, run_with

RESPONSE = b"16 - 3 - 4 = 9 eggs are left. #### 18"
# A change starts a process, which takes seconds where a machine is busy.
MOST_S = 90


def version(path: Path, number: int, problems: int = 1) -> Path:
    """Write a version of a dataset, in which the response above reaches 1 of ``number`` nodes."""
    expressions = ["16 - 3 - 4 = 9", *(f"{at} zebras" for at in range(1000, 999 + number))]
    nodes = [
        {"node_id": f"n{at}", "label": text, "type": "equation", "expressions": [text]}
        for at, text in enumerate(expressions)
    ]
    row = {"data_source": "toy", "problem": "How many?", "ground_truth": "18", "nodes": nodes}
    names = ["ducks", *(f"p{at}" for at in range(1, problems))]
    return write_rows(path, [{"problem_id": name, **row} for name in names])


def digest_of(path: Path) -> str:
    with LocalClient(path) as client:
        return client.server_info().datasets[0].digest


@dataclass
class Files:
    """Two versions of a dataset, and the reward that the response above has by each."""

    folder: Path
    first: Path
    second: Path
    rewards: dict[str, float]


def made_in(folder: Path) -> Files:
    folder.mkdir()
    first, second = version(folder / "first.jsonl", 1), version(folder / "second.jsonl", 4)
    return Files(folder, first, second, {digest_of(first): 1.0, digest_of(second): 0.625})


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return made_in(tmp_path_factory.mktemp("shared") / "data")


@pytest.fixture(scope="module")
def shared(files: Files) -> Iterator[ServeProcess]:
    """A server of the first version with two workers."""
    settings = {"datasets": {"default": str(files.first)}, "address": ANY_PORT, "workers": 2}
    with closing(ServeProcess(files.folder.parent, run_with(settings))) as server:
        yield server.wait_until_listening()


@pytest.fixture
def server(shared: ServeProcess, files: Files) -> Iterator[ServeProcess]:
    """The same; afterwards, it serves the first version again."""
    yield shared
    put(shared, files.first)
    with AdminClient(shared.address, MOST_S) as admin:
        for item in admin.list():
            if item.info.name != "default":
                admin.remove(item.info.name)


StartServer = Callable[..., ServeProcess]


@pytest.fixture
def own_files(tmp_path: Path) -> Files:
    return made_in(tmp_path / "data")


@pytest.fixture
def start(own_files: Files, tmp_path: Path) -> Iterator[StartServer]:
    """Start a server of the first version of its own files; settings as keywords."""
    usual = {"datasets": {"default": str(own_files.first)}, "address": ANY_PORT, "workers": 2}
    with ExitStack() as running:

        def start_server(**settings: Any) -> ServeProcess:
            server = ServeProcess(tmp_path, run_with(usual | settings))
            return running.enter_context(closing(server)).wait_until_listening()

        yield start_server


def put(
    server: ServeProcess, path: Path | str = "", name: str = "default", mode: PutMode = "any"
) -> str:
    """Put a dataset; return its digest."""
    with AdminClient(server.address, MOST_S) as admin:
        return admin.put(name, str(path), mode).dataset.info.digest


def served(server: ServeProcess) -> dict[str, str]:
    """Return the digests by name."""
    with RewardClient(server.address, MOST_S) as client:
        return {item.name: item.digest for item in client.server_info().datasets}


def mapped(server: ServeProcess) -> list[list[str]]:
    """Return the snapshots that each worker has mapped."""
    maps = [Path(f"/proc/{pid}/maps").read_text() for pid in server.worker_pids()]
    return [sorted(set(re.findall(r"\S+\.index(?: \(deleted\))?$", text, re.M))) for text in maps]


@dataclass
class Load:
    """Callers that ask all the time, each on a connection of its own; their replies.

    Attributes:
        replies: when each request was sent and answered, its digest and its rewards.
    """

    server: ServeProcess
    rollouts: int
    replies: list[tuple[float, float, str, list[float]]] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    stopped: threading.Event = field(default_factory=threading.Event)

    def wait_for(self, number: int) -> None:
        """Wait until so many requests were answered, or one failed."""
        wait_for(lambda: len(self.replies) >= number or bool(self.failed), most_s=MOST_S)

    def call(self) -> None:
        request = request_of(*[RESPONSE] * self.rollouts)
        with grpc.insecure_channel(
            self.server.address, [("grpc.use_local_subchannel_pool", 1)]
        ) as channel:
            stub = ScoringServiceStub(channel)
            while not self.stopped.is_set():
                asked = time.monotonic()
                try:
                    reply = stub.Score(request, timeout=MOST_S)
                except grpc.RpcError as error:
                    self.failed.append(str(error))
                    return
                self.replies.append(
                    (asked, time.monotonic(), reply.identity.dataset_digest, [*reply.rewards])
                )


@contextmanager
def under_load(server: ServeProcess, callers: int = 4, rollouts: int = 300) -> Iterator[Load]:
    """Have a server asked all the time during the block; requests of several pieces each."""
    load = Load(server, rollouts)
    threads = [threading.Thread(target=load.call) for _ in range(callers)]
    for thread in threads:
        thread.start()
    try:
        load.wait_for(callers)
        yield load
    finally:
        load.stopped.set()
        for thread in threads:
            thread.join()


def test_replaced_under_load_no_request_is_lost_or_mixed(
    server: ServeProcess, files: Files
) -> None:
    spans: list[tuple[float, float, str]] = []
    with under_load(server) as load:
        begun = time.monotonic()
        for path in (files.second, files.first):
            digest = put(server, path)
            spans.append((begun, time.monotonic(), digest))
            seen = len(load.replies)
            load.wait_for(seen + 8)
            begun = time.monotonic()
    assert load.failed == []
    assert {digest for _, _, digest, _ in load.replies} == set(files.rewards)
    for _, _, digest, rewards in load.replies:
        assert rewards == [files.rewards[digest]] * load.rollouts
    # Between two changes every worker serves one dataset.
    ends = [begun for begun, _, _ in spans[1:]] + [float("inf")]
    for (_, since, digest), until in zip(spans, ends, strict=True):
        between = [reply for reply in load.replies if since < reply[0] and reply[1] < until]
        assert {reply[2] for reply in between} <= {digest}


def test_what_is_replaced_gives_its_memory_and_files_back(
    start: StartServer, own_files: Files
) -> None:
    versions = [version(own_files.folder / f"v{at}.jsonl", 2 + at, problems=1000) for at in (0, 1)]
    server = start(datasets={"default": str(versions[0])}, workers=2)

    def rss() -> int:
        return max(int(psutil.Process(pid).memory_info().rss) for pid in server.worker_pids())

    def ask() -> None:
        """Have the problems' matchers compiled, on whichever worker."""
        rollouts = [Rollout(f"p{at}", RESPONSE) for at in range(1, 1000, 2)]
        with RewardClient(server.address, MOST_S) as client:
            client.score(rollouts)

    def opened() -> int:
        return int(psutil.Process(server.process.pid).num_fds())

    ask()
    put(server, versions[1])
    base, descriptors = rss(), opened()
    for at in range(2):
        ask()
        put(server, versions[at])
    wait_for(lambda: all(len(paths) == 1 for paths in mapped(server)), most_s=MOST_S)
    assert not any("deleted" in paths[0] for paths in mapped(server))
    assert len(list(server.scratch.glob("consensuspr-*/*/*"))) == 1
    assert opened() <= descriptors + 1
    # One of these datasets is some MB of matchers and index in a worker.
    assert rss() < base + (24 << 20)
    assert server.stop() == 0
    assert list(server.scratch.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "path", "mode", "sentence"),
    [
        ("default", "bad.jsonl", "any", "bad.jsonl:1: is not JSON"),
        ("default", "pipe", "any", "pipe: is not a regular file"),
        ("default", "first.jsonl", "add", "dataset 'default' exists already, from .*; use replace"),
        ("new", "first.jsonl", "replace", "no dataset is called 'new'; known datasets: default"),
        ("", "first.jsonl", "any", "name must not be empty"),
        ("new", "", "any", "path is required, because there is no dataset 'new' yet"),
        ("default", "../outside.jsonl", "any", "path must be in or below .*/data, the folders"),
        ("default", "outside", "any", "path must be in or below .*/data, the folders"),
    ],
)
def test_what_is_wrong_changes_nothing_and_is_said(
    shared: ServeProcess, files: Files, name: str, path: str, mode: PutMode, sentence: str
) -> None:
    (files.folder / "bad.jsonl").write_text('{"problem_id"')
    if not (files.folder / "pipe").exists():
        os.mkfifo(files.folder / "pipe")
        outside = version(files.folder.parent / "outside.jsonl", 2)
        (files.folder / "outside").symlink_to(outside)
    before = served(shared)
    given = path if not path or path.startswith("/") else os.path.join(files.folder, path)
    with pytest.raises(InvalidRequest, match=sentence):
        put(shared, given, name, mode)
    assert served(shared) == before


def test_expected_digests(shared: ServeProcess, files: Files) -> None:
    other = f"sha256:{'0' * 64}"
    digest = digest_of(files.first)
    with AdminClient(shared.address, MOST_S) as admin:
        with pytest.raises(InvalidRequest, match=f"has digest {digest}, expected {other}"):
            admin.put("default", expect_digest=other)
        assert admin.put("default", expect_digest=digest).previous_digest == digest
    rollouts = [Rollout("ducks", RESPONSE)]
    sentence = f"dataset 'default' has digest {digest}, expected {other}"
    with RewardClient(shared.address, MOST_S, expect_digest=other) as client:
        for ask in (lambda: client.score(rollouts), lambda: client.explain(rollouts[0])):
            with pytest.raises(DatasetMismatch, match=sentence) as caught:
                ask()
            assert caught.value.digest == digest
    with RewardClient(shared.address, MOST_S, run="a run", expect_digest=digest) as client:
        assert client.score(rollouts)[0].reward == 1.0
    with (
        LocalClient(files.first, expect_digest=other) as local,
        pytest.raises(DatasetMismatch, match=sentence),
    ):
        local.score(rollouts)
    with grpc.insecure_channel(shared.address) as channel:
        call = ScoringServiceStub(channel).Score.future(
            request_of(RESPONSE, expect_digest=other, run="r")
        )
        assert call.code() is grpc.StatusCode.FAILED_PRECONDITION
        assert dict(call.trailing_metadata())[DATASET_DIGEST_KEY] == digest


def test_added_and_removed(server: ServeProcess, files: Files) -> None:
    put(server, files.second, "second", "add")
    with RewardClient(server.address, MOST_S) as client, AdminClient(server.address) as admin:
        asked = [Rollout("ducks", RESPONSE)]
        assert client.score(asked, dataset="second")[0].reward == 0.625
        # Who names none means what there was.
        assert client.score(asked)[0].reward == 1.0
        assert [item.path for item in admin.list()] == [str(files.first), str(files.second)]
        assert admin.remove("default") == digest_of(files.first)
        assert client.score(asked)[0].reward == 0.625
        with pytest.raises(UnknownDataset, match="no dataset is called 'default'"):
            client.score(asked, dataset="default")
        with pytest.raises(InvalidRequest, match="'second' is the only one; a server needs"):
            admin.remove("second")
        with pytest.raises(InvalidRequest, match="no dataset is called 'default'"):
            admin.remove("default")


def test_a_folder_of_datasets_and_a_hangup(start: StartServer, own_files: Files) -> None:
    """Bad files stop neither a start nor a reload."""
    folder = own_files.folder / "folder"
    folder.mkdir()
    (folder / "notes.txt").write_text("no dataset")
    goes = version(folder / "goes.jsonl", 2)
    version(folder / "stays.jsonl", 2)
    (folder / "broken.jsonl").write_text("{")
    os.mkfifo(folder / "pipe.jsonl")
    (folder / "gone.jsonl.gz").symlink_to("nowhere")
    server = start(dataset_folder=str(folder), metrics_address=ANY_PORT)
    before = served(server)
    assert set(before) == {"default", "stays", "goes"}
    logged = server.log.read_text()
    assert f"dataset broken is not served: {folder / 'broken.jsonl'}:1: is not JSON" in logged
    for name in ("pipe.jsonl", "gone.jsonl.gz"):
        assert f"{folder / name}: is not a regular file" in logged
    shown = metrics_of(server)
    for name, value in {"default": 0, "stays": 0, "broken": 1, "pipe": 1, "gone": 1}.items():
        assert f'consensuspr_dataset_bad{{dataset="{name}"}} {value}.0' in shown
    assert 'consensuspr_dataset_changes_total{result="failed"} 3.0' in shown

    version(own_files.first, 3)
    (folder / "stays.jsonl").write_text("{")
    goes.rename(folder / "comes.jsonl")
    version(folder / "broken.jsonl", 3)
    server.process.send_signal(signal.SIGHUP)
    expected = {
        "default": digest_of(own_files.first),
        "stays": before["stays"],
        "comes": before["goes"],
        "broken": digest_of(folder / "broken.jsonl"),
    }
    wait_for(lambda: served(server) == expected, most_s=MOST_S)
    wait_for(
        lambda: "dataset stays: change by SIGHUP failed" in server.log.read_text(), most_s=MOST_S
    )
    wait_for(lambda: 'dataset_bad{dataset="broken"} 0.0' in metrics_of(server), most_s=MOST_S)


def metrics_of(server: ServeProcess) -> str:
    [address] = re.findall(r"metrics on (\S+)", server.log.read_text())
    with urllib.request.urlopen(address) as reply:
        return cast("str", reply.read().decode())


def test_a_reader_that_is_killed_changes_nothing(server: ServeProcess, files: Files) -> None:
    large = version(files.folder / "large.jsonl", 12, problems=20_000)
    workers = set(server.worker_pids())

    def kill_reader() -> None:
        wait_for(lambda: bool(set(server.worker_pids()) - workers), most_s=MOST_S)
        [reader] = set(server.worker_pids()) - workers
        os.kill(reader, signal.SIGKILL)

    thread = threading.Thread(target=kill_reader)
    thread.start()
    with pytest.raises(Unavailable, match="the process was killed by SIGKILL"):
        put(server, large)
    thread.join()
    assert served(server) == {"default": digest_of(files.first)}
    assert len(list(server.scratch.glob("consensuspr-*/[0-9]*/[0-9]*"))) == 1
    assert put(server, files.second) == digest_of(files.second)


def test_the_command(
    server: ServeProcess,
    files: Files,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    consensuspr = runner(main, capsys, monkeypatch)
    at = ("--address", server.address)

    def done(*arguments: str) -> Any:
        code, out, err = consensuspr("datasets", *arguments, *at, "--json")
        assert (code, err) == (0, "")
        return json.loads(out)

    first, second = files.rewards
    assert [(item["name"], item["digest"]) for item in done("list")] == [("default", first)]
    assert done("add", "more", str(files.second))["previous_digest"] is None
    changed = done("replace", "default", str(files.second))
    assert (changed["digest"], changed["previous_digest"]) == (second, first)
    assert done("remove", "more") == {"name": "more", "digest": second}
    code, _, err = consensuspr("datasets", "add", "default", str(files.first), *at)
    assert code == 2 and "dataset 'default' exists" in err


def test_a_reload_during_the_start_keeps_the_datasets_of_the_settings(tmp_path: Path) -> None:
    reads: list[Message] = []

    async def read(payload: Message) -> Message:
        reads.append(payload)
        await asyncio.sleep(0.01 * len(reads))
        names = [*payload["config"]["datasets"], "of-the-folder"]
        loaded = {name: (name, name, "sha256:0") for name in names}
        return {"loaded": loaded, "faults": {}, "folder": names[-1:]}

    async def order_all(order: Message) -> dict[int, Message | None]:
        return {}

    async def start() -> set[str]:
        config = load_config(overrides={"datasets": {"main": version(tmp_path / "main.jsonl", 1)}})
        served = ServedDatasets(config, tmp_path, read, order_all, lambda *_: None, None)
        await asyncio.gather(served.load_first(), served.reload_all())
        return set(served.payload()["datasets"])

    assert asyncio.run(start()) == {"main", "of-the-folder"}
