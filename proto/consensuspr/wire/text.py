"""Python strings as protobuf carries them.

A ``str`` may hold lone surrogates (a tokenizer's byte fallback, ``surrogateescape``);
a protobuf string may not, and refuses the whole message.  One odd character must not
cost a batch its scores, so it is replaced, and only where it stands.
"""

from __future__ import annotations


def encode_response(response: str | bytes) -> bytes:
    """Return the bytes of a response as they are sent and matched.

    Bytes pass through as they are.  A lone surrogate becomes its three-byte form, which
    the normal form reads as one invalid sequence.
    """
    if isinstance(response, bytes):
        return response
    return response.encode("utf-8", "surrogatepass")


def is_valid(text: str) -> bool:
    """Tell whether ``text`` holds no lone surrogate."""
    if text.isascii():
        return True
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def valid_text(text: str) -> str:
    """Return ``text`` with each lone surrogate replaced by U+FFFD."""
    if text.isascii():
        return text
    # UTF-16 joins what is really a pair and lets only lone halves fail.
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
