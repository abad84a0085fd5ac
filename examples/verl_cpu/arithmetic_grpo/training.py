"""One training run: `python -m verl.trainer.main_ppo`, unmodified, for one arm and one seed.

The run is a process of its own, with a Ray cluster of its own that ends with it.  Everything that
makes verl train on a CPU is in the overrides and the environment below; everything that makes it
train on consensus rewards is in `reward_overrides`.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from .files import Files

HERE = Path(__file__).resolve().parent.parent
AGENT_LOOPS = Path(__file__).resolve().with_name("agent_loops.yaml")
ARMS = ("outcome", "linear", "max", "curriculum")
EPOCHS = 2
STOP_TIMEOUT_S = 60
POLL_S = 0.5
NICENESS = "RAY_worker_niceness"


@dataclass(frozen=True)
class Settings:
    """Settings of all runs of a comparison.

    Attributes:
        steps: training steps, a multiple of the epochs.
        prompts: problems in a step.
        rollouts: responses to each.
        learning_rate: of AdamW, constant.
        validate_every: steps between validations; before the first and after the last, too.
        epochs: passes over the problems.
        tool: whether a tool helps with some problems (`tool_loop.py`).
    """

    steps: int
    prompts: int = 16
    rollouts: int = 8
    learning_rate: float = 2e-4
    validate_every: int = 10
    epochs: int = EPOCHS
    tool: bool = False

    @property
    def num_train(self) -> int:
        """Problems for which the epochs have `steps` steps."""
        return self.steps // self.epochs * self.prompts

    @property
    def response_tokens(self) -> int:
        """Most tokens of a response, a tool's among them."""
        return 128 if self.tool else 40


@dataclass(frozen=True)
class Run:
    """One arm and one seed, the folder of what it leaves, and overrides that go before ours."""

    arm: str
    seed: int
    folder: Path
    overrides: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return f"{self.arm}-{self.seed}"

    @property
    def scores(self) -> Path:
        """Our score log, in the folder of logs of a launch."""
        return self.folder / "logs" / "scores" / self.name

    @property
    def metrics(self) -> Path:
        return self.folder / "metrics.jsonl"

    @property
    def console(self) -> Path:
        return self.folder / "console.log"

    @property
    def finished(self) -> Path:
        return self.folder / "finished"


