"""``consensuspr doctor`` on real verl: what verl itself says about a run.

Each run of the command starts a process that imports verl, so that one run shows many faults.
"""

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


class Told:
    """What the command said.

    Attributes:
        code: it ended with.
        lines: ``LEVEL check: found → advice`` of every finding.
    """

    def __init__(self, done: subprocess.CompletedProcess[str]) -> None:
        self.code = done.returncode
        assert done.stdout, done.stderr
        self.lines = [
            "{level} {check}: {found} → {advice}".format(**finding)
            for finding in json.loads(done.stdout)["findings"]
        ]

    def of(self, *levels: str) -> list[str]:
        """Return the lines of some levels."""
        return [line for line in self.lines if line.split()[0] in levels]

    def has(self, start: str) -> bool:
        """Tell whether a line begins so."""
        return any(line.startswith(start) for line in self.lines)


Doctor = Callable[..., Told]


@pytest.fixture
def doctor(tmp_path: Path) -> Doctor:
    """Run the command in an empty folder; ``environment`` is changed for it alone."""

    def run(*arguments: str, environment: dict[str, str] | None = None) -> Told:
        return Told(
            subprocess.run(
                [sys.executable, "-m", "consensuspr.cli", "doctor", *QUIETLY, *arguments],
                capture_output=True,
                text=True,
                env={**os.environ, **(environment or {})},
                timeout=280,
                cwd=tmp_path,
                check=False,
            )
        )

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
def test_a_good_run(
    doctor: Doctor, start_server: Callable[..., Any], files: list[str], tmp_path: Path
) -> None:
    """The whole command, as it is typed; a curriculum where this verl tells the step."""
    server = start_server()
    command = [
        "python3", "-m", "verl.trainer.main_ppo", *files, *(BY_PATH if OLD else BY_NAME),
        f"+reward.reward_kwargs.address={server.address}",
        f"+reward.reward_kwargs.reward={'max' if OLD else 'curriculum'}",
        f"+reward.reward_kwargs.score_log={tmp_path / 'log'}",
        f"+reward.reward_kwargs.dataset_path={SAMPLE / 'dataset.jsonl'}",
    ]  # fmt: skip
    told = doctor("--", *command)
    assert told.of("FAIL", "warn", "skip") == []
    assert told.code == 0
    assert told.has(f"ok verl: version {verl.__version__}, verl.trainer.main_ppo")
    assert told.has("ok reward manager: consensuspr.client.verl.manager.ConsensusRewardManager")
    assert told.has("ok train problems: 40 (100.0 %) of 40 known to the server")
    assert told.has("ok dataset: dataset_path: ")
    assert told.has("ok schedule: 5 steps in an epoch, 15 steps in all")
    if not OLD:
        assert told.has("ok schedule: the curriculum switches from NCR to Acc at step 6")


@pytest.mark.timeout(600)
def test_what_this_verl_does_not_say(doctor: Doctor, files: list[str]) -> None:
    told = doctor(
        "--address", "127.0.0.1:1", "--timeout", "0.5", "--",
        *files,
        "reward_model.reward_manager=consensuspr",
        "++algorithm.filter_groups.enable=True",
        "++algorithm.filter_groups.metric=score",
        "algorithm.adv_estimator=consensuspr_step",
        "trainer.nnodes=2",
    )  # fmt: skip
    assert told.code == 1
    assert told.has("FAIL address: 127.0.0.1:50051 is each node itself, and trainer.nnodes is 2")
    assert told.has("FAIL server: 127.0.0.1:1: ")
    assert told.has("FAIL step credit: step credit needs actor_rollout_ref.rollout.agent.agent_loo")
    assert told.has("warn group filter: algorithm.filter_groups.metric=score: ")
    if OLD:
        # Old settings are moved, and the name is not known without the plugin.
        assert told.has("FAIL reward manager: reward manager 'consensuspr' cannot be loaded: ")
        return
    ignored = f"verl {verl.__version__} ignores reward_model.reward_manager=consensuspr"
    assert told.has(f"FAIL old keys: {ignored}")
    assert told.has(
        "FAIL reward manager: rewards come from"
        " verl.experimental.reward_loop.reward_manager.naive.NaiveRewardManager, not from"
    )


@pytest.mark.timeout(600)
def test_the_reward_function(doctor: Doctor) -> None:
    key = "reward.custom_reward_function"
    told = doctor(
        "--", f"{key}.path=pkg://consensuspr.client.verl", f"{key}.name=compute_score",
        f"+{key}.reward_kwargs.reward=max", f"+{key}.reward_kwargs.alhpa=1",
    )  # fmt: skip
    assert told.has("ok reward manager: ")
    assert told.has(f"FAIL settings: unknown setting 'alhpa' in {key}.reward_kwargs; did you mean")


@pytest.mark.skipif(OLD, reason="verl before 0.9 has no V1 trainer")
@pytest.mark.timeout(600)
def test_a_package_that_the_trainer_imports_and_verl_does_not_bring(
    doctor: Doctor, tmp_path: Path
) -> None:
    (tmp_path / "transfer_queue.py").write_text("raise ModuleNotFoundError('no transfer_queue')")
    paths = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    told = doctor("--", *BY_NAME, environment={"PYTHONPATH": paths})
    assert told.has(
        "FAIL verl: the trainer cannot be imported: ModuleNotFoundError: no transfer_queue →"
        ' install it: pip install "consensuspr[verl]"'
    )


@pytest.mark.timeout(600)
def test_a_configuration_that_hydra_wrote(doctor: Doctor, tmp_path: Path) -> None:
    with initialize_config_dir(str(CONFIGS), version_base=None):
        config = compose("ppo_trainer", overrides=[*BY_PATH, "+reward.reward_kwargs.alpha=0.25"])
    path = tmp_path / "config.yaml"
    OmegaConf.save(config, path)
    told = doctor("--config", str(path), "--address", "127.0.0.1:1", "--timeout", "0.5")
    assert told.has("ok reward manager: consensuspr.client.verl.manager")
    assert told.has("ok settings: reward.reward_kwargs: alpha=0.25")


@pytest.mark.timeout(600)
def test_how_the_name_becomes_known(doctor: Doctor) -> None:
    """By the entry point, which can be kept out, or before 0.9.1 by a variable."""
    if OLD:
        variable = "VERL_USE_EXTERNAL_MODULES=consensuspr.client.verl.plugin"
        told = doctor("--", variable, "python3", "-m", "verl.trainer.main_ppo", *BY_NAME)
        assert told.has("ok reward manager: consensuspr.client.verl.manager")
    else:
        told = doctor("--", *BY_NAME, environment={"VERL_USE_EXTERNAL_PLUGINS": "none"})
        assert told.has("FAIL reward manager: reward manager 'consensuspr' cannot be loaded: ")


def test_a_run_that_cannot_be_composed(doctor: Doctor) -> None:
    told = doctor("--", "trainer.nodes=2")
    assert told.code == 1
    # Whatever server it names is not known.
    assert told.lines == [
        "FAIL configuration: ConfigCompositionException: Could not override 'trainer.nodes'.; To"
        " append to your config use +trainer.nodes=2 → correct it"
    ]


def test_a_trainer_that_does_not_exist(doctor: Doctor) -> None:
    told = doctor("--address", "127.0.0.1:1", "--", "python3", "-m", "verl.trainer.main_pppo")
    assert told.has("FAIL verl: the trainer cannot be imported: ModuleNotFoundError: No module")
