"""Rows of training data: problem, nodes, ground truth.

The problem is named by ``problem_id``, else by ``index`` put into ``problem_id_format``, else by
the digest of the prompt.  Train and test files may both count from 0, so by default the id of a
test row holds its split, and an id by index that comes with two prompts is an error.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from operator import index
from typing import Any, NamedTuple, Self, TypeAlias

from consensuspr.errors import InputError
from consensuspr.scoring.guard import GuardBudget
from consensuspr.scoring.types import InlineNode, Rollout

Prompt: TypeAlias = str | Sequence[Mapping[str, Any]]

DIGEST_PREFIX = "prompt-"
_DIGEST_CHARS = 32

VALIDATION_SPLITS = ("test", "val", "validation")

# Ids whose prompts are compared; a training step returns to fewer.
_REMEMBERED = 65_536

# Columns that name the problem, its nodes and its place in the run; also inside ``extra_info``.
INFO_COLUMNS = ("problem_id", "index", "split", "nodes", "budget", "epoch", "global_step")
# Keys of a label that is an object.
_LABEL_KEYS = ("ground_truth", "data_source", *(name for name in INFO_COLUMNS if name != "index"))


def prompt_digest(prompt: Prompt) -> str:
    """Return the id of a problem that only its prompt names.

    It is ``prompt-`` and 32 hexadecimal digits of the SHA-256 of the text with runs of white space
    as one blank, or of the role and content of chat messages so written as JSON.
    """
    if isinstance(prompt, str):
        text = _plain(prompt)
    else:
        messages = [[str(m.get("role")), _plain(_content(m.get("content")))] for m in prompt]
        text = json.dumps(messages, ensure_ascii=False)
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    return DIGEST_PREFIX + digest[:_DIGEST_CHARS]


def _plain(text: str) -> str:
    return " ".join(text.split())


def _content(content: object) -> str:
    """Return a message's text; of a list of parts the text parts, one after the other."""
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, Sequence) else ()
    texts = [part.get("text") for part in parts if isinstance(part, Mapping)]
    return " ".join(text for text in texts if isinstance(text, str))


class TrainingRow(NamedTuple):
    """A row of training data; None means that the trainer does not pass the value."""

    data_source: str | None
    ground_truth: str | None
    extra_info: Mapping[str, Any]
    prompt: Prompt | None

    @classmethod
    def of(
        cls,
        columns: Mapping[str, Any],
        prompt: Prompt | None,
        ground_truth_column: str = "ground_truth",
    ) -> Self:
        """Return the row with these columns; one that the row has goes before ``extra_info``'s.

        Args:
            columns: by name; others than the row's are ignored.
            prompt: of the sample.
            ground_truth_column: of the ground truth; else it is in ``reward_model``.

        Raises:
            InputError: a column has a wrong type.
        """
        source = columns.get("data_source")
        if source is not None and not isinstance(source, str):
            raise InputError(f"data_source must be a string, got {source!r:.80}")
        truth = columns.get(ground_truth_column)
        if truth is None:
            truth = _mapping("reward_model", columns).get("ground_truth")
        own = {name: columns.get(name) for name in INFO_COLUMNS}
        info = {name: value for name, value in own.items() if value is not None}
        info = {**_mapping("extra_info", columns), **info}
        return cls(source, ground_truth_text(truth, ground_truth_column), info, prompt)

    @property
    def split(self) -> str | None:
        """Split of the row, None if it names none."""
        split = self.extra_info.get("split")
        return split if isinstance(split, str) else None

    def planned(self, name: str) -> int | None:
        """Return an epoch or step of the row itself, None if it has none."""
        value = self.extra_info.get(name)
        if value is None or (isinstance(value, int) and value >= 0):
            return value
        raise InputError(f"{name} of a row must be a whole number from 0, got {value!r}")

    def rollout(
        self, response: str | bytes, ids: ProblemIds, num_tokens: int | None = None
    ) -> Rollout:
        """Return the rollout of a response to the row.

        Raises:
            InputError: the row names no problem, or its nodes have another shape.
        """
        return Rollout(
            problem_id=ids.of(self.data_source, self.extra_info, self.prompt),
            response=response,
            ground_truth=self.ground_truth,
            num_tokens=num_tokens,
            nodes=inline_nodes(self.extra_info.get("nodes")),
            data_source=self.data_source,
            budget=_inline_budget(self.extra_info.get("budget")),
        )


def _mapping(name: str, columns: Mapping[str, Any]) -> Mapping[str, Any]:
    value = columns.get(name)
    if value is None or isinstance(value, Mapping):
        return value or {}
    raise InputError(f"{name} must be a mapping, got {str(value)[:200]!r}")


def batch_rows(
    prompts: Sequence[Any], columns: Mapping[str, Any], ground_truth_column: str = "ground_truth"
) -> list[TrainingRow]:
    """Return the row of each sample of a batch whose trainer passes columns of its dataset.

    Only columns as long as the batch are read.

    Raises:
        InputError: the column of the ground truth was named and is missing, or a value has a
            wrong type.
    """
    if ground_truth_column != "ground_truth" and ground_truth_column not in columns:
        raise InputError(f"the dataset has no column {ground_truth_column!r} (ground_truth_column)")
    whole = {
        name: values
        for name, values in columns.items()
        if isinstance(values, Sequence)
        and not isinstance(values, str)
        and len(values) == len(prompts)
    }
    rows = [{name: values[at] for name, values in whole.items()} for at in range(len(prompts))]
    return [
        TrainingRow.of(row, prompt, ground_truth_column)
        for row, prompt in zip(rows, prompts, strict=True)
    ]


