"""Ray, or one sentence that says how to get it."""

from __future__ import annotations

import importlib
from typing import Any

from consensuspr.errors import InputError


def require_ray(module: str = "ray") -> Any:
    """Import Ray or a part of it.

    Args:
        module: for example ``ray.data``.

    Raises:
        InputError: it is not installed.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise InputError(
            f"{module} cannot be imported ({error}); install it with: pip install"
            " 'consensuspr[ray]'"
        ) from None
