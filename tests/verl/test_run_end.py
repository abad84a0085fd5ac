"""How a reward worker ends its run, on a real Ray: what Ray does not answer is asked again."""

from __future__ import annotations

import time
from typing import Any

import pytest

pytest.importorskip("verl", reason="verl is not installed: run make test-verl")

import ray
from ray.experimental import internal_kv

from consensuspr.client.verl import run_end


def runner_of(failures: int) -> Any:
    """Return what is as verl's task runner, and has made a reward worker.

    Args:
        failures: how many times Ray does not tell that worker who made it.
    """

    # In here, so that Ray sends the classes themselves and not the name of a module of tests.
    class Worker:
        def end(self, reason: str) -> None:
            from ray._private import state

            from consensuspr.client.verl import run_end as here

            actors, left = state.actors, [failures]

            def answer() -> Any:
                if left[0]:
                    left[0] -= 1
                    raise TimeoutError("Ray does not answer")
                return actors()

            state.actors = answer
            here._PAUSES_S = (0.01,) * 6  # seven tries
            here.end_run(reason)
            state.actors = actors

    class Runner:
        def __init__(self) -> None:
            worker = ray.remote(num_cpus=0)(Worker)
            self.worker = worker.options(name=f"reward_loop_worker_{failures}").remote()

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
def test_who_made_the_worker_ends_also_where_ray_answers_late(no_notes: None) -> None:
    runner = runner_of(4)
    ended = runner.call.remote("end", "no sample has a reward")
    with pytest.raises(ray.exceptions.RayError):
        ray.get(ended, timeout=240)
    with pytest.raises(ray.exceptions.RayActorError):
        ray.get(runner.run.remote(), timeout=240)
    assert run_end.read_note("reason") == "no sample has a reward"


def test_a_run_is_told_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    notes: dict[str, str] = {}
    asked: list[int] = []

    def note(name: str, text: str, *, once: bool = False) -> bool:
        return notes.setdefault(name, text) is text

    def ask() -> None:
        asked.append(1)
        if len(asked) == 1:
            raise TimeoutError("Ray does not answer")

    monkeypatch.setattr(run_end, "note", note)
    monkeypatch.setattr(run_end, "read_note", notes.get)
    monkeypatch.setattr(run_end, "actor_name", lambda: "worker")
    monkeypatch.setattr(run_end, "_ask_to_end", ask)
    monkeypatch.setattr(run_end, "_PAUSES_S", (0.0,))
    for reason in ("first", "second", "third"):
        run_end.end_run(reason)
    assert len(asked) == 2, "once without an answer, once with one"
    assert notes["reason"] == "first"
    failed = [line for line in caplog.messages if "could not be notified" in line]
    assert len(failed) == 1
    assert "TimeoutError: Ray does not answer; again in 0 s" in failed[0]


def test_a_run_that_lost_samples_ends_with_the_reason_of_the_last(
    no_notes: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """verl drops them, and where a step has none left it ends with other advice."""
    run_end._tell_reason()
    assert capsys.readouterr().err == ""
    for worker, count, last in (("a", 1, "early"), ("b", 2, "refused"), ("a", 1_000, "too late")):
        monkeypatch.setattr(run_end, "actor_name", lambda name=worker: name)
        run_end.note_failures(count, last)
    run_end._tell_reason()
    told = capsys.readouterr().err
    assert told == "consensuspr: samples without a reward in this run: 1,002; the last: too late\n"
    run_end.note("reason", "no sample has a reward")
    run_end._tell_reason()
    assert capsys.readouterr().err == "run ended by consensuspr: no sample has a reward\n"
