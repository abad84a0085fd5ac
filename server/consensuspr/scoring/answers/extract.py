"""Where in a response the answer stands, rule by rule.

``auto`` takes the last ``\\boxed{…}`` of the whole response, else what follows the last
``####``, else what follows the last ``Answer:`` / ``A:`` / "answer is" / ``<answer>``, else
the response itself where it is a bare answer, else the last number or formula.  Each but
the first must lie in the last 300 characters.

The box is found by a backward substring search; nothing else looks at more than the tail,
and no regular expression runs before the text is clipped.  Of a response in bytes only the
window in question is decoded.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import StrEnum
from typing import NamedTuple

from consensuspr.scoring.answers.prose import answer_in_prose, is_bare, leading_answer

# Published answers stay below 600 characters (matrices); what is longer is not compared.
MAX_ANSWER_CHARS = 1000
# verl and others clip here; the longest answer in MATH-500 has 159 characters.
TAIL_CHARS = 300
# How far back of the last box its neighbours are looked for.
_RUN_CHARS = 700
_MAX_EMPTY_BOXES = 8
# A box that ends within this many characters or bytes may be plain.
_PLAIN_CHARS = 128
_MAX_RUN = 32
# Longest UTF-8 sequence, so that a window of n characters always fits 4 n bytes.
_UTF8_MAX = 4


class Source(StrEnum):
    """By which mark an answer was found."""

    BOXED = "boxed"
    HASH = "hash"
    MARKER = "marker"
    BARE = "bare"
    PROSE = "prose"


class Extracted(NamedTuple):
    """An answer and where it came from.

    Attributes:
        answer: the text of the answer.
        source: the mark that announced it.
        overlong: it exceeds ``MAX_ANSWER_CHARS`` and was cut.
    """

    answer: str
    source: Source
    overlong: bool = False


_ANSWER_MARK = re.compile(
    r"(?i:answers?)(?:(?<=(?i:<answer))>|\s*+(?:\*\*|__|\}|_)?\s*+(?:[:：]|(?i:is|are)\b\s*:?))"
)
_LETTER_MARK = re.compile(r"A[ \t*]*[:：]")
_MATHEMATICAL = re.compile(r"[0-9\\=<>{}()\[\]]")
_ADJACENT = re.compile(
    r"(?:[\s$,;.&~]|\\[()\[\],;!: ]|\\q?quad\b|\band\b|\bor\b"
    r"|\\(?:text|mbox|textbf|mathrm)\s*\{\s*,?\s*(?:and|or)?\s*,?\s*\})*+"
)
_SEPARATOR = re.compile(r"\b(?:and|or)\b|,|;")
_TOKEN_STOP = re.compile(r"[\s$,;]|\\[)\]]|\.(?!\d)")
_UNCLOSED_STOP = re.compile(r"[\n$]|\\[)\]]|\.\s")
_BRACE = re.compile(r"\\.|[{}]", re.DOTALL)


def clip_tail(response: str | bytes, chars: int = TAIL_CHARS) -> str:
    """Return the last ``chars`` characters, decoding no more than needed."""
    if isinstance(response, str):
        return response[-chars:]
    tail = response[-_UTF8_MAX * (chars + 1) :]
    return tail.decode("utf-8", "replace")[-chars:]


def extract_auto(response: str | bytes) -> Extracted | None:
    """Find the answer as rule ``auto`` does; None where there is none."""
    found = extract_boxed(response)
    if found is not None:
        return found
    tail = clip_tail(response)
    found = _after_hash(tail) or _after_marker(tail)
    if found is not None:
        return found
    if len(response) <= _UTF8_MAX * TAIL_CHARS:
        whole = response if isinstance(response, str) else response.decode("utf-8", "replace")
        if len(whole) <= TAIL_CHARS and is_bare(whole):
            return _found(whole, Source.BARE)
    answer = answer_in_prose(tail)
    return None if answer is None else _found(answer, Source.PROSE)


def extract_gsm8k(response: str | bytes) -> Extracted | None:
    """Find the number after the last ``####`` of the last 300 characters."""
    tail = clip_tail(response)
    position = tail.rfind("####")
    if position < 0:
        return None
    number = _HASH_NUMBER.match(tail, position + 4)
    return None if number is None else _found(number[1].rstrip(".,"), Source.HASH)


