"""Packages of the extra ``consensusbench``, asked for where they are needed.

The base install stays light: who only exports or validates a dataset needs none of them.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

from consensuspr.errors import InputError


def require(module: str, what: str) -> ModuleType:
    """Import a module of the extra, or say in one sentence how to get it.

    Args:
        module: what to import, for example ``"sklearn.metrics"``.
        what: the work that needs it, as the beginning of the sentence.

    Raises:
        InputError: the package is not installed.
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        package = module.partition(".")[0]
        if error.name is None or error.name.partition(".")[0] != package:
            raise
        raise InputError(
            f'{what} needs the package {package}: pip install "consensuspr[consensusbench]"'
        ) from None