def label_columns(label: Any) -> Mapping[str, Any]:
    """Return the columns that a label holds.

    Args:
        label: the ground truth, or a JSON object (or its text) with it and the problem's id; None
            or empty: none.

    Raises:
        InputError: the object has an unknown key.
    """
    if isinstance(label, str) and label.lstrip().startswith("{"):
        try:
            read = json.loads(label)
        except (ValueError, RecursionError):
            read = None  # a set in braces, or LaTeX
        if isinstance(read, dict) and not read.keys().isdisjoint(_LABEL_KEYS):
            label = read
    if not isinstance(label, Mapping):
        return {} if label is None or label == "" else {"ground_truth": label}
    for key in label:
        if key not in _LABEL_KEYS:
            known = ", ".join(_LABEL_KEYS)
            raise InputError(f"the label has the unknown key {key!r}; known: {known}")
    return {key: value for key, value in label.items() if value is not None}


def problem_id_of(
    data_source: str | None,
    extra_info: Mapping[str, Any],
    prompt: Prompt | None,
    format: str | None = None,
) -> str:
    """Return the id of a row's problem.

    Args:
        data_source: of the row, as what follows.
        extra_info: see ``data_source``.
        prompt: see ``data_source``.
        format: of an id by index: ``{data_source}``, ``{index}`` and ``{split}``; None:
            ``{data_source}/{index}``, and with the split in between for rows of a test split.

    Raises:
        InputError: the row names no problem.
    """
    given, number = extra_info.get("problem_id"), extra_info.get("index")
    if given is not None:
        if not isinstance(given, str) or not given:
            raise InputError(
                f"extra_info.problem_id must be a string that is not empty, got {given!r}"
            )
        return given
    if number is None or number == "":
        if prompt is None or not len(prompt):
            raise InputError(
                "the row names no problem: extra_info has neither problem_id nor index, and"
                " there is no prompt"
            )
        return prompt_digest(prompt)
    split = extra_info.get("split")
    if format is None:
        of_test = split in VALIDATION_SPLITS
        format = "{data_source}/{split}/{index}" if of_test else "{data_source}/{index}"
    fields = {"data_source": data_source, "index": number, "split": split}
    for name, value in fields.items():
        if f"{{{name}}}" in format and (value is None or value == ""):
            raise InputError(
                f"extra_info.index {number!r} names no problem without {name}, which the row"
                f" lacks (problem_id_format is {format!r})"
            )
    return format.format(**fields)


class ProblemIds:
    """Finds the problem ids of samples, and rejects ambiguous ones.

    Args:
        format: see :func:`problem_id_of`.
    """

    def __init__(self, format: str | None) -> None:
        self._format = format
        self._prompts: OrderedDict[str, str] = OrderedDict()

    def of(
        self, data_source: str | None, extra_info: Mapping[str, Any], prompt: Prompt | None
    ) -> str:
        """Return the problem id of a sample from its row; raise InputError without exactly one."""
        problem_id = problem_id_of(data_source, extra_info, prompt, self._format)
        if extra_info.get("problem_id") is None and prompt is not None and len(prompt):
            digest = prompt_digest(prompt)
            if self._prompts.setdefault(problem_id, digest) != digest:
                raise InputError(
                    f"problem id {problem_id!r}, put together from extra_info.index, has come with"
                    " two prompts; give each row its extra_info.problem_id, or separate splits"
                    " with problem_id_format={data_source}/{split}/{index}"
                )
            self._prompts.move_to_end(problem_id)
            if len(self._prompts) > _REMEMBERED:
                self._prompts.popitem(last=False)
        return problem_id


def inline_nodes(nodes: Any) -> list[InlineNode] | None:
    """Return the nodes of a row, as mappings with ``expressions`` or as plain lists of them.

    Raises:
        InputError: they have another shape.
    """
    try:
        return None if nodes is None else [_inline_node(node) for node in nodes]
    except (TypeError, KeyError):
        raise InputError(
            "extra_info.nodes must be a list of {node_id, expressions, derived, is_final, weight}"
            f" or of lists of expressions, got {str(nodes)[:200]!r}"
        ) from None


def _inline_node(node: Any) -> InlineNode:
    if not isinstance(node, Mapping):
        return InlineNode(_texts(node))
    derived, weight = node.get("derived"), node.get("weight")
    return InlineNode(
        expressions=_texts(node["expressions"]),
        node_id=str(node.get("node_id") or ""),
        derived=() if derived is None else _texts(derived),
        is_final=bool(node.get("is_final")),
        weight=None if weight is None else float(weight),
    )


def _texts(values: Any) -> list[str]:
    texts = list(values)
    if isinstance(values, str) or not all(isinstance(text, str) for text in texts):
        raise TypeError(values)
    return texts


def _inline_budget(budget: Any) -> GuardBudget | None:
    # A column of structs may have a struct of nulls for a row without a budget.
    if budget is None or (isinstance(budget, Mapping) and set(budget.values()) == {None}):
        return None
    try:
        optional = (budget.get("length"), budget.get("equations"))
        return GuardBudget(
            index(budget["statements"]),
            index(budget["numbers"]),
            *(0 if value is None else index(value) for value in optional),
        )
    except (TypeError, KeyError, AttributeError):
        raise InputError(
            "extra_info.budget must be {statements, numbers}, and may have length and equations,"
            f" whole numbers, got {str(budget)[:200]!r}"
        ) from None


def ground_truth_text(value: Any, column: str) -> str | None:
    """Return a row's ground truth as text.

    Parquet columns also hold it as numbers.  A whole number in a column of floats is written
    without its fraction: strict answer rules compare texts, and "42.0" is not "42".
    """
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise InputError(f"{column} must be a string, got {value!r:.80}")
    return str(int(value)) if isinstance(value, int) or value.is_integer() else str(value)