@contextmanager
def running_server(*options: str) -> Iterator[str]:
    """Start `consensuspr serve` on a free port, yield its address, and drain it at the end."""
    command = [sys.executable, "-m", "consensuspr.cli", "serve", *options]
    command += ["--address", "127.0.0.1:0", "--log-level", "warning"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            line = server.stdout.readline()
            if not line.startswith("listening on "):
                raise SystemExit(f"the server did not start, it printed {line!r}")
            yield line.removeprefix("listening on ").strip()
        finally:
            server.send_signal(signal.SIGTERM)
            server.wait(STOP_TIMEOUT_S)


def train(
    run: Run, files: Files, settings: Settings, address: str, report: Callable[[int], object]
) -> None:
    """Train one run from the start, with rewards from the server at ``address``.

    ``report`` is called with the number of steps done.

    Raises:
        SystemExit: verl failed; its console log has the reason.
    """
    words = [sys.executable, "-m", "verl.trainer.main_ppo", "algorithm.adv_estimator=grpo"]
    words += reward_overrides(run, address)
    _carry_out(run, files, settings, words, report)


def launch(
    run: Run,
    files: Files,
    settings: Settings,
    report: Callable[[int], object],
    *options: str,
    resume: bool = False,
) -> None:
    """Train one run by `consensuspr launch`, with its own server, as :func:`train`.

    ``options`` are more options of the command, such as `--grow-nodes`.  ``resume`` keeps the
    folder of an earlier attempt, from which verl goes on if the overrides of the run say so.
    """
    named = {
        "algorithm": "grpo",
        "model": files.model.absolute(),
        "reward": run.arm,
        "dataset": files.dataset.absolute(),
        "train-files": files.train.absolute(),
        "val-files": files.validation.absolute(),
        "log-dir": (run.folder / "logs").absolute(),
        "server-address": "127.0.0.1:0",
        "server-workers": 1,
    }
    words = [sys.executable, "-m", "consensuspr.cli", "launch", *options]
    words += [word for name, value in named.items() for word in (f"--{name}", str(value))]
    # Of the recipe for GPUs, not for this run.
    words += ["actor_rollout_ref.actor.use_kl_loss=False"]
    words += ["actor_rollout_ref.actor.use_dynamic_bsz=False"]
    _carry_out(run, files, settings, words, report, resume=resume)


def _carry_out(
    run: Run,
    files: Files,
    settings: Settings,
    command: list[str],
    report: Callable[[int], object],
    *,
    resume: bool = False,
) -> None:
    """Run the command of a training to its end, with the overrides of all runs."""
    if not resume:
        shutil.rmtree(run.folder, ignore_errors=True)
    run.folder.mkdir(parents=True, exist_ok=True)
    # A short path: Ray puts sockets there, whose names the system limits to about 100 bytes.
    with (
        tempfile.TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True) as ray,
        run.console.open("a") as console,
    ):
        command = [*command, *cpu_overrides(settings, ray), *run_overrides(run, files, settings)]
        with subprocess.Popen(
            [*command, *run.overrides],
            cwd=run.folder,
            env=environment(run),
            stdout=console,
            stderr=subprocess.STDOUT,
        ) as process:
            try:
                while process.poll() is None:
                    report(_steps_done(run))
                    time.sleep(POLL_S)
            finally:
                # If this process is interrupted: without its driver, Ray's cluster ends too.
                if process.poll() is None:
                    process.terminate()
    if process.returncode != 0:
        raise SystemExit(
            f"run {run.name} ended with status {process.returncode}: see {run.console}"
        )
    report(settings.steps)
    run.finished.touch()


def _steps_done(run: Run) -> int:
    if not run.metrics.exists():
        return 0
    # The first line is the validation before training.
    return max(0, run.metrics.read_bytes().count(b"\n") - 1)


def environment(run: Run) -> dict[str, str]:
    """Return the environment of verl's processes; Ray's workers inherit it."""
    path = [str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(path),
        "VERL_USE_EXTERNAL_MODULES": "verl_on_cpu",
        "VERL_PLATFORM": "cpu",
        "VERL_ENGINE_DEVICE": "cuda",
        "VERL_FILE_LOGGER_PATH": str(run.metrics.absolute()),
        "TENSORBOARD_DIR": str((run.folder / "tensorboard").absolute()),
        "OMP_NUM_THREADS": "1",
        "TQ_NUM_THREADS": "1",
        "TOKENIZERS_PARALLELISM": "false",
        # Nothing is fetched: model and data lie on the disk.
        "HF_HUB_OFFLINE": "1",
        "HF_DATASETS_CACHE": str(run.folder.absolute() / "datasets"),
        "RAY_USAGE_STATS_ENABLED": "0",
        # Ray's own choice is 15: beside other work on the machine, a run would hardly get on.
        NICENESS: os.environ.get(NICENESS, "0"),
    }


