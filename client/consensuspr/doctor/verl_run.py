"""The verl run that is to be checked, as verl itself sees it.

The probe runs in a child process (``probe.py``); what it says is a :class:`VerlRun`.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from consensuspr.doctor.training_command import TrainingCommand
from consensuspr.errors import ConsensusPRError, InputError

# Of verl 0.8 the trainer that became V1: it tells samples their step, and moves no settings of old.
SYNC_TRAINER_OF_0_8 = "verl.trainer.main_ppo_sync"

# Importing torch and Ray from a network disk takes minutes.
_PATIENCE_S = 600.0


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
        errors: by step (``verl``, ``plugin``, ``manager``, ``function``) why it failed.
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

    def get(self, dotted: str) -> Any:
        """Return a value of the configuration, None where it is not there."""
        place: Any = self.config
        for key in dotted.split("."):
            if not isinstance(place, Mapping):
                return None
            place = place.get(key)
        return place


def describe(command: TrainingCommand, config_file: Path | None) -> VerlRun:
    """Ask verl about a run.

    Args:
        command: how it is started; its overrides do not count where there is a file.
        config_file: the run's configuration, as Hydra writes it beside the run's output.

    Raises:
        InputError: verl or what it configures with is not installed, or there is no such file.
        ProbeFailed: the configuration cannot be composed.
    """
    if importlib.util.find_spec("verl") is None:
        raise InputError(
            "verl is not installed in this environment, so that its run cannot be checked; without"
            " --config and training command, server and Parquet files are"
        )
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
