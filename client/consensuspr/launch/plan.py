"""Where the server listens, and by which address every reward worker reaches it.

verl spreads its reward workers over all nodes of the Ray cluster, in turns.  On one machine the
loopback interface serves them all and is closed to everybody else.  With several nodes, or with
a Ray cluster that is there already and may have several, the address has to be one of this
node's that the others reach: the protocol has neither encryption nor authentication, so that
network must be the cluster's own.
"""

from __future__ import annotations

import ipaddress
import re
import shlex
import socket
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from consensuspr.client.verl.config import SOURCE
from consensuspr.errors import InputError
from consensuspr.launch.recipes import (
    COMMON,
    MODELS,
    Overrides,
    check_overrides,
    hydra_list,
    hydra_text,
    read_recipe,
    recipe,
)
from consensuspr.server.config import Address

DEFAULT_PORT = 50051

# Stands for the IP of the node that an actor will be on.
ACTORS_HOST = "NODE_IP"

_LOOPBACK = "127.0.0.1"


def has_other_nodes(overrides: Overrides, environment: Mapping[str, str]) -> bool:
    """Say whether reward workers may run on other nodes than this one."""
    nodes = overrides.value("trainer.nnodes")
    cluster = environment.get("RAY_ADDRESS", "")
    return (nodes is not None and nodes != "1") or cluster not in ("", "local")


def listen_address(given: str | None, other_nodes: bool) -> Address:
    """Return where the server is to listen.

    Args:
        given: what the user said; None for the default.
        other_nodes: whether it must be reached from other nodes.

    Raises:
        InputError: it is no address, or other nodes cannot reach it.
    """
    if given is None:
        return Address(this_node() if other_nodes else _LOOPBACK, DEFAULT_PORT)
    address = Address.parse(given)
    if other_nodes:
        require_reachable(given)
    return address


def actor_address(given: str | None) -> Address:
    """Return the address of a server that Ray places: it listens at its node's IP.

    Args:
        given: ``0.0.0.0:PORT``; None for the default port.

    Raises:
        InputError: it is no address, or names a host.
    """
    if given is None:
        return Address(ACTORS_HOST, DEFAULT_PORT)
    address = Address.parse(given)
    if not _is(address.host, "unspecified"):
        raise InputError(
            f"a Ray actor listens at its node's IP; give its port as 0.0.0.0:PORT, got {given}"
        )
    return Address(ACTORS_HOST, address.port)


def worker_address(listening: Address) -> str:
    """Return the address that reward workers are told, for one at which the server listens."""
    if _is(listening.host, "unspecified"):
        return str(Address(this_node(), listening.port))
    return str(listening)


def require_reachable(address: str) -> None:
    """Refuse an address that means another machine on each node.

    Raises:
        InputError: it is one of the loopback interface.
    """
    host = Address.parse(address).host
    if host == "localhost" or _is(host, "loopback"):
        raise InputError(
            f"reward workers run on every node and cannot reach {address} from another one; "
            "give an address of this node that the others reach, or 0.0.0.0:PORT to listen on all"
        )


def this_node() -> str:
    """Return the IP by which other nodes reach this one.

    Raises:
        InputError: it has none.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            # Sends nothing: the kernel only chooses the interface that leads outside.
            probe.connect(("192.0.2.1", 9))
            host: str = probe.getsockname()[0]
        except OSError as error:
            raise InputError(
                f"the address of this node cannot be found ({error.strerror}); give it"
            ) from None
    return host


def _is(host: str, kind: str) -> bool:
    try:
        return bool(getattr(ipaddress.ip_address(host), f"is_{kind}"))
    except ValueError:
        return False


# MERGED From what a user asks for to the commands that are run, with nothing started yet.

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
