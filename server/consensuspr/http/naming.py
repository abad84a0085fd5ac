"""Which problem a rollout answers: what the label says, else what the prompt holds.

A remote-reward request carries a prompt and a label.  The label is the one column of a
dataset that trainers hand through, so it may be a JSON object that names the problem::

    {"problem_id": "p1", "ground_truth": "42", "data_source": "gsm8k", "nodes": [["6*7=42"]]}

(any of the keys may be missing), or the ground truth alone, as trainers use it.  Then the
problem is the one whose text the prompt holds and whose ground truth is the label.  Where
that is none, or are several, the rollout has no problem and says so; what can be scored
from the label alone still is.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from consensuspr.core import normalize
from consensuspr.errors import InputError
from consensuspr.http.elements import Bounds, value
from consensuspr.http.problem_texts import ProblemTexts
from consensuspr.scoring import DatasetIndex
from consensuspr.scoring.types import InlineNode

_KEYS = ("problem_id", "ground_truth", "data_source", "nodes")
_NODE_KEYS = {"node_id", "expressions", "derived"}
# As many ids as a message names.
_NAMED_AT_MOST = 3

Nodes = list[InlineNode | Sequence[str]]


@dataclass(frozen=True, slots=True)
class Label:
    """What a label says; None where it does not."""

    problem_id: str | None = None
    ground_truth: str | None = None
    data_source: str | None = None
    nodes: Nodes | None = None


@dataclass(frozen=True, slots=True)
class Naming:
    """Which problem is meant.

    Attributes:
        problem_id: empty where none is.
        reason: one sentence where none is, else empty.
    """

    problem_id: str
    reason: str = ""


class Namer:
    """Names the problems of one dataset.

    Args:
        index: the dataset.
        texts: of its problems.
    """

    def __init__(self, index: DatasetIndex, texts: ProblemTexts) -> None:
        self._index = index
        self._texts = texts

    def name(self, prompt: str, label: Label) -> Naming:
        """Return which problem a prompt with a label is about."""
        if label.problem_id is not None:
            return Naming(label.problem_id)
        found = self._texts.find(prompt)
        if found is None:
            return Naming("", "the prompt is too long, or holds too many problems, to be searched")
        ids = [self._index.image.problem_id(at) for at in sorted({one.position for one in found})]
        if not ids:
            return Naming("", f"the prompt holds no problem of dataset {self._index.name!r}")
        if label.ground_truth is not None:
            wanted = _form(label.ground_truth)
            fitting = [name for name in ids if self._truth(name) == wanted]
            if not fitting:
                return Naming(
                    "",
                    f"the prompt holds {_listed(ids)}, but the label"
                    f" {label.ground_truth[:40]!r} is not its ground truth",
                )
            ids = fitting
        if len(ids) > 1:
            return Naming(
                "",
                f"the prompt holds {_listed(ids)}, and which is meant is unknown;"
                " name it in the label",
            )
        return Naming(ids[0])

    def _truth(self, problem_id: str) -> str | None:
        entry = self._index.entry(problem_id)
        return None if entry is None or entry.ground_truth is None else _form(entry.ground_truth)


def read_label(body: bytes, bounds: Bounds | None, name: str) -> Label:
    """Read a label.

    Args:
        body: the request.
        bounds: where in it the label stands; None: there is none.
        name: what a message calls it.

    Raises:
        InputError: it is neither a text, a number nor such an object.
    """
    if bounds is None:
        return Label()
    label = value(body, bounds, name)
    if label is None:
        return Label()
    if isinstance(label, str):
        return _from_text(label, name)
    if isinstance(label, dict):
        return _from_object(label, name)
    if isinstance(label, (int, float)) and not isinstance(label, bool):
        # As written: 0.10 and 1e400 are ground truths, not numbers to be rounded.
        return Label(ground_truth=body[bounds.start : bounds.end].decode())
    raise InputError(f"{name} must be a string, a number or an object, got {type(label).__name__}")


def _from_text(label: str, name: str) -> Label:
    if label.lstrip().startswith("{"):
        try:
            parsed = json.loads(label)
        except (ValueError, RecursionError):
            parsed = None  # a set in braces, or LaTeX
        if isinstance(parsed, dict) and not parsed.keys().isdisjoint(_KEYS):
            return _from_object(parsed, name)
    return Label(ground_truth=label if label.strip() else None)


def _from_object(label: Mapping[str, Any], name: str) -> Label:
    unknown = [key for key in label if key not in _KEYS]
    if unknown:
        raise InputError(f"{name} has the unknown key {unknown[0]!r}; known: {', '.join(_KEYS)}")
    for key in _KEYS[:3]:
        given = label.get(key)
        if given is not None and (isinstance(given, bool) or not isinstance(given, str | int)):
            raise InputError(f"{key} in {name} must be a string, got {type(given).__name__}")
    texts = {key: str(label[key]) for key in _KEYS[:3] if label.get(key) is not None}
    nodes = label.get("nodes")
    return Label(
        problem_id=texts.get("problem_id") or None,
        ground_truth=texts.get("ground_truth"),
        data_source=texts.get("data_source"),
        nodes=None if nodes is None else _nodes(nodes, name),
    )


def _nodes(nodes: object, name: str) -> Nodes:
    if not isinstance(nodes, list):
        raise InputError(f"nodes in {name} must be a list, got {type(nodes).__name__}")
    return [_node(node, name) for node in nodes]


def _node(node: object, name: str) -> InlineNode | Sequence[str]:
    """Read a node; what its expressions are is checked, and told, by the scorer."""
    if isinstance(node, list):
        return node
    if not isinstance(node, dict) or not node.keys() <= _NODE_KEYS:
        raise InputError(
            f"a node in {name} must be a list of expressions or an object of"
            f" {', '.join(sorted(_NODE_KEYS))}"
        )
    derived = node.get("derived") or ()
    if not isinstance(derived, list | tuple):
        raise InputError(f"derived of a node in {name} must be a list")
    return InlineNode(
        expressions=node.get("expressions", ()),
        node_id=str(node.get("node_id") or ""),
        derived=derived,
    )


def _form(truth: str) -> str:
    return normalize(truth).strip()


def _listed(ids: Sequence[str]) -> str:
    shown = ", ".join(repr(name) for name in ids[:_NAMED_AT_MOST])
    more = len(ids) - _NAMED_AT_MOST
    return (
        f"problem {shown}"
        if len(ids) == 1
        else (f"the problems {shown}" + (f" and {more} more" if more > 0 else ""))
    )
