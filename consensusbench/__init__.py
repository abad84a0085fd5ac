"""ConsensusBench: making and using datasets whose problems carry consensus nodes.

The offline half of the project.  It reads and writes the rows of :mod:`consensuspr.data`,
and nothing of the online half imports it.  One folder a topic: :mod:`consensusbench.export`
turns a dataset into what a trainer reads; :mod:`consensusbench.cli` is the command.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

from consensuspr.errors import InputError


def require(module: str, what: str) -> ModuleType:
    """Import a module of the extra ``consensusbench``, or say in one sentence how to get it.

    The base install stays light: who only exports or validates a dataset needs none of them.

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
