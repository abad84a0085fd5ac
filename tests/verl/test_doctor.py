"""``consensuspr doctor`` on real verl, which takes half a minute to import: in one process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("verl", reason="verl is not installed: run make test-verl")

import pyarrow as pa
import pyarrow.parquet as pq
import verl
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from consensuspr.cli import main

SAMPLE = Path(__file__).resolve().parents[2] / "examples" / "sample"
CONFIGS = Path(verl.__file__).parent / "trainer" / "config"

OLD = verl.__version__ < "0.9"

# What selects the manager on every version.
BY_PATH = [
    "reward.reward_manager.source=importlib",
    "reward.reward_manager.module.path=pkg://consensuspr.client.verl",
    "reward.reward_manager.name=ConsensusRewardManager",
]
BY_NAME = ["reward.reward_manager.name=consensuspr"]
QUIETLY = ["--json", "--no-progress"]


class Findings:
    """The findings of the command.

    Attributes:
        code: exit code.
        lines: ``LEVEL check: found → advice`` of every finding.
    """

    def __init__(self, code: int, out: str) -> None:
        self.code = code
        self.lines = [
            "{level} {check}: {found} → {advice}".format(**finding)
            for finding in json.loads(out)["findings"]
        ]

    def of(self, *levels: str) -> list[str]:
        """Return the lines of some levels."""
        return [line for line in self.lines if line.split()[0] in levels]

    def has(self, start: str) -> bool:
        """Return whether a line begins so."""
        return any(line.startswith(start) for line in self.lines)


Doctor = Callable[..., Findings]


@pytest.fixture
def doctor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Doctor:
    """Run the command in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])

    def run(*arguments: str) -> Findings:
        code = main(["doctor", *QUIETLY, *arguments])
        return Findings(code, capsys.readouterr().out)

    return run


@pytest.fixture
def files(tmp_path: Path, sample_problems: dict[str, dict[str, Any]]) -> list[str]:
    """Overrides that name training rows of 40 sample problems, and 10 for validation."""
    rows = [
        {
            "data_source": problem["data_source"],
            "prompt": [{"role": "user", "content": problem["problem"]}],
            "reward_model": {"style": "rule", "ground_truth": problem["ground_truth"]},
            "extra_info": {"problem_id": problem_id, "split": "train"},
        }
        for problem_id, problem in sample_problems.items()
    ]
    pq.write_table(pa.Table.from_pylist(rows[:40]), tmp_path / "train.parquet")
    pq.write_table(pa.Table.from_pylist(rows[40:]), tmp_path / "val.parquet")
    return [
        f"data.train_files={tmp_path / 'train.parquet'}",
        f"data.val_files=[{tmp_path / 'val.parquet'}]",
        "data.train_batch_size=8",
        "trainer.total_epochs=3",
    ]


@pytest.mark.timeout(600)
def test_a_good_run(doctor: Doctor, address: str, files: list[str], tmp_path: Path) -> None:
    """The whole command, as it is typed; a curriculum where this verl tells the step."""
    command = [
        "python3", "-m", "verl.trainer.main_ppo", *files, *(BY_PATH if OLD else BY_NAME),
        f"+reward.reward_kwargs.address={address}",
        f"+reward.reward_kwargs.reward={'max' if OLD else 'curriculum'}",
        f"+reward.reward_kwargs.score_log={tmp_path / 'log'}",
        f"+reward.reward_kwargs.dataset_path={SAMPLE / 'dataset.jsonl'}",
    ]  # fmt: skip
    found = doctor("--", *command)
    assert found.of("FAIL", "warn", "skip") == []
    assert found.code == 0
    assert found.has(f"ok verl: version {verl.__version__}, verl.trainer.main_ppo")
    assert found.has("ok reward manager: consensuspr.client.verl.manager.ConsensusRewardManager")
    assert found.has("ok train problems: 40 have a reward, ")
    assert found.has("ok dataset: dataset_path: ")
    assert found.has("ok schedule: 5 steps in an epoch, 15 steps in all")
    if not OLD:
        assert found.has("ok schedule: the curriculum switches from NCR to Acc at step 6")


