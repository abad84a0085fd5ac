"""``consensuspr curves``: the figures of training by step."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, Self

import pytest

from consensuspr.cli import main
from tests.score_logs import write_log


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A run of 40 steps whose Acc and NCR rise."""
    rows = [
        {
            "time": int(1e15 + step * 1e6),
            "step": step,
            "split": "train",
            "reward": step / 40,
            "acc": float(step > 20),
            "ncr": 0.25 * (step // 10),
            "num_nodes": 4,
            "num_matched": step // 10,
            "num_tokens": 200,
            "tpn": 200 / (step // 10) if step >= 10 else None,
            "status": "OK",
        }
        for step in range(1, 41)
    ]
    write_log(tmp_path, rows)
    return tmp_path


def test_the_table_has_few_lines_and_all_steps(
    log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["curves", str(log), "--points", "4"]) == 0
    heading, *lines = capsys.readouterr().out.splitlines()
    assert heading.split()[:5] == ["Step", "Samples", "Reward", "Acc", "NCR"]
    assert [line.split()[0] for line in lines] == ["1–10", "11–20", "21–30", "31–40"]
    assert lines[3].split()[1:7] == ["10", "0.887", "100.0", "%", "77.5", "%"]


def test_json_has_every_step(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["curves", str(log), "--split", "train", "--json"]) == 0
    points = json.loads(capsys.readouterr().out)
    assert len(points) == 40
    assert points[-1]["tpn"] == 50.0


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--split", "test"], "no sample of split 'test' is logged"),
        (["--plot", "curves.txt"], "--plot must end in .png, .svg or .pdf"),
    ],
)
def test_what_cannot_be_shown_is_one_sentence(
    log: Path, arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["curves", str(log), *arguments]) == 2
    assert sentence in capsys.readouterr().err


def test_a_plot_is_drawn(log: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    path = tmp_path / "curves.png"
    assert main(["curves", str(log), "--plot", str(path)]) == 0
    assert path.read_bytes().startswith(b"\x89PNG")


def test_events_are_read_back(
    log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    accumulator = pytest.importorskip(
        "tensorboard.backend.event_processing.event_accumulator",
        reason="TensorBoard is not installed",
    )
    folder = tmp_path / "new" / "events"
    export = ["curves", str(log), "--split", "train", "--tensorboard", str(folder)]
    assert main(export) == 0
    events = accumulator.EventAccumulator(str(folder)).Reload()
    shown = {one.step: (one.value, one.wall_time) for one in events.Scalars("score_log/acc")}
    assert shown == {step: (float(step > 20), 1e9 + step) for step in range(1, 41)}
    # What does not exist is no 0: no node was reached in the first nine steps.
    assert [one.step for one in events.Scalars("score_log/tpn")] == list(range(10, 41))
    assert events.Scalars("score_log/samples")[0].value == 1
    capsys.readouterr()
    assert main(export) == 2
    assert f"{folder} has TensorBoard events already" in capsys.readouterr().err


class StandIn(ModuleType):
    """The part of W&B that is called."""

    class Error(Exception):
        """What W&B raises."""

    def __init__(self) -> None:
        super().__init__("wandb")
        self.settings: dict[str, Any] = {}
        self.logged: dict[int, dict[str, float]] = {}
        self.finished = False

    def init(self, **settings: Any) -> Self:
        if settings["project"] == "secret":
            raise self.Error("no API key configured")
        self.settings = settings
        return self

    def log(self, figures: dict[str, float], step: int) -> None:
        self.logged[step] = figures

    def finish(self) -> None:
        self.finished = True


def test_every_step_goes_to_wandb(
    log: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    wandb = StandIn()
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    assert main(["curves", str(log / "scores"), "--wandb", "mine"]) == 0
    assert (wandb.settings["project"], wandb.settings["name"]) == ("mine", log.name)
    assert list(wandb.logged) == list(range(1, 41))
    assert wandb.logged[40]["score_log/ncr"] == 1.0
    assert wandb.finished
    assert main(["curves", str(log), "--wandb", "secret"]) == 2
    assert "--wandb: no API key configured" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("module", "option", "sentence"),
    [
        ("tensorboard.compat.proto.event_pb2", "--tensorboard", "pip install tensorboard"),
        ("wandb", "--wandb", "pip install wandb"),
    ],
)
def test_an_export_without_its_package_says_what_to_install(
    log: Path,
    module: str,
    option: str,
    sentence: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    assert main(["curves", str(log), option, "x"]) == 2
    assert sentence in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--plot", "--tensorboard", "--wandb"])
def test_what_has_no_steps_is_not_exported(
    option: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_log(tmp_path, [{"time": 1, "reward": 1.0, "status": "OK"}])
    assert main(["curves", str(tmp_path), option, "x.png"]) == 2
    assert f"{option} needs steps, and this log has none" in capsys.readouterr().err
