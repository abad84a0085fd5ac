"""The server beside training: started, waited for, watched, started again, ended.

A server that dies is started anew at the same address, after pauses that grow to half a minute.
Training is never ended for it: what a sample does meanwhile (wait, be scored in its worker,
fail) is for the reward's own settings, which know how long is too long.
"""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO

from consensuspr.errors import ConsensusPRError, InputError
from consensuspr.launch.addresses import worker_address
from consensuspr.launch.plan import Plan, ServerKind, ServerPlan
from consensuspr.server.address import Address

Say = Callable[[str], None]

# Loading a large dataset without stored forms takes minutes.
READY_TIMEOUT_S = 1800.0
# A server drains for at most 30 s by default, then kills its workers.
STOP_TIMEOUT_S = 60.0
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 1.0, 30.0

_READY = "listening on "
_BAD_INPUT = 2


@contextmanager
def reward_server(plan: Plan, say: Say) -> Iterator[str]:
    """Run the planned server, if there is one, while the block runs; yield its address.

    Args:
        plan: what is run.
        say: told what a person must know, a sentence at a time.

    Raises:
        InputError: the server refuses its settings or its dataset.
        ConsensusPRError: it does not start.
    """
    if plan.server is None:
        yield plan.address
    elif plan.server.kind is ServerKind.PROCESS:
        with _ServerProcess(plan.server, say) as server:
            yield worker_address(server.address)
    else:
        from consensuspr.launch.ray_server import ray_server

        with ray_server(plan.server, say) as address:
            yield address


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
            process.terminate()
            try:
                process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self._say("the reward server does not end; it is killed")
                process.kill()
                process.wait()
        if self._log is not None:
            self._log.close()
