"""What the two ends inside Ray Serve tell each other beside the message, as gRPC metadata.

A *generation* is the time at which a version of the application was built.  Replicas carry
that of their version, so that a front can tell an older one from a newer one.
"""

from __future__ import annotations

from collections.abc import Iterable

# From the front (proxy) to a replica.
TIMEOUT_KEY = "consensuspr-timeout-ms"
AT_LEAST_KEY = "consensuspr-at-least-generation"

# From a replica to the front, with every outcome; absent where Serve itself failed.
GENERATION_KEY = "consensuspr-generation"

Metadata = tuple[tuple[str, str], ...]


def number_in(metadata: Iterable[tuple[str, str | bytes]], key: str) -> int | None:
    """Return the whole number that metadata holds under a key, None where there is none."""
    for name, value in metadata:
        if name == key:
            try:
                return int(value)
            except ValueError:
                return None
    return None
