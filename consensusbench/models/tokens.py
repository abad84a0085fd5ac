"""How many tokens a text can have, without the model's tokenizer."""

from __future__ import annotations

from collections.abc import Sequence

from consensusbench.models.settings import Message

# What chat templates put around a message; none of the common ones comes near it.
TEMPLATE_TOKENS = 64
# English and mathematics have 3 to 4.5 bytes a token in the tokenizers of current models.
BYTES_PER_TOKEN = 3


def most_tokens(messages: Sequence[Message]) -> int:
    """Return a bound: no byte-level tokenizer makes more than one token of a byte."""
    return sum(_bytes(message.content) + TEMPLATE_TOKENS for message in messages)


def likely_tokens(text: str) -> int:
    """Return an estimate on the high side, for where a server does not count."""
    return -(-_bytes(text) // BYTES_PER_TOKEN)


def _bytes(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))
