"""From what a user asks for to the commands that are run, with nothing started yet.

Where the server listens follows from where verl runs.  verl spreads its reward workers over all
nodes of the Ray cluster, in turns.  On one machine the loopback interface serves them all and is
closed to everybody else.  With several nodes, or with a Ray cluster that is there already and may
have several, the address has to be one of this node's that the others reach.  A server that
listens there has a token of its own, in a file beside the log, unless its settings say otherwise.
"""

from __future__ import annotations

import ipaddress
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
from consensuspr.launch.request import Request, ServerKind
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

# Stands for the IP of the node that an actor will be on.
ACTORS_HOST = "NODE_IP"


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

    def command(self, address: str, digest: str | None = None) -> list[str]:
        """Return the command.

        Args:
            address: of the server.
            digest: of its dataset, which is to stay the same, unless it grows; None: it is not
                known yet.
        """
        known = [f"+{SOURCE}.address={hydra_text(address)}"]
        given = self.overrides.below(SOURCE)
        if digest is not None and not {"expect_digest", "grown_nodes"} & given.keys():
            known.append(f"+{SOURCE}.expect_digest={hydra_text(digest)}")
        return [sys.executable, "-m", self.trainer, *self.overrides.arguments(), *known]


@dataclass(frozen=True, slots=True)
class ServerPlan:
    """The server that is started: what was asked for, what it serves and where it listens.

    Attributes:
        token_file: of a token that is made for it; None: its settings say who may call it.
        grown_nodes: folder of datasets that grow with the run; None: none grow.
        derive: which forms of nodes it derives, which the dataset's digest depends on.
    """

    request: Request
    dataset: Path
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
        words += ["--dataset", f"default={self.dataset}", "--address", str(listen)]
        if self.token_file is not None:
            words += ["--token-file", str(self.token_file)]
        if self.request.server_workers is not None:
            words += ["--workers", str(self.request.server_workers)]
        if self.request.server_config is not None:
            words += ["--config", str(self.request.server_config)]
        if self.grown_nodes is not None:
            # One that is started anew serves what the run has grown until then.
            words += ["--dataset-folder", str(self.grown_nodes)]
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

    def grower(self, address: str) -> list[str] | None:
        """Return the command that has nodes grow, at a server's address; None: none grow."""
        if self.server is None or self.server.grown_nodes is None:
            return None
        words = [sys.executable, "-m", "consensusbench.cli", "grow"]
        words += [str(self.server.grown_nodes.parent), "--dataset", str(self.server.dataset)]
        words += ["--address", address]
        for name in ("token_file", "tls_ca"):
            value = self.trainings[0].overrides.value(f"{SOURCE}.{name}")
            if value is not None:
                words += [f"--{name.replace('_', '-')}", value]
        return words

    def script(self) -> str:
        """Return the plan as commands that can be pasted into a shell."""
        parts = []
        if self.server is not None and self.server.request.server is ServerKind.RAY:
            parts.append(f"# a Ray actor serves {self.server.dataset} at {self.address}")
        elif self.server is not None:
            if self.server.token_file is not None:
                make = [sys.executable, "-m", "consensuspr.cli", "token"]
                parts.append(_shell([*make, str(self.server.token_file)]))
            if self.server.grown_nodes is not None:
                parts.append(_shell(["mkdir", "-p", str(self.server.grown_nodes)]))
            parts.append(_shell(self.server.command(self.server.listen)) + " &")
        grower = self.grower(self.address)
        if grower is not None:
            parts.append(_shell(grower) + " &")
        parts += [_shell(training.command(self.address)) for training in self.trainings]
        return "\n\n".join(parts)


def _shell(command: Sequence[str]) -> str:
    """Return a command for a shell: what is run on one line, then each setting on its own."""
    lines: list[list[str]] = [[]]
    for word in command:
        if word.startswith("--") or ("=" in word and not lines[-1][0].startswith("--")):
            lines.append([])
        lines[-1].append(shlex.quote(word))
    return " \\\n    ".join(" ".join(line) for line in lines)


