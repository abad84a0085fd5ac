"""The sample of rollouts: bounded, and the same in any order."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from consensusbench.quality.probes import RolloutSample

_ROLLOUTS = st.lists(
    st.tuples(st.sampled_from("abc"), st.text(alphabet="xy=1", min_size=1, max_size=9)),
    max_size=40,
)


def sampled(rollouts: list[tuple[str, str]]) -> RolloutSample:
    sample = RolloutSample(per_source=5, max_chars=20)
    for problem_id, text in rollouts:
        sample.add("s", problem_id, text)
    return sample


@given(_ROLLOUTS, st.randoms(use_true_random=False))
def test_order_does_not_matter(rollouts: list[tuple[str, str]], random: object) -> None:
    shuffled = list(rollouts)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert sampled(rollouts).of("s") == sampled(shuffled).of("s")


@given(_ROLLOUTS)
def test_it_stays_within_its_bounds(rollouts: list[tuple[str, str]]) -> None:
    kept = sampled(rollouts).of("s")
    assert len(kept) <= 5
    assert sum(len(one.text) for one in kept) <= 20 or len(kept) == 1
    assert {(one.problem_id, one.text) for one in kept} <= set(rollouts)


def test_one_long_rollout_stays_and_counts_with_its_beginning() -> None:
    sample = RolloutSample(max_chars=10)
    sample.add("s", "p", "x" * 200_000)
    [kept] = sample.of("s")
    assert len(kept.text) == 1 << 17


def test_the_same_text_for_the_same_problem_counts_once() -> None:
    sample = RolloutSample()
    for problem_id in ("p", "p", "q"):
        sample.add("s", problem_id, "same")
    assert sorted(one.problem_id for one in sample.of("s")) == ["p", "q"]


def test_sources_are_kept_apart() -> None:
    sample = RolloutSample()
    for text in ("a", "abc", "abcde"):
        sample.add("s", "p", text)
    sample.add("t", "q", "x")
    assert (sample.typical_chars("s"), sample.typical_chars("t")) == (3, 1)
    assert sample.typical_chars("u") is None
    assert sample.of("u") == []
