"""The policy's own text, taken out of a trainer's response.

Trainers decode prompt and response together, with special tokens, or keep a chat with turns of
tools.  Only the policy's own words are scored.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final

from consensuspr.errors import InputError

# Ends the thoughts of a model that thinks before it answers.
END_OF_THINKING: Final = "</think>"

# What a message's thoughts are called by the response templates of various model families.
_THOUGHTS = ("reasoning_content", "reasoning", "thinking")

# The functions on texts are linear in them: a policy under training wrote them.
_MAX_TOKEN_CHARS = 64
# Openings of special tokens by their last characters, for tokens written in brackets.
_BRACKETS = {"|>": "<|", "｜>": "<｜"}
_NAMED = ("</s>", "<s>", "<eos>", "<bos>", "<pad>", "[PAD]", "<end_of_turn>", "<turn|>", "[EOS]")

# Where another's turn begins and where the policy's next one does, in the templates of model
# families: ChatML, Llama 3, Gemma, DeepSeek, Mistral, and what Qwen writes around a tool's result,
# which stays where special tokens were dropped.
_OTHER_TURN = re.compile(
    "|".join(
        rf"{opening}.*?(?:{closing}|\Z)"
        for opening, closing in (
            (r"<\|im_start\|>(?!assistant)", r"<\|im_start\|>assistant\n?"),
            (
                r"<\|start_header_id\|>(?!assistant)",
                r"<\|start_header_id\|>assistant<\|end_header_id\|>",
            ),
            ("<start_of_turn>(?!model)", r"<start_of_turn>model\n?"),
            ("<｜User｜>", "<｜Assistant｜>"),
            ("<｜tool▁outputs▁begin｜>", "<｜tool▁outputs▁end｜>"),
            (r"\[TOOL_RESULTS\]", r"\[/TOOL_RESULTS\]"),
            (r"(?:\nuser\n)?<tool_response>", r"</tool_response>(?:\nassistant\n)?"),
        )
    ),
    re.DOTALL,
)


def scored_from(response: str | bytes) -> int:
    """Return where the part begins that ``after_think`` scores, in characters or bytes.

    That is behind the last ``</think>``, so that the mark written early or twice never brings more
    text into the score.  Without one it is the end: thoughts without an answer earn nothing.
    """
    if isinstance(response, str):
        at = response.rfind(END_OF_THINKING)
    else:
        at = response.rfind(END_OF_THINKING.encode())
    return len(response) if at < 0 else at + len(END_OF_THINKING)


def without_other_turns(response: str) -> str:
    """Return a response of several turns, as a text, without those of tools and users.

    By the marks of chat templates: a policy that writes another's turn itself loses that text.  A
    tool that writes the mark of the policy's turn cannot be detected.
    """
    return _OTHER_TURN.sub("\n", response)


def after_prompt(query: str, prompt: str) -> str | None:
    """Return what follows the prompt in the query, None if the prompt is not in it.

    The query is decoded with special tokens and padding, the prompt is as it was before the
    tokenizer.  The first place counts: what a policy wrote comes after it.  Padding and special
    tokens may stand before it.  White space may differ, since tokenizers do not keep it.
    """
    if query.startswith(prompt):
        return query[len(prompt) :]
    found = query.find(prompt)
    if found >= 0:
        return query[found + len(prompt) :]
    wanted = "".join(prompt.split())
    found = "".join(query.split()).find(wanted)
    if found < 0:
        return None
    # One by one: a list of them takes forty times the memory of the text.
    ends = (at + 1 for at, sign in enumerate(query) if not sign.isspace())
    last = found + len(wanted) - 1
    return query[next(islice(ends, last, None)) if last >= 0 else 0 :]


def without_special_tokens(response: str) -> str:
    """Return a response without the special tokens at its end, and the space between them.

    The answer rules look at the end of a response: ``Answer: 42<|im_end|>`` is the answer 42.
    """
    end = len(response)
    while True:
        at = end
        while at and response[at - 1].isspace():
            at -= 1
        start = _token_start(response, at)
        if start is None:
            return response[:end]
        end = start


def _token_start(text: str, end: int) -> int | None:
    """Return where the special token that ends at ``end`` starts, None if none does."""
    for name in _NAMED:
        if text.endswith(name, 0, end):
            return end - len(name)
    opening = _BRACKETS.get(text[max(0, end - 2) : end])
    if opening is None:
        return None
    start = text.rfind("<", max(0, end - _MAX_TOKEN_CHARS), end)
    inside = start >= 0 and text.startswith(opening, start, end - 2)
    return start if inside and not any(map(str.isspace, text[start:end])) else None


def said_by_policy(completion: Any) -> str:
    """Return the policy's text: a text, or all messages of the assistant in a chat.

    Thoughts that a response template has taken out of a message come first and end in
    ``</think>``, as they were generated: nodes are found in them, unless ``after_think`` leaves
    them out.

    Raises:
        InputError: it is neither.
    """
    if isinstance(completion, str):
        return without_other_turns(completion)
    if not isinstance(completion, Sequence) or not all(isinstance(m, Mapping) for m in completion):
        raise InputError(
            f"a completion must be a string or a list of messages, got {str(completion)[:80]!r}"
        )
    own = [message for message in completion if message.get("role") == "assistant"]
    return "\n".join(part for message in own for part in _parts(message))


def _parts(message: Mapping[str, Any]) -> Iterator[str]:
    for name in _THOUGHTS:
        thought = message.get(name)
        if isinstance(thought, str):
            yield thought
            yield END_OF_THINKING
    content = message.get("content")
    if isinstance(content, str):
        yield content
    elif isinstance(content, Sequence):
        for part in content:
            text = part.get("text") if isinstance(part, Mapping) else None
            if isinstance(text, str):
                yield text