_HASH_NUMBER = re.compile(r"[ \t]*\$?[ \t]*(-?[ \t]*\$?[0-9.,]*[0-9][0-9.,]*)")


def extract_boxed(response: str | bytes) -> Extracted | None:
    """Find the last box that holds something.

    Understands ``\\boxed`` and ``\\fbox``, ``\\boxed 5``, and a box that the end of the
    response left open.
    """
    plain = _plain_last_box(response)
    if plain:
        return Extracted(plain, Source.BOXED)
    end = len(response)
    for _ in range(_MAX_EMPTY_BOXES):
        start = _last_box(response, end)
        if start < 0:
            return None
        window, offset = _window(response, start)
        content = _box_content(window, offset)
        if content is None:
            return Extracted(window[offset : offset + MAX_ANSWER_CHARS], Source.BOXED, True)
        text, _ = content
        if text.strip():
            return _found(text, Source.BOXED)
        end = start
    return None


def extract_boxed_run(response: str | bytes) -> Extracted | None:
    """Find the last boxes as one list, side by side or with a few words between them.

    For ground truths that are lists: ``\\boxed{(3,3)} for part (a) and \\boxed{(1,1)}``.
    """
    start = _last_box(response, len(response))
    if start < 0:
        return None
    window, offset = _window(response, start)
    content = _box_content(window, offset)
    if content is None:
        return None
    run = _run(window, offset, content[0])
    return _found(",".join(run), Source.BOXED) if len(run) > 1 else None


def _found(answer: str, source: Source) -> Extracted:
    answer = answer.strip()
    return Extracted(answer[:MAX_ANSWER_CHARS], source, len(answer) > MAX_ANSWER_CHARS)


def _last_box(response: str | bytes, end: int) -> int:
    """Return the position of the last ``\\boxed`` or ``\\fbox`` before ``end``, else -1."""
    if isinstance(response, str):
        boxed = response.rfind("\\boxed", 0, end)
        return max(boxed, response.rfind("\\fbox", max(boxed, 0), end))
    boxed = response.rfind(b"\\boxed", 0, end)
    return max(boxed, response.rfind(b"\\fbox", max(boxed, 0), end))


def _plain_last_box(response: str | bytes) -> str:
    """Return what the last box holds where that takes no more than a look, else "".

    It does for nearly all: a short ``\\boxed{…}``, no box inside it or behind it, no brace
    escaped.
    """
    if isinstance(response, str):
        start = response.rfind("\\boxed{") + 7
        if start < 7 or response.find("box", start) >= 0:
            return ""
        window = response[start : start + _PLAIN_CHARS]
    else:
        start = response.rfind(b"\\boxed{") + 7
        if start < 7 or response.find(b"box", start) >= 0:
            return ""
        window = response[start : start + _PLAIN_CHARS].decode("utf-8", "replace")
    text, brace, _ = window.partition("}")
    if "{" in text:
        close = _closing_brace(window)
        text, brace = window[:close], window[close : close + 1]
    escaped = "\\" in text and ("\\{" in text or "\\}" in text + brace)
    return "" if not brace or escaped else text.strip()


def _closing_brace(text: str) -> int:
    """Return where the brace closes that stands open at the start, the length if nowhere."""
    close, closed = text.find("}"), 1
    while close >= 0 and text.count("{", 0, close) >= closed:
        close, closed = text.find("}", close + 1), closed + 1
    return close if close >= 0 else len(text)


def _window(response: str | bytes, start: int) -> tuple[str, int]:
    """Return the text around a box and the position of the box in it."""
    if isinstance(response, str):
        first = max(0, start - _RUN_CHARS)
        return response[first : start + MAX_ANSWER_CHARS + 16], start - first
    first = max(0, start - _RUN_CHARS)
    before = response[first:start].decode("utf-8", "replace")
    after = response[start : start + _UTF8_MAX * (MAX_ANSWER_CHARS + 16)]
    text = after.decode("utf-8", "replace")[: MAX_ANSWER_CHARS + 16]
    return before + text, len(before)


