"""A real Ray, a real server, verl's own configuration, and rollouts in verl's own shape."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.ray_start import let_warnings_of_ray_pass, patiently
from tests.rows import read_rows
from tests.servers import ANY_PORT, ServeProcess, serve_command

REPOSITORY = Path(__file__).resolve().parents[2]
SAMPLE = REPOSITORY / "examples" / "sample"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    let_warnings_of_ray_pass(items, Path(__file__).resolve().parent)


class RunningServer:
    """A reward server in a process of its own, that can be killed and started again."""

    def __init__(self, folder: Path, dataset: Path, *options: str) -> None:
        self._how = folder, dataset, options
        self.address = ANY_PORT
        self.start()

    def start(self) -> None:
        """Start it, on the port that it had before, and wait until it listens."""
        folder, dataset, options = self._how
        command = serve_command(dataset, *options, address=self.address)
        self.process = ServeProcess(folder, command)
        self.address = self.process.wait_until_listening().address

    def kill(self) -> None:
        """Kill it with all its workers, without a word to anybody."""
        workers = self.process.worker_pids()
        self.process.close()
        for worker in workers:
            with contextlib.suppress(ProcessLookupError):
                os.kill(worker, signal.SIGKILL)

    def stop(self) -> None:
        """Stop it as an operator would."""
        self.process.stop()
        self.process.close()


@pytest.fixture
def start_server(tmp_path: Path) -> Iterator[Callable[..., RunningServer]]:
    """Start real servers, on free ports, of the sample dataset; stop them at the end."""
    with ExitStack() as servers:

        def start(*options: str, dataset: Path = SAMPLE / "dataset.jsonl") -> RunningServer:
            server = RunningServer(tmp_path, dataset, "--workers", "1", *options)
            servers.callback(server.stop)
            return server

        yield start


@pytest.fixture(scope="session")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server of the sample dataset that all tests share."""
    server = RunningServer(
        tmp_path_factory.mktemp("server"), SAMPLE / "dataset.jsonl", "--workers", "1"
    )
    yield server.address
    server.stop()


@pytest.fixture(scope="session")
def sample_problems() -> dict[str, dict[str, Any]]:
    """The problems of the sample dataset by id."""
    return {problem["problem_id"]: problem for problem in read_rows(SAMPLE / "dataset.jsonl")}


@pytest.fixture(scope="session")
def sample_rollouts() -> list[dict[str, Any]]:
    """The rollouts of the sample dataset."""
    return read_rows(SAMPLE / "rollouts.jsonl")


@pytest.fixture(scope="session")
def tokenizer_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Hugging Face tokenizer on disk, of one token a byte."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {letter: number for number, letter in enumerate(["<pad>", "<eos>", *letters])}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    folder = tmp_path_factory.mktemp("tokenizer")
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", eos_token="<eos>"
    ).save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def compose() -> Callable[..., Any]:
    """Compose the configuration of a run by verl's own files, as ``main_ppo`` does."""
    import verl
    from hydra import compose as hydra_compose
    from hydra import initialize_config_dir

    def composed(*overrides: str) -> Any:
        folder = Path(verl.__file__).parent / "trainer" / "config"
        with initialize_config_dir(str(folder), version_base=None):
            config = hydra_compose("ppo_trainer", overrides=list(overrides))
        if not verl.__version__.startswith("0.9"):
            from verl.experimental.reward_loop import migrate_legacy_reward_impl

            config = migrate_legacy_reward_impl(config)
        return config

    return composed


# Not longer than for one module: others have clusters of their own.
@pytest.fixture(scope="module")
def ray_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A local Ray with room for eight reward workers."""
    import ray

    def start() -> None:
        ray.init(
            num_cpus=9,
            include_dashboard=False,
            # Short: a socket's path has little room.
            _temp_dir=f"/tmp/cpr-{tmp_path_factory.getbasetemp().name[-12:]}",
            log_to_driver=False,
            configure_logging=False,
        )

    patiently(start)
    yield
    ray.shutdown()


@pytest.fixture(scope="session")
def make_batch(tokenizer_dir: Path) -> Callable[..., Any]:
    """Put rollouts into verl's ``DataProto``: prompts padded left, responses right."""
    import numpy as np
    import torch
    from tensordict import TensorDict
    from transformers import AutoTokenizer
    from verl import DataProto

    tokenizer = AutoTokenizer.from_pretrained(tokenizer_dir)

    def objects(values: list[Any]) -> Any:
        """Return them as an array of one dimension, whatever they are."""
        array = np.empty(len(values), dtype=object)
        array[:] = values
        return array

    def batch(rows: list[dict[str, Any]], **columns: list[Any]) -> Any:
        """Each row has ``response``; ``problem_id`` and ``ground_truth`` where it has them."""
        prompt = torch.tensor(tokenizer.encode("Solve it."))
        responses = [torch.tensor(tokenizer.encode(row["response"]) or [1]) for row in rows]
        longest = max(map(len, responses))
        ids = torch.zeros((len(rows), longest), dtype=torch.long)
        mask = torch.zeros((len(rows), longest), dtype=torch.long)
        for row, response in enumerate(responses):
            ids[row, : len(response)] = response
            mask[row, : len(response)] = 1
        prompts = prompt.repeat(len(rows), 1)
        fields: dict[str, list[Any]] = {
            "data_source": ["sample"] * len(rows),
            "reward_model": [
                {"style": "rule", "ground_truth": row.get("ground_truth")} for row in rows
            ],
            "extra_info": [
                {"split": "train", **row.get("extra_info", {"problem_id": row.get("problem_id")})}
                for row in rows
            ],
            **columns,
        }
        return DataProto(
            batch=TensorDict(
                {
                    "prompts": prompts,
                    "responses": ids,
                    "attention_mask": torch.cat([torch.ones_like(prompts), mask], dim=1),
                },
                batch_size=len(rows),
            ),
            non_tensor_batch={name: objects(values) for name, values in fields.items()},
        )

    return batch
