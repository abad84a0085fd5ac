"""Carry out a plan: the server beside the training, and all of it ended together.

Server and training run in sessions of their own. Ctrl-C in a terminal reaches this process alone,
which ends the training first, because training needs rewards until it has ended.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import BinaryIO

from consensuspr.client import Access, RewardClient
from consensuspr.client.training.source import chosen_dataset
from consensuspr.client.verl.config import INSTALL_VERL, SOURCE, verl_is_installed
from consensuspr.console import one_line
from consensuspr.credentials import new_token, write_token
from consensuspr.errors import ConsensusPRError, InputError, RewardServiceError
from consensuspr.launch.plan import Plan, ServerPlan, Training, worker_address
from consensuspr.scoring.dataset_index import DatasetIndex
from consensuspr.server.config import Address

# Loading a large dataset without stored forms takes minutes.
READY_TIMEOUT_S = 1800.0
# A server drains for at most 30 s by default, then kills its workers.
STOP_TIMEOUT_S = 60.0
# For a checkpoint that is being written, and for Ray to take its cluster down.
GRACE_S = 60.0
FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 30.0
ASK_TIMEOUT_S = 10.0

_READY = "listening on "
_BAD_INPUT = 2
_DOCTOR = [sys.executable, "-m", "consensuspr.cli", "doctor", "--no-progress", "--"]


class _Signalled(SystemExit):
    """A signal asks this process to end; the exit code is 128 + its number."""

    def __init__(self, number: signal.Signals) -> None:
        super().__init__(128 + number)
        self.number = number


def launch(plan: Plan, *, examine: bool = True) -> int:
    """Run a plan and return its exit code: the training's, or the doctor's if it found a fault.

    Args:
        plan: to run.
        examine: run the doctor on the training before it starts.

    Raises:
        InputError: verl is not installed, or the server rejects its settings or its dataset.
        ConsensusPRError: the server does not start.
        SystemExit: a signal ended the launch; the code is 128 + its number.
    """
    if plan.training.trainer.partition(".")[0] == "verl" and not verl_is_installed():
        raise InputError(f"verl is not installed in this environment; install it: {INSTALL_VERL}")
    with _ending_by_signals(), _reward_server(plan) as address, _growing(plan, address):
        command = plan.training.command(address, _digest(plan.training, address))
        if examine:
            code = _run([*_DOCTOR, *command])
            if code:
                _say("the doctor found a fault (above); the training does not start")
                return code
        _keep_dataset(plan)
        _say(f"training {plan.training.name}")
        code = _run(command)
        if code:
            _say(f"training {plan.training.name} ended with code {code}")
        return code


def _say(sentence: str) -> None:
    """Print progress for the user."""
    print(f"consensuspr: {one_line(sentence, 2000)}", file=sys.stderr, flush=True)


@contextmanager
def _ending_by_signals() -> Iterator[None]:
    """Raise in the main thread when a signal asks this process to end."""

    def leave(number: int, frame: FrameType | None) -> None:
        raise _Signalled(signal.Signals(number))

    numbers = [signal.SIGINT, signal.SIGTERM]
    # What is started lives in sessions of its own and would outlast the terminal; under nohup
    # SIGHUP stays ignored.
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        numbers.append(signal.SIGHUP)
    before = {number: signal.signal(number, leave) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _run(command: Sequence[str]) -> int:
    """Run one command to its end; a signal ends it, and a second one kills it."""
    process = subprocess.Popen(command, start_new_session=True)
    try:
        code = process.wait()
    except _Signalled as ended:
        _say(f"{ended.number.name}: ending the training, then the server")
        # SIGHUP would end Python at once, with nothing written.
        hung_up = ended.number == signal.SIGHUP
        process.send_signal(signal.SIGTERM if hung_up else ended.number)
        try:
            process.wait(GRACE_S)
        except (subprocess.TimeoutExpired, _Signalled):
            _say("it does not end; killing it")
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        raise
    return code if code >= 0 else 128 - code


def _digest(training: Training, address: str) -> str | None:
    """Return the digest that the dataset must keep; None if it is not known.

    The doctor and the training print the reason then.
    """
    given = training.overrides.below(SOURCE)
    try:
        files = (given.get(name) for name in ("token_file", "tls_ca", "tls_cert", "tls_key"))
        access = Access(*files)  # type: ignore[arg-type]  # no more than these four
        with RewardClient(address, ASK_TIMEOUT_S, access=access) as client:
            info = client.server_info()
        return chosen_dataset(info, given.get("dataset"), address).digest
    except (InputError, RewardServiceError):
        return None


def _keep_dataset(plan: Plan) -> None:
    """Keep the dataset in the run's folder, so that its rewards can be explained from that alone.

    A folder that only other nodes can write costs the copy, not the run.
    """
    from consensuspr.score_log import keep_dataset

    def path_of(setting: str) -> Path | None:
        given = plan.training.overrides.value(f"{SOURCE}.{setting}")
        # What Hydra fills in is not known here.
        return None if given in (None, "", "null") or "${" in given else Path(given)

    run, server = path_of("score_log"), plan.server
    dataset_path = server.dataset_path if server else path_of("dataset_path")
    if dataset_path is None or run is None:
        return
    try:
        derive = server.derive if server else "missing"
        keep_dataset(run, DatasetIndex.load(dataset_path, derive=derive))
    except ConsensusPRError as error:
        _say(f"the dataset is not copied to the score log ({error}); explain needs --dataset")


@contextmanager
def _reward_server(plan: Plan) -> Iterator[str]:
    """Run the planned server, if there is one, while the block runs; yield its address."""
    if plan.server is None:
        yield plan.address
        return
    if plan.server.grown_nodes is not None:
        plan.server.grown_nodes.mkdir(parents=True, exist_ok=True)
    server = _ServerProcess(plan.server)
    try:
        server.start()
        _say(f"the reward server is listening on {server.address}")
        threading.Thread(target=server.watch, name="consensuspr-server", daemon=True).start()
        yield worker_address(server.address)
    finally:
        server.child.end()


@contextmanager
def _growing(plan: Plan, address: str) -> Iterator[None]:
    """Grow nodes, if that is planned, while the block runs."""
    command = plan.grower(address)
    if command is None:
        yield
        return
    child = _Child("the growing of nodes")

    def watch() -> None:
        code = child.wait()
        if not child.ending.is_set():
            _say(f"no more nodes are built (exit code {code}, above); the training goes on")

    try:
        begun = child.start(command)
        if not begun:
            raise ConsensusPRError("building nodes did not start, see above")
        _say(begun.strip())
        threading.Thread(target=watch, name="consensuspr-grow", daemon=True).start()
        yield
    finally:
        child.end()


class _Child:
    """A process beside the training, in a session of its own."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.ending = threading.Event()
        # Held to start a process or to end the last one: none is started after that.
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None

    def start(self, command: Sequence[str], errors: BinaryIO | None = None) -> str:
        """Start it; return the first line that it prints, empty if it ends without one."""
        with self._lock:
            if self.ending.is_set():
                raise ConsensusPRError("the launch is ending")
            process = self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                start_new_session=True,
            )
        too_late = threading.Timer(READY_TIMEOUT_S, process.kill)
        too_late.daemon = True
        too_late.start()
        assert process.stdout is not None
        with process.stdout as lines:  # it prints nothing after that line
            line = lines.readline()
        too_late.cancel()
        return line

    def wait(self) -> int:
        """Wait for its end and return its exit code."""
        assert self._process is not None, "it was started"
        return self._process.wait()

    def end(self) -> None:
        """End it; kill it if it does not end, or if a signal arrives meanwhile."""
        with self._lock:
            self.ending.set()
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except (subprocess.TimeoutExpired, _Signalled):
            _say(f"{self._name} does not end; killing it")
            self._process.kill()
            self._process.wait()


