"""A model's reply, read: where its JSON object is, and whether it has the form asked for.

Generous in finding the object (prose and code fences around it, thinking before it, a
trailing comma, LaTeX whose backslashes were not doubled), strict about what is in it.
Nothing here is believed; :mod:`.checking` decides what is a node.

Linear in the length of the reply: the object is found by one scan, and one more for each of
a bounded number of braces that are never closed; what it holds is read by the standard
library.
"""

from __future__ import annotations

import json
import re
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from consensusbench.extraction.types import NodeType
from consensusbench.models import Reply

# What a server is asked to keep the reply to.  Written out, not generated: strict modes want
# every key required, no others, and none of the limits that a generator would add.
REPLY_SCHEMA: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["nodes"],
    "properties": {
        "nodes": {
            "type": "array",
            "items": {
                "type": "object",
                "additionalProperties": False,
                "required": ["label", "type", "expressions", "rewritten", "solutions"],
                "properties": {
                    "label": {"type": "string"},
                    "type": {
                        "type": "string",
                        "enum": ["equation", "value", "proposition", "expression"],
                    },
                    "expressions": {"type": "array", "items": {"type": "string"}},
                    "rewritten": {"type": "array", "items": {"type": "string"}},
                    "solutions": {"type": "array", "items": {"type": "integer"}},
                },
            },
        }
    },
}

# Each brace that is never closed costs a scan of the rest.
_MAX_UNCLOSED = 32
_MAX_QUOTED_FAULTS = 5
_END_OF_THINKING = "</think>"

_START = re.compile(r'\{\s*+["}]')
_BRACES = re.compile(r'[{}"]')
_STRING_END = re.compile(r'(?:[^"\\]|\\.)*+"', re.DOTALL)
_STRING_OR_COMMA = re.compile(r'"(?:[^"\\]|\\.)*+"|,(?=\s*+[\]}])', re.DOTALL)
# A backslash, with what makes it an escape; \t before a letter is the start of \times.
_BACKSLASH = re.compile(r'\\(u[0-9A-Fa-f]{4}|["\\/]|[bfnrt](?![A-Za-z]))?')
# The same after decoding: control characters that can only come from such a backslash.
_SWALLOWED = re.compile(
    r"\x08(?=[a-z])|\x0c(?=[a-z])"
    r"|\t(?=(?:imes|ext[a-z]*|heta|an|o|frac|au|riangle|herefore)(?![A-Za-z]))"
    r"|\n(?=(?:eq|e|u|abla|i|eg|ot|mid|otin)(?![A-Za-z]))"
    r"|\r(?=(?:ight|ho|angle|ceil|floor|ightarrow)(?![A-Za-z]))"
)
_ESCAPED = {"\x08": "\\b", "\x0c": "\\f", "\t": "\\t", "\n": "\\n", "\r": "\\r"}


def _restored(text: str) -> str:
    """Give a string back the backslashes that JSON took for escapes: ``\\times``, ``\\frac``."""
    return _SWALLOWED.sub(lambda one: _ESCAPED[one[0]], text)


_Latex = Annotated[str, AfterValidator(_restored)]


class MalformedReplyError(Exception):
    """A reply without the form asked for; its text is one clause for the model to read."""


class ClaimedNode(BaseModel):
    """One node as the model lists it; keys that were not asked for are passed over."""

    model_config = ConfigDict(strict=True, frozen=True)

    label: _Latex = ""
    type: NodeType
    expressions: list[_Latex] = Field(min_length=1)
    rewritten: list[_Latex] = []
    # Only ever quoted in an audit, so that no form of it makes a reply unusable.
    solutions: Any = None

    @property
    def claimed_support(self) -> int | None:
        """The number of solutions that the model says reach it."""
        return len(self.solutions) if isinstance(self.solutions, list) else None


class _ClaimedNodes(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True)

    nodes: list[ClaimedNode]


