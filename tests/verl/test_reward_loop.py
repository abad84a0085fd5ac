"""verl's own reward loop on a real Ray against a real server, and how a worker ends its run."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("verl", reason="verl is not installed: run make test-verl")

import ray
import verl
from ray.experimental import internal_kv

from consensuspr.client import LocalClient, RewardSpec, Rollout
from consensuspr.client.verl import run_end
from tests.processes import wait_for
from tests.score_logs import rows_in

SAMPLE = Path(__file__).resolve().parents[2] / "examples" / "sample"

NUM_ROLLOUTS = 512
KEYS = (
    "score acc ncr ncr_raw guard num_nodes num_matched by_pattern by_statement by_code by_equation"
    " tpn unanswered overlong_penalty status problem_id rollout_id"
).split()
# Parts of a rollout, so that many differ and no cache makes the run easy.
CUTS = (1.0, 0.9, 0.75, 0.5, 0.3, 0.1, 0.0)

OLD = verl.__version__ < "0.9"


@pytest.fixture(scope="module")
def rollouts(
    sample_rollouts: list[dict[str, Any]], sample_problems: dict[str, dict[str, Any]]
) -> list[dict[str, Any]]:
    """Many different rollouts of the sample's problems."""
    rows = []
    for number in range(NUM_ROLLOUTS):
        row = sample_rollouts[number % len(sample_rollouts)]
        text = row["response"]
        text = text[: int(len(text) * CUTS[number // len(sample_rollouts) % len(CUTS)])]
        truth = sample_problems[row["problem_id"]]["ground_truth"]
        rows.append({"problem_id": row["problem_id"], "response": text, "ground_truth": truth})
    return rows


@pytest.fixture(scope="module")
def expected(rollouts: list[dict[str, Any]]) -> list[Any]:
    """What the rollouts are worth: Acc and NCR from the scorer, without verl or a server."""
    with LocalClient(SAMPLE / "dataset.jsonl") as client:
        return client.score(
            [Rollout(row["problem_id"], row["response"]) for row in rollouts],
            reward=RewardSpec.linear(unanswered="zero"),
        )


@pytest.fixture
def reward_loop(
    ray_cluster: None, compose: Callable[..., Any], tokenizer_dir: Path
) -> Iterator[Callable[..., Any]]:
    """Start verl's reward loop; stop its workers, which take seconds to start, at the end."""
    from verl.experimental.reward_loop import RewardLoopManager

    managers = []

    def start(address: str, workers: int, **settings: object) -> Any:
        if OLD:
            chosen = [
                "reward.reward_manager.source=importlib",
                "reward.reward_manager.name=ConsensusRewardManager",
                "reward.reward_manager.module.path=pkg://consensuspr.client.verl",
            ]
        else:
            chosen = ["reward.reward_manager.name=consensuspr"]
        manager = RewardLoopManager(
            compose(
                f"actor_rollout_ref.model.path={tokenizer_dir}",
                f"reward.num_workers={workers}",
                *chosen,
                f"+reward.reward_kwargs.address={address}",
                *(f"+reward.reward_kwargs.{name}={value}" for name, value in settings.items()),
            )
        )
        managers.append(manager)
        return manager

    yield start
    for manager in managers:
        for worker in manager.reward_loop_workers:
            ray.kill(worker)


@pytest.mark.timeout(900)
def test_the_reward_equals_the_formula_for_every_sample(
    address: str,
    reward_loop: Callable[..., Any],
    make_batch: Callable[..., Any],
    rollouts: list[dict[str, Any]],
    expected: list[Any],
) -> None:
    """Several workers, as a whole batch."""
    loop = reward_loop(address, workers=2, alpha=0.25)
    result = loop.compute_rm_score(make_batch(rollouts))
    fields = result.non_tensor_batch
    assert list(result.meta_info["reward_extra_keys"]) == KEYS
    rewards = result.batch["rm_scores"].sum(dim=1).tolist()
    for number, score in enumerate(expected):
        assert fields["acc"][number] == score.acc
        assert fields["ncr"][number] == score.ncr
        assert fields["ncr_raw"][number] == score.ncr_raw
        assert fields["guard"][number] == score.guard
        reward = 0.25 * score.acc + 0.75 * score.ncr
        assert fields["score"][number] == pytest.approx(reward, abs=1e-12)
        assert rewards[number] == pytest.approx(reward, abs=1e-6)
        assert fields["num_nodes"][number] == score.num_nodes
        assert fields["num_matched"][number] == score.num_matched
        assert fields["status"][number] == "OK"
        tokens = len(rollouts[number]["response"].encode()) or 1
        # Means of older releases take no None.
        unknown = 0.0 if OLD else None
        tpn = tokens / score.num_matched if score.num_matched else unknown
        assert fields["tpn"][number] == (tpn if tpn is None else pytest.approx(tpn))
        assert fields["problem_id"][number] == rollouts[number]["problem_id"]
    # The sample is worth looking at only where rewards differ.
    assert len(set(rewards)) > 10
    # Equal counts give exactly equal values: a group without spread must have a spread of 0.
    by_counts: dict[tuple[float, ...], set[float]] = {}
    for number in range(len(rollouts)):
        known = ("acc", "num_nodes", "num_matched", "guard", "unanswered")
        counts = tuple(fields[key][number] for key in known)
        by_counts.setdefault(counts, set()).add(fields["score"][number])
    assert all(len(values) == 1 for values in by_counts.values())


def streamed(loop: Any, batch: Any, disturb: Callable[[], None] | None = None) -> list[Any]:
    """Hand samples over one at a time to workers in turn, as agent loops do."""
    workers = loop.reward_loop_workers
    thread = threading.Thread(target=disturb) if disturb else None
    pending: list[Any] = []
    for number in range(len(batch)):
        if number == len(workers):
            # verl does not wait for its workers, which take seconds to start.
            ray.get(pending)
        worker = workers[number % len(workers)]
        pending.append(worker.compute_score.remote(batch[number : number + 1]))
        if thread and number == len(batch) // 4:
            thread.start()
        time.sleep(0.001)
    if thread:
        thread.join()
    results: list[Any] = ray.get(pending)
    return results


@pytest.mark.timeout(900)
@pytest.mark.parametrize("fallback", [False, True], ids=["waits", "scores locally"])
def test_no_rollout_is_lost_when_the_server_is_killed(
    fallback: bool,
    start_server: Callable[..., Any],
    reward_loop: Callable[..., Any],
    make_batch: Callable[..., Any],
    rollouts: list[dict[str, Any]],
    expected: list[Any],
    tmp_path: Path,
) -> None:
    """Killed in the middle of a streaming run: every sample comes back once, as without it."""
    part = slice(0, 300)
    server = start_server()
    settings: dict[str, object] = {"score_log": tmp_path / "log", "timeout_s": 2}
    if fallback:
        settings["dataset_path"] = SAMPLE / "dataset.jsonl"
    loop = reward_loop(server.address, workers=2, **settings)

    def rows() -> list[str]:
        # None, as long as no worker has begun.
        return [row["scored_by"] for row in rows_in(tmp_path / "log", following=True)]

    def locally() -> int:
        return rows().count("local")

    away = threading.Event()

    def disturb() -> None:
        server.kill()
        away.set()
        time.sleep(2)
        # However long the workers take to find out on a busy machine.
        deadline = time.monotonic() + 300
        while fallback and not locally() and time.monotonic() < deadline:
            time.sleep(0.1)
        server.start()

    results = streamed(loop, make_batch(rollouts[part]), disturb)
    assert away.is_set()
    for result, score in zip(results, expected[part], strict=True):
        assert result["reward_score"] == score.reward
        assert result["reward_extra_info"]["status"] == "OK"
        assert list(result["reward_extra_info"]) == KEYS
    wait_for(lambda: len(rows()) == len(results))
    assert (locally() > 0) == fallback


def start_runner() -> Any:
    """Start an actor that makes a reward worker, as verl's task runner does."""

    # In here, so that Ray sends the classes themselves and not the name of a module of tests.
    class Worker:
        def end(self, reason: str) -> None:
            from consensuspr.client.verl import run_end as here

            here.end_run(reason)

    class Runner:
        def __init__(self) -> None:
            worker = ray.remote(num_cpus=0)(Worker)
            self.worker = worker.options(name="reward_loop_worker_of_test").remote()

        def call(self, method: str, *given: str) -> Any:
            return ray.get(getattr(self.worker, method).remote(*given))

        def run(self) -> None:
            time.sleep(600)

    return ray.remote(num_cpus=0)(Runner).remote()


@pytest.fixture
def no_notes(ray_cluster: None) -> None:
    """One run after the other in one job of Ray."""
    for key in internal_kv._internal_kv_list(run_end._key("")):
        internal_kv._internal_kv_del(key)


@pytest.mark.timeout(300)
def test_the_process_that_made_the_worker_ends(no_notes: None) -> None:
    runner = start_runner()
    ended = runner.call.remote("end", "no sample has a reward")
    with pytest.raises(ray.exceptions.RayError):
        ray.get(ended, timeout=240)
    with pytest.raises(ray.exceptions.RayActorError):
        ray.get(runner.run.remote(), timeout=240)
    assert run_end.read_note("reason") == "no sample has a reward"


def test_a_run_is_ended_once_and_again_if_ray_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    notes: dict[str, str] = {}
    signals: list[int] = []

    def note(name: str, text: str, *, once: bool = False) -> bool:
        return notes.setdefault(name, text) is text

    def send() -> None:
        signals.append(1)
        if len(signals) == 1:
            raise TimeoutError("Ray does not answer")

    monkeypatch.setattr(run_end, "note", note)
    monkeypatch.setattr(run_end, "read_note", notes.get)
    monkeypatch.setattr(run_end, "actor_name", lambda: "worker")
    monkeypatch.setattr(run_end, "_signal_task_runner", send)
    for reason in ("first", "second", "third"):
        run_end.end_run(reason)
    assert len(signals) == 2, "one that failed, one that was sent"
    assert notes["reason"] == "first"


def test_a_run_that_lost_samples_ends_with_the_reason_of_the_last(
    no_notes: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """verl drops them, and where a step has none left it ends with other advice."""
    run_end._print_reason()
    assert capsys.readouterr().err == ""
    for worker, count, last in (("a", 1, "early"), ("b", 2, "refused"), ("a", 1_000, "too late")):
        monkeypatch.setattr(run_end, "actor_name", lambda name=worker: name)
        run_end.note_worker({}, count, last)
    run_end._print_reason()
    messages = capsys.readouterr().err
    assert (
        messages == "consensuspr: samples without a reward in this run: 1,002; the last: too late\n"
    )
    run_end.note("reason", "no sample has a reward")
    run_end._print_reason()
    assert capsys.readouterr().err == "run ended by consensuspr: no sample has a reward\n"
