"""From what a user asks for to the commands that are run, with nothing started yet."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from consensuspr.client.verl.config import SOURCE
from consensuspr.errors import InputError
from consensuspr.launch.addresses import (
    actor_address,
    has_other_nodes,
    listen_address,
    require_reachable,
    worker_address,
)
from consensuspr.launch.checks import check_overrides
from consensuspr.launch.overrides import Overrides, hydra_list, hydra_text
from consensuspr.launch.recipes import COMMON, MODELS, read_recipe, recipe
from consensuspr.server.address import Address

TRAINER = "verl.trainer.main_ppo"
PROJECT = "consensuspr"


class ServerKind(StrEnum):
    """Who keeps the server that is started."""

    PROCESS = "process"
    RAY = "ray"


@dataclass(frozen=True, slots=True)
class Request:
    """What a user asks for; see ``consensuspr launch --help``.

    Attributes:
        algorithm: one of the recipes'.
        model: a size with a recipe, else a path or hub name.
        reward: one of the recipes'.
        train_files: Parquet for training.
        val_files: Parquet for validation.
        dataset: problems with nodes, for the server, and for scoring while it is away.
        alphas: of the linear reward, one run each; empty for the recipe's.
        switch_epoch: of the curriculum; None for the recipe's.
        address: of a server that runs already; None to start one.
        server: who keeps the one that is started.
        server_address: where that one listens; None for the default.
        server_workers: its worker processes; None for its default.
        server_config: its settings file.
        recipes: more files of overrides, read after ours.
        overrides: Hydra overrides; they win.
        log_folder: for the server's log and the score logs.
        trainer: module that is run as the training.
    """

    algorithm: str
    model: str
    reward: str
    train_files: tuple[str, ...]
    val_files: tuple[str, ...]
    dataset: Path | None = None
    alphas: tuple[float, ...] = ()
    switch_epoch: int | None = None
    address: str | None = None
    server: ServerKind = ServerKind.PROCESS
    server_address: str | None = None
    server_workers: int | None = None
    server_config: Path | None = None
    recipes: tuple[Path, ...] = ()
    overrides: tuple[str, ...] = ()
    log_folder: Path = Path("consensuspr-logs")
    trainer: str = TRAINER


@dataclass(frozen=True, slots=True)
class Training:
    """One training run.

    Attributes:
        name: of the experiment.
        overrides: all but the server's address.
        trainer: module that is run.
    """

    name: str
    overrides: Overrides
    trainer: str

    def command(self, address: str) -> list[str]:
        """Return the command, with the address of the server."""
        at = f"+{SOURCE}.address={hydra_text(address)}"
        return [sys.executable, "-m", self.trainer, *self.overrides.arguments(), at]


@dataclass(frozen=True, slots=True)
class ServerPlan:
    """The server that is started.

    Attributes:
        kind: who keeps it.
        dataset: what it serves.
        listen: where.
        workers: processes, None for its default.
        config: settings file, None for none.
        log: its log file.
    """

    kind: ServerKind
    dataset: Path
    listen: Address
    workers: int | None
    config: Path | None
    log: Path

    def command(self, listen: Address) -> list[str]:
        """Return the command of the server as a process, at an address."""
        words = [sys.executable, "-m", "consensuspr.cli", "serve"]
        words += ["--dataset", f"default={self.dataset}", "--address", str(listen)]
        if self.workers is not None:
            words += ["--workers", str(self.workers)]
        if self.config is not None:
            words += ["--config", str(self.config)]
        return words


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything that is run, in order.

    Attributes:
        server: what is started first; None where one runs already.
        address: of the server for reward workers, as far as it is known before it listens.
        trainings: one after the other.
    """

    server: ServerPlan | None
    address: str
    trainings: tuple[Training, ...]

    def script(self) -> str:
        """Return the plan as commands that can be pasted into a shell."""
        parts = []
        if self.server is not None:
            if self.server.kind is ServerKind.RAY:
                parts.append(f"# a Ray actor serves {self.server.dataset} at {self.address}")
            else:
                parts.append(_shell(self.server.command(self.server.listen)) + " &")
        parts += [_shell(training.command(self.address)) for training in self.trainings]
        return "\n\n".join(parts)