def make_plan(request: Request, overrides: Sequence[str], environment: Mapping[str, str]) -> Plan:
    """Put recipes, options and overrides together and check them.

    Args:
        request: what is asked for.
        overrides: of Hydra, by the user; they win.
        environment: variables of the process; ``RAY_ADDRESS`` is looked at.

    Raises:
        InputError: something in it is wrong, would be ignored or does not fit together.
    """
    own = [line for path in request.recipe for line in read_recipe(path)] + list(overrides)
    alphas = request.runs()
    _refuse_clashes(own, sweep=len(alphas) > 1)
    if request.grow_nodes:
        _refuse_growth(request, sweep=len(alphas) > 1)
    trainings = tuple(_training(request, alpha, own) for alpha in alphas)
    # Reward workers may run on other nodes than this one.
    cluster = environment.get("RAY_ADDRESS", "")
    nodes = trainings[0].overrides.value("trainer.nnodes")
    other_nodes = nodes not in (None, "1") or cluster not in ("", "local")
    read_here = not other_nodes or (
        request.address is None and request.server is ServerKind.PROCESS
    )
    if request.dataset is not None and read_here:
        if not request.dataset.exists():
            raise InputError(f"{request.dataset}: no such file")
        if request.dataset.is_dir():
            raise InputError(f"{request.dataset}: is a directory, not a file")
    for training in trainings:
        if request.dataset is not None and not other_nodes and not request.grow_nodes:
            # On another node there may be no such file, and a reward worker that is told of one
            # does not start without it.
            training.overrides.add_default(f"{SOURCE}.dataset_path", request.dataset.absolute())
        check_overrides(training.overrides)
    if request.address is not None:
        for one in split_addresses(request.address):
            if other_nodes and is_local(one):
                raise _unreachable(one)
        return Plan(None, request.address, trainings)
    if request.dataset is None:
        raise InputError("give --dataset PATH for the server that is started, or --address of one")
    listen = _listen_address(request, other_nodes)
    config = load_config(
        file=request.server_config,
        environment=environment,
        overrides={"datasets": {"default": request.dataset}},
    )
    reachable = request.server is ServerKind.RAY or not is_loopback(listen.host)
    token_file = None
    if reachable and config.token_file is None and not config.insecure:
        token_file = request.log_dir.absolute() / "server.token"
    shown = token_file or config.token_file
    for training in trainings:
        if shown is not None and f"{SOURCE}.token_file" not in training.overrides:
            # With a plus: no recipe names it.
            training.overrides.add([f"+{SOURCE}.token_file={hydra_text(shown.absolute())}"])
    grown_nodes = None
    if request.grow_nodes:
        grown_nodes = Path(trainings[0].overrides.value(_GROWN_NODES) or "")
        if config.dataset_folder is not None:
            raise InputError(
                f"with --grow-nodes the server's dataset_folder is the run's, {grown_nodes};"
                f" its settings have {config.dataset_folder}"
            )
    server = ServerPlan(
        request, request.dataset.absolute(), listen, token_file, grown_nodes, config.derive
    )
    return Plan(server, worker_address(listen), trainings)


def _refuse_clashes(own: Sequence[str], *, sweep: bool) -> None:
    """Refuse settings that two places give, or that would make runs of a sweep the same."""
    given = Overrides(own)
    if f"{SOURCE}.address" in given:
        raise InputError(f"give the address of a server as --address, not as {SOURCE}.address")
    if f"{SOURCE}.reward" in given:
        raise InputError(f"give the reward as --reward, not as {SOURCE}.reward")
    for key in (f"{SOURCE}.alpha", "trainer.experiment_name", f"{SOURCE}.score_log"):
        if sweep and key in given:
            raise InputError(f"{key} cannot be set for a sweep: each run has its own")


def _refuse_growth(request: Request, *, sweep: bool) -> None:
    """Refuse what growing nodes do not go with."""
    if request.address is not None:
        raise InputError(
            "--grow-nodes is for the server that is started here; beside a server of your own run"
            " consensusbench grow"
        )
    if sweep:
        raise InputError("--grow-nodes makes nodes of one run: start the runs of --alphas apart")
    if request.reward is RewardKind.OUTCOME:
        raise InputError("--grow-nodes has no use with --reward outcome, which rewards no nodes")
    switch = 1 if request.switch_epoch is None else request.switch_epoch
    if request.reward is RewardKind.CURRICULUM and switch <= FIRST_GROWN_EPOCH:
        raise InputError(
            f"with --grow-nodes the first nodes come with epoch {FIRST_GROWN_EPOCH}, and the"
            f" curriculum rewards none from epoch {switch} on: give --switch-epoch"
            f" {FIRST_GROWN_EPOCH + 1} or more"
        )


def _training(request: Request, alpha: float | None, own: Sequence[str]) -> Training:
    """Return a run for one alpha, None: the recipe's.

    The later wins: our recipes, then what options say, then the user's own overrides.
    """
    overrides = Overrides()
    for topic in (COMMON, request.algorithm):
        overrides.add(recipe(topic))
    if request.model in MODELS:
        overrides.add(recipe(MODELS[request.model]))
    else:
        _check_model(request.model)
        overrides.add([f"actor_rollout_ref.model.path={hydra_text(request.model)}"])
    overrides.add(recipe(request.reward))
    if request.step_credit:
        if request.reward is RewardKind.OUTCOME:
            raise InputError("--step-credit places node rewards, and --reward outcome has none")
        overrides.add(recipe(STEP_CREDIT))
    overrides.add(_of_options(request, alpha))
    overrides.add(own)
    name = overrides.value("trainer.experiment_name") or PROJECT
    overrides.add_default(f"{SOURCE}.score_log", request.log_dir.absolute() / "scores" / name)
    if request.grow_nodes:
        run = overrides.value(f"{SOURCE}.score_log")
        if run in (None, "null"):
            raise InputError(f"--grow-nodes reads the score log, and {SOURCE}.score_log is {run}")
        if overrides.value(f"{SOURCE}.ncr") == "weighted":
            raise InputError(
                "--grow-nodes does not go with ncr=weighted: the dataset that a run begins with has"
                " no weights"
            )
        overrides.add_default(_GROWN_NODES, Path(run).absolute() / "nodes")
    # As much of it as the protocol takes.
    label = name.encode()[:MAX_LABEL_BYTES].decode(errors="ignore")
    overrides.add_default(f"{SOURCE}.run", label)
    return Training(name, overrides, request.trainer)


