"""A launch from its first line to its last, with real servers and a fake verl."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from consensuspr.cli import main
from consensuspr.client import LocalClient, Rollout
from consensuspr.client.training import RewardSettings
from consensuspr.client.training.grown import GrownDatasets
from consensuspr.score_log import dataset_path
from consensuspr.scoring import DatasetIndex
from tests.processes import descendants
from tests.rows import write_rows
from tests.runs import Group, Log, question, rewards, right
from tests.servers import served

if TYPE_CHECKING:
    from tests.launch.conftest import Trainer

PATIENCE_S = 90.0


@pytest.fixture
def arguments(repository: Path, tmp_path: Path) -> list[str]:
    """The command line of a launch on the sample, with a port of its own."""
    (tmp_path / "rows.parquet").touch()
    rows = str(tmp_path / "rows.parquet")
    return [
        *(sys.executable, "-m", "consensuspr.cli", "launch", "--no-doctor"),
        *("--algorithm", "grpo", "--model", "1.7b", "--reward", "linear"),
        *("--train-files", rows, "--val-files", rows),
        *("--dataset", str(repository / "examples/sample/dataset.jsonl")),
        *("--server-address", "127.0.0.1:0", "--server-workers", "1"),
        *("--log-dir", str(tmp_path / "logs")),
    ]


def run(arguments: list[str], trainer: Trainer, **act: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        arguments,
        env={**trainer.environment, **act},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


def until(fact: Callable[[], Any]) -> Any:
    """Wait for a fact and return it."""
    give_up_at = time.monotonic() + PATIENCE_S
    while not (found := fact()):
        assert time.monotonic() < give_up_at
        time.sleep(0.05)
    return found


def is_serving(address: str) -> bool:
    asked = [sys.executable, "-m", "consensuspr.cli", "health", "--address", address]
    return subprocess.run(asked, capture_output=True, check=False).returncode == 0


def is_gone(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0]
    except FileNotFoundError:
        return True
    return state == "Z"  # nobody collects orphans in some containers


def server_of(launcher: subprocess.Popen[Any]) -> int:
    """Return the process number of the server that a launcher has started, 0 while none runs."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((folder / "stat").read_text().rpartition(") ")[2].split()[1])
            command = (folder / "cmdline").read_bytes().split(b"\0")
        except (FileNotFoundError, ProcessLookupError):
            continue
        if parent == launcher.pid and b"serve" in command:
            return int(folder.name)
    return 0


def settings_in(arguments: list[str]) -> dict[str, str]:
    """Return the settings of the reward that a training was given."""
    start = "+reward.reward_kwargs."
    pairs = [word.split("=", 1) for word in arguments if word.startswith(start)]
    return {key.removeprefix(start): value.strip("'") for key, value in pairs}


def test_the_server_listens_before_the_training_until_after_it_and_is_restarted(
    arguments: list[str], trainer: Trainer, tmp_path: Path
) -> None:
    with subprocess.Popen(
        [*arguments, "--alpha", "0.1", "data.seed=7"],
        env={**trainer.environment, "TRAINER_ACT": "outlive a server"},
        stderr=subprocess.PIPE,
        text=True,
    ) as launcher:
        until(trainer.noted)
        os.kill(server_of(launcher), signal.SIGKILL)
        _, message = launcher.communicate(timeout=PATIENCE_S)
    assert launcher.returncode == 0, message
    assert [noted["serving"] for noted in trainer.noted()] == [True, False, True]
    assert "the reward server died (exit code -9)" in message
    noted = trainer.noted()[0]
    assert "data.seed=7" in noted["arguments"]
    with LocalClient(arguments[arguments.index("--dataset") + 1]) as local:
        digest = local.server_info().datasets[0].digest
    own = RewardSettings.of(settings_in(noted["arguments"]), "launch")
    assert (own.expect_digest, own.reward, own.alpha) == (digest, "linear", 0.1)
    assert own.run == "grpo-qwen3-1.7b-base-linear-alpha0.1"
    assert own.score_log is not None
    assert DatasetIndex.open(dataset_path(own.score_log, digest)).digest == digest
    assert not is_serving(noted["address"])
    assert "listening on" in (tmp_path / "logs" / "server.log").read_text()
    assert message.count(f"the reward server is listening on {noted['address']}") == 2


