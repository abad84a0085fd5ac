"""The training run of examples/verl_cpu, in small: verl itself, a real server, four steps."""

from __future__ import annotations

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

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "verl_cpu"
STEPS, PROMPTS, ROLLOUTS, VALIDATION = 4, 4, 4, 8

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
    """A finished run of the curriculum, which switches after half of its steps."""
    folder = tmp_path_factory.mktemp("verl")
    settings = example.training.Settings(
        steps=STEPS, prompts=PROMPTS, rollouts=ROLLOUTS, validate_every=STEPS
    )
    recipe = example.files.Recipe(
        num_train=settings.num_train, num_validation=VALIDATION, warm_start_steps=30
    )
    files = example.files.prepare(folder / "files", recipe, lambda done, loss: None)
    run = example.training.Run("curriculum", 0, folder / "curriculum-0")
    done: list[int] = []
    with example.training.running_server(files.dataset) as address:
        try:
            example.training.train(run, files, settings, address, done.append)
        except SystemExit as error:
            pytest.fail(f"{error}\n{run.console.read_text()[-4000:]}")
    assert run.finished.exists()
    assert done[-1] == STEPS
    return run


@pytest.fixture(scope="module")
def rows(example: SimpleNamespace, run: Any) -> list[dict[str, Any]]:
    """The score log of the run."""
    log: list[dict[str, Any]] = example.results.read_scores(run)
    return log