def read_reply(reply: Reply, max_chars: int) -> list[ClaimedNode]:
    """Return the nodes that a reply lists.

    Args:
        reply: as the server sent it.
        max_chars: a longer text is not read.

    Raises:
        MalformedReplyError: it holds no object of the form asked for.
    """
    # Servers that split off the thinking sometimes take all of a reply for it.
    text = reply.text if reply.text.strip() else reply.reasoning or ""
    if len(text) > max_chars:
        raise MalformedReplyError(f"it has {len(text)} characters, the limit is {max_chars}")
    objects, is_open = _objects(text.rpartition(_END_OF_THINKING)[2])
    fault = None
    # The last object counts: models think aloud, or repeat the form, before they answer.
    for found in reversed(objects):
        try:
            return _nodes(found)
        except MalformedReplyError as error:
            if fault is None and '"nodes"' in found:
                fault = error
    if fault is not None:
        raise fault
    if reply.finish_reason == "length":
        raise MalformedReplyError("it was cut at the limit of tokens; list fewer nodes")
    if is_open:
        raise MalformedReplyError("its JSON object is never closed")
    if objects:
        raise MalformedReplyError('its JSON object has no key "nodes"')
    raise MalformedReplyError("it holds no JSON object" if text.strip() else "it is empty")


def _objects(text: str) -> tuple[list[str], bool]:
    """Return the outermost JSON objects of a text, and whether one is never closed."""
    found: list[str] = []
    position = unclosed = 0
    while unclosed < _MAX_UNCLOSED:
        start = _START.search(text, position)
        if start is None:
            break
        end = _object_end(text, start.start())
        if end is None:
            position = start.start() + 1
            unclosed += 1
        else:
            found.append(text[start.start() : end])
            position = end
    return found, unclosed > 0


def _object_end(text: str, start: int) -> int | None:
    """Return the index behind the brace that closes the one at ``start``."""
    depth = 0
    position = start
    while True:
        brace = _BRACES.search(text, position)
        if brace is None:
            return None
        position = brace.end()
        if brace[0] == '"':
            string = _STRING_END.match(text, position)
            if string is None:
                return None
            position = string.end()
            continue
        depth += 1 if brace[0] == "{" else -1
        if not depth:
            return position


def _nodes(text: str) -> list[ClaimedNode]:
    value = _loaded(text)
    try:
        return _ClaimedNodes.model_validate(value).nodes
    except ValidationError as error:
        raise MalformedReplyError(_said(error)) from None


def _loaded(text: str) -> object:
    try:
        return json.loads(text, strict=False)
    except (ValueError, RecursionError):
        pass
    try:
        return json.loads(_STRING_OR_COMMA.sub(_repaired, text), strict=False)
    except RecursionError:
        raise MalformedReplyError("its JSON is nested too deeply") from None
    except json.JSONDecodeError as error:
        where = f"line {error.lineno} column {error.colno}"
        raise MalformedReplyError(f"its JSON is broken at {where}: {error.msg}") from None
    except ValueError:
        raise MalformedReplyError("its JSON holds a number of too many digits") from None


def _repaired(found: re.Match[str]) -> str:
    """Drop a trailing comma, and double the backslashes of a string that escape nothing."""
    if found[0] == ",":
        return ""
    return _BACKSLASH.sub(lambda one: one[0] if one[1] else "\\\\", found[0])


def _said(error: ValidationError) -> str:
    """Return the first faults in one clause: ``nodes[2].type: Input should be …``."""
    faults = error.errors(include_url=False, include_context=False, include_input=False)
    said = [f"{_place(fault['loc'])}: {fault['msg']}" for fault in faults[:_MAX_QUOTED_FAULTS]]
    rest = len(faults) - len(said)
    return "; ".join(said) + (f"; and {rest} more" if rest else "")


def _place(location: tuple[int | str, ...]) -> str:
    place = ""
    for part in location:
        place += f"[{part}]" if isinstance(part, int) else f".{part}" if place else str(part)
    return place or "the object"