def test_a_signal_ends_the_training_and_then_the_server(
    arguments: list[str], trainer: Trainer
) -> None:
    with subprocess.Popen(
        arguments,
        env={**trainer.environment, "TRAINER_ACT": "wait"},
        stderr=subprocess.PIPE,
        text=True,
    ) as launcher:
        until(lambda: len(trainer.noted()) == 2)
        server = server_of(launcher)
        assert server
        launcher.send_signal(signal.SIGINT)
        _, message = launcher.communicate(timeout=PATIENCE_S)
    assert launcher.returncode == 128 + signal.SIGINT, message
    assert "SIGINT: ending the training, then the server" in message
    assert is_gone(trainer.noted()[0]["pid"])
    assert is_gone(server)
    # It still had its rewards when it ended.
    assert trainer.noted()[-1] == {"interrupted": True, "serving": True}


def test_the_exit_code_is_the_trainings_at_a_server_that_runs_already(
    arguments: list[str], trainer: Trainer, repository: Path, tmp_path: Path
) -> None:
    with served(
        tmp_path, repository / "examples/sample/dataset.jsonl", "--workers", "1"
    ) as address:
        done = run([*arguments, "--address", address], trainer, TRAINER_CODE="7")
        assert done.returncode == 7, done.stderr
        assert trainer.noted()[0]["address"] == address
        assert is_serving(address)
        taken = run([*arguments, "--server-address", address], trainer)
        assert taken.returncode == 1
        assert f"{address} is in use by another process" in taken.stderr


@pytest.mark.parametrize(
    ("own", "sentence"),
    [
        (["--algorithm", "ppo"], "Invalid value for '--algorithm'"),
        (["--server-workers", "0"], "server_workers (--server-workers): must be at least 1, got 0"),
        (["custom_reward_function.path=x"], "verl would ignore custom_reward_function.path"),
        (["--dataset", "/no/such.jsonl", "--dry-run"], "/no/such.jsonl: no such file"),
    ],
)
def test_bad_usage_is_one_sentence_and_code_2(
    own: list[str], sentence: str, arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*arguments[3:], *own]) == 2
    error = capsys.readouterr().err
    assert error.startswith("consensuspr: error: ") and sentence in error
    assert error.count("\n") == 1


def test_nodes_grow_beside_the_training_and_outlive_the_server(
    arguments: list[str], trainer: Trainer, tmp_path: Path
) -> None:
    dataset = write_rows(tmp_path / "data" / "problems.jsonl", [question(0), question(1)])
    arguments[arguments.index("--dataset") + 1] = str(dataset)
    with subprocess.Popen(
        [*arguments, "--grow-nodes"],
        env={**trainer.environment, "TRAINER_ACT": "wait"},
        stderr=subprocess.PIPE,
        text=True,
    ) as launcher:
        noted = until(trainer.noted)[0]
        given = settings_in(noted["arguments"])
        folder = Path(given["grown_nodes"])
        grown = GrownDatasets(folder)
        first = grown.ready()
        assert first is not None
        assert (first.with_nodes, first.problems) == (0, 2)
        [before] = rewards(noted["address"], folder, 0, Rollout("p0", right(0, 0)))
        assert (before.score.num_nodes, before.reward) == (0, 1.0)  # its Acc
        Log(Path(given["score_log"])).add(Group(0, 1), Group(0, 4))
        ready = until(lambda: (now := grown.ready()) != first and now)
        assert ready.with_nodes == 1
        os.kill(server_of(launcher), signal.SIGKILL)
        # One answer for an epoch, also of the server that is started in its place.
        for epoch, num_nodes in ((1, 2), (0, 0)):
            [after] = rewards(noted["address"], folder, epoch, Rollout("p0", right(0, 1)))
            assert after.score.num_nodes >= num_nodes
            assert (after.score.num_nodes > 0) == (num_nodes > 0)
        growers = [pid for pid in descendants(launcher.pid) if b"grow" in command_of(pid)]
        assert len(growers) == 1
        launcher.send_signal(signal.SIGHUP)
        _, message = launcher.communicate(timeout=PATIENCE_S)
    assert launcher.returncode == 128 + signal.SIGHUP
    assert "0 of 2 problems have nodes" in message
    assert "ready for the next epoch: 1 of 2 problems have nodes, 1 of them new" in message
    until(lambda: is_gone(growers[0]))


def command_of(pid: int) -> list[bytes]:
    """Return the words of a process's command."""
    return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