def test_every_rollout_is_scored_once(rows: list[dict[str, Any]]) -> None:
    trained = [row for row in rows if row["split"] == "train"]
    by_step = Counter(row["step"] for row in trained)
    assert by_step == dict.fromkeys(range(1, STEPS + 1), PROMPTS * ROLLOUTS)
    # Each of the two epochs asks each problem once, with so many responses.
    for epoch in (0, 1):
        asked = Counter(row["problem_id"] for row in trained if row["epoch"] == epoch)
        names = {f"train-{number}" for number in range(STEPS // 2 * PROMPTS)}
        assert asked == dict.fromkeys(names, ROLLOUTS)
    validated = Counter(row["step"] for row in rows if row["split"] == "test")
    assert validated == {0: VALIDATION, STEPS: VALIDATION}


def test_rewards_equal_the_formula(rows: list[dict[str, Any]]) -> None:
    for row in rows:
        assert row["status"] == "OK"
        assert row["scored_by"] == "server"
        assert row["num_nodes"] == 5
        assert row["ncr_raw"] == row["num_matched"] / row["num_nodes"]
        assert row["ncr"] == row["ncr_raw"] * row["guard"]
        assert row["reward"] == (row["ncr"] if row["epoch"] == 0 else row["acc"])
        assert row["final_score"] == row["reward"]


def test_the_curriculum_switches_with_the_second_epoch(rows: list[dict[str, Any]]) -> None:
    epochs = {row["step"]: row["epoch"] for row in rows if row["split"] == "train"}
    assert epochs == {1: 0, 2: 0, 3: 1, 4: 1}


def test_verl_trains_on_the_logged_rewards(
    example: SimpleNamespace, run: Any, rows: list[dict[str, Any]]
) -> None:
    metrics = example.results.read_metrics(run)
    assert sorted(metrics) == list(range(STEPS + 1))
    for step in range(1, STEPS + 1):
        logged = [row["reward"] for row in rows if (row["split"], row["step"]) == ("train", step)]
        assert metrics[step]["critic/score/mean"] == pytest.approx(fmean(logged), abs=1e-6)
    for step in (0, STEPS):
        validated = [row for row in rows if (row["split"], row["step"]) == ("test", step)]
        for key in ("val-core/arithmetic/acc", "val-aux/arithmetic/ncr"):
            mean = fmean(row[key.rsplit("/", 1)[1]] for row in validated)
            assert metrics[step][f"{key}/mean@1"] == pytest.approx(mean, abs=1e-6)


def test_results_are_the_means_of_the_log(
    example: SimpleNamespace, run: Any, rows: list[dict[str, Any]], tmp_path: Path
) -> None:
    result = example.results.summarise(run)
    example.results.write_results(tmp_path / "results.json", {"note": "small"}, [result])
    about, runs = example.results.read_results(tmp_path / "results.json")
    assert about == {"note": "small"}
    assert runs == [result]
    assert runs[0]["train"]["step"] == list(range(1, STEPS + 1))
    last = [row["ncr"] for row in rows if (row["split"], row["step"]) == ("train", STEPS)]
    assert runs[0]["train"]["ncr"][-1] == pytest.approx(fmean(last), abs=1e-5)


def test_problems_have_a_node_for_each_step(example: SimpleNamespace) -> None:
    chains = example.problems.draw_chains(0)
    for number in range(200):
        chain = next(chains)
        problem = example.problems.to_problem(chain, f"p{number}", "train")
        *equations, answer = (node.expressions[0] for node in problem.nodes)
        assert chain.solution == "\n".join([*equations, answer])
        assert len(set(equations)) == example.problems.STEPS
        for equation in equations:
            left, right = equation.split("=")
            number_left, sign, number_right = _split(left)
            results = {"+": number_left + number_right, "-": number_left - number_right}
            results["*"] = number_left * number_right
            assert results[sign] == int(right)


def _split(text: str) -> tuple[int, str, int]:
    sign = next(character for character in text if character in "+-*")
    left, right = text.split(sign)
    return int(left), sign, int(right)


def test_the_step_log_has_the_figures_of_the_reward(
    example: SimpleNamespace, run: Any, rows: list[dict[str, Any]]
) -> None:
    """verl's own console and metrics file, and TensorBoard's events as a reader finds them."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    metrics = example.results.read_metrics(run)
    events = EventAccumulator(str(run.tensorboard)).Reload()
    for name in ("acc", "ncr", "ncr_raw", "guard"):
        key = f"consensuspr/{name}"
        shown = {event.step: event.value for event in events.Scalars(key)}
        for step in range(1, STEPS + 1):
            logged = [r[name] for r in rows if (r["split"], r["step"]) == ("train", step)]
            assert metrics[step][key] == pytest.approx(fmean(logged), abs=1e-6)
            assert shown[step] == pytest.approx(fmean(logged), abs=1e-6)
        assert f"{key}:" in run.console.read_text()
    for step in range(1, STEPS + 1):
        assert metrics[step]["consensuspr/lost"] == 0
        assert metrics[step]["consensuspr/with_nodes"] == 1


def test_files_of_other_problems_end_the_run_with_their_reason(
    example: SimpleNamespace, tmp_path: Path
) -> None:
    """Half of the ids are wrong: no step is made, and the last line says why."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    settings = example.training.Settings(
        steps=2, prompts=PROMPTS, rollouts=ROLLOUTS, validate_every=2
    )
    recipe = example.files.Recipe(
        num_train=settings.num_train, num_validation=VALIDATION, warm_start_steps=1
    )
    files = example.files.prepare(tmp_path / "files", recipe, lambda done, loss: None)
    table = pq.read_table(files.train)
    rows = table.to_pylist()
    for row in rows[::2]:
        row["extra_info"]["problem_id"] = f"wrong-{row['extra_info']['problem_id']}"
    pq.write_table(pa.Table.from_pylist(rows, schema=table.schema), files.train)
    run = example.training.Run("linear", 0, tmp_path / "run")
    with (
        example.training.running_server(files.dataset) as address,
        pytest.raises(SystemExit, match="ended with status 1"),
    ):
        example.training.train(run, files, settings, address, lambda done: None)
    last = run.console.read_text().rstrip().splitlines()[-1]
    assert last.startswith("run ended by consensuspr: 2 (50.0 %) of 4 training problems")
    assert "unknown to the server (the first: 'wrong-" in last
    steps = example.results.read_metrics(run) if run.metrics.exists() else {}
    assert max(steps, default=0) == 0, "it trained"
