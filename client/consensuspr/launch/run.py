"""A plan carried out: the server beside the trainings, and all of it ended together.

The server is started, waited for and watched.  One that dies is started anew at the same address,
after pauses that grow to half a minute; as a Ray actor it is in the cluster that verl trains in.
Training is never ended for it: what a sample does meanwhile (wait, be scored in its worker, fail)
is for the reward's own settings, which know how long is too long.

Before the first training ``consensuspr doctor`` looks at its very command, with the server up,
and nothing is trained where it finds a fault.

Server and training run in sessions of their own, so that Ctrl-C in a terminal reaches this
process alone, which passes it on to the training first: rewards are needed until it has ended.
A training that does not end within a minute, or after a second Ctrl-C, is killed with all that
it started.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import IO

from consensuspr.client import Access, RewardClient
from consensuspr.client.training.source import chosen_dataset
from consensuspr.client.verl.config import INSTALL_VERL, SOURCE, verl_is_installed
from consensuspr.credentials import new_token, write_token
from consensuspr.errors import ConsensusPRError, InputError, RewardServiceError
from consensuspr.launch.plan import Plan, ServerPlan, Training, worker_address
from consensuspr.launch.request import ServerKind
from consensuspr.scoring.dataset_index import DatasetIndex
from consensuspr.server.config import Address, load_config
from consensuspr.server.processes import CaughtSignals, caught_signals

# Told what a person must know, a sentence at a time.
Say = Callable[[str], None]

# Loading a large dataset without stored forms takes minutes.
READY_TIMEOUT_S = 1800.0
# A server drains for at most 30 s by default, then kills its workers.
STOP_TIMEOUT_S = 60.0
# For a checkpoint that is being written, and for Ray to take its cluster down.
GRACE_S = 60.0
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 1.0, 30.0
_POLL_S = 0.2

# For a server that listens to say what it serves.
ASK_TIMEOUT_S = 10.0
_OF_ACCESS = ("token_file", "tls_ca", "tls_cert", "tls_key")
_READY = "listening on "
_BAD_INPUT = 2

# Which cluster Ray joins; also read by verl's ray.init.
RAY_ADDRESS = "RAY_ADDRESS"


_DOCTOR = [sys.executable, "-m", "consensuspr.cli", "doctor", "--no-progress", "--"]


def launch(plan: Plan, say: Say, *, examine: bool = True) -> int:
    """Run a plan and return its exit code.

    Args:
        plan: what is run.
        say: told how it goes.
        examine: let the doctor look at the first training before it starts.

    Returns:
        0 where every training ended well; the code of the first that did not, or of the doctor,
        after which no other is started; 128 + its number where a signal ended it or this process.

    Raises:
        InputError: verl is not installed, or the server refuses its settings or its dataset.
        ConsensusPRError: it does not start.
    """
    if plan.trainings[0].trainer.partition(".")[0] == "verl" and not verl_is_installed():
        raise InputError(f"verl is not installed in this environment; install it: {INSTALL_VERL}")
    ending = _ending_signals()
    with (
        _leaving_by(ending),
        _reward_server(plan, say) as address,
        _growing(plan, address, say),
        caught_signals([signal.SIGINT, *ending]) as signals,
    ):
        if examine:
            first = plan.trainings[0]
            code = _run([*_DOCTOR, *first.command(address, _digest(first, address))], signals, say)
            if code:
                say("the doctor found a fault (above), so that nothing is trained")
                return code
        _keep_dataset(plan, say)
        for number, training in enumerate(plan.trainings, start=1):
            say(f"training {number} of {len(plan.trainings)}: {training.name}")
            code = _run(training.command(address, _digest(training, address)), signals, say)
            if code:
                say(f"training {training.name} ended with code {code}")
                return code
    return 0


def _keep_dataset(plan: Plan, say: Say) -> None:
    """Keep the dataset in each run's folder, so that its rewards can be explained from that alone.

    A trainer logs the digest, and has no dataset.  What a run grows is kept as it grows.  A folder
    that only other nodes can write costs the copy, not the run.
    """
    from consensuspr.score_log import keep_dataset  # Arrow is for who logs

    def path_of(training: Training, setting: str) -> Path | None:
        given = training.overrides.value(f"{SOURCE}.{setting}")
        # What Hydra fills in is not known here.
        return None if given in (None, "", "null") or "${" in given else Path(given)

    runs = [run for one in plan.trainings if (run := path_of(one, "score_log")) is not None]
    # Of a server elsewhere, the stand-in's, which has to be the same.
    stand_in = path_of(plan.trainings[0], "dataset_path")
    dataset = stand_in if plan.server is None else plan.server.dataset
    if dataset is None or not runs:
        return
    try:
        derive = "missing" if plan.server is None else plan.server.derive
        index = DatasetIndex.load(dataset, derive=derive)
        for run in runs:
            keep_dataset(run, index)
    except ConsensusPRError as error:
        say(f"the dataset is not kept with the score log ({error}): explain it with --dataset")


def _digest(training: Training, address: str) -> str | None:
    """Return the digest of the dataset that a training begins with, and is to end with.

    None where it cannot be told; the doctor and the training then say why.
    """
    given = training.overrides.below(SOURCE)
    try:
        token_file, tls_ca, tls_cert, tls_key = map(given.get, _OF_ACCESS)
        access = Access(token_file, tls_ca, tls_cert, tls_key)
        with RewardClient(address, ASK_TIMEOUT_S, access=access) as client:
            info = client.server_info()
        return chosen_dataset(info, given.get("dataset"), address).digest
    except (InputError, RewardServiceError):
        return None


def _run(command: Sequence[str], signals: CaughtSignals, say: Say) -> int:
    """Run one command to its end, or to a signal's."""
    process = subprocess.Popen(command, start_new_session=True)
    ended_by: signal.Signals | None = None
    kill_at = float("inf")
    while process.poll() is None:
        select.select([signals.socket], [], [], _POLL_S)
        for number in signals.take():
            if ended_by is None:
                say(f"{number.name}: ending what runs, then the server")
                # SIGHUP would end Python at once, with nothing written.
                process.send_signal(signal.SIGTERM if number == signal.SIGHUP else number)
                ended_by, kill_at = number, time.monotonic() + GRACE_S
            else:
                kill_at = 0.0
        if time.monotonic() >= kill_at:
            say("it does not end; it is killed")
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    if ended_by is not None:
        return 128 + ended_by
    code = process.returncode
    return code if code >= 0 else 128 - code


