"""How a reward worker ends its run, on a real Ray."""

from __future__ import annotations

import time
from typing import Any

import pytest

pytest.importorskip("verl", reason="verl is not installed: run make test-verl")

import ray
from ray.experimental import internal_kv

from consensuspr.client.verl import run_end


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
            self.worker = worker.options(name="reward_loop_worker_0").remote()

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
        run_end.note_failures(count, last)
    run_end._print_reason()
    told = capsys.readouterr().err
    assert told == "consensuspr: samples without a reward in this run: 1,002; the last: too late\n"
    run_end.note("reason", "no sample has a reward")
    run_end._print_reason()
    assert capsys.readouterr().err == "run ended by consensuspr: no sample has a reward\n"