@pytest.mark.timeout(600)
def test_what_this_verl_does_not_say(doctor: Doctor, files: list[str]) -> None:
    found = doctor(
        "--address", "127.0.0.1:1", "--timeout", "0.5", "--",
        *files,
        "reward_model.reward_manager=consensuspr",
        "algorithm.adv_estimator=consensuspr_step",
        "trainer.nnodes=2",
    )  # fmt: skip
    assert found.code == 1
    assert found.has(
        "FAIL address: 127.0.0.1:50051 is a different machine on each node, and trainer.nnodes is 2"
    )
    assert found.has("FAIL server: 127.0.0.1:1: ")
    assert found.has(
        "FAIL step credit: step credit needs actor_rollout_ref.rollout.agent.agent_loo"
    )
    if OLD:
        # Old settings are moved, and the name is not known without the plugin.
        assert found.has("FAIL reward manager: reward manager 'consensuspr' cannot be loaded: ")
        return
    ignored = f"verl {verl.__version__} ignores reward_model.reward_manager=consensuspr"
    assert found.has(f"FAIL old keys: {ignored}")
    assert found.has(
        "FAIL reward manager: rewards come from"
        " verl.experimental.reward_loop.reward_manager.naive.NaiveRewardManager, not from"
    )


@pytest.mark.timeout(600)
def test_the_reward_function(doctor: Doctor) -> None:
    key = "reward.custom_reward_function"
    found = doctor(
        "--", f"{key}.path=pkg://consensuspr.client.verl", f"{key}.name=compute_score",
        f"+{key}.reward_kwargs.reward=max", f"+{key}.reward_kwargs.alhpa=1",
    )  # fmt: skip
    assert found.has("ok reward manager: ")
    assert found.has(f"FAIL settings: unknown setting 'alhpa' in {key}.reward_kwargs; did you mean")


@pytest.mark.skipif(OLD, reason="verl before 0.9 has neither entry points nor a V1 trainer")
@pytest.mark.timeout(600)
def test_a_missing_package_and_a_plugin_that_is_switched_off(tmp_path: Path) -> None:
    (tmp_path / "transfer_queue.py").write_text("raise ModuleNotFoundError('no transfer_queue')")
    paths = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": paths, "VERL_USE_EXTERNAL_PLUGINS": "none"}
    command = [sys.executable, "-m", "consensuspr.cli", "doctor", *QUIETLY, "--", *BY_NAME]
    done = subprocess.run(
        command, capture_output=True, text=True, env=environment, cwd=tmp_path, check=False
    )
    found = Findings(done.returncode, done.stdout)
    assert found.has(
        "FAIL verl: the trainer cannot be imported: ModuleNotFoundError: no transfer_queue →"
        ' install it: pip install "consensuspr[verl]"'
    )
    assert found.has("FAIL reward manager: reward manager 'consensuspr' cannot be loaded: ")


@pytest.mark.timeout(600)
def test_a_configuration_that_hydra_wrote(doctor: Doctor, tmp_path: Path) -> None:
    with initialize_config_dir(str(CONFIGS), version_base=None):
        config = compose("ppo_trainer", overrides=[*BY_PATH, "+reward.reward_kwargs.alpha=0.25"])
    path = tmp_path / "config.yaml"
    OmegaConf.save(config, path)
    found = doctor("--config", str(path), "--address", "127.0.0.1:1", "--timeout", "0.5")
    assert found.has("ok reward manager: consensuspr.client.verl.manager")
    assert found.has("ok settings: reward.reward_kwargs: alpha=0.25")


def test_a_run_that_cannot_be_composed(doctor: Doctor) -> None:
    found = doctor("--", "trainer.nodes=2")
    assert found.code == 1
    # Whatever server it names is not known.
    assert found.lines == [
        "FAIL configuration: ConfigCompositionException: Could not override 'trainer.nodes'.; To"
        " append to your config use +trainer.nodes=2 → correct it"
    ]
