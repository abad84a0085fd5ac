"""Which problem a rollout answers: what its label says, else what its prompt holds.

A remote-reward request carries a prompt and a label.  The label is the one column of a
dataset that trainers hand through, so it may be a JSON object that names the problem::

    {"problem_id": "p1", "ground_truth": "42", "data_source": "gsm8k", "nodes": [["6*7=42"]]}

(any of the keys may be missing), or the ground truth alone, as trainers use it.  Then the
problem is the one whose text the prompt holds, somewhere inside a chat template and
instructions, and whose ground truth is the label (:class:`Namer`).  Where that is none, or are
several, the rollout has no problem and says so; what can be scored from the label alone still
is.

:class:`ProblemTexts` answers which problems of a dataset occur in a prompt, in time linear in
the prompt and without looking at each problem.

Texts are compared with white space collapsed, as UTF-8.  Each has a polynomial hash modulo
2**64 of all of it, and one of its longest beginning of a power of two bytes, its anchor.  Of
a prompt, the hashes of all windows of these few lengths are made at once; where one is an
anchor, all lengths of texts with such anchors are tried at that place.  What still agrees is
compared by a cryptographic digest, so that no two texts are taken for one another.

A text counts where it stands by itself: not within a word or a number.  One that stands
within another one that was found does not count; the longer one is meant.

Not found by their text: problems shorter than ``MIN_BYTES``, which occur anywhere.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from consensuspr.core import normalize
from consensuspr.errors import InputError
from consensuspr.http.json_body import Body, Bounds, value
from consensuspr.scoring import DatasetIndex
from consensuspr.scoring.guard import GuardBudget
from consensuspr.scoring.types import InlineNode

Hashes: TypeAlias = npt.NDArray[np.uint64]
Counts: TypeAlias = npt.NDArray[np.int64]
Nodes: TypeAlias = list[InlineNode | Sequence[str]]

_KEYS = ("problem_id", "ground_truth", "data_source", "nodes", "budget")
_NODE_KEYS = {"node_id", "expressions", "derived", "is_final", "weight"}
# As many ids as a message names.
_NAMED_AT_MOST = 3

MIN_BYTES = 8
# A label is decoded as a whole: three bytes of nodes may become sixty.  One whose nodes keep to the
# scorer's limits is far below.
MAX_LABEL_BYTES = 256 << 10
# Longer prompts are not looked into: 24 bytes of hashes for each of theirs.
MAX_PROMPT_BYTES = 1 << 20
# Places where a prompt may hold anchors, and texts that it may hold, before it is given up
# as one that names everything; an honest one holds its problem and a few worked examples.
MAX_PLACES = 1024
MAX_FOUND = 64

_BASE = 0x9E3779B97F4A7C15  # odd, so that it has an inverse modulo 2**64
_INVERSE = pow(_BASE, -1, 1 << 64)
_ARRAYS = ("full", "check", "length", "position", "anchor", "anchor_level")


@dataclass(frozen=True, slots=True)
class ProblemLabel:
    """What a label says; None where it does not."""

    problem_id: str | None = None
    ground_truth: str | None = None
    data_source: str | None = None
    nodes: Nodes | None = None
    budget: GuardBudget | None = None


def read_label(body: Body, bounds: Bounds | None, name: str) -> ProblemLabel:
    """Read the label that stands at a place of a request, if any; messages call it ``name``.

    Raises:
        InputError: it is neither a text, a number nor such an object.
    """
    if bounds is None:
        return ProblemLabel()
    label = value(body, bounds, name, MAX_LABEL_BYTES)
    if label is None:
        return ProblemLabel()
    if isinstance(label, str):
        return _from_text(label, name)
    if isinstance(label, dict):
        return _from_object(label, name)
    if isinstance(label, (int, float)) and not isinstance(label, bool):
        # As written: 0.10 and 1e400 are ground truths, not numbers to be rounded.
        return ProblemLabel(ground_truth=body[bounds.start : bounds.end].decode())
    raise InputError(f"{name} must be a string, a number or an object, got {type(label).__name__}")


def _from_text(label: str, name: str) -> ProblemLabel:
    if label.lstrip().startswith("{"):
        try:
            parsed = json.loads(label)
        except (ValueError, RecursionError):
            parsed = None  # a set in braces, or LaTeX
        if isinstance(parsed, dict) and not parsed.keys().isdisjoint(_KEYS):
            return _from_object(parsed, name)
    return ProblemLabel(ground_truth=label if label.strip() else None)


def _from_object(label: Mapping[str, Any], name: str) -> ProblemLabel:
    unknown = [key for key in label if key not in _KEYS]
    if unknown:
        raise InputError(f"{name} has the unknown key {unknown[0]!r}; known: {', '.join(_KEYS)}")
    for key in _KEYS[:3]:
        given = label.get(key)
        if given is not None and (isinstance(given, bool) or not isinstance(given, str | int)):
            raise InputError(f"{key} in {name} must be a string, got {type(given).__name__}")
    texts = {key: str(label[key]) for key in _KEYS[:3] if label.get(key) is not None}
    nodes = label.get("nodes")
    return ProblemLabel(
        problem_id=texts.get("problem_id") or None,
        ground_truth=texts.get("ground_truth"),
        data_source=texts.get("data_source"),
        nodes=None if nodes is None else _nodes(nodes, name),
        budget=None if label.get("budget") is None else _budget(label["budget"], name),
    )


def _budget(given: object, name: str) -> GuardBudget:
    """Read the guard's budget; what its numbers are is checked, and told, by the scorer."""
    counts = {"statements", "numbers"}
    if not isinstance(given, dict) or not counts <= given.keys() <= counts | {"length"}:
        raise InputError(
            f"budget in {name} must be an object of statements, numbers and optionally length,"
            f" got {str(given)[:200]!r}"
        )
    return GuardBudget(given["statements"], given["numbers"], given.get("length") or 0)


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
        is_final=node.get("is_final") is True,
        weight=node.get("weight"),
    )


