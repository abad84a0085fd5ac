"""Counting the fields of a message, on both engines."""

from __future__ import annotations

import importlib
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consensuspr.core.pure.fields import count_fields as python_count
from consensuspr.server.admission import field_table
from consensuspr.v1 import scoring_pb2 as pb

Count = Callable[[bytes, bytes, int], int]

TABLE = field_table(pb.ScoreRequest.DESCRIPTOR)
MANY = 10_000


def native() -> Count:
    try:
        module = importlib.import_module("consensuspr.core.native")
    except ImportError as error:
        pytest.skip(f"the compiled core is not built: {error}")
    count: Count = module.count_fields
    return count


@pytest.fixture(params=["native", "python"])
def count(request: pytest.FixtureRequest) -> Count:
    return native() if request.param == "native" else python_count


@pytest.mark.parametrize(
    ("message", "fields"),
    [
        (b"", 0),
        (pb.ScoreRequest(rollouts=[pb.Rollout()] * 7).SerializeToString(), 7),
        (pb.ScoreRequest(rollouts=[pb.Rollout(response=b"\x42\0" * 9)]).SerializeToString(), 2),
        (
            pb.ScoreRequest(
                epoch=3,
                reward=pb.RewardSpec(alpha=0.5, guard=True),
                rollouts=[
                    pb.Rollout(
                        problem_id="p",
                        num_tokens=300,
                        nodes=pb.InlineNodes(
                            nodes=[
                                pb.InlineNode(expressions=["1+1=2", "x"], derived=["y"]),
                                pb.InlineNode(weight=0.5),
                            ],
                            budget=pb.GuardBudget(statements=3),
                        ),
                    )
                ],
            ).SerializeToString(),
            # epoch; reward and its two; the rollout, its id, tokens and nodes; two nodes with
            # three texts and a weight; the budget and its number.
            1 + 3 + 4 + 2 + 3 + 1 + 2,
        ),
        (b"\x42\x80\x00" * 5, 5),  # a length may be written longer than it has to be
        (b"\xc2\x80\x00\x00" * 4, 4),  # and so may a tag
        (b"\x7b\x7c" * 6, 12),  # groups that nobody knows
        (b"\x79" + b"\0" * 8 + b"\x7d" + b"\0" * 4, 2),
        (b"\xfa\x01\x02\x42\x00", 1),  # field 31 is none that is known
        (b"\x42\x7f", 1),  # ends early
        (b"\x42\x01\x42", 2),
        (b"\x0f", 1),  # no such wire type
        (b"\x80" * 20, 1),
    ],
)
def test_every_field_counts(count: Count, message: bytes, fields: int) -> None:
    assert count(message, TABLE, MANY) == fields


def test_counting_stops_past_the_limit(count: Count) -> None:
    assert count(b"\x42\0" * 100, TABLE, 100) == 100
    assert count(b"\x42\0" * 101, TABLE, 100) == 101
    assert count(b"\x42\0" * 100_000, TABLE, 100) == 101
    nested = pb.ScoreRequest(
        rollouts=[pb.Rollout(nodes=pb.InlineNodes(nodes=[pb.InlineNode()] * 500))]
    )
    assert count(nested.SerializeToString(), TABLE, 100) == 101


@pytest.mark.parametrize("table", [b"", b"\0" * 31, b"\0" * 8 + b"\1" + b"\0" * 23])
def test_a_table_that_is_none_is_refused(count: Count, table: bytes) -> None:
    with pytest.raises(ValueError, match="table"):
        count(b"\x42\0", table, MANY)


_FIELDS = st.sampled_from(
    [
        b"\x42",
        b"\x2a",
        b"\x0a",
        b"\x12",
        b"\0",
        b"\x01",
        b"\x02",
        b"\x07",
        b"\x7b",
        b"\x80",
        b"\xff",
    ]
)


@given(st.one_of(st.binary(max_size=60), st.lists(_FIELDS, max_size=60).map(b"".join)))
def test_both_engines_count_alike(message: bytes) -> None:
    assert native()(message, TABLE, 20) == python_count(message, TABLE, 20)


def test_the_table_covers_all_messages_of_a_request() -> None:
    assert len(TABLE) == 32 * 7  # request, reward, rollout, nodes, node, budget, sample
