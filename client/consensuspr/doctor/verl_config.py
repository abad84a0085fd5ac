"""The verl run that is to be checked: the command that a person means, and what verl says of it.

``consensuspr doctor --`` may be put before the whole training command, environment variables
included, so that what is checked is what will be run.  verl is asked in a child process
(``probe.py``); what it says is a :class:`VerlRun`.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import takewhile
from pathlib import Path
from typing import Any

from consensuspr.client.verl.config import trainer_mode
from consensuspr.errors import ConsensusPRError, InputError

DEFAULT_MODULE = "verl.trainer.main_ppo"

_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")
_CONFIG_FLAGS = {"--config-name": "name", "-cn": "name", "--config-path": "path", "-cp": "path"}

# Of verl 0.8 the trainer that became V1: it tells samples their step, and moves no settings of old.
SYNC_TRAINER_OF_0_8 = "verl.trainer.main_ppo_sync"

# Importing torch and Ray from a network disk takes minutes.
_PATIENCE_S = 600.0


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


class ProbeFailed(ConsensusPRError):
    """The run could not be described: verl, Hydra or the configuration refused."""


@dataclass(frozen=True, slots=True)
class Named:
    """A manager or function that verl found: its name, and whether it is ours."""

    name: str
    ours: bool


@dataclass(frozen=True, slots=True)
class VerlRun:
    """A run, described.

    Attributes:
        config: resolved and migrated; what the trainer fills in later is missing.
        trainer: module that is started.
        version: of verl; None where it could not be imported.
        migrates: the trainer moves reward settings of old to where they are read now.
        legacy: reward settings of old that are set, by dotted key.
        unread: keys, dotted, that were added and that nothing reads.
        manager: class of the reward manager; None where verl found none.
        function: the custom reward function, None where none is set or none was found.
        errors: why a step failed (``verl``, ``trainer``, ``plugin``, ``manager``, ``function``).
    """

    config: Mapping[str, Any]
    trainer: str
    version: str | None = None
    migrates: bool = False
    legacy: Mapping[str, Any] = field(default_factory=dict)
    unread: tuple[str, ...] = ()
    manager: Named | None = None
    function: Named | None = None
    errors: Mapping[str, str] = field(default_factory=dict)

    @property
    def release(self) -> tuple[int, ...]:
        """The version as numbers, for comparisons; what is no number ends it."""
        numbers = takewhile(str.isdigit, (self.version or "").split("."))
        return tuple(int(number) for number in numbers)

    def get(self, dotted: str) -> Any:
        """Return a value of the configuration, None where it is not there."""
        place: Any = self.config
        for key in dotted.split("."):
            if not isinstance(place, Mapping):
                return None
            place = place.get(key)
        return place


# Where there is no run, or none that can be described.
NO_RUN = VerlRun({}, "")


def consequence(run: VerlRun, *, training: bool = True) -> str:
    """Return what verl does when the reward of a sample of training or validation raises."""
    if run is NO_RUN:
        return "verl's V1 trainer drops the sample, older ones stop"
    if run.trainer == SYNC_TRAINER_OF_0_8:
        return "verl marks its whole group as failed and goes on"
    if run.get("trainer.use_v1") is not True:
        return "training stops at the first"
    if not training:
        return "validation goes on without them"
    if trainer_mode(run.config) != "sync":
        return "verl drops its whole group and generates another"
    if run.get("trainer.v1.sampler.sync_refill_failed_groups") is True:
        return "verl drops the sample, and replaces groups of which no sample is left"
    return (
        "verl drops the sample and trains its group smaller, groups without a sample are missing"
        " (trainer.v1.sampler.sync_refill_failed_groups=True replaces these)"
    )


def describe(command: TrainingCommand, config_file: Path | None) -> VerlRun:
    """Ask verl about a run.

    Args:
        command: how it is started; its overrides do not count where there is a file.
        config_file: the run's configuration, as Hydra writes it beside the run's output.

    Raises:
        InputError: there is no such file.
        ProbeFailed: the configuration cannot be composed.
    """
    if config_file is not None and not config_file.is_file():
        raise InputError(f"--config: there is no file {config_file}")
    answer = _ask({"command": asdict(command), "config_file": config_file}, command.environment)
    if "config" not in answer:
        raise ProbeFailed(answer["config_error"])
    manager, function = answer.get("manager"), answer.get("function")
    return VerlRun(
        config=answer["config"],
        trainer=command.module,
        version=answer.get("version"),
        migrates=answer["migrates"],
        legacy=answer["legacy"],
        unread=tuple(answer.get("unread", ())),
        manager=Named(**manager) if manager else None,
        function=Named(**function) if function else None,
        errors={k.removesuffix("_error"): v for k, v in answer.items() if k.endswith("_error")},
    )


def _ask(request: dict[str, Any], environment: Mapping[str, str]) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="consensuspr-doctor-") as folder:
        result, log = Path(folder, "result.json"), Path(folder, "log")
        with log.open("w") as out:
            try:
                code = subprocess.run(
                    [sys.executable, "-m", "consensuspr.doctor.probe", str(result)],
                    input=json.dumps(request, default=str),
                    stdout=out,
                    stderr=out,
                    text=True,
                    env={**os.environ, **environment},
                    timeout=_PATIENCE_S,
                    check=False,
                ).returncode
            except subprocess.TimeoutExpired:
                raise ProbeFailed(f"verl did not answer within {_PATIENCE_S:g} s") from None
        if not result.exists():
            last = (log.read_text(errors="replace").strip().splitlines() or ["no word"])[-1]
            raise ProbeFailed(f"the process that asks verl ended with code {code}: {last}")
        answer: dict[str, Any] = json.loads(result.read_text(encoding="utf-8"))
        return answer