class Naming(NamedTuple):
    """Which problem is meant, by id; an empty one and one sentence of reason where none is."""

    problem_id: str
    reason: str = ""


class Namer:
    """Names the problems of one dataset, by their ids and texts."""

    def __init__(self, index: DatasetIndex, texts: ProblemTexts) -> None:
        self._index = index
        self._texts = texts

    def name(self, prompt: str, label: ProblemLabel) -> Naming:
        """Return which problem a prompt with a label is about."""
        if label.problem_id is not None:
            return Naming(label.problem_id)
        found = self._texts.find(prompt)
        if found is None:
            return Naming("", "the prompt is too long, or holds too many problems, to be searched")
        ids = [self._index.image.problem_id(at) for at in sorted({one.position for one in found})]
        if not ids:
            return Naming("", f"the prompt holds no problem of dataset {self._index.name!r}")
        held = f"the prompt holds {_listed(ids)}"
        truth = label.ground_truth
        if truth is not None:
            ids = [name for name in ids if self._truth(name) == _form(truth)]
            if not ids:
                reason = f"but the label {truth[:40]!r} is not its ground truth"
                return Naming("", f"{held}, {reason}")
        if len(ids) > 1:
            reason = "and which is meant is unknown; name it in the label"
            return Naming("", f"the prompt holds {_listed(ids)}, {reason}")
        return Naming(ids[0])

    def _truth(self, problem_id: str) -> str | None:
        entry = self._index.entry(problem_id)
        return None if entry is None or entry.ground_truth is None else _form(entry.ground_truth)


def _form(truth: str) -> str:
    return normalize(truth).strip()


def _listed(ids: Sequence[str]) -> str:
    shown = ", ".join(map(repr, ids[:_NAMED_AT_MOST]))
    more = f" and {len(ids) - _NAMED_AT_MOST} more" if len(ids) > _NAMED_AT_MOST else ""
    return f"problem {shown}" if len(ids) == 1 else f"the problems {shown}{more}"


class Found(NamedTuple):
    """A problem in a prompt: its position in the dataset's index, and where its text stands."""

    position: int
    start: int
    end: int


