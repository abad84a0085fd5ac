"""Rollouts put on disk in any order come back by problem, each text once."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from consensusbench.construction.store import RolloutSpool, SpooledRollout

ROWS = st.lists(
    st.tuples(
        st.integers(0, 4),
        st.sampled_from(["", "ada", "bea"]),
        st.one_of(st.none(), st.text(max_size=4)),
        st.text(max_size=6) | st.sampled_from(["same", "same too", "\ud800 lone"]),
        st.sampled_from([None, False, True]),
    )
)
RolloutRow = tuple[int, str, str | None, str, bool | None]


def spooled(folder: Path, rows: Sequence[RolloutRow]) -> RolloutSpool:
    """Return a finished spool of rows."""
    spool = RolloutSpool(folder)
    for problem, model, name, text, label in rows:
        spool.add(problem, model, SpooledRollout(name, "", text), label)
    spool.finish()
    return spool


@given(ROWS)
def test_every_text_comes_back_once_with_its_problem(rows: list[RolloutRow]) -> None:
    with tempfile.TemporaryDirectory() as folder, closing(spooled(Path(folder), rows)) as spool:
        for problem in range(-1, 6):
            mine = [row for row in rows if row[0] == problem]
            stored = spool.of_problem(problem)
            assert {spool.read(one.at).response for one in stored} == {row[3] for row in mine}
            assert sum(one.repeats for one in stored) + len(stored) == len(mine)
            for one in stored:
                name, _, text = spool.read(one.at)
                same = [row for row in mine if row[3] == text]
                # Of a repeated text, the first model in the alphabet, and its first name.
                assert one.model == min(row[1] for row in same)
                assert (name or "") == min(row[2] or "" for row in same if row[1] == one.model)
                labels = {row[4] for row in same}
                assert one.label == (False if False in labels else None if None in labels else True)


def test_nothing_is_left_in_the_folder(tmp_path: Path) -> None:
    with closing(spooled(tmp_path, [(0, "ada", "r", "text", True)])):
        assert list(tmp_path.iterdir()) == []


def test_an_empty_name_is_not_a_missing_one(tmp_path: Path) -> None:
    rows = [(0, "a", "", "one", None), (1, "a", None, "two", None)]
    with closing(spooled(tmp_path, rows)) as spool:
        [[first], [second]] = spool.of_problem(0), spool.of_problem(1)
        assert spool.read(first.at) == ("", "", "one")
        assert spool.read(second.at) == (None, "", "two")
