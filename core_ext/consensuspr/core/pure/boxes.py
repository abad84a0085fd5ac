r"""Answers in a box or behind an answer mark, for nodes like ``\boxed{45}``.

Such a node is the answer, not the number wherever it stands.  A text reaches it by ``\boxed{45}``
or ``\fbox{45}`` with the same normal form inside, or by 45 right behind ``####``, ``Answer:``,
``A:`` at a line's start, "answer is" or 答案.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from consensuspr.core.patterns import MAX_ANSWER_BYTES, Pattern
from consensuspr.core.pure.boundary import right_free
from consensuspr.core.pure.normal_form import normal_form

_PUNCTUATION: Final = b" .,:;?\n"
_COLON: Final = rb"(?::|\xef\xbc\x9a)"
_MARK: Final = re.compile(
    rb"(?P<box>\\(?:boxed|fbox)[ \t\n]{0,8}\{)"
    rb"|\#{4,}"
    rb"|(?i:answers?)(?:>|[ \t]{0,8}(?:\*\*|__|\}|_)?[ \t]{0,8}"
    rb"(?:" + _COLON + rb"|(?i:is|are)(?![A-Za-z])(?:[ \t*]{0,8}" + _COLON + rb")?))"
    rb"|(?m:^)[ \t*]{0,8}A[ \t*]{0,8}" + _COLON + rb"|\xe7\xad\x94\xe6\xa1\x88[ \t*]{0,8}"
    rb"(?:" + _COLON + rb"|(?:\xe6\x98\xaf|\xe4\xb8\xba)(?:[ \t*]{0,8}" + _COLON + rb")?)"
)
_BRACE: Final = re.compile(rb"\\.|[{}]", re.DOTALL)
_BLANKS: Final = re.compile(rb"[ \t\r\n*]{0,8}")


class Answer(NamedTuple):
    """A pattern that is an answer of the text, at its bytes [start, end)."""

    pattern: Pattern
    start: int
    end: int


def find_answers(data: bytes, patterns: Sequence[Pattern]) -> Iterator[Answer]:
    """Yield the boxed patterns that the text gives as an answer, in the order of the text."""
    for mark in _MARK.finditer(data):
        if mark["box"]:
            end = _box_end(data, mark.end())
            if end:
                content = normal_form(data[mark.start() : end]).data.strip(_PUNCTUATION)
                for pattern in patterns:
                    if pattern.data == content:
                        yield Answer(pattern, mark.start(), end)
            continue
        blanks = _BLANKS.match(data, mark.end())
        assert blanks is not None
        yield from _leading(data, blanks.end(), patterns)


def _box_end(data: bytes, at: int) -> int:
    """Return the index past the brace that closes the one before ``at``; 0 if it is too far."""
    depth = 1
    for brace in _BRACE.finditer(data, at, at + MAX_ANSWER_BYTES):
        depth += (brace[0] == b"{") - (brace[0] == b"}")
        if not depth:
            return brace.end()
    return 0


def _leading(data: bytes, start: int, patterns: Sequence[Pattern]) -> Iterator[Answer]:
    """Yield the patterns that begin at ``start``, right behind an answer mark."""
    stop = start + MAX_ANSWER_BYTES
    line = data[start:stop].partition(b"\n")[0]
    cut = len(line) == MAX_ANSWER_BYTES and stop < len(data)
    form = normal_form(line)
    first = len(form.data) - len(form.data.lstrip(_PUNCTUATION))
    for pattern in patterns:
        last = first + len(pattern.data)
        if (
            form.data.startswith(pattern.data, first)
            and right_free(form.data, last, pattern.edges)
            and not (cut and last == len(form.data))
        ):
            yield Answer(pattern, start + form.starts[first], start + form.ends[last - 1])
