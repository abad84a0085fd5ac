"""Packages whose public names are imported on first use.

Such a package imports its names under ``if TYPE_CHECKING``, lists them in ``__all__``, and maps
modules to names here::

    __getattr__, __dir__ = lazy_names(__name__, {".aio": "AsyncRewardClient"})
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping


def lazy_names(
    package: str, homes: Mapping[str, str]
) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Return the ``__getattr__`` and the ``__dir__`` of a package (PEP 562).

    Args:
        package: its ``__name__``.
        homes: the names that each module gives, with spaces between, by the module's name;
            one that begins with a dot lies in the package.
    """
    home_of = {name: home for home, names in homes.items() for name in names.split()}

    def get(name: str) -> object:
        home = home_of.get(name)
        if home is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value: object = getattr(importlib.import_module(home, package), name)
        setattr(sys.modules[package], name, value)
        return value

    def names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *home_of})

    return get, names
