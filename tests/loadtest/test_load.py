"""Settings that go together, how many requests are due when, and what is sent."""

from __future__ import annotations

import dataclasses
import itertools
import json
import re
import statistics
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from consensuspr.client import LocalClient, Rollout
from consensuspr.errors import DataError, InputError
from consensuspr.loadtest import load as pools
from consensuspr.loadtest.load import (
    Load,
    due_times,
    pool_from_dataset,
    pool_from_file,
    response_bytes,
)
from consensuspr.loadtest.senders import BatchSender, max_attempts
from consensuspr.loadtest.settings import Arrivals, LoadSettings, LoadShape
from consensuspr.scoring.dataset_index import prepare_dataset

if TYPE_CHECKING:
    from consensuspr.loadtest.load import Target
    from tests.loadtest.conftest import PlayedServer


def schedule(duration_s: float, warmup_s: float = 0.0, **given: Any) -> Load:
    """Return the load of an open loop."""
    load = Load.of(LoadSettings(duration=duration_s, warmup=warmup_s, **given))
    assert load is not None
    return load


def expected(load: Load, until_s: float) -> float:
    """Return the requests that a load holds until a time, by adding up trapezoids."""
    piece_s = load.duration_s / len(load.rates)
    count = load.rates[0][0] * (min(until_s, 0.0) + load.warmup_s)
    for number, (start, end) in enumerate(load.rates):
        share = min(1.0, max(0.0, until_s / piece_s - number))
        count += share * piece_s * (start + (start + (end - start) * share)) / 2
    return count


def counts(load: Load, arrivals: Arrivals = Arrivals.CONSTANT, seed: int = 0) -> list[int]:
    """Return how many requests are due in each second, the warm-up's first."""
    dues = list(due_times(load, arrivals, seed))
    assert dues == sorted(dues)
    seconds = range(-round(load.warmup_s), round(load.duration_s))
    return [sum(second <= due < second + 1 for due in dues) for second in seconds]


@pytest.mark.parametrize(
    ("load", "per_second"),
    [
        (schedule(2, rate=10), [10, 10]),
        (schedule(1, 2, rate=10), [10, 10, 10]),
        (schedule(4, rate=0.5), [1, 0, 1, 0]),
        (schedule(3, rate=10, load="step", rate_end=30, steps=3), [10, 20, 30]),
        (schedule(3, 1, rate=30, load="step", rate_end=10, steps=3), [30, 30, 20, 10]),
        (schedule(4, rate=10, load="step", rate_end=20, steps=2), [10, 10, 20, 20]),
        (schedule(4, rate=10, load="ramp", rate_end=50), [15, 25, 35, 45]),
        (schedule(2, 1, rate=40, load="ramp", rate_end=20), [40, 35, 25]),
    ],
)
def test_constant_arrivals(load: Load, per_second: list[int]) -> None:
    found = counts(load)
    assert sum(found) == sum(per_second)
    assert all(abs(a - b) <= 1 for a, b in zip(found, per_second, strict=True))


def test_constant_arrivals_are_evenly_spaced() -> None:
    load = schedule(2, rate=8)
    assert list(due_times(load, Arrivals.CONSTANT, 0)) == [n / 8 for n in range(16)]


@pytest.mark.parametrize("shape", LoadShape)
def test_poisson_arrivals_have_the_rate_and_its_spread(shape: LoadShape) -> None:
    moving: dict[str, Any] = {"load": shape, "rate_end": 150} if shape != "constant" else {}
    load = schedule(20, rate=50, **moving)
    totals = [sum(1 for _ in due_times(load, Arrivals.POISSON, seed)) for seed in range(40)]
    wanted = expected(load, 20)
    assert statistics.mean(totals) == pytest.approx(wanted, abs=4 * (wanted / 40) ** 0.5)
    assert 0.45 < statistics.variance(totals) / wanted < 1.8
    gaps = [b - a for a, b in itertools.pairwise(due_times(load, Arrivals.POISSON, 1))]
    assert statistics.pstdev(gaps) / statistics.mean(gaps) > 0.8  # constant ones have 0


