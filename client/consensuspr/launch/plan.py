"""The plan of a launch: the commands that a request leads to, with nothing started yet.

verl spreads its reward workers over all nodes of the Ray cluster. On one machine the server listens
on the loopback interface. With several nodes, or in a Ray cluster that runs already, it listens at
this node's IP and has a token of its own, in a file beside the log.
"""

from __future__ import annotations

import re
import shlex
import socket
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from consensuspr.client.servers import is_local, split_addresses
from consensuspr.client.verl.config import SOURCE
from consensuspr.errors import InputError
from consensuspr.launch.recipes import (
    COMMON,
    MODELS,
    STEP_CREDIT,
    Overrides,
    check_overrides,
    hydra_list,
    hydra_text,
    read_recipe,
    recipe,
)
from consensuspr.launch.request import Request
from consensuspr.scoring.dataset_index import Derive
from consensuspr.scoring.rewards import RewardKind
from consensuspr.scoring.types import MAX_LABEL_BYTES
from consensuspr.server.config import Address, load_config
from consensuspr.server.security import is_loopback

PROJECT = "consensuspr"
_GROWN_NODES = f"{SOURCE}.grown_nodes"
# A problem is asked once an epoch, and its nodes take right rollouts of two steps.
FIRST_GROWN_EPOCH = 2
DEFAULT_PORT = 50051

_HUB_NAME = re.compile(r"[\w.-]*\w[\w.-]*/[\w.-]+", re.ASCII)


@dataclass(frozen=True, slots=True)
class Training:
    """One training run: name of the experiment, overrides but for the address, module."""

    name: str
    overrides: Overrides
    trainer: str

    def command(self, address: str, digest: str | None = None) -> list[str]:
        """Return the command for a server, and the digest that its dataset must keep."""
        known = [f"+{SOURCE}.address={hydra_text(address)}"]
        given = self.overrides.below(SOURCE)
        if digest is not None and not {"expect_digest", "grown_nodes"} & given.keys():
            known.append(f"+{SOURCE}.expect_digest={hydra_text(digest)}")
        return [sys.executable, "-m", self.trainer, *self.overrides.arguments(), *known]


