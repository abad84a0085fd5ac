"""The run that a person means: the training command itself, or its Hydra overrides alone.

``consensuspr doctor --`` may be put before the whole command, environment variables included,
so that what is checked is what will be run.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from consensuspr.errors import InputError

DEFAULT_MODULE = "verl.trainer.main_ppo"

_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")
_CONFIG_FLAGS = {"--config-name": "name", "-cn": "name", "--config-path": "path", "-cp": "path"}


@dataclass(frozen=True, slots=True)
class TrainingCommand:
    """How verl is started.

    Attributes:
        module: that ``python -m`` runs.
        overrides: of Hydra.
        config_name: of Hydra; None for the module's own.
        config_path: of Hydra; None for the module's own.
        environment: variables set before the command.
    """

    module: str = DEFAULT_MODULE
    overrides: tuple[str, ...] = ()
    config_name: str | None = None
    config_path: str | None = None
    environment: dict[str, str] = field(default_factory=dict)

    @classmethod
    def parse(cls, words: Sequence[str]) -> TrainingCommand:
        """Read ``[NAME=VALUE …] python -m MODULE OVERRIDES``, or overrides alone.

        Raises:
            InputError: it is neither.
        """
        at = next((i for i, word in enumerate(words) if _is_python(word)), None)
        if at is None:
            return _with_hydra(cls(), words)
        before, after = words[:at], list(words[at + 1 :])
        odd = [word for word in before if not _ASSIGNMENT.match(word)]
        if odd:
            raise InputError(f"the training command may begin with NAME=VALUE, got {odd[0]!r}")
        while after and after[0] in ("-u", "-O", "-B"):
            after.pop(0)
        if len(after) < 2 or after[0] != "-m":
            raise InputError(
                "the training command must be python -m MODULE with Hydra overrides, got"
                f" {' '.join([words[at], *after[:1]])!r}"
            )
        environment = dict(word.split("=", 1) for word in before)
        return _with_hydra(cls(module=after[1], environment=environment), after[2:])


def _is_python(word: str) -> bool:
    return re.fullmatch(r"python[0-9.]*", os.path.basename(word)) is not None


def _with_hydra(command: TrainingCommand, words: Sequence[str]) -> TrainingCommand:
    """Return the command with its overrides, and the configuration that they are for."""
    config: dict[str, str] = {}
    overrides = []
    rest = iter(words)
    for word in rest:
        flag, equals, value = word.partition("=")
        if flag in _CONFIG_FLAGS:
            config[_CONFIG_FLAGS[flag]] = value if equals else next(rest, "")
            if not config[_CONFIG_FLAGS[flag]]:
                raise InputError(f"{flag} needs a value")
        elif word.startswith("-"):
            raise InputError(f"{word} is neither a Hydra override nor one of its config flags")
        else:
            overrides.append(word)
    return replace(
        command,
        overrides=tuple(overrides),
        config_name=config.get("name"),
        config_path=config.get("path"),
    )
