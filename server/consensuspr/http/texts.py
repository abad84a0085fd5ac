"""Texts as trainers send them: the response within a query, special tokens at its end.

OpenRLHF decodes prompt and response together, special tokens and padding included, and
sends the prompt beside it as it was before the tokenizer.  What comes after the prompt is
the response.  Everything here is linear in the text, which a policy under training wrote.
"""

from __future__ import annotations

import re

_WORD = re.compile(r"\S+")
_MAX_TOKEN_CHARS = 64
# Openings of special tokens by their last characters, for tokens written in brackets.
_BRACKETS = {"|>": "<|", "｜>": "<｜"}
_NAMED = ("</s>", "<s>", "<eos>", "<bos>", "<pad>", "[PAD]", "<end_of_turn>", "<turn|>", "[EOS]")


def after_prompt(query: str, prompt: str) -> str | None:
    """Return what follows the prompt in the query, None where the prompt is not in it.

    The first place counts: what a policy wrote comes after it.  Padding and special tokens
    may stand before it.  White space may differ, since tokenizers do not keep it.
    """
    if query.startswith(prompt):
        return query[len(prompt) :]
    found = query.find(prompt)
    if found >= 0:
        return query[found + len(prompt) :]
    wanted = "".join(prompt.split())
    found = "".join(query.split()).find(wanted)
    return None if found < 0 else query[_position(query, found + len(wanted)) :]


def without_special_tokens(response: str) -> str:
    """Return a response without the special tokens at its end, and the space between them.

    The answer rules look at the end of a response, and the tokens are not what the policy
    wanted to say: ``Answer: 42<|im_end|>`` is the answer 42.
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


def _position(text: str, characters: int) -> int:
    """Return where ``text`` has had that many characters that are no white space."""
    if not characters:
        return 0
    for word in _WORD.finditer(text):
        length = word.end() - word.start()
        if length >= characters:
            return word.start() + characters
        characters -= length
    raise AssertionError("fewer characters than were found")


def _token_start(text: str, end: int) -> int | None:
    """Return where the special token that ends at ``end`` starts, None where none does."""
    for name in _NAMED:
        if text.endswith(name, 0, end):
            return end - len(name)
    opening = _BRACKETS.get(text[max(0, end - 2) : end])
    if opening is None:
        return None
    start = text.rfind("<", max(0, end - _MAX_TOKEN_CHARS), end)
    inside = start >= 0 and text.startswith(opening, start, end - 2)
    return start if inside and not any(map(str.isspace, text[start:end])) else None