def make_plan(request: Request, environment: Mapping[str, str]) -> Plan:
    """Put recipes, options and overrides together and check them.

    Args:
        request: what is asked for.
        environment: variables of the process; ``RAY_ADDRESS`` is looked at.

    Raises:
        InputError: something in it is wrong, would be ignored or does not fit together.
    """
    trainings = tuple(_training(request, alpha) for alpha in request.alphas or (None,))
    other_nodes = has_other_nodes(trainings[0].overrides, environment)
    for training in trainings:
        if request.dataset is not None and not other_nodes:
            # On another node there may be no such file, and a reward worker that is told of one
            # does not start without it.
            key = f"{SOURCE}.dataset_path"
            if training.overrides.value(key) is None:
                training.overrides.add([f"{key}={hydra_text(request.dataset.absolute())}"])
        check_overrides(training.overrides)
    if request.address is not None:
        if other_nodes:
            require_reachable(request.address)
        Address.parse(request.address)
        return Plan(None, request.address, trainings)
    if request.dataset is None:
        raise InputError("give --dataset PATH for the server that is started, or --address of one")
    if request.server is ServerKind.RAY:
        listen = actor_address(request.server_address)
    else:
        listen = listen_address(request.server_address, other_nodes)
    server = ServerPlan(
        request.server,
        request.dataset.absolute(),
        listen,
        request.server_workers,
        request.server_config,
        request.log_folder.absolute() / "server.log",
    )
    return Plan(server, worker_address(listen), trainings)


def _training(request: Request, alpha: float | None) -> Training:
    """Return a run for one alpha, None: the recipe's."""
    overrides = Overrides()
    for topic in (COMMON, request.algorithm):
        overrides.add(recipe(topic))
    if request.model in MODELS:
        overrides.add(recipe(MODELS[request.model]))
    else:
        overrides.add([f"actor_rollout_ref.model.path={hydra_text(request.model)}"])
    overrides.add(recipe(request.reward))
    overrides.add(_of_options(request, alpha))
    for path in request.recipes:
        overrides.add(read_recipe(path))
    overrides.add(request.overrides)
    _refuse_clashes(request, overrides)
    name = overrides.value("trainer.experiment_name") or PROJECT
    log_key = f"{SOURCE}.score_log"
    if log_key not in overrides:
        log = request.log_folder.absolute() / "scores" / name
        overrides.add([f"{log_key}={hydra_text(log)}"])
    return Training(name, overrides, request.trainer)


def _of_options(request: Request, alpha: float | None) -> list[str]:
    """Return the overrides that stand for options."""
    name = f"{request.algorithm}-{_slug(request.model)}-{request.reward}"
    given = [
        f"data.train_files={hydra_list(_located(request.train_files))}",
        f"data.val_files={hydra_list(_located(request.val_files))}",
        f"trainer.project_name={PROJECT}",
    ]
    if request.switch_epoch is not None:
        _only_for("curriculum", "--switch-epoch", request.reward)
        given.append(f"{SOURCE}.switch_epoch={request.switch_epoch}")
    if alpha is not None:
        _only_for("linear", "--alpha", request.reward)
        given.append(f"{SOURCE}.alpha={alpha}")
        name += f"-alpha{alpha}"
    return [*given, f"trainer.experiment_name={name}"]


def _refuse_clashes(request: Request, overrides: Overrides) -> None:
    """Refuse settings that two places give, or that would make runs of a sweep the same."""
    own = Overrides()
    for path in request.recipes:
        own.add(read_recipe(path))
    own.add(request.overrides)
    if f"{SOURCE}.address" in own:
        raise InputError(f"give the address of a server as --address, not as {SOURCE}.address")
    if f"{SOURCE}.reward" in own:
        raise InputError(f"give the reward as --reward, not as {SOURCE}.reward")
    if len(request.alphas) > 1:
        for key in (f"{SOURCE}.alpha", "trainer.experiment_name", f"{SOURCE}.score_log"):
            if key in own:
                raise InputError(f"{key} cannot be set for a sweep: each run has its own")


def _only_for(reward: str, option: str, chosen: str) -> None:
    if chosen != reward:
        raise InputError(f"{option} belongs to the {reward} reward, and the reward is {chosen}")


def _located(files: Sequence[str]) -> list[str]:
    """Return local files by their absolute paths, remote ones as they are.

    Raises:
        InputError: there is no such file.
    """
    located = []
    for file in files:
        if "://" in file:
            located.append(file)
            continue
        path = Path(file).expanduser()
        if not path.is_file():
            raise InputError(f"{file}: no such file")
        located.append(str(path.absolute()))
    return located


def _slug(model: str) -> str:
    """Return a model's name as part of an experiment's."""
    name = f"{MODELS[model]}-base" if model in MODELS else Path(model).name
    return re.sub(r"[^a-z0-9._-]+", "-", name.lower()).strip("-")


def _shell(command: Sequence[str]) -> str:
    """Return a command for a shell: what is run on one line, then each setting on its own."""
    lines: list[list[str]] = [[]]
    for word in command:
        begins = word.startswith("--") or ("=" in word and not lines[-1][0].startswith("--"))
        if begins:
            lines.append([])
        lines[-1].append(shlex.quote(word))
    return " \\\n    ".join(" ".join(line) for line in lines)
