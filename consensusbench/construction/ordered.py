"""Work that ends in any order, given back in the order in which it was begun."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from typing import NamedTuple

from consensusbench.construction.values import Finished, Group, Item, Result, Task

# Of texts under way; a single task may be larger, but then it is alone.
MAX_WAITING_CHARS = 256 << 20


class _Pending(NamedTuple):
    group: Group
    future: Future[Result]
    num_chars: int


def in_order(
    items: Iterable[Item], submit: Callable[[Task], Future[Result]], window: int
) -> Iterator[Finished]:
    """Yield what became of each item, in order.

    Args:
        items: tasks are submitted as room comes up; what is finished passes through.
        submit: begins the work on a task.
        window: items that may be under way, or wait for one before them, while their texts are
            within :data:`MAX_WAITING_CHARS`.

    Raises:
        Whatever a future raises.
    """
    waiting: deque[_Pending | Finished] = deque()
    num_chars = 0
    for item in items:
        size = item.num_chars if isinstance(item, Task) else 0
        while waiting and (
            len(waiting) >= window or num_chars + size > MAX_WAITING_CHARS or _is_done(waiting[0])
        ):
            num_chars -= _size(waiting[0])
            yield _result(waiting.popleft())
        num_chars += size
        waiting.append(_Pending(item.group, submit(item), size) if isinstance(item, Task) else item)
    while waiting:
        yield _result(waiting.popleft())


def _size(entry: _Pending | Finished) -> int:
    return entry.num_chars if isinstance(entry, _Pending) else 0


def _is_done(entry: _Pending | Finished) -> bool:
    return not isinstance(entry, _Pending) or entry.future.done()


def _result(entry: _Pending | Finished) -> Finished:
    return (entry.group, entry.future.result()) if isinstance(entry, _Pending) else entry