def _ending_signals() -> list[signal.Signals]:
    """Return what ends a launch besides Ctrl-C.

    SIGHUP, because what is started lives in sessions of its own and would outlast the terminal;
    under nohup it stays ignored.
    """
    hangs_up = signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN
    return [signal.SIGTERM, signal.SIGHUP] if hangs_up else [signal.SIGTERM]


@contextmanager
def _leaving_by(numbers: Sequence[signal.Signals]) -> Iterator[None]:
    """Let signals raise SystemExit, so that what has been started by then is ended.

    It counts while the server starts and stops; in between signals are caught.
    """

    def leave(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    before = {number: signal.signal(number, leave) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _reward_server(plan: Plan, say: Say) -> Iterator[str]:
    """Run the planned server, if there is one, while the block runs; yield its address.

    Raises:
        InputError: the server refuses its settings or its dataset.
        ConsensusPRError: it does not start.
    """
    if plan.server is None:
        yield plan.address
        return
    if plan.server.grown_nodes is not None:
        plan.server.grown_nodes.mkdir(parents=True, exist_ok=True)
    if plan.server.request.server is ServerKind.PROCESS:
        with _ServerProcess(plan.server, say) as server:
            yield worker_address(server.address)
    else:
        with _ray_actor(plan.server, say) as address:
            yield address


@contextmanager
def _growing(plan: Plan, address: str, say: Say) -> Iterator[None]:
    """Let nodes grow, if that is planned, while the block runs.

    Raises:
        ConsensusPRError: it cannot begin; its own words are on standard error.
    """
    command = plan.grower(address)
    if command is None:
        yield
        return
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        ending = threading.Event()

        def watch() -> None:
            code = process.wait()
            if not ending.is_set():
                say(f"nodes grow no more (exit code {code}, above); training goes on with these")

        try:
            assert process.stdout is not None
            begun = process.stdout.readline()
            if not begun:
                raise ConsensusPRError("the nodes of the run cannot grow, as is said above")
            say(begun.strip())
            threading.Thread(target=watch, name="consensuspr-grow", daemon=True).start()
            yield
        finally:
            ending.set()
            _end(process, "what grows the nodes", say)


def _end(process: subprocess.Popen[str], what: str, say: Say) -> None:
    """End a process; kill it where it does not end by itself."""
    process.terminate()
    try:
        process.wait(STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        say(f"{what} does not end; it is killed")
        process.kill()
        process.wait()


class _ServerProcess:
    """``consensuspr serve`` as a child process."""

    def __init__(self, plan: ServerPlan, say: Say) -> None:
        self._plan = plan
        self._say = say
        self._stopping = threading.Event()
        # Held to start a process or to end the last one: none is started after that.
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None
        self._log: IO[bytes] | None = None
        self.address = plan.listen

    def __enter__(self) -> _ServerProcess:
        self._plan.log.parent.mkdir(parents=True, exist_ok=True)
        self._log = self._plan.log.open("ab")
        if self._plan.token_file is not None:
            write_token(self._plan.token_file, new_token())
        self._say(f"starting the reward server; its log is {self._plan.log}")
        try:
            self.address = self._start()
        except BaseException:
            self._end()
            raise
        self._say(f"the reward server is listening on {self.address}")
        threading.Thread(target=self._watch, name="consensuspr-server", daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        self._end()

    def _start(self) -> Address:
        """Start the process and return where it listens, once it does."""
        assert self._log is not None
        log_start = self._plan.log.stat().st_size
        with self._lock:
            if self._stopping.is_set():
                raise ConsensusPRError("the launch is ending")
            process = subprocess.Popen(
                self._plan.command(self.address),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=self._log,
                text=True,
                # Ctrl-C in the terminal is for the launcher, which ends the server last.
                start_new_session=True,
            )
            self._process = process
        lines = process.stdout
        assert lines is not None
        too_late = threading.Timer(READY_TIMEOUT_S, process.kill)
        too_late.daemon = True
        too_late.start()
        with lines:  # it says nothing after that line
            line = lines.readline()
        too_late.cancel()
        if line.startswith(_READY):
            return Address.parse(line.removeprefix(_READY).strip())
        code = process.wait()
        reason = self._last_error(log_start)
        if code == _BAD_INPUT:
            raise InputError(f"the reward server does not start: {reason}")
        raise ConsensusPRError(f"the reward server did not start (exit code {code}): {reason}")

    def _last_error(self, log_start: int) -> str:
        """Return the last line of the log since a place in it."""
        with self._plan.log.open("rb") as log:
            log.seek(log_start)
            lines = log.read().decode("utf-8", "replace").split("\n")
        last = next((line.strip() for line in reversed(lines) if line.strip()), "it said nothing")
        return last.removeprefix("consensuspr: error: ")

    def _watch(self) -> None:
        """Start the server anew whenever it has died."""
        pause_s = _FIRST_PAUSE_S
        while self._process is not None:
            code = self._process.wait()
            if self._stopping.is_set():
                return
            self._say(
                f"the reward server died (exit code {code}), see {self._plan.log}; "
                f"starting it again in {pause_s:g} s"
            )
            if self._stopping.wait(pause_s):
                return
            try:
                self._start()
            except ConsensusPRError as error:
                if self._stopping.is_set():
                    return
                self._say(str(error))
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
            else:
                self._say(f"the reward server is listening on {self.address} again")
                pause_s = _FIRST_PAUSE_S

    def _end(self) -> None:
        with self._lock:
            self._stopping.set()
            process = self._process
        if process is not None:
            _end(process, "the reward server", self._say)
        if self._log is not None:
            self._log.close()


@contextmanager
def _ray_actor(plan: ServerPlan, say: Say) -> Iterator[str]:
    """Run the server as a Ray actor while the block runs; yield its address.

    The actor belongs to this process's Ray job and takes no GPU.  verl starts a cluster of its own
    where it finds none, so that one is started here first, and ``RAY_ADDRESS`` names it during the
    block, for training.

    Raises:
        InputError: Ray is missing, or the server refuses its settings or its dataset.
        ConsensusPRError: it does not start.
    """
    from consensuspr.ray import start_server
    from consensuspr.ray.node import require_ray

    ray = require_ray()
    before = os.environ.get(RAY_ADDRESS)
    ray.init(include_dashboard=False, log_to_driver=False)
    try:
        os.environ[RAY_ADDRESS] = ray.get_runtime_context().gcs_address
        with start_server(plan.dataset, port=plan.listen.port, settings=_settings(plan)) as server:
            if plan.token_file is not None and server.token is not None:
                write_token(plan.token_file, server.token)
            say(f"the reward server is a Ray actor, listening on {server.address}")
            yield server.address
    finally:
        if before is None:
            os.environ.pop(RAY_ADDRESS, None)
        else:
            os.environ[RAY_ADDRESS] = before
        ray.shutdown()


def _settings(plan: ServerPlan) -> dict[str, object]:
    """Return what a user gave of the server's settings, but datasets and address."""
    settings: dict[str, object] = {}
    if plan.request.server_config is not None:
        given = load_config(
            file=plan.request.server_config, overrides={"datasets": {"default": plan.dataset}}
        )
        settings = given.model_dump(mode="json", exclude_unset=True)
        for name in ("datasets", "address"):
            settings.pop(name, None)
    if plan.request.server_workers is not None:
        settings["workers"] = plan.request.server_workers
    if plan.grown_nodes is not None:
        settings["dataset_folder"] = str(plan.grown_nodes)
    return settings
