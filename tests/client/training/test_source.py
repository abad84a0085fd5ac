"""The reward of single samples: from the server, and where there is none."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc
import pytest

from consensuspr.client import LocalClient, RewardSpec, Rollout
from consensuspr.client.training import (
    RewardSettings,
    RewardSource,
    SampleScorer,
    TooManyUnscorable,
    UnscorableSample,
    shared_source,
)
from consensuspr.client.training.source import MIN_MISREAD, MIN_UNEARNED
from consensuspr.errors import (
    DatasetMismatch,
    DeadlineExceeded,
    InputError,
    Overloaded,
    Unavailable,
)
from consensuspr.score_log import dataset_path
from consensuspr.score_log.schema import read_reward
from consensuspr.scoring.types import Score, Status
from consensuspr.wire.server_info import DatasetInfo
from tests.score_logs import rows_in
from tests.servers import free_port

EXPECTED, OTHER = (f"sha256:{digit * 64}" for digit in "ab")
RIGHT = Rollout("ducks", "16-3-4=9 and 9*2=18. Answer: 18", num_tokens=20)
HALF = Rollout("ducks", "16-3-4=9. Answer: 9", num_tokens=10)
UNKNOWN = Rollout("geese", "Answer: 9")


def add_dataset(scripted: Any, name: str = "default", digest: str = "sha256:0") -> None:
    scripted.info.datasets.add(name=name, digest=digest)


def run(settings: RewardSettings, work: Callable[[RewardSource], Awaitable[Any]]) -> Any:
    async def main() -> Any:
        source = RewardSource(settings)
        try:
            return await work(source)
        finally:
            await source.close()

    return asyncio.run(main())


def test_samples_get_the_servers_rewards(real_server: str) -> None:
    settings = RewardSettings(address=real_server, alpha=0.25)

    async def work(source: RewardSource) -> Any:
        return await asyncio.gather(*[source.score(r, 0) for r in [RIGHT, HALF] * 40])

    scored = run(settings, work)
    assert [sample.reward for sample in scored] == [1.0, 0.375] * 40
    assert {sample.scored_by for sample in scored} == {"server"}
    fields = scored[1].fields(-0.5)
    expected = {"score": 0.375, "acc": 0.0, "ncr": 0.5, "by_statement": 1, "overlong_penalty": -0.5}
    assert {name: fields[name] for name in expected} == expected


def test_an_unscorable_sample_gets_the_number_that_the_user_named(
    real_server: str, caplog: pytest.LogCaptureFixture
) -> None:
    settings = RewardSettings(address=real_server, on_unscorable=-0.25, max_unscorable=1)

    async def work(source: RewardSource) -> Any:
        return [await source.score(UNKNOWN, 0) for _ in range(12)]

    for sample in run(settings, work):
        assert sample.reward == -0.25
        assert sample.fields()["status"] == "UNKNOWN_PROBLEM"
        assert sample.fields()["ncr"] is None
        assert sample.numbers()["ncr"] == 0
    counted = [r.message for r in caplog.records if "UNKNOWN_PROBLEM" in r.message]
    assert [message.rsplit("(", 1)[1] for message in counted] == [
        "UNKNOWN_PROBLEM: 1 so far in this process)",
        "UNKNOWN_PROBLEM: 10 so far in this process)",
    ]


def test_an_id_of_a_prompt_is_explained(real_server: str) -> None:
    rollout = Rollout("prompt-0", "Answer: 9", ground_truth="9")
    with pytest.raises(UnscorableSample, match="without nodes; a prompt's digest is the id of"):
        run(RewardSettings(address=real_server), lambda source: source.score(rollout, 0))


BARE = Rollout("bare", "Answer: 9", ground_truth="9")


@pytest.mark.parametrize(
    ("settings", "reward"),
    [
        ({"without_nodes": "acc"}, 1.0),
        ({"without_nodes": 0.25}, 0.25),
        ({"on_unscorable": -1}, -1.0),
        ({"on_unscorable": -1, "without_nodes": "raise"}, None),
        ({}, None),
    ],
)
def test_what_has_no_nodes_follows_its_own_setting(
    real_server: str, settings: dict[str, Any], reward: float | None
) -> None:
    def scored() -> Any:
        return run(
            RewardSettings(address=real_server, **settings), lambda source: source.score(BARE, 0)
        )

    if reward is None:
        with pytest.raises(UnscorableSample, match="NO_NODES"):
            scored()
        return
    assert scored().reward == reward
    assert scored().fields()["status"] == "NO_NODES"


@pytest.mark.parametrize(
    ("reward", "rows", "counted"),
    [
        ("linear", [(BARE, "test"), (BARE, "val"), (RIGHT, "train")], 1),
        ("linear", [(BARE, "test"), (RIGHT, None), (RIGHT, None), (BARE, "val"), (HALF, None)], 2),
        ("linear", [(BARE, "test"), (RIGHT, "test"), (RIGHT, "train")], 0),
        ("linear", [(RIGHT, "test"), (RIGHT, None), (BARE, "test"), (RIGHT, None)], 0),
        ("linear", [(RIGHT, "train"), (BARE, "test")], 0),  # the pass has not ended
        ("outcome", [(BARE, "test"), (RIGHT, "train")], 0),
    ],
)
def test_a_validation_without_nodes_is_reported(
    real_server: str, reward: str, rows: list[tuple[Rollout, str | None]], counted: int,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    async def work(source: RewardSource) -> int:
        for rollout, split in rows:
            await source.score(rollout, 0, split)
        return source.events.get("validation without nodes", 0)

    assert run(RewardSettings(address=real_server, reward=reward), work) == counted
    assert ("the last row's problem id is 'bare'" in caplog.text) is bool(counted)


async def _failures(source: RewardSource, rollouts: list[Rollout]) -> list[Exception]:
    failures: list[Exception] = []
    for rollout in rollouts:
        try:
            await source.score(rollout, 0)
        except (UnscorableSample, TooManyUnscorable) as error:
            failures.append(error)
    return failures


@pytest.mark.parametrize("limit", [0.01, 0.02])
def test_a_stray_row_fails_alone_and_many_end_the_run(real_server: str, limit: float) -> None:
    settings = RewardSettings(address=real_server, max_unscorable=limit)
    allowed = round(limit * 1000)
    failures = run(settings, lambda source: _failures(source, [RIGHT, UNKNOWN] * (allowed + 1)))
    assert [type(failure) for failure in failures] == [UnscorableSample] * allowed + [
        TooManyUnscorable
    ]
    assert f"{allowed + 1} UNKNOWN_PROBLEM of {2 * allowed + 2} samples" in str(failures[-1])


@pytest.mark.parametrize(
    "settings", [{"without_nodes": "acc"}, {"without_nodes": 0.25}, {"on_unscorable": 0}]
)
def test_a_reward_for_problems_without_nodes_does_not_hide_ids_of_another_dataset(
    real_server: str, settings: dict[str, Any]
) -> None:
    other = Rollout("geese", "Answer: 9", ground_truth="9")

    async def work(source: RewardSource) -> None:
        for _ in range(20):
            await source.score(BARE, 0, "train")
        for _ in range(11):
            try:
                await source.score(other, 0, "train")
            except UnscorableSample as error:
                assert "not in the dataset" in str(error)

    with pytest.raises(TooManyUnscorable, match="11 UNKNOWN_PROBLEM of 31 samples"):
        run(RewardSettings(address=real_server, **settings), work)
    outcome = RewardSettings(address=real_server, reward="outcome", **settings)
    assert run(outcome, lambda source: source.score(other, 0)).reward == 1.0
    validated = RewardSettings(address=real_server, **settings)
    assert run(validated, lambda source: source.score(other, 0, "test")).reward == 1.0


def test_a_server_that_rejects_every_sample_ends_the_run(scripted: Any) -> None:
    """A dataset that was replaced: no other sample will get a reward either."""
    add_dataset(scripted, digest=EXPECTED)
    served = EXPECTED
    scripted.script = lambda number, request, context: scripted.reply(request, digest=served)
    settings = RewardSettings(address=scripted.address, expect_digest=EXPECTED, max_unscorable=0.01)
    events: dict[str, int] = {}

    async def work(source: RewardSource) -> list[Exception]:
        nonlocal served
        assert (await source.score(RIGHT, 0)).reward == 1.0
        served = OTHER
        failures: list[Exception] = []
        for _ in range(11):
            with pytest.raises((DatasetMismatch, TooManyUnscorable)) as failed:
                await source.score(RIGHT, 0)
            failures.append(failed.value)
        events.update(source.events)
        return failures

    failures = run(settings, work)
    assert [type(failure) for failure in failures] == [DatasetMismatch] * 10 + [TooManyUnscorable]
    last = str(failures[-1])
    assert "11 rejected of 12 samples in this process" in last
    assert "the server rejects this run; the last: problem 'ducks'" in last
    assert last.endswith(f"digest {OTHER}, expected {EXPECTED}")
    assert events["rejected"] == 11


@pytest.mark.parametrize("reaches", [False, True])
def test_a_policy_that_earns_nothing_is_logged_once(
    real_server: str, caplog: pytest.LogCaptureFixture, reaches: bool
) -> None:
    """As with the tokenizer of another model."""

    async def work(source: RewardSource) -> None:
        if reaches:
            await source.score(RIGHT, 0)
        for _ in range(2 * MIN_UNEARNED):
            await source.score(Rollout("ducks", "lor em ips um"), 0)

    run(RewardSettings(address=real_server), work)
    lines = [line for line in caplog.messages if "reaches a node or the answer" in line]
    assert len(lines) == (not reaches)
    assert reaches or "problem 'ducks', begins 'lor em ips um'" in lines[0]


@pytest.mark.parametrize(("rule", "warns"), [("dapo", True), ("gsm8k", False), ("auto", False)])
def test_answers_in_a_form_that_the_rule_does_not_accept_are_logged_once(
    dataset: Path, caplog: pytest.LogCaptureFixture, rule: str, warns: bool
) -> None:
    async def work(source: RewardSource) -> None:
        for number in range(2 * MIN_MISREAD):
            unmarked = "it is 7" if number % 3 == 0 else "it is 7\n#### 7"
            await source.score(Rollout("ducks", unmarked), 0)

    run(RewardSettings(dataset_path=dataset, answer_rule=rule), work)
    lines = [line for line in caplog.messages if "does not accept" in line]
    assert len(lines) == warns
    assert all("answer_rule=dapo" in line and "set answer_rule=auto" in line for line in lines)


def test_a_server_that_comes_back_is_used_again(scripted: Any, dataset: Path) -> None:
    add_dataset(scripted, digest=digest_of(dataset))
    scripted.fail(grpc.StatusCode.UNAVAILABLE)
    settings = RewardSettings(address=scripted.address, dataset_path=dataset, timeout_s=0.3)

    async def work(source: RewardSource) -> list[str]:
        seen = [(await source.score(RIGHT, 0)).scored_by]
        scripted.script = None
        while seen[-1] == "local" and len(seen) < 1000:
            await asyncio.sleep(0.01)
            seen.append((await source.score(RIGHT, 0)).scored_by)
        return seen

    seen = run(settings, work)
    assert seen[0] == "local" and seen[-1] == "server"


def test_only_the_first_of_several_event_loops_waits_for_a_server_that_is_away(
    scripted: Any, dataset: Path, caplog: pytest.LogCaptureFixture
) -> None:
    add_dataset(scripted, digest=digest_of(dataset))
    scripted.fail(grpc.StatusCode.UNAVAILABLE)
    settings = RewardSettings(address=scripted.address, dataset_path=dataset, timeout_s=0.3)

    async def scored() -> str:
        return (await shared_source(settings).score(RIGHT, 0)).scored_by

    assert [asyncio.run(scored()) for _ in range(3)] == ["local"] * 3
    assert sum("server unavailable: " in line for line in caplog.messages) == 1
    scripted.script = None
    found = [asyncio.run(scored()) for _ in range(20)]
    assert found[-1] == "server"


@pytest.mark.parametrize("digest", [None, OTHER])
def test_without_an_address_samples_are_scored_here_at_once(
    dataset: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, digest: str | None
) -> None:
    log = tmp_path / "run"
    settings = RewardSettings(dataset_path=dataset, score_log=log, expect_digest=digest)

    async def work(source: RewardSource) -> Any:
        return await asyncio.wait_for(source.score(RIGHT, 0), 20)

    if digest is not None:
        with pytest.raises(InputError, match="is not the dataset of this run"):
            run(settings, work)
        return
    sample = run(settings, work)
    assert (sample.reward, sample.scored_by, caplog.messages) == (1.0, "local", [])
    # A run that no server keeps a dataset for has its own.
    assert dataset_path(log, digest_of(dataset)).is_file()


def test_it_is_logged_soon_that_samples_wait(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("consensuspr.client.training.source._SILENCE_S", 0.2)
    settings = RewardSettings(address=f"127.0.0.1:{free_port()}")

    async def work(source: RewardSource) -> None:
        waiting = asyncio.create_task(source.score(RIGHT, 0))
        while not any("no score from the server at" in line for line in caplog.messages):
            await asyncio.sleep(0.05)
        assert not waiting.done()
        waiting.cancel()

    run(settings, work)


def digest_of(dataset: Path) -> str:
    with LocalClient(dataset) as client:
        info: DatasetInfo = client.server_info().datasets[0]
    return info.digest


def test_data_that_are_not_the_servers_are_not_used(
    scripted: Any, dataset: Path, caplog: pytest.LogCaptureFixture
) -> None:
    add_dataset(scripted, digest="sha256:another")

    def script(number: int, request: Any, context: Any) -> Any:
        if number < 12:
            context.abort(grpc.StatusCode.UNAVAILABLE, "away")
        return scripted.reply(request, digest="sha256:another")

    scripted.script = script
    settings = RewardSettings(address=scripted.address, dataset_path=dataset, timeout_s=1)
    sample = run(settings, lambda source: source.score(RIGHT, 0))
    assert sample.scored_by == "server"
    [refused] = [r.message for r in caplog.records if "unusable dataset_path" in r.message]
    assert "is not the dataset of this run (sha256:another)" in refused
    assert "waiting for it" in refused


@pytest.mark.parametrize("fallback", [False, True])
def test_other_data_after_a_restart_are_reported(
    scripted: Any, dataset: Path, fallback: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """A restart that the client's own retries bridge is seen by nobody else."""
    add_dataset(scripted)

    def script(number: int, request: Any, context: Any) -> Any:
        if number == 1:
            context.abort(grpc.StatusCode.UNAVAILABLE, "restarting")
        return scripted.reply(request, digest="sha256:0" if number == 0 else "sha256:new")

    scripted.script = script
    settings = RewardSettings(address=scripted.address, dataset_path=dataset if fallback else None)

    async def work(source: RewardSource) -> None:
        for _ in range(3):
            await source.score(RIGHT, 0)

    run(settings, work)
    reported = [r.message for r in caplog.records if "has other data" in r.message]
    assert len(reported) == 1
    assert "digest sha256:new, it was sha256:0" in reported[0]


