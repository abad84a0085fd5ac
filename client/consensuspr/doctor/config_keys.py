"""Keys of a configuration: which of them verl's own configuration does not know.

Hydra refuses a misspelt key, except where it is added (``+key=value``) or stands in a file;
then nobody says a word about it, whether or not anything reads it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

# Whoever is configured by these reads them itself: other libraries, or this one.
_PASSED_ON = ("_kwargs", "override_config", "override_transformer_config", "ray_init")

Path = tuple[str, ...]


def leaves(config: Mapping[str, Any], above: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Yield path and value of all that is no mapping, and of empty mappings."""
    for key, value in config.items():
        path = (*above, str(key))
        if isinstance(value, Mapping) and value:
            yield from leaves(value, path)
        else:
            yield path, value


def added(config: Mapping[str, Any], own: Mapping[str, Any]) -> list[Path]:
    """Return the leaves of a run's configuration that verl's own has no place for.

    Left out is what stands below a mapping that verl passes on as a whole (``engine_kwargs``),
    or below one that its own configuration leaves empty, to be filled by the user.

    Args:
        config: of the run.
        own: verl's, without any override.
    """
    return [path for path, _ in leaves(config) if _is_foreign(path, own)]


def _is_foreign(path: Path, own: Mapping[str, Any]) -> bool:
    place: Any = own
    for key in path:
        if any(key.endswith(name) for name in _PASSED_ON):
            return False
        if not isinstance(place, Mapping):
            # A null that the user has filled with a mapping.
            return False
        if key not in place:
            return bool(place)
        place = place[key]
    return False


def first_unread(path: Path, own: Mapping[str, Any], read: frozenset[str]) -> str | None:
    """Return the first key on a foreign path, dotted from the top, that no code reads.

    Args:
        path: of :func:`added`.
        own: verl's configuration; keys that it knows are taken as read.
        read: names that occur in code as an attribute, a text or an argument.
    """
    place: Any = own
    for depth, key in enumerate(path):
        place = place.get(key) if isinstance(place, Mapping) else None
        if place is None and key not in read:
            return ".".join(path[: depth + 1])
    return None


def set_below(config: Mapping[str, Any], roots: Sequence[str]) -> dict[str, Any]:
    """Return what is set below some top keys: dotted path and value, nulls left out."""
    return {
        ".".join(path): value
        for root in roots
        for path, value in leaves({root: config.get(root)})
        if value is not None and value != {}
    }
