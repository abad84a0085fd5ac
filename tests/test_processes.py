"""An interrupted test run leaves no process behind."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.processes import RUN_VARIABLE, is_alive, wait_until_gone

# Starts a process in a session of its own, as servers and Ray do, prints its number and is killed.
KILLED = """
import os, signal, subprocess, sys
from tests.processes import end_descendants_with_this_process
end_descendants_with_this_process()
process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"],
                           start_new_session=True)
print(process.pid, flush=True)
sys.stdin.read(1)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_descendants_end_with_a_run_that_is_killed(repository: Path) -> None:
    assert RUN_VARIABLE in os.environ, "this run has a reaper of its own"
    environment = {name: value for name, value in os.environ.items() if name != RUN_VARIABLE}
    command = [sys.executable, "-c", KILLED]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=repository, env=environment
    ) as run:
        assert run.stdin is not None and run.stdout is not None
        descendant = int(run.stdout.readline())
        assert is_alive(descendant)
        run.stdin.write(b"x")
        run.stdin.flush()
    wait_until_gone([descendant])