def cpu_overrides(settings: Settings, ray: str) -> list[str]:
    """Return the overrides that make verl train a tiny model on a CPU with `verl_on_cpu`.

    Without flash attention, compilation and half precision.  A batch of the rollout is a whole
    step, so that sampling is the same in each run.  Ray books a CPU for each actor, most of which
    sleep, and the "GPU" of `platform.py`.
    """
    samples = settings.prompts * settings.rollouts
    dtypes = "{param_dtype:fp32,reduce_dtype:fp32,buffer_dtype:fp32}"
    return f"""
        trainer.device=cpu
        trainer.nnodes=1
        trainer.n_gpus_per_node=1
        trainer.balance_batch=False
        trainer.v1.sampler.custom_sampler.path=pkg://verl_on_cpu.replay
        trainer.v1.sampler.custom_sampler.name=PromptReplayBuffer
        +actor_rollout_ref.model.override_config.attn_implementation=sdpa
        actor_rollout_ref.model.use_remove_padding=False
        actor_rollout_ref.model.enable_gradient_checkpointing=False
        actor_rollout_ref.actor.strategy=fsdp2
        actor_rollout_ref.actor.use_torch_compile=False
        actor_rollout_ref.actor.fsdp_config.strategy=fsdp2
        actor_rollout_ref.actor.fsdp_config.use_torch_compile=False
        +actor_rollout_ref.actor.fsdp_config.mixed_precision={dtypes}
        actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu={samples}
        actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu={samples}
        actor_rollout_ref.rollout.name=hf
        actor_rollout_ref.rollout.load_format=auto
        actor_rollout_ref.rollout.tensor_model_parallel_size=1
        actor_rollout_ref.rollout.calculate_log_probs=False
        actor_rollout_ref.rollout.free_cache_engine=False
        actor_rollout_ref.rollout.max_num_seqs={samples}
        actor_rollout_ref.rollout.agent.num_workers=1
        reward.num_workers=1
        data.dataloader_num_workers=0
        transfer_queue.backend.SimpleStorage.num_data_storage_units=1
        ray_kwargs.ray_init.num_cpus=8
        +ray_kwargs.ray_init.num_gpus=1
        +ray_kwargs.ray_init.include_dashboard=False
        +ray_kwargs.ray_init.object_store_memory=200000000
        +ray_kwargs.ray_init._temp_dir={ray}
    """.split()


def run_overrides(run: Run, files: Files, settings: Settings) -> list[str]:
    """Return the overrides of the training on the arithmetic problems, for the seed of `run`.

    The rollout counts its batches on from its seed.  The curriculum needs whole epochs, so the
    number of steps follows from the data.
    """
    loops = f"actor_rollout_ref.rollout.agent.agent_loop_config_path={AGENT_LOOPS}"
    return [
        f"data.train_files={files.train.absolute()}",
        f"data.val_files={files.validation.absolute()}",
        f"actor_rollout_ref.model.path={files.model.absolute()}",
        *([loops] if settings.tool else []),
        *f"""
        hydra.run.dir=hydra
        hydra.output_subdir=null
        data.train_batch_size={settings.prompts}
        data.max_prompt_length=32
        data.max_response_length={settings.response_tokens}
        data.seed={run.seed}
        actor_rollout_ref.actor.ppo_mini_batch_size={settings.prompts}
        actor_rollout_ref.actor.optim.lr={settings.learning_rate}
        actor_rollout_ref.actor.fsdp_config.seed={run.seed}
        actor_rollout_ref.rollout.n={settings.rollouts}
        actor_rollout_ref.rollout.seed={100_000 * (run.seed + 1)}
        actor_rollout_ref.rollout.val_kwargs.do_sample=True
        actor_rollout_ref.rollout.val_kwargs.temperature=1.0
        trainer.total_epochs={settings.epochs}
        trainer.total_training_steps=null
        trainer.val_before_train=True
        trainer.test_freq={settings.validate_every}
        trainer.save_freq=-1
        trainer.resume_mode=disable
        trainer.logger=[console,file,tensorboard]
        trainer.project_name=consensuspr
        trainer.experiment_name={run.name}
        """.split(),
    ]


def reward_overrides(run: Run, address: str) -> list[str]:
    """Return the reward of an arm, from the server: all that a run with consensus rewards adds."""
    return [
        "reward.reward_manager.name=consensuspr",
        "trainer.v1.trainer_mode=consensuspr_sync",
        f"+reward.reward_kwargs.address='{address}'",
        f"+reward.reward_kwargs.reward={run.arm}",
        "+reward.reward_kwargs.switch_epoch=1",
        "+reward.reward_kwargs.answer_rule=dapo",
        f"+reward.reward_kwargs.score_log={run.scores.absolute()}",
    ]
