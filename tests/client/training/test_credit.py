"""What each token of a response earns: which of them reached a node, and how the sum is kept."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from consensuspr.client import LocalClient, RewardSpec, Rollout
from consensuspr.client.training.credit import (
    BETWEEN,
    Finder,
    finder_of_decoding,
    finder_of_turns,
    place_reward,
)
from consensuspr.scoring.types import Score, Status

# Anything: letters, code points of 2 to 4 bytes, the mark for bytes that are no text.
TEXTS = st.text(st.sampled_from("ab1=+ \n√é€�😀\u0301"), max_size=40)
CUTS = st.lists(st.integers(0, 200), max_size=30)


def cut(text: bytes, cuts: Sequence[int]) -> list[bytes]:
    """Return the tokens of a text, cut anywhere; some of them write nothing."""
    places = sorted(min(at, len(text)) for at in cuts)
    return [text[a:b] for a, b in zip([0, *places], [*places, len(text)], strict=True)]


def finder(tokens: Sequence[bytes]) -> Finder:
    """Return the finder of a text that is the bytes of its tokens."""
    return finder_of_decoding(
        range(len(tokens)), lambda ids: b"".join(tokens[at] for at in ids).decode(errors="replace")
    )


@given(TEXTS, CUTS)
@example("€", [1, 2])
@example("a😀", [0, 2, 2, 3, 4])
def test_a_token_is_found_where_the_last_code_point_ends(text: str, cuts: list[int]) -> None:
    tokens = cut(text.encode(), cuts)
    for end in range(1, len(text) + 1):
        size = len(text[:end].encode())
        expected = next(at for at in range(len(tokens)) if sum(map(len, tokens[: at + 1])) >= size)
        # The mark for bytes that are no text looks like a code point of which bytes are missing.
        assert finder(tokens)(end) == expected or text[end - 1] == "\ufffd"
    assert finder(tokens)(len(text) + 1) is None


# --- what each token earns


def letters(text: str) -> Finder:
    """Return the finder of a text with a token for each letter."""
    return finder([letter.encode() for letter in text])


def assert_adds_up(placed: dict[int, float], reward: float, within: float = 2**-23) -> None:
    """The sum is one number in float32, added in any order, and that is the reward."""
    amounts = [np.float32(amount) for amount in placed.values()]
    assert [float(amount) for amount in amounts] == [*placed.values()]
    sums = set()
    for seed in range(10):
        random.Random(seed).shuffle(amounts)
        sums.add(float(sum(amounts, np.float32(0))))
    [total] = sums
    assert abs(total - reward) <= within


@given(
    shares=st.lists(st.floats(0, 1), min_size=1, max_size=64),
    weight=st.floats(0, 1),
    reward=st.floats(-1.9, 1.9),
    data=st.data(),
)
def test_the_sum_is_the_reward_in_any_order(
    shares: list[float], weight: float, reward: float, data: st.DataObject
) -> None:
    shares = [share / max(1.0, sum(shares)) for share in shares]
    tokens = st.none() | st.integers(0, 99)
    reached = data.draw(st.lists(tokens, min_size=len(shares), max_size=len(shares)))
    policy = data.draw(st.lists(st.booleans(), min_size=100, max_size=100))
    score = Score(
        Status.OK,
        reward=0.0,
        num_matched=len(shares),
        shares=tuple(shares),
        spans=tuple(None if token is None else (token, token + 1) for token in reached),
    )
    placed = place_reward(reward, score, weight, lambda end: end - 1, policy)
    assert_adds_up(placed, reward)
    assert all(policy[token] for token in placed) or set(placed) == {99}


NODES = ["3+4=7", "7*5=35", "35-1=34", "34/2=17"]
LINES = [*NODES, "Answer: 17"]
WEIGHTS = (1.0, 2.0, 4.0, 1.0)


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalClient]:
    """A scorer of one problem with four nodes, each by its weight, the last of them final."""
    path = tmp_path_factory.mktemp("data") / "dataset.jsonl"
    nodes = [
        {"node_id": f"n{at}", "expressions": [text], "weight": weight, "is_final": at == 3}
        for at, (text, weight) in enumerate(zip(NODES, WEIGHTS, strict=True))
    ]
    path.write_text(json.dumps({"problem_id": "p", "ground_truth": "17", "nodes": nodes}))
    with LocalClient(path) as local:
        yield local


def placed_by(
    client: LocalClient,
    response: str,
    spec: RewardSpec,
    epoch: int = 0,
    penalty: float = 0.0,
    policy: Sequence[int] | None = None,
) -> tuple[dict[int, float], Score]:
    """Return what each letter of a response earns, and its score."""
    [score] = client.score([Rollout("p", response)], reward=spec, epoch=epoch, include_spans=True)
    assert score.reward is not None
    placed = place_reward(
        score.reward + penalty,
        score,
        spec.ncr_weight(epoch),
        letters(response),
        [1] * len(response) if policy is None else policy,
    )
    assert_adds_up(placed, score.reward + penalty)
    return placed, score


def after(response: str, part: str) -> int:
    """Return the letter with which a part of a response is complete, for the first time."""
    return response.index(part) + len(part) - 1


KINDS: list[tuple[RewardSpec, int, float]] = [
    (RewardSpec.linear(0.5), 0, 0.5),
    (RewardSpec.maximum(), 0, 1.0),
    (RewardSpec.curriculum(switch_epoch=1), 0, 1.0),
    (RewardSpec.outcome(), 0, 0.0),
    (RewardSpec.linear(0.5, ncr="weighted"), 0, 0.5),
    (RewardSpec.linear(0.5, final_nodes=False), 0, 0.5),
    (RewardSpec.linear(0.5, guard=False, statements=False), 0, 0.5),
]


@pytest.mark.parametrize(("spec", "epoch", "weight"), KINDS)
@pytest.mark.parametrize("right", [True, False])
def test_each_node_earns_its_share_at_its_token_and_the_end_earns_the_rest(
    client: LocalClient, spec: RewardSpec, epoch: int, weight: float, right: bool
) -> None:
    response = "\n".join([NODES[0], NODES[2], NODES[3], LINES[-1] if right else "Answer: 18"]) + "."
    placed, score = placed_by(client, response, spec, epoch, penalty=-0.125)
    assert score.acc == float(right) and score.guard == 1.0
    worth = dict(zip(NODES, WEIGHTS if spec.ncr == "weighted" else [1] * 4, strict=True))
    if not spec.final_nodes:
        worth[NODES[3]] = 0
    expected = {
        after(response, node): weight * worth[node] / sum(worth.values())
        for node in (NODES[0], NODES[2], NODES[3])
        if weight * worth[node]
    }
    last = len(response) - 1
    assert {token for token in placed if token != last} == set(expected)
    for token, amount in expected.items():
        assert placed[token] == pytest.approx(amount, abs=1e-6)
    assert score.reward is not None
    rest = score.reward - 0.125 - sum(expected.values())
    assert placed.get(last, 0.0) == pytest.approx(rest, abs=1e-6)


def test_text_that_is_moved_about_earns_the_same(client: LocalClient) -> None:
    sums = set()
    for lines in itertools.permutations(LINES[:4]):
        placed, _ = placed_by(client, "\n".join([*lines, LINES[-1]]), RewardSpec.linear(0.5))
        sums.add(sum(placed.values()))
    assert len(sums) == 1


def test_what_a_tool_wrote_is_earned_by_nobody_in_particular(client: LocalClient) -> None:
    response = "\n".join(LINES)
    tool = slice(response.index(NODES[1]), response.index(NODES[2]))
    policy: list[Any] = [1] * len(response)
    policy[tool] = [0] * len(policy[tool])
    placed, _ = placed_by(client, response, RewardSpec.linear(0.5), policy=policy)
    assert sorted(placed) == [
        *(after(response, node) for node in (NODES[0], NODES[2], NODES[3])),
        len(response) - 1,
    ]


@given(st.lists(TEXTS.filter(bool), min_size=1, max_size=4), st.data())
def test_turns_of_the_policy_are_found_among_all_tokens(
    turns: list[str], data: st.DataObject
) -> None:
    tokens: list[str] = []
    parts: list[tuple[int, Any]] = []
    for turn in turns:
        tokens += [""] * data.draw(st.integers(1, 2))  # what others wrote
        parts.append((len(tokens), list(turn)))
        tokens += turn
    find = finder_of_turns(parts, turns, "".join)
    owners = [False, *(BETWEEN.join("\0" * len(turn) for turn in turns) + BETWEEN)]
    found = [find(end) for end in range(1, len(owners))]
    assert [token is None for token in found] == [owner == BETWEEN for owner in owners[1:]]
    assert "".join(tokens[token] for token in found if token is not None) == "".join(turns)
