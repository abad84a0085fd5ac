"""Step credit in a training run: verl itself, a real server, two steps with gradients."""

from __future__ import annotations

import json
import math
import sys
from collections import Counter
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from statistics import fmean
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("verl", reason="verl is not installed: run make test-verl")

from consensuspr.launch.recipes import recipe

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "verl_cpu"
STEPS, PROMPTS, ROLLOUTS = 2, 4, 4

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def example() -> Iterator[SimpleNamespace]:
    """The modules of the example, which is no installed package."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(EXAMPLE))
        names = ("problems", "files", "training", "results")
        yield SimpleNamespace(**{n: import_module(f"arithmetic_grpo.{n}") for n in names})
        for name in [name for name in sys.modules if name.startswith("arithmetic_grpo")]:
            del sys.modules[name]


@pytest.fixture(scope="module")
def run(example: SimpleNamespace, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A finished run of the linear reward with the recipe of step credit."""
    folder = tmp_path_factory.mktemp("verl")
    settings = example.training.Settings(
        steps=STEPS, prompts=PROMPTS, rollouts=ROLLOUTS, validate_every=STEPS
    )
    recipe_of_model = example.files.Recipe(
        num_train=settings.num_train, num_validation=8, warm_start_steps=30
    )
    files = example.files.prepare(folder / "files", recipe_of_model, lambda done, loss: None)
    _put_nodes_within_reach(files.dataset)
    run = example.training.Run("linear", 0, folder / "linear-0", tuple(recipe("step-credit")))
    with example.training.running_server(files.dataset) as address:
        try:
            example.training.train(run, files, settings, address, lambda done: None)
        except SystemExit as error:
            pytest.fail(f"{error}\n{run.console.read_text()[-4000:]}")
    return run


def _put_nodes_within_reach(dataset: Path) -> None:
    """Let each problem have nodes that a model reaches which has learned next to nothing."""
    problems = [json.loads(line) for line in dataset.read_text().splitlines()]
    for problem in problems:
        problem["nodes"] = [
            {
                "node_id": last,
                "label": f"a number that ends in one of {last}",
                "type": "value",
                "expressions": [*last, *(f"{ten}{one}" for ten in range(1, 10) for one in last)],
            }
            for last in ("12", "345", "67", "089")
        ]
    dataset.write_text("".join(json.dumps(problem) + "\n" for problem in problems))


def test_all_rollouts_train_with_finite_gradients_on_the_same_sums(
    example: SimpleNamespace, run: Any
) -> None:
    metrics = example.results.read_metrics(run)
    rows = example.results.read_scores(run)
    by_step = Counter(row["step"] for row in rows if row["split"] == "train")
    assert by_step == dict.fromkeys(range(1, STEPS + 1), PROMPTS * ROLLOUTS)
    moved = 0
    for step in range(1, STEPS + 1):
        logged = [row for row in rows if (row["split"], row["step"]) == ("train", step)]
        rewards = [row["reward"] for row in logged]
        # verl adds up the tokens' rewards.
        assert metrics[step]["critic/score/mean"] == pytest.approx(fmean(rewards), abs=1e-6)
        assert metrics[step]["critic/score/max"] == pytest.approx(max(rewards), abs=1e-6)
        assert math.isfinite(metrics[step]["actor/grad_norm"])
        moved += metrics[step]["actor/grad_norm"] > 0
        # What is still earned falls from node to node; placed at the end it would stay the sum.
        tokens = [row["num_tokens"] for row in logged]
        at_the_end = sum(
            reward * count for reward, count in zip(rewards, tokens, strict=True)
        ) / sum(tokens)
        if any(row["num_matched"] for row in logged):
            assert metrics[step]["critic/returns/mean"] < 0.95 * at_the_end
            assert metrics[step]["critic/returns/max"] == pytest.approx(max(rewards), abs=1e-6)
    assert moved
    assert any(row["num_matched"] for row in rows if row["split"] == "train")


def test_validation_sees_nothing_of_the_places(example: SimpleNamespace, run: Any) -> None:
    last = example.results.read_metrics(run)[STEPS]
    rows = example.results.read_scores(run)
    validated = [row for row in rows if (row["split"], row["step"]) == ("test", STEPS)]
    mean = fmean(row["ncr"] for row in validated)
    assert last["val-aux/arithmetic/ncr/mean@1"] == pytest.approx(mean, abs=1e-6)
    assert not [name for name in last if "by_token" in name]