@dataclass(frozen=True, slots=True)
class ServerPlan:
    """The server that is started.

    Attributes:
        token_file: of a token that is made for it; None: its settings say who may call it.
        grown_nodes: folder of datasets that grow with the run.
    """

    request: Request
    dataset_path: Path
    listen: Address
    token_file: Path | None
    grown_nodes: Path | None = None
    derive: Derive = "missing"

    @property
    def log(self) -> Path:
        """Its log file."""
        return self.request.log_dir.absolute() / "server.log"

    def command(self, listen: Address) -> list[str]:
        """Return the command of the server as a process, at an address."""
        words = [sys.executable, "-m", "consensuspr.cli", "serve"]
        words += ["--dataset", f"default={self.dataset_path}", "--address", str(listen)]
        if self.token_file is not None:
            words += ["--token-file", str(self.token_file)]
        if self.request.server_workers is not None:
            words += ["--workers", str(self.request.server_workers)]
        if self.request.server_config is not None:
            words += ["--config", str(self.request.server_config)]
        if self.grown_nodes is not None:
            # A restarted server serves the datasets that the run has grown.
            words += ["--dataset-folder", str(self.grown_nodes)]
        return words


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything that is run, in order; server None: one runs already at the address."""

    server: ServerPlan | None
    address: str
    training: Training

    def grower(self, address: str) -> list[str] | None:
        """Return the command that grows nodes, if that is planned."""
        if self.server is None or self.server.grown_nodes is None:
            return None
        words = [sys.executable, "-m", "consensusbench.cli", "grow"]
        words += [str(self.server.grown_nodes.parent), "--dataset", str(self.server.dataset_path)]
        words += ["--address", address]
        for name in ("token_file", "tls_ca"):
            value = self.training.overrides.value(f"{SOURCE}.{name}")
            if value is not None:
                words += [f"--{name.replace('_', '-')}", value]
        return words

    def script(self) -> str:
        """Return the plan as commands that can be pasted into a shell."""
        commands: list[tuple[list[str], str]] = []
        if self.server is not None:
            if self.server.token_file is not None:
                make = [sys.executable, "-m", "consensuspr.cli", "token"]
                commands.append(([*make, str(self.server.token_file)], ""))
            if self.server.grown_nodes is not None:
                commands.append((["mkdir", "-p", str(self.server.grown_nodes)], ""))
            commands.append((self.server.command(self.server.listen), " &"))
        grower = self.grower(self.address)
        if grower is not None:
            commands.append((grower, " &"))
        commands.append((self.training.command(self.address), ""))
        return "\n\n".join(_shell(command) + end for command, end in commands)


def _shell(command: Sequence[str]) -> str:
    """Return a command for a shell: the program on one line, then each setting on its own."""
    lines: list[list[str]] = [[]]
    for word in command:
        if word.startswith("--") or ("=" in word and not lines[-1][0].startswith("--")):
            lines.append([])
        lines[-1].append(shlex.quote(word))
    return " \\\n    ".join(" ".join(line) for line in lines)


def make_plan(request: Request, overrides: Sequence[str], environment: Mapping[str, str]) -> Plan:
    """Merge and check recipes, options and overrides; the user's overrides win.

    Raises:
        InputError: a setting is wrong, would be ignored or does not fit to another.
    """
    own = [line for path in request.recipe for line in read_recipe(path)] + list(overrides)
    for name in ("address", "reward"):
        if f"{SOURCE}.{name}" in Overrides(own):
            raise InputError(f"give the {name} as --{name}, not as {SOURCE}.{name}")
    if request.grow_nodes and request.address is not None:
        raise InputError(
            "--grow-nodes works with the server that launch starts; with your own server run"
            " consensusbench grow"
        )
    training = _training(request, own)
    # Reward workers may run on other nodes than this one.
    cluster = environment.get("RAY_ADDRESS", "")
    nodes = training.overrides.value("trainer.nnodes")
    other_nodes = nodes not in (None, "1") or cluster not in ("", "local")
    if request.dataset is not None:
        read_here = not other_nodes or request.address is None
        if read_here and not request.dataset.exists():
            raise InputError(f"{request.dataset}: no such file")
        if not other_nodes and not request.grow_nodes:
            # On another node the file may be missing, and a reward worker does not start then.
            training.overrides.add_default(f"{SOURCE}.dataset_path", request.dataset.absolute())
    check_overrides(training.overrides)
    if request.address is not None:
        for address in split_addresses(request.address):
            if other_nodes and is_local(address):
                raise _unreachable(address)
        return Plan(None, request.address, training)
    if request.dataset is None:
        raise InputError("give --dataset PATH to start a server, or --address HOST:PORT of one")
    server = _server(request, request.dataset, training.overrides, other_nodes, environment)
    return Plan(server, worker_address(server.listen), training)


def _server(
    request: Request,
    dataset_path: Path,
    overrides: Overrides,
    other_nodes: bool,
    environment: Mapping[str, str],
) -> ServerPlan:
    """Return the server to start; raise InputError if reward workers could not reach it."""
    given = request.server_address
    if given is None:
        listen = Address(this_node() if other_nodes else "127.0.0.1", DEFAULT_PORT)
    else:
        listen = Address.parse(given)
        if other_nodes and is_local(given) and not _is_unspecified(listen.host):
            raise _unreachable(given)
    config = load_config(
        file=request.server_config,
        environment=environment,
        overrides={"datasets": {"default": dataset_path}},
    )
    token_file = None
    if not is_loopback(listen.host) and config.token_file is None and not config.insecure:
        token_file = request.log_dir.absolute() / "server.token"
    shown = token_file or config.token_file
    if shown is not None:
        overrides.add_default(f"{SOURCE}.token_file", shown.absolute())
    grown_nodes = None
    if request.grow_nodes:
        grown_nodes = Path(overrides.value(_GROWN_NODES) or "")
        if config.dataset_folder is not None:
            raise InputError(
                f"--grow-nodes sets the server's dataset_folder to {grown_nodes}; remove"
                f" dataset_folder={config.dataset_folder} from its settings"
            )
    dataset_path = dataset_path.absolute()
    return ServerPlan(request, dataset_path, listen, token_file, grown_nodes, config.derive)


def _training(request: Request, own: Sequence[str]) -> Training:
    """Return the training; a later override replaces an earlier one."""
    overrides = Overrides()
    for topic in (COMMON, request.algorithm):
        overrides.add(recipe(topic))
    if request.model in MODELS:
        overrides.add(recipe(MODELS[request.model]))
    else:
        is_folder = bool(request.model) and Path(request.model).is_dir()
        if not (is_folder or _HUB_NAME.fullmatch(request.model) or "://" in request.model):
            raise InputError(
                f"--model must be {', '.join(MODELS)}, a folder on this machine, or a name at the"
                f" hub as ORGANISATION/NAME, got {request.model!r}"
            )
        overrides.add([f"actor_rollout_ref.model.path={hydra_text(request.model)}"])
    overrides.add(recipe(request.reward))
    if request.reward is RewardKind.OUTCOME and (request.step_credit or request.grow_nodes):
        raise InputError("--step-credit and --grow-nodes have no effect with --reward outcome")
    if request.step_credit:
        overrides.add(recipe(STEP_CREDIT))
    overrides.add(_of_options(request))
    overrides.add(own)
    name = overrides.value("trainer.experiment_name") or PROJECT
    overrides.add_default(f"{SOURCE}.score_log", request.log_dir.absolute() / "scores" / name)
    if request.grow_nodes:
        run = overrides.value(f"{SOURCE}.score_log")
        if run in (None, "null") or overrides.value(f"{SOURCE}.ncr") == "weighted":
            raise InputError(
                f"--grow-nodes needs {SOURCE}.score_log, and does not work with ncr=weighted"
            )
        switch = overrides.value(f"{SOURCE}.switch_epoch") or "1"
        too_early = switch.isdecimal() and int(switch) <= FIRST_GROWN_EPOCH
        if request.reward is RewardKind.CURRICULUM and too_early:
            raise InputError(
                f"--grow-nodes builds the first nodes for epoch {FIRST_GROWN_EPOCH}, and the"
                f" curriculum rewards none from epoch {switch} on: set {SOURCE}.switch_epoch="
                f"{FIRST_GROWN_EPOCH + 1} or more"
            )
        overrides.add_default(_GROWN_NODES, Path(run).absolute() / "nodes")
    label = name.encode()[:MAX_LABEL_BYTES].decode(errors="ignore")
    overrides.add_default(f"{SOURCE}.run", label)
    return Training(name, overrides, request.trainer)


def _of_options(request: Request) -> list[str]:
    """Return the overrides of options."""
    model = f"{MODELS[request.model]}-base" if request.model in MODELS else Path(request.model).name
    slug = re.sub(r"[^a-z0-9._-]+", "-", model.lower()).strip("-")
    name = f"{request.algorithm}-{slug}-{request.reward}"
    if request.step_credit:
        name += f"-{STEP_CREDIT}"
    alpha = []
    if request.alpha is not None:
        if request.reward is not RewardKind.LINEAR:
            raise InputError(f"--alpha is for --reward linear, got --reward {request.reward}")
        alpha = [f"{SOURCE}.alpha={request.alpha}"]
        name += f"-alpha{request.alpha}"
    return [
        f"data.train_files={hydra_list(_located(request.train_files))}",
        f"data.val_files={hydra_list(_located(request.val_files))}",
        f"trainer.project_name={PROJECT}",
        *alpha,
        f"trainer.experiment_name={name}",
    ]


def _located(files: Sequence[str]) -> list[str]:
    """Return local files by their absolute paths, remote ones as they are."""
    located = []
    for file in files:
        path = Path(file).expanduser()
        if "://" not in file and not path.is_file():
            raise InputError(f"{file}: no such file")
        located.append(file if "://" in file else str(path.absolute()))
    return located


def worker_address(listening: Address) -> str:
    """Return the address that reward workers use for one at which the server listens."""
    if _is_unspecified(listening.host):
        return str(Address(this_node(), listening.port))
    return str(listening)


def _unreachable(address: str) -> InputError:
    return InputError(
        f"reward workers on other nodes cannot reach {address}; give an address of this node that"
        " they can reach, or 0.0.0.0:PORT to listen on all"
    )


def _is_unspecified(host: str) -> bool:
    return host in ("0.0.0.0", "::", "[::]")


def this_node() -> str:
    """Return the IP by which other nodes reach this one; raise InputError without one."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as outward:
        try:
            # Sends nothing: the kernel only chooses the interface that leads outside.
            outward.connect(("192.0.2.1", 9))
            host: str = outward.getsockname()[0]
        except OSError as error:
            raise InputError(
                f"cannot find the address of this node ({error.strerror}); set --server-address"
            ) from None
    return host
