"""The whole step again and again, for a profiler to look at; runs in verl's environment.

Prints ``ready CLIENT_PID SERVER_PID`` when all is warm and goes on until its input ends.
"""

from __future__ import annotations

import os
import sys
import tempfile
import threading
from pathlib import Path

from benchmarks.harness.runner import serving
from benchmarks.suites.step import loop, material, whole
from benchmarks.suites.step.measuring import ROLLOUTS, SIZE

_SEED = 20
_WARM = 3


def main() -> None:
    """Score a step through the reward manager until nobody listens any more."""
    data = Path(sys.argv[1]) if len(sys.argv) > 1 else None
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        step = material.step(ROLLOUTS, SIZE, _SEED, data, scratch)
        with serving(step.dataset, scratch) as (address, server):
            texts = loop.LookUp([row["response"] for row in step.rows])
            worker = loop.Worker(loop.config(loop.service(address)), texts)
            run = whole.managed(worker, loop.batch(step, lambda at, text: [at]))
            for _ in range(_WARM):
                step.check("consensuspr's manager", run())
            print("ready", os.getpid(), server, flush=True)
            left = threading.Event()
            threading.Thread(target=_listen, args=(left,), daemon=True).start()
            while not left.is_set():
                run()


def _listen(left: threading.Event) -> None:
    sys.stdin.read()
    left.set()


if __name__ == "__main__":
    main()