@pytest.mark.parametrize(
    ("settings", "least_s"),
    [({"on_unavailable": "raise"}, 0.0), ({"unavailable_limit_s": 1.5}, 0.5)],
)
def test_it_gives_up_when_the_settings_say_so(settings: dict[str, Any], least_s: float) -> None:
    read = RewardSettings(address=f"127.0.0.1:{free_port()}", timeout_s=0.2, **settings)
    start = time.monotonic()
    with pytest.raises((Unavailable, DeadlineExceeded)):
        run(read, lambda source: source.score(RIGHT, 0))
    assert least_s * 0.9 <= time.monotonic() - start


STUCK = {
    Overloaded: Score(Status.ANSWER_UNDECIDED, reward=0.5, acc=0.0, answer_method="load"),
    UnscorableSample: Score(Status.INTERNAL),
}


@pytest.mark.parametrize("end", STUCK)
def test_a_busy_answer_check_is_asked_again_and_ends_with_an_error_and_no_zero(
    scripted: Any, end: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("consensuspr.client.training.source._AGAIN_PAUSES_S", (0.01, 0.02))
    add_dataset(scripted)
    times = 2

    def script(number: int, request: Any, context: Any) -> Any:
        return scripted.reply(request, only=STUCK[end]) if number < times else None

    scripted.script = script
    settings = RewardSettings(address=scripted.address, unavailable_limit_s=0.5)
    sample = run(settings, lambda source: source.score(RIGHT, 0))
    assert (sample.score.status, len(scripted.requests)) == (Status.OK, 3)
    times = 1000
    with pytest.raises(end):
        run(settings, lambda source: source.score(RIGHT, 0))


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("dataset_path", "dataset_path: file not found"),
        ("token_file", "token file .*none: no such file"),
        ("tls_ca", "tls_ca .*none: no such file"),
        ("grown_nodes", "grown_nodes: folder not found"),
    ],
)
def test_a_file_that_is_not_there_is_found_before_the_first_sample(
    tmp_path: Path, name: str, sentence: str
) -> None:
    with pytest.raises(InputError, match=sentence):
        SampleScorer.of({name: tmp_path / "none"}, "settings", "")


