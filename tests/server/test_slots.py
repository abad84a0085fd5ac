"""Turns to compute: how many there are, and that one who waits gives his away."""

from __future__ import annotations

import threading

from consensuspr.server.admission import Slots


class Other:
    """A thread that takes a turn and keeps it until it is told to stop."""

    def __init__(self, slots: Slots) -> None:
        self.entered = threading.Event()
        self.leave = threading.Event()
        self._slots = slots
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        with self._slots.held():
            self.entered.set()
            assert self.leave.wait(20)

    def end(self) -> None:
        self.leave.set()
        self._thread.join(20)


def test_no_more_have_a_turn_than_there_are() -> None:
    slots = Slots(2)
    others = [Other(slots) for _ in range(3)]
    entered = [other for other in others if other.entered.wait(0.3)]
    assert len(entered) == 2
    entered[0].end()
    assert all(other.entered.wait(20) for other in others)
    for other in others:
        other.end()


def test_a_lent_turn_is_anothers_until_it_is_taken_back() -> None:
    slots = Slots(1)
    back = threading.Event()

    def lend() -> None:
        with slots.held():
            with slots.lent():
                other.append(Other(slots))
                assert other[0].entered.wait(20)
            back.set()

    other: list[Other] = []
    lender = threading.Thread(target=lend)
    lender.start()
    assert not back.wait(0.3), "the other has it"
    other[0].end()
    assert back.wait(20)
    lender.join(20)
    last = Other(slots)
    assert last.entered.wait(20), "it was given back"
    last.end()


def test_who_lent_a_turn_comes_before_who_waits_for_a_first_one() -> None:
    slots = Slots(1)
    back = threading.Event()
    lent = threading.Event()
    go_on = threading.Event()

    def lend() -> None:
        with slots.held():
            with slots.lent():
                lent.set()
                assert go_on.wait(20)
            back.set()

    lender = threading.Thread(target=lend)
    lender.start()
    assert lent.wait(20)
    first = Other(slots)
    assert first.entered.wait(20)
    second = Other(slots)
    go_on.set()
    assert not back.wait(0.3), "the first has the turn"
    assert not second.entered.is_set()
    first.end()
    assert back.wait(20)
    lender.join(20)
    assert second.entered.wait(20)
    second.end()


def test_no_turn_stays_free_while_somebody_waits() -> None:
    """Two turns come back while a lender waits: one is the lender's, one the newcomer's."""
    slots = Slots(2)
    holders = [Other(slots) for _ in range(2)]
    assert all(holder.entered.wait(20) for holder in holders)
    newcomer = Other(slots)
    assert not newcomer.entered.wait(0.1)
    # A lender that wants its turn back and is slow to come for it.
    slots._lenders += 1
    for holder in holders:
        holder.end()
    assert newcomer.entered.wait(20)
    slots._lenders -= 1
    newcomer.end()


def test_who_has_no_turn_lends_none() -> None:
    slots = Slots(1)
    with slots.lent():
        pass
    first = Other(slots)
    assert first.entered.wait(20)
    second = Other(slots)
    assert not second.entered.wait(0.3)
    first.end()
    assert second.entered.wait(20)
    second.end()