def _check_model(model: str) -> None:
    """Refuse what is neither a folder here, nor a name at the hub, nor a remote address.

    Raises:
        InputError: it is none of them, such as a misspelt size.
    """
    is_folder = bool(model) and Path(model).is_dir()
    if not (is_folder or _HUB_NAME.fullmatch(model) or "://" in model):
        raise InputError(
            f"--model must be {', '.join(MODELS)}, a folder on this machine, or a name at the hub"
            f" as ORGANISATION/NAME, got {model!r}"
        )


def _of_options(request: Request, alpha: float | None) -> list[str]:
    """Return the overrides that stand for options."""
    model = f"{MODELS[request.model]}-base" if request.model in MODELS else Path(request.model).name
    slug = re.sub(r"[^a-z0-9._-]+", "-", model.lower()).strip("-")
    name = f"{request.algorithm}-{slug}-{request.reward}"
    given = [
        f"data.train_files={hydra_list(_located(request.train_files))}",
        f"data.val_files={hydra_list(_located(request.val_files))}",
        f"trainer.project_name={PROJECT}",
    ]
    for option, value, reward in (
        ("switch_epoch", request.switch_epoch, "curriculum"),
        ("alpha", alpha, "linear"),
    ):
        if value is None:
            continue
        if request.reward != reward:
            raise InputError(
                f"--{option.replace('_', '-')} belongs to the {reward} reward, and the reward is"
                f" {request.reward}"
            )
        given.append(f"{SOURCE}.{option}={value}")
    for option, wanted in (("guard", request.guard), ("statements", request.statements)):
        if wanted is not None:
            # With a plus: no recipe names it.
            given.append(f"+{SOURCE}.{option}={wanted}")
            name += f"-{option}" if wanted else f"-no-{option}"
    for option, choice in (("code", request.code), ("unanswered", request.unanswered)):
        if choice is not None:
            given.append(f"+{SOURCE}.{option}={choice}")
            name += f"-{option}-{choice}"
    if request.step_credit:
        name += f"-{STEP_CREDIT}"
    if alpha is not None:
        name += f"-alpha{alpha}"
    return [*given, f"trainer.experiment_name={name}"]


def _located(files: Sequence[str]) -> list[str]:
    """Return local files by their absolute paths, remote ones as they are.

    Raises:
        InputError: there is no such file.
    """
    located = []
    for file in files:
        path = Path(file).expanduser()
        if "://" not in file and not path.is_file():
            raise InputError(f"{file}: no such file")
        located.append(file if "://" in file else str(path.absolute()))
    return located


def _listen_address(request: Request, other_nodes: bool) -> Address:
    """Return where the server is to listen.

    Raises:
        InputError: what was given is no address, or reward workers cannot reach it.
    """
    given = request.server_address
    if request.server is ServerKind.RAY:
        # Ray places it, and it listens at its node's IP.
        address = Address.parse(given or f"0.0.0.0:{DEFAULT_PORT}")
        if not _is(address.host, "unspecified"):
            raise InputError(
                f"a Ray actor listens at its node's IP; give its port as 0.0.0.0:PORT, got {given}"
            )
        return Address(ACTORS_HOST, address.port)
    if given is None:
        return Address(this_node() if other_nodes else "127.0.0.1", DEFAULT_PORT)
    address = Address.parse(given)
    if other_nodes and is_local(given) and not _is(address.host, "unspecified"):
        raise _unreachable(given)
    return address


def worker_address(listening: Address) -> str:
    """Return the address that reward workers are told, for one at which the server listens."""
    if _is(listening.host, "unspecified"):
        return str(Address(this_node(), listening.port))
    return str(listening)


def _unreachable(address: str) -> InputError:
    """Return what is raised for an address that means another machine on each node."""
    return InputError(
        f"reward workers run on every node and cannot reach {address} from another one; "
        "give an address of this node that the others reach, or 0.0.0.0:PORT to listen on all"
    )


def _is(host: str, kind: str) -> bool:
    try:
        return bool(getattr(ipaddress.ip_address(host), f"is_{kind}"))
    except ValueError:
        return False


def this_node() -> str:
    """Return the IP by which other nodes reach this one.

    Raises:
        InputError: it has none.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as outward:
        try:
            # Sends nothing: the kernel only chooses the interface that leads outside.
            outward.connect(("192.0.2.1", 9))
            host: str = outward.getsockname()[0]
        except OSError as error:
            raise InputError(
                f"the address of this node cannot be found ({error.strerror}); give it"
            ) from None
    return host