def test_poisson_arrivals_are_those_of_the_seed() -> None:
    load = schedule(5, 1, rate=10, load="ramp", rate_end=50)
    one, again, other = (list(due_times(load, Arrivals.POISSON, seed)) for seed in (1, 1, 2))
    assert one == again != other


@given(
    st.sampled_from(LoadShape),
    st.floats(0.5, 1000),
    st.floats(0.5, 1000),
    st.floats(0.5, 100),
    st.floats(0, 10),
    st.floats(0, 1),
)
def test_when_is_the_inverse_of_what_is_expected(
    shape: LoadShape, rate: float, end: float, duration_s: float, warmup_s: float, share: float
) -> None:
    moving = {} if shape is LoadShape.CONSTANT else {"load": shape, "rate_end": end}
    load = schedule(duration_s, warmup_s, rate=rate, **moving)
    at_s = -warmup_s + share * (duration_s + warmup_s)
    found = load.when(expected(load, at_s) * (1 - 1e-12))
    assert found == pytest.approx(at_s, abs=1e-6)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"rate": 0}, r"rate\n.*greater than 0"),
        ({"rate": float("inf")}, "finite"),
        ({"rate": 5, "load": "ramp", "rate_end": -1}, r"rate_end\n.*greater than 0"),
        ({"rate": 5, "rate_end": 6, "load": "step", "steps": 1}, "greater than or equal to 2"),
        ({"rate": 5, "concurrency": 2}, "concurrency does not go with rate "),
        ({"rate": 5, "load": "step"}, "the load step goes from rate to rate_end, which is not"),
        ({"load": "ramp", "rate_end": 5}, r"load goes with rate \(a closed loop has none\), which"),
        ({"rate_end": 5}, "rate_end goes with rate and the load step or ramp, which is not given"),
        ({"rate": 5, "rate_end": 9}, "rate_end goes with rate and the load step or ramp, which"),
        ({"rate": 5, "steps": 3}, "steps goes with the load step, which is not given"),
        ({"arrivals": "poisson"}, "arrivals goes with rate or find_saturation, which is not given"),
        ({"profile": "verl", "batch": 2}, "batch does not go with the profile verl"),
        ({"max_p99": 5}, "max_p99 goes with find_saturation, which is not given"),
        ({"window": 2}, "window goes with find_saturation, which is not given"),
        *(
            ({"find_saturation": True, name: value}, f"{name} does not go with find_saturation")
            for name, value in (
                ("duration", 2), ("requests", 2), ("concurrency", 2), ("steps", 3),
                ("load", "ramp"), ("rate_end", 9),
            )
        ),
        (
            {"find_saturation": True, "rate": 0.4},
            "rate must be at least 0.5 requests a second, one in each window of 2 seconds, got 0.4",
        ),
        ({"find_saturation": True, "window": 0.25}, r"window\n.*than or equal to 0.5"),
        ({"find_saturation": True, "window": 1.1}, r"window\n.*multiple of 0.25"),
        ({"find_saturation": True, "window": 16}, r"window\n.*than or equal to 15"),
        ({"find_saturation": True, "max_p99": 0}, r"max_p99\n.*greater than 0"),
        ({"max_error_rate": -0.1}, r"max_error_rate\n.*greater than or equal to 0"),
        ({"max_undecided": 1.5}, r"max_undecided\n.*less than or equal to 1"),
    ],
)  # fmt: skip
def test_settings_that_cannot_be_or_do_not_go_together(given: dict[str, Any], says: str) -> None:
    with pytest.raises(ValidationError, match=re.compile(says, re.MULTILINE)):
        LoadSettings(**given)


@pytest.mark.parametrize(
    ("given", "attempts"),
    [
        ({}, 1),
        ({"retries": 3}, 4),
        ({"profile": "verl"}, None),
        ({"profile": "verl", "retries": 0}, 1),
    ],
)
def test_how_often_a_request_is_tried(given: dict[str, Any], attempts: int | None) -> None:
    assert max_attempts(LoadSettings(**given)) == attempts