def test_each_sample_is_logged_with_all_that_explains_it(real_server: str, tmp_path: Path) -> None:
    settings = RewardSettings(
        address=real_server, score_log=tmp_path, on_undecided="mask", run="mine", alpha=0.25
    )

    async def work(source: RewardSource) -> Any:
        await asyncio.gather(
            source.score(RIGHT, 3, "train", step=31, group="g1", penalty=-0.5),
            source.score(HALF, 3, "test", step=31, group="g1"),
            source.score(UNKNOWN, 3),
            return_exceptions=True,
        )

    run(settings, work)
    rows = {row["problem_id"] + str(row["num_tokens"]): row for row in rows_in(tmp_path)}
    right, half, unknown = rows["ducks20"], rows["ducks10"], rows["geeseNone"]
    expected = {
        "side": "trainer", "run": "mine", "step": 31, "epoch": 3, "split": "train",
        "group_id": "g1", "response": RIGHT.response, "reward": 1.0, "penalty": -0.5,
        "final_score": 0.5, "channels": ["statement", "statement"], "answer": "18",
        "scored_by": "server", "on_undecided": "mask", "answer_rule": "auto",
    }  # fmt: skip
    assert {name: right[name] for name in expected} == expected
    assert right["dataset_digest"].startswith("sha256:")
    assert read_reward(right["reward_spec"]) == RewardSpec.linear(0.25, unanswered="zero")
    assert (half["split"], half["reward"], half["final_score"]) == ("test", 0.375, 0.375)
    assert (unknown["status"], unknown["final_score"]) == ("UNKNOWN_PROBLEM", None)
    assert len({row["key"] for row in rows.values()}) == 3
    assert RIGHT.sample is None


def test_samples_that_come_while_the_local_data_is_dropped_wait_for_the_server(
    tmp_path: Path,
) -> None:
    dataset = tmp_path / "bad.jsonl"
    dataset.write_text("{bad\n")
    settings = RewardSettings(
        address=f"127.0.0.1:{free_port()}", dataset_path=dataset,
        timeout_s=0.3, unavailable_limit_s=1.5,
    )  # fmt: skip

    async def work(source: RewardSource) -> Any:
        async def late(at: int) -> Any:
            await asyncio.sleep(at * 0.01)
            return await source.score(RIGHT, 0)

        return await asyncio.gather(*map(late, range(100)), return_exceptions=True)

    assert {type(error) for error in run(settings, work)} <= {Unavailable, DeadlineExceeded}
