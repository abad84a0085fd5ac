"""Ray, which the extra ``consensuspr[ray]`` installs."""

from __future__ import annotations

import importlib
from typing import Any

from consensuspr.errors import InputError


def require_ray(module: str = "ray") -> Any:
    """Import Ray or a part of it, such as ``ray.data``; raise InputError without it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise InputError(
            f"{module} cannot be imported ({error}); install it with: pip install"
            " 'consensuspr[ray]'"
        ) from None
