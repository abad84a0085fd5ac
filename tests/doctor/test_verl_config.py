"""The training command, as people type it."""

from __future__ import annotations

import pytest

from consensuspr.doctor.verl_config import DEFAULT_MODULE, TrainingCommand
from consensuspr.errors import InputError


@pytest.mark.parametrize(
    ("typed", "module", "overrides"),
    [
        ("", DEFAULT_MODULE, []),
        ("a.b=1 +c=2", DEFAULT_MODULE, ["a.b=1", "+c=2"]),
        ("python -m verl.trainer.main_ppo a=1", "verl.trainer.main_ppo", ["a=1"]),
        ("python3 -u -m recipe.dapo.main_dapo", "recipe.dapo.main_dapo", []),
        ("/opt/v/bin/python3.11 -m m ~a ++b=2", "m", ["~a", "++b=2"]),
    ],
)
def test_module_and_overrides(typed: str, module: str, overrides: list[str]) -> None:
    command = TrainingCommand.parse(typed.split())
    assert (command.module, list(command.overrides)) == (module, overrides)


def test_variables_before_the_command() -> None:
    command = TrainingCommand.parse(
        "VERL_USE_EXTERNAL_MODULES=a.b X=1=2 python3 -m verl.trainer.main_ppo c=3".split()
    )
    assert command.environment == {"VERL_USE_EXTERNAL_MODULES": "a.b", "X": "1=2"}
    assert command.overrides == ("c=3",)


@pytest.mark.parametrize(
    "typed", ["--config-name=x.yaml --config-path=conf a=1", "-cp conf a=1 -cn x.yaml"]
)
def test_the_flags_of_hydra(typed: str) -> None:
    command = TrainingCommand.parse(typed.split())
    assert (command.config_name, command.config_path) == ("x.yaml", "conf")
    assert command.overrides == ("a=1",)


@pytest.mark.parametrize(
    ("typed", "named"),
    [
        ("python train.py a=1", "python train.py"),
        ("python3", "python3"),
        ("nohup python -m m", "nohup"),
        ("a=1 --multirun", "--multirun"),
        ("a=1 --config-name", "--config-name"),
    ],
)
def test_what_is_no_training_command(typed: str, named: str) -> None:
    with pytest.raises(InputError, match=named):
        TrainingCommand.parse(typed.split())