def _box_content(window: str, box: int) -> tuple[str, int] | None:
    """Return what the box at ``box`` holds and where it ends; None where it is overlong."""
    position = box + (6 if window.startswith("\\boxed", box) else 5)
    end = len(window)
    while position < end and window[position] in " \t\n*":
        position += 1
    if position == end:
        return "", end
    if window[position] != "{":
        stop = _TOKEN_STOP.search(window, position)
        last = stop.start() if stop is not None else end
        return window[position:last], last
    close = window.find("}", position)
    plain = close >= 0 and window.find("{", position + 1, close) < 0
    if plain and window[close - 1] != "\\":
        return window[position + 1 : close], close + 1
    return _braced_content(window, position, box)


def _braced_content(window: str, position: int, box: int) -> tuple[str, int] | None:
    depth = 0
    for found in _BRACE.finditer(window, position):
        if found[0] == "{":
            depth += 1
        elif found[0] == "}":
            depth -= 1
            if depth == 0:
                return window[position + 1 : found.start()], found.end()
    if len(window) - box >= MAX_ANSWER_CHARS + 16:
        return None
    stop = _UNCLOSED_STOP.search(window, position)
    last = stop.start() if stop is not None else len(window)
    return window[position + 1 : last], last


def _run(window: str, box: int, content: str) -> list[str]:
    """Collect the boxes that lead up to the one at ``box``, in order of reading.

    Nothing but separators stands between them, or up to 70 characters with a separator
    among them.  A box repeated is the same box.
    """
    contents = [content.strip()]
    for _ in range(_MAX_RUN):
        previous = _last_box(window, box)
        if previous < 0:
            break
        found = _box_content(window[:box], previous)
        if found is None or not found[0].strip():
            break
        between = window[found[1] : box]
        adjacent = _ADJACENT.fullmatch(between) is not None
        near = len(between) < 70 and _SEPARATOR.search(between) is not None
        if not (adjacent or near):
            break
        if found[0].strip() != contents[-1]:
            contents.append(found[0].strip())
        box = previous
    contents.reverse()
    return contents


def _after_hash(tail: str) -> Extracted | None:
    position = tail.rfind("####")
    if position < 0:
        return None
    line = tail[position + 4 :].lstrip("#").partition("\n")[0]
    answer = leading_answer(line, strict=True)
    return None if answer is None else _found(answer, Source.HASH)


def _after_marker(tail: str) -> Extracted | None:
    """Take the last marker that announces something.

    "The answer is" of prose also announces what is no answer ("the answer is clear"): there
    an earlier one that announces something mathematical counts.  "Answer:" always counts.
    """
    fallback = None
    for start, end in _markers(tail):
        answer = leading_answer(tail[end:], strict=False)
        if answer is None:
            continue
        formal = ":" in tail[start:end] and fallback is None
        if formal or len(answer) == 1 or _MATHEMATICAL.search(answer):
            return _found(answer, Source.MARKER)
        fallback = fallback or answer
    return None if fallback is None else _found(fallback, Source.MARKER)


def _markers(tail: str) -> Iterator[tuple[int, int]]:
    """Yield the markers as [start, end), the last first; substring searches find candidates."""
    places = [at - 1 for hint in ("nswer", "NSWER") for at in _places(tail, hint) if at]
    places += [at for at in _places(tail, "A") if _starts_line(tail, at)]
    for place in sorted(places, reverse=True):
        found = _ANSWER_MARK.match(tail, place) or _LETTER_MARK.match(tail, place)
        if found is not None:
            yield found.span()


def _places(text: str, part: str) -> Iterator[int]:
    place = text.rfind(part)
    while place >= 0:
        yield place
        place = text.rfind(part, 0, place)


def _starts_line(text: str, place: int) -> bool:
    while place and text[place - 1] in " \t*":
        place -= 1
    return not place or text[place - 1] in "\n>"