class _ServerProcess:
    """``consensuspr serve`` as a child process that is restarted when it dies."""

    def __init__(self, plan: ServerPlan) -> None:
        self._plan = plan
        self.child = _Child("the reward server")
        self.address = plan.listen
        plan.log.parent.mkdir(parents=True, exist_ok=True)
        if plan.token_file is not None:
            write_token(plan.token_file, new_token())
        _say(f"starting the reward server; its log is {plan.log}")

    def start(self) -> None:
        """Start the process and wait until it listens; raise an error with its last line."""
        with self._plan.log.open("ab") as log:
            log_start = log.tell()
            line = self.child.start(self._plan.command(self.address), log)
        if line.startswith(_READY):
            self.address = Address.parse(line.removeprefix(_READY).strip())
            return
        code = self.child.wait()
        text = self._plan.log.read_bytes()[log_start:].decode("utf-8", "replace")
        reason = (text.strip().splitlines() or ["it logged nothing"])[-1]
        reason = reason.removeprefix("consensuspr: error: ")
        if code == _BAD_INPUT:
            raise InputError(f"the reward server does not start: {reason}")
        raise ConsensusPRError(f"the reward server did not start (exit code {code}): {reason}")

    def watch(self) -> None:
        """Restart the server whenever it dies."""
        pause_s = FIRST_PAUSE_S
        while True:
            code = self.child.wait()
            if self.child.ending.is_set():
                return
            _say(
                f"the reward server died (exit code {code}), see {self._plan.log}; "
                f"restarting it in {pause_s:g} s"
            )
            if self.child.ending.wait(pause_s):
                return
            try:
                self.start()
            except ConsensusPRError as error:
                if not self.child.ending.is_set():
                    _say(str(error))
                pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
            else:
                _say(f"the reward server is listening on {self.address} again")
                pause_s = FIRST_PAUSE_S
