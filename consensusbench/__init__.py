"""ConsensusBench: making and using datasets whose problems carry consensus nodes.

The offline half of the project.  It reads and writes the rows of :mod:`consensuspr.data`,
and nothing of the online half imports it.  One folder a topic: :mod:`consensusbench.export`
turns a dataset into what a trainer reads; :mod:`consensusbench.cli` is the command.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

from consensuspr.errors import InputError


def require(module: str, purpose: str) -> ModuleType:
    """Import a module of the extra ``consensusbench``.

    Args:
        module: its name, for example ``"sklearn.metrics"``.
        purpose: the work that needs it, as the beginning of the message.

    Raises:
        InputError: the package is not installed; the message has the command that installs it.
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        package = module.partition(".")[0]
        if error.name is None or error.name.partition(".")[0] != package:
            raise
        raise InputError(
            f'{purpose} needs the package {package}: pip install "consensuspr[consensusbench]"'
        ) from None