class ProblemTexts:
    """The texts of one dataset's problems; immutable and safe to share between threads."""

    def __init__(self, arrays: dict[str, npt.NDArray[np.generic]]) -> None:
        """Take what :func:`build` made or :func:`open_texts` mapped."""
        self._arrays = arrays
        self._full: Hashes = arrays["full"]  # type: ignore[assignment]
        self._check = arrays["check"]
        self._length: Counts = arrays["length"]  # type: ignore[assignment]
        self._position: Counts = arrays["position"]  # type: ignore[assignment]
        anchor: Hashes = arrays["anchor"]  # type: ignore[assignment]
        levels = _levels(np.asarray(self._length))
        # For each window: the anchors of that length, and the lengths of texts that have one.
        self._windows = [
            (
                1 << level,
                anchor[arrays["anchor_level"] == level],
                np.unique(self._length[levels == level]),
            )
            for level in np.unique(levels).tolist()
        ]

    def __len__(self) -> int:
        """Return the number of texts."""
        return len(self._full)

    def find(self, prompt: str) -> list[Found] | None:
        """Return the problems whose text a prompt holds, in order; None where it is too much.

        Texts that stand within another found one are left out.  One text that several
        problems share is found once for each of them.
        """
        if len(prompt) > MAX_PROMPT_BYTES:
            return None
        text = _plain(prompt)
        if len(text) > MAX_PROMPT_BYTES:
            return None
        hashes = _Prefixes(text)
        found: list[Found] = []
        for window, anchors, lengths in self._windows:
            if window > len(text):
                break
            places = _places(hashes.windows(window), anchors)
            if len(places) > MAX_PLACES:
                return None
            for start in places.tolist():
                found += self._at(text, hashes, start, lengths)
                if len(found) > MAX_FOUND:
                    return None
        return sorted(_outermost(found), key=lambda one: (one.start, one.position))

    def save(self, folder: Path) -> None:
        """Write the arrays to a new folder."""
        folder.mkdir()
        for name, array in self._arrays.items():
            np.save(folder / f"{name}.npy", array, allow_pickle=False)

    def _at(self, text: bytes, hashes: _Prefixes, start: int, lengths: Counts) -> list[Found]:
        """Return the texts that stand at one place."""
        ends = start + lengths[: np.searchsorted(lengths, len(text) - start, side="right")]
        wanted = hashes.between(start, ends)
        rows = np.searchsorted(self._full, wanted)
        inside = rows < len(self._full)
        agree = np.flatnonzero(inside)[self._full[rows[inside]] == wanted[inside]]
        return [
            Found(int(self._position[row]), start, int(ends[at]))
            for at in agree.tolist()
            if _stands_alone(text, start, int(ends[at]))
            for row in self._same_text(text[start : int(ends[at])], int(rows[at]))
        ]

    def _same_text(self, text: bytes, row: int) -> Iterable[int]:
        """Yield the rows of a text, from the first that has its hash on."""
        check = _digest(text)
        first = self._full[row]
        while row < len(self._full) and self._full[row] == first:
            if self._check[row].tobytes() == check:
                yield row
            row += 1


def build(problems: Iterable[tuple[int, str]]) -> ProblemTexts:
    """Return the index of texts, each given with its position in the dataset's index."""
    rows: list[tuple[int, bytes, int, int, int]] = []
    for position, problem in problems:
        text = _plain(problem)
        if MIN_BYTES <= len(text) <= MAX_PROMPT_BYTES:
            hashes = _Prefixes(text)
            window = 1 << (len(text).bit_length() - 1)
            anchor = int(hashes.between(0, np.array([window]))[0])
            full = int(hashes.between(0, np.array([len(text)]))[0])
            rows.append((full, _digest(text), len(text), position, anchor))
    rows.sort()
    lengths = np.array([row[2] for row in rows], dtype=np.int64)
    # Sorted within each level, as the search for places needs them.
    anchors = sorted({(row[2].bit_length() - 1, row[4]) for row in rows})
    return ProblemTexts(
        {
            "full": np.array([row[0] for row in rows], dtype=np.uint64),
            "check": np.frombuffer(b"".join(row[1] for row in rows), dtype=np.dtype("V16")),
            "length": lengths,
            "position": np.array([row[3] for row in rows], dtype=np.int64),
            "anchor": np.array([anchor for _, anchor in anchors], dtype=np.uint64),
            "anchor_level": np.array([level for level, _ in anchors], dtype=np.int64),
        }
    )


