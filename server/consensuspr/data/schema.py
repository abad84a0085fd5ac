"""The rows of datasets and rollouts files: their values and limits.

:class:`Problem` and :class:`Node` hold all values of a row, unknown keys included, so that a row
that is read and written again loses nothing.  Only the shape is checked here.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass, field, fields
from typing import Any, NoReturn, TypeAlias, TypeGuard

from consensuspr.errors import DataError
from consensuspr.short_repr import ShortRepr

Row: TypeAlias = dict[str, Any]

NODE_TYPES = ("equation", "value", "proposition", "expression")
SPLITS = ("train", "test")

# Of docs/concepts/answers.md; a dataset that names none leaves the choice to the request.
ANSWER_RULES = ("auto", "dapo", "boxed", "gsm8k")

# Limits on compiling one problem, far above any curated set (the paper: 6.8 nodes).
MAX_NODES = 1024
MAX_EXPRESSIONS = 4096  # of one node, as written or derived
MAX_EXPRESSION_CHARS = 65_536
MAX_ID_CHARS = 1024
MAX_WEIGHT = 1e6  # the sum over all nodes stays finite
MAX_BUDGET = (1 << 32) - 1  # the protocol's largest number
MAX_BUDGET_LENGTH = (1 << 31) - 1  # lower, so that the protocol can carry a rejected length


@dataclass(slots=True, repr=False)
class Node(ShortRepr):
    """One consensus node: an intermediate conclusion, written in one or more ways."""

    node_id: str  # unique within its problem
    expressions: tuple[str, ...]  # as written; the node is matched by any
    label: str = ""  # for people
    type: str = "expression"  # one of NODE_TYPES
    # Equal forms made when the dataset was built; None: they may be made at load time.
    derived: tuple[str, ...] | None = None
    support: int | None = None  # rollouts that reached the node
    is_final: bool = False  # it states the final answer
    weight: float | None = None  # in a weighted NCR, 0 or more
    position: float | None = None  # in right solutions, from 0 (start) to 1 (end)
    # Expressions that no other problem states: an equation reaches them with other names, too.
    rare: tuple[str, ...] = ()
    extra: Row = field(default_factory=dict)  # all other keys of the row


@dataclass(slots=True, repr=False)
class Problem(ShortRepr):
    """One problem of a dataset; None stands for what is not known."""

    problem_id: str  # unique within the dataset
    ground_truth: str | None = None  # the answer as written
    nodes: tuple[Node, ...] = ()  # in order
    data_source: str = ""  # label for metrics
    problem: str = ""  # its text
    split: str | None = None  # one of SPLITS
    answer_rule: str | None = None  # one of ANSWER_RULES
    # Distinct values and numbers that a response may hold before the guard lowers its NCR, the
    # characters of the longest source solution (0 if not known), and distinct equations (0: the
    # default).  None: the default applies to all.
    budget: tuple[int, int, int, int] | None = None
    metadata: Row = field(default_factory=dict)  # free keys such as "level" and "subject"
    extra: Row = field(default_factory=dict)  # all other keys of the row
    budget_extra: Row = field(default_factory=dict)  # all other keys of the row's budget


_PROBLEM_KEYS = {each.name for each in fields(Problem)} - {"extra", "budget_extra"}
_NODE_KEYS = {each.name for each in fields(Node)} - {"extra"}
_BUDGET_COUNTS = ("statements", "numbers")
_SHOWN_KEYS = 8  # in the message on a missing key
_BUDGET_KEYS = {*_BUDGET_COUNTS, "length", "equations"}


def problem_to_row(problem: Problem) -> Row:
    """Return the row that reads back as ``problem``, known keys first."""
    row: Row = {
        "problem_id": problem.problem_id,
        "data_source": problem.data_source,
        "problem": problem.problem,
        "ground_truth": problem.ground_truth,
        "nodes": [_node_to_row(node) for node in problem.nodes],
        "split": problem.split,
        "metadata": problem.metadata,
    }
    if problem.answer_rule is not None:
        row["answer_rule"] = problem.answer_rule
    if problem.budget is not None:
        statements, numbers, length, equations = problem.budget
        row["budget"] = {"statements": statements, "numbers": numbers}
        row["budget"] |= {"equations": equations} if equations else {}
        row["budget"] |= ({"length": length} if length else {}) | problem.budget_extra
    return row | problem.extra


def _node_to_row(node: Node) -> Row:
    row: Row = {
        "node_id": node.node_id,
        "label": node.label,
        "type": node.type,
        "expressions": list(node.expressions),
        "derived": None if node.derived is None else list(node.derived),
        "support": node.support,
        "is_final": node.is_final,
        "weight": node.weight,
        "position": node.position,
        "rare": list(node.rare) or None,
    }
    return {key: value for key, value in row.items() if value is not None} | node.extra


class _RowError(Exception):
    """Reason why a row is rejected; the entry points add path and line."""


def parse_problem(row: Row, path: str = "<row>", line: int | None = None) -> Problem:
    """Return the problem of a dataset row; DataError names ``path`` and ``line`` (from 1).

    Only ``problem_id`` is required, and ``expressions`` in each node.  A missing or null key takes
    its default; a blank ``ground_truth`` counts as unknown.
    """
    try:
        return _problem(row)
    except _RowError as fault:
        raise DataError(path, line, str(fault)) from None


def check_rollout(row: Row, path: str = "<row>", line: int | None = None) -> Row:
    """Return the rollout row itself after checking the keys that have a meaning.

    ``problem_id`` and ``response`` are required.  ``num_tokens`` becomes an int where a Parquet
    writer made a whole float of it.
    """
    try:
        _rollout(row)
    except _RowError as fault:
        raise DataError(path, line, str(fault)) from None
    return row


# For a user who gives the wrong one of the two files.
ROLLOUTS_FOR_PROBLEMS = (
    "is a file of rollouts; give a dataset here (rows with problem_id and nodes)"
)
PROBLEMS_FOR_ROLLOUTS = (
    "is a dataset; give a file of rollouts here (rows with problem_id and response)"
)


def is_rollout(row: Row) -> bool:
    """Return whether a row is a rollout and not a problem: it has a response and no nodes."""
    return "nodes" not in row and type(row.get("response")) is str


def _problem(row: Row) -> Problem:
    if is_rollout(row):
        _refuse(ROLLOUTS_FOR_PROBLEMS)
    problem_id = _required_id(row)
    nodes = _value(row, "nodes", _LIST) or []
    if len(nodes) > MAX_NODES:
        _refuse(f"nodes holds {len(nodes)} nodes, the limit is {MAX_NODES}")
    parsed = tuple(
        [_node(raw, f"nodes[{position}]", position) for position, raw in enumerate(nodes)]
    )
    seen: dict[str, int] = {}
    for position, node in enumerate(parsed):
        first = seen.setdefault(node.node_id, position)
        if first != position:
            _refuse(f"nodes[{position}] repeats node_id {_shown(node.node_id)} of nodes[{first}]")
    ground_truth = _value(row, "ground_truth", _STRING)
    budget = _value(row, "budget", _BUDGET)
    return Problem(
        problem_id=problem_id,
        ground_truth=ground_truth if ground_truth and not ground_truth.isspace() else None,
        nodes=parsed,
        data_source=_name(row, "data_source") or "",
        problem=_value(row, "problem", _STRING) or "",
        split=_choice(row, "split", SPLITS),
        answer_rule=_choice(row, "answer_rule", ANSWER_RULES),
        budget=None if budget is None else _budget(budget),
        metadata=_metadata(row),
        extra=_unknown(row, _PROBLEM_KEYS),
        budget_extra={} if budget is None else _unknown(budget, _BUDGET_KEYS),
    )


def _metadata(row: Row) -> Row:
    """Return the metadata of a problem, also from the JSON text that an export makes of it."""
    if type(row.get("metadata")) is str:
        with suppress(ValueError, RecursionError):
            row = {"metadata": json.loads(row["metadata"])}
    return _value(row, "metadata", _OBJECT) or {}


def _node(raw: Any, place: str, position: int) -> Node:
    if type(raw) is not dict:
        _wrong(place, 'an object such as {"expressions": ["2x = 6"]}', raw)
    where = f"{place}."
    expressions = _texts(raw, "expressions", where)
    if not expressions:
        _refuse(f"{place} has no expressions")
    kind = raw.get("type")
    if kind is not None and kind not in NODE_TYPES:
        _refuse(f"{where}type must be {_one_of(NODE_TYPES)}, got {_shown(kind)}")
    weight = _value(raw, "weight", _WEIGHT, where)
    reached = _value(raw, "position", _POSITION, where)
    rare = _texts(raw, "rare", where) or ()
    written = set(expressions)
    for expression in rare:
        if expression not in written:
            _refuse(f"{where}rare holds {_shown(expression)}, which is not among its expressions")
    return Node(
        node_id=_value(raw, "node_id", _STRING, where) or f"n{position + 1}",
        expressions=expressions,
        label=_value(raw, "label", _STRING, where) or "",
        type=kind or "expression",
        derived=_texts(raw, "derived", where),
        support=_value(raw, "support", _COUNT, where),
        is_final=_value(raw, "is_final", _BOOLEAN, where) or False,
        weight=None if weight is None else float(weight),
        position=None if reached is None else float(reached),
        rare=rare,
        extra=_unknown(raw, _NODE_KEYS),
    )


def _budget(given: Row) -> tuple[int, int, int, int]:
    statements, numbers = (_whole(given, key, 1, MAX_BUDGET) for key in _BUDGET_COUNTS)
    length, equations = (
        0 if given.get(key) is None else _whole(given, key, least, most)
        for key, least, most in (("length", 0, MAX_BUDGET_LENGTH), ("equations", 1, MAX_BUDGET))
    )
    return statements, numbers, length, equations


def _whole(budget: Row, key: str, least: int, most: int) -> int:
    value = budget.get(key)
    # A Parquet writer makes whole floats of numbers where another row has none.
    if type(value) is float and value.is_integer():
        value = int(value)
    if type(value) is not int or not least <= value <= most:
        _wrong(f"budget.{key}", f"a whole number from {least} to {most}", value)
    return value


def is_weight(value: object) -> TypeGuard[float]:
    """Return whether a value may be the weight of a node."""
    return type(value) in (int, float) and 0 <= value <= MAX_WEIGHT  # type: ignore[operator]


def _rollout(row: Row) -> None:
    _required_id(row)
    if row.get("response") is None:
        is_problem = type(row.get("nodes")) is list
        _refuse(PROBLEMS_FOR_ROLLOUTS if is_problem else f"response is missing{_keys_of(row)}")
    for key in ("response", "problem", "ground_truth"):
        _value(row, key, _STRING)
    for key in ("rollout_id", "data_source", "model"):
        _name(row, key)
    _value(row, "correct", _BOOLEAN)
    num_tokens = row.get("num_tokens")
    if type(num_tokens) is float and num_tokens.is_integer():
        row["num_tokens"] = int(num_tokens)
    _value(row, "num_tokens", _WHOLE)


# What a value must be, and how a message calls it.
_Kind: TypeAlias = tuple[Callable[[Any], bool], str]
_STRING: _Kind = (lambda value: type(value) is str, "a string")
_LIST: _Kind = (lambda value: type(value) is list, "a list")
_TEXTS: _Kind = (lambda value: type(value) is list, "a list of strings")
_OBJECT: _Kind = (lambda value: type(value) is dict, "an object")
_BUDGET: _Kind = (lambda value: type(value) is dict, "an object with statements and numbers")
_BOOLEAN: _Kind = (lambda value: type(value) is bool, "true or false")
_WHOLE: _Kind = (lambda value: type(value) is int, "a whole number")
_COUNT: _Kind = (lambda value: type(value) is int and value >= 0, "a whole number of 0 or more")
_POSITION: _Kind = (
    lambda value: type(value) in (int, float) and 0 <= value <= 1,
    "a number from 0 to 1",
)
_WEIGHT: _Kind = (is_weight, f"a number from 0 to {MAX_WEIGHT:g}")


def _value(row: Row, key: str, kind: _Kind, where: str = "") -> Any:
    """Return a value of a row, None if it has none."""
    value = row.get(key)
    if value is not None and not kind[0](value):
        _wrong(where + key, kind[1], value)
    return value


def _name(row: Row, key: str) -> str | None:
    """Return a name of limited length: memory holds one for each rollout."""
    name: str | None = _value(row, key, _STRING)
    if name is not None and len(name) > MAX_ID_CHARS:
        _refuse(f"{key} has {len(name)} characters, the limit is {MAX_ID_CHARS}")
    return name


def _required_id(row: Row) -> str:
    problem_id = _name(row, "problem_id")
    if not problem_id:
        missing = problem_id is None
        _refuse("problem_id is " + (f"missing{_keys_of(row)}" if missing else "empty"))
    return problem_id


def _keys_of(row: Row) -> str:
    """Return the ending of a sentence on a missing key: the keys that the row has."""
    keys = [key[:40] for key, value in row.items() if value is not None]
    more = f" and {len(keys) - _SHOWN_KEYS} more" if len(keys) > _SHOWN_KEYS else ""
    return f"; the row has {', '.join(keys[:_SHOWN_KEYS])}{more}" if keys else ""


def _texts(row: Row, key: str, where: str) -> tuple[str, ...] | None:
    """Return a list of expressions, None if there is none."""
    values = _value(row, key, _TEXTS, where)
    if values is None:
        return None
    if len(values) > MAX_EXPRESSIONS:
        _refuse(f"{where}{key} holds {len(values)} expressions, the limit is {MAX_EXPRESSIONS}")
    for position, value in enumerate(values):
        if type(value) is not str:
            _wrong(f"{where}{key}[{position}]", "a string", value)
        if len(value) > MAX_EXPRESSION_CHARS:
            limit = f"characters, the limit is {MAX_EXPRESSION_CHARS}"
            _refuse(f"{where}{key}[{position}] has {len(value)} {limit}")
    return tuple(values)


def _choice(row: Row, key: str, allowed: Sequence[str]) -> str | None:
    value: str | None = row.get(key)
    if value is not None and value not in allowed:
        _refuse(f"{key} must be {_one_of(allowed)} or null, got {_shown(value)}")
    return value


def _unknown(row: Row, known: AbstractSet[str]) -> Row:
    if row.keys() <= known:  # nearly always
        return {}
    return {key: value for key, value in row.items() if key not in known}


def _refuse(reason: str) -> NoReturn:
    raise _RowError(reason)


def _wrong(where: str, wanted: str, got: object) -> NoReturn:
    raise _RowError(f"{where} must be {wanted}, got {_shown(got)}")


def _one_of(allowed: Sequence[str]) -> str:
    return ", ".join(allowed[:-1]) + f" or {allowed[-1]}"


def _shown(value: object) -> str:
    """Return the value as a person would write it in JSON, at most about 60 characters."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return f"a list of {len(value)}"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    text = repr(value[:61] if isinstance(value, (str, bytes)) else value)
    return text if len(text) <= 60 else text[:57] + "..."
