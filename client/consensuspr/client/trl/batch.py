"""A batch as TRL hands it to a reward function: from columns to rollouts.

The columns of the dataset arrive as lists, one value a completion.  What is read of them::

    problem_id | index (with data_source, split) | the prompt     which problem
    ground_truth, or another column that the user names           overrides the dataset's
    nodes                                                         override the dataset's
    data_source                                                   label for metrics
    extra_info, reward_model                                      the same, as verl's rows have them

A column ``answer`` or ``solution`` is not taken for the ground truth unless it is named: in
many datasets it holds a worked solution, against which every answer would be wrong.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from consensuspr.client.training import ProblemIds, ground_truth_text, inline_nodes
from consensuspr.errors import InputError
from consensuspr.scoring.types import Rollout

# What a message's thoughts are called by the response templates of various model families.
_THOUGHTS = ("reasoning_content", "reasoning", "thinking")


def rollouts_of(
    prompts: Sequence[Any],
    completions: Sequence[Any],
    completion_ids: Sequence[Sequence[int]] | None,
    columns: Mapping[str, Any],
    ground_truth_column: str,
    ids: ProblemIds,
) -> list[Rollout]:
    """Return the rollouts of a batch.

    Args:
        prompts: (n,) texts, or lists of chat messages.
        completions: (n,) texts, or lists of chat messages.
        completion_ids: (n,) token ids of the completions, where the trainer tells them.
        columns: the dataset's, (n,) values each, and whatever else the trainer passed.
        ground_truth_column: name of the column that holds the ground truth; may be absent if
            it is ``ground_truth``.
        ids: finds the problem ids.

    Raises:
        InputError: a column is missing or has another shape, or a row names no problem.
    """
    if ground_truth_column != "ground_truth" and ground_truth_column not in columns:
        raise InputError(f"the dataset has no column {ground_truth_column!r} (ground_truth_column)")
    return [
        Rollout(
            problem_id=ids.of(_source(row), _info(row), prompts[at]),
            response=completion_text(completions[at]),
            ground_truth=_ground_truth(row, ground_truth_column),
            num_tokens=None if completion_ids is None else len(completion_ids[at]),
            nodes=inline_nodes(_info(row).get("nodes")),
            data_source=_source(row),
        )
        for at, row in enumerate(rows_of(columns, len(completions)))
    ]


def rows_of(columns: Mapping[str, Any], number: int) -> Iterator[dict[str, Any]]:
    """Yield the values of each completion; what is no column of that length is left out."""
    whole = {
        name: values
        for name, values in columns.items()
        if isinstance(values, Sequence) and not isinstance(values, str) and len(values) == number
    }
    for at in range(number):
        yield {name: values[at] for name, values in whole.items()}


def completion_text(completion: Any) -> str:
    """Return what the policy wrote: a text, or all that the assistant said in a chat.

    Thoughts that a response template has taken out of a message come first, as they were
    generated: the nodes are found in them.  What tools and environments said is not the policy's.

    Raises:
        InputError: it is neither.
    """
    if isinstance(completion, str):
        return completion
    if not isinstance(completion, Sequence) or not all(isinstance(m, Mapping) for m in completion):
        raise InputError(
            f"a completion must be a text or a list of messages, got {str(completion)[:80]!r}"
        )
    said = [message for message in completion if message.get("role") == "assistant"]
    return "\n".join(part for message in said for part in _parts(message))


def _parts(message: Mapping[str, Any]) -> Iterator[str]:
    for name in _THOUGHTS:
        thought = message.get(name)
        if isinstance(thought, str):
            yield thought
    content = message.get("content")
    if isinstance(content, str):
        yield content
    elif isinstance(content, Sequence):
        for part in content:
            text = part.get("text") if isinstance(part, Mapping) else None
            if isinstance(text, str):
                yield text


def _info(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what names the problem, columns before what ``extra_info`` says."""
    info = row.get("extra_info")
    own = {name: row[name] for name in ("problem_id", "index", "split", "nodes") if name in row}
    return {**info, **own} if isinstance(info, Mapping) else own


def _source(row: Mapping[str, Any]) -> str | None:
    source = row.get("data_source")
    if source is None or isinstance(source, str):
        return source
    raise InputError(f"data_source must be a text, got {source!r}")


def _ground_truth(row: Mapping[str, Any], column: str) -> str | None:
    truth = row.get(column)
    if truth is None and isinstance(row.get("reward_model"), Mapping):
        truth = row["reward_model"].get("ground_truth")
    return ground_truth_text(truth, column)