def texts_folder(snapshot: str) -> Path:
    """Return where the texts of a snapshot's dataset are kept."""
    return Path(f"{snapshot}.texts")


def open_texts(folder: str | os.PathLike[str]) -> ProblemTexts:
    """Map what :meth:`ProblemTexts.save` wrote; processes that do so share its memory."""
    return ProblemTexts(
        {
            name: np.load(Path(folder) / f"{name}.npy", mmap_mode="r", allow_pickle=False)
            for name in _ARRAYS
        }
    )


class _Prefixes:
    """Hashes of all beginnings of a text, from which follow those of all its parts.

    The hash of ``text[:n]`` is the sum of ``(text[i] + 1) * BASE**i``; that of a part is the
    difference of two, divided by the power of its start.
    """

    def __init__(self, text: bytes) -> None:
        size = len(text)
        self._sums = np.zeros(size + 1, dtype=np.uint64)
        self._back = _powers(_INVERSE, size + 1)
        letters = np.frombuffer(text, dtype=np.uint8).astype(np.uint64) + np.uint64(1)
        np.cumsum(letters * _powers(_BASE, size), out=self._sums[1:])

    def windows(self, size: int) -> Hashes:
        """Return the hashes of all parts of one size, by their start."""
        sums = self._sums
        parts: Hashes = (sums[size:] - sums[:-size]) * self._back[: len(sums) - size]
        return parts

    def between(self, start: int, ends: Counts) -> Hashes:
        """Return the hashes of the parts from one place to several others."""
        parts: Hashes = (self._sums[ends] - self._sums[start]) * self._back[start]
        return parts


def _places(windows: Hashes, anchors: Hashes) -> Counts:
    """Return where the windows are that are anchors; there is at least one anchor."""
    nearest = np.minimum(np.searchsorted(anchors, windows), len(anchors) - 1)
    places: Counts = np.flatnonzero(anchors[nearest] == windows)
    return places


def _powers(base: int, count: int) -> Hashes:
    factors = np.full(count, base, dtype=np.uint64)
    factors[:1] = 1
    powers: Hashes = np.cumprod(factors, dtype=np.uint64)
    return powers


def _levels(lengths: Counts) -> Counts:
    """Return the exponents of the largest powers of two that are no larger than the lengths."""
    levels: Counts = np.frexp(lengths.astype(np.float64))[1].astype(np.int64) - 1
    return levels


def _outermost(found: list[Found]) -> Iterable[Found]:
    """Yield those that do not stand within a longer one."""
    reach = -1
    last: tuple[int, int] | None = None
    for one in sorted(found, key=lambda one: (one.start, -one.end)):
        if one.end > reach or (one.start, one.end) == last:
            reach, last = max(reach, one.end), (one.start, one.end)
            yield one


def _stands_alone(text: bytes, start: int, end: int) -> bool:
    """Tell whether a part is no piece of a word or number: ``3+4`` is none of ``3+45``."""
    before, after = text[start - 1 : start] if start else b"", text[end : end + 2]
    joined_before = before.isalnum() and text[start : start + 1].isalnum()
    joined_after = text[end - 1 : end].isalnum() and after[:1].isalnum()
    decimals = text[end - 1 : end].isdigit() and after[:1] in (b".", b",") and after[1:].isdigit()
    return not (joined_before or joined_after or decimals)


def _plain(text: str) -> bytes:
    return " ".join(text.split()).encode("utf-8", "surrogatepass")


def _digest(text: bytes) -> bytes:
    return hashlib.blake2b(text, digest_size=16).digest()
