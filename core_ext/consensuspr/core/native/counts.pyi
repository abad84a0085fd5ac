def count_phrases(text: str | bytes, limit: int) -> int:
    """Return how many different phrases a text has, at most ``limit``; case is ignored."""

def count_fields(message: bytes, table: bytes, limit: int) -> int:
    """Return how many fields a protobuf message has, inner messages included.

    Counting stops at ``limit + 1``, and at bytes that are not a message.

    Raises:
        ValueError: ``table`` is malformed.
    """
