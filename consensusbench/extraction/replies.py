"""What a model replies to the extractor: two forms, read from JSON that is often broken.

Around the object anything is tolerated: prose, code fences, thinking, a trailing comma, LaTeX with
single backslashes.  Within it keys and types are checked.
"""

from __future__ import annotations

import json
import re
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from consensusbench.llm import Reply
from consensuspr.console import one_line

END_OF_THINKING = "</think>"
# A longer reply is not read, and neither is a longer list of nodes, wordings or changes.
MAX_REPLY_CHARS = 200_000
MAX_LISTED = 64
# Of a reply without an object.
_MAX_SHOWN_CHARS = 200
# Each object that cannot be read costs a scan of the rest.
_MAX_BROKEN = 16

_DECODER = json.JSONDecoder(strict=False)
_START = re.compile(r'\{\s*+"')
_STRING_OR_COMMA = re.compile(r'"(?:[^"\\]|\\.)*+"|,(?=\s*+[\]}])', re.DOTALL)
# A backslash, with what makes it an escape; \t before a letter is the start of \times.
_BACKSLASH = re.compile(r'\\(u[0-9A-Fa-f]{4}|["\\/]|[bfnrt](?![A-Za-z]))?')


class MalformedReplyError(Exception):
    """A reply without the form asked for; its text is one clause for the model to read."""


class _Form(BaseModel):
    # Keys that were not asked for are passed over.
    model_config = ConfigDict(strict=True, frozen=True)


class ClaimedNode(_Form):
    """One node as the model lists it."""

    label: str = ""
    wordings: list[str] = Field(min_length=1, max_length=MAX_LISTED)
    strength: Any = None


class ClaimedNodes(_Form):
    """The first reply."""

    nodes: list[ClaimedNode] = Field(min_length=1, max_length=MAX_LISTED)


class NodeChange(_Form):
    """Wordings that the model adds to a node and drops from it; nodes are counted from 1."""

    node: int
    add: list[str] = Field([], max_length=MAX_LISTED)
    drop: list[str] = []


class Changes(_Form):
    """The second reply."""

    changes: list[NodeChange] = Field(max_length=MAX_LISTED)


FormT = TypeVar("FormT", ClaimedNodes, Changes)


def read_reply(reply: Reply, form: type[FormT]) -> FormT:
    """Return what a reply lists.

    Raises:
        MalformedReplyError: it holds no object of the form asked for, or is longer.
    """
    # Servers that split off the thinking sometimes take all of a reply for it.
    text = reply.text if reply.text.strip() else reply.reasoning or ""
    if len(text) > MAX_REPLY_CHARS:
        raise MalformedReplyError(f"it has {len(text)} characters, the limit is {MAX_REPLY_CHARS}")
    objects, broken = _objects(text.rpartition(END_OF_THINKING)[2])
    (key,) = form.model_fields
    fault = ""
    # The last object counts: models think aloud, or repeat the form, before they answer.
    for found in reversed(objects):
        if key in found:
            try:
                return form.model_validate(found)
            except ValidationError as error:
                first = error.errors()[0]
                fault = fault or f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
    if fault:
        raise MalformedReplyError(fault)
    if reply.finish_reason == "length":
        raise MalformedReplyError("it was cut at the limit of tokens; list fewer nodes")
    if broken or objects:
        raise MalformedReplyError(broken or f'its JSON object has no key "{key}"')
    start = one_line(text, _MAX_SHOWN_CHARS)
    raise MalformedReplyError(f"it holds no JSON object: {start!r}" if start else "it is empty")


def _objects(text: str) -> tuple[list[dict[str, Any]], str]:
    """Return the outermost JSON objects of a text, and the fault of the first that is broken."""
    found: list[dict[str, Any]] = []
    fault = ""
    position = broken = 0
    if (start := _START.search(text)) is not None:
        text = _STRING_OR_COMMA.sub(_repaired, text[start.start() :])
    while broken < _MAX_BROKEN and (start := _START.search(text, position)) is not None:
        try:
            value, position = _DECODER.raw_decode(text, start.start())
            found.append(value)
            continue
        except json.JSONDecodeError as error:
            reason = f"is broken at line {error.lineno} column {error.colno}: {error.msg}"
            if error.pos >= len(text.rstrip()) or error.msg.startswith("Unterminated"):
                reason = "is never closed"
        except (ValueError, RecursionError):
            reason = "is nested too deeply, or holds a number of too many digits"
        fault = fault or f"its JSON object {reason}"
        broken += 1
        position = start.start() + 1
    return found, fault


def _repaired(found: re.Match[str]) -> str:
    """Drop a trailing comma, and double the backslashes of a string that escape nothing."""
    if found[0] == ",":
        return ""
    return _BACKSLASH.sub(lambda escape: escape[0] if escape[1] else "\\\\", found[0])