def test_a_number_of_requests_alone_has_an_hour() -> None:
    assert LoadSettings().end_s == 10
    assert LoadSettings(requests=5).end_s == 3600
    assert LoadSettings(requests=5, duration=10).end_s == 10


@pytest.mark.parametrize("size", [64, 1000, 20_000])
def test_generated_rollouts_have_the_size_and_reach_nodes(dataset: Path, size: int) -> None:
    pool = pool_from_dataset(dataset, size, seed=3)
    assert {response_bytes(rollout) for rollout in pool.rollouts} == {size}
    assert pool.mean_bytes == size
    with LocalClient(dataset) as local:
        scores = local.score(pool.rollouts)
    assert {score.status.value for score in scores} == {"OK", "NO_NODES"}
    assert {score.acc for score in scores} == {0.0, 1.0}
    assert len({score.ncr for score in scores if score.ncr is not None}) > 1


def test_generated_rollouts_are_those_of_the_seed(dataset: Path) -> None:
    one, again, other = (pool_from_dataset(dataset, 500, seed).rollouts for seed in (1, 1, 2))
    assert one == again != other


def test_an_answer_longer_than_the_size_is_not_cut(tmp_path: Path) -> None:
    path = tmp_path / "problems.jsonl"
    path.write_text(json.dumps({"problem_id": "p", "ground_truth": "9" * 90, "nodes": []}))
    texts = [str(rollout.response) for rollout in pool_from_dataset(path, 64, 0).rollouts]
    assert any(f"\\boxed{{{'9' * 90}}}" in text for text in texts)


@pytest.mark.parametrize("size", [0, 63, (16 << 20) + 1])
def test_a_wrong_size_is_refused(dataset: Path, size: int) -> None:
    with pytest.raises(InputError, match=rf"--generate must be in .*, got {size}"):
        pool_from_dataset(dataset, size, 0)


def test_a_large_file_is_read_as_far_as_memory_allows(
    rollouts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert len(pool_from_file(rollouts).rollouts) == 3
    monkeypatch.setattr(pools, "POOL_BYTES", 70)
    assert len(pool_from_file(rollouts).rollouts) == 2
    monkeypatch.setattr(pools, "POOL_BYTES", 1)
    assert len(pool_from_file(rollouts).rollouts) == 1
    monkeypatch.undo()
    monkeypatch.setattr(pools, "POOL_ROLLOUTS", 2)
    assert pool_from_file(rollouts).source == "the first 2 rollouts of rollouts.jsonl"


@pytest.mark.parametrize(("batch", "rollouts"), [(1, 1), (2, 2), (3, 3), (7, 7)])
def test_the_largest_batch(dataset: Path, batch: int, rollouts: int) -> None:
    assert pool_from_dataset(dataset, 100, 0).largest_batch_bytes(batch) == 100 * rollouts


def test_a_prepared_dataset_holds_no_texts_to_make_responses_of(
    dataset: Path, tmp_path: Path
) -> None:
    prepared = tmp_path / "problems.index"
    prepare_dataset(dataset, prepared)
    with pytest.raises(InputError, match=r"problems\.index' holds none; give the JSONL or Parquet"):
        pool_from_dataset(prepared, 100, 0)


def test_a_bad_row_is_named(tmp_path: Path) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_text('{"problem_id": "p"}\n')
    with pytest.raises(DataError, match=r"bad\.jsonl:1: .*response"):
        pool_from_file(path)


async def test_the_scores_of_a_reply_are_made_once(played: PlayedServer, target: Target) -> None:
    where = dataclasses.replace(target, address=played.address)
    rollouts = [Rollout("ducks", "16-3-4=9"), Rollout("bare", "Answer: 5")]
    sender = BatchSender(where, LoadSettings(batch=2), rollouts, 1)
    await sender.open()
    outcome = await sender.send(0, 20)
    await sender.close()
    assert outcome.reply is not None
    assert outcome.reply.score(1).acc == 1.0
    assert outcome.reply.score(0) is outcome.reply.score(0)
