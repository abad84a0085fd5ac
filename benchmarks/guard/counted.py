"""The process that is counted: ``python -m benchmarks.guard.counted INPUTS SCRATCH RESULT``.

It marks the beginning and the end of each probe with a call of a C function that nothing else
calls, at which callgrind writes down what was executed since the last one.  So start-up,
imports and checks are not part of any count, and no symbol of the core is needed.
"""

from __future__ import annotations

import gc
import json
import os
import sys
from pathlib import Path

from benchmarks.guard import inputs
from benchmarks.guard.probes import probes

# The C function that ``mark`` calls.
MARK = "getpgrp"
mark = os.getpgrp


def main(words: list[str]) -> int:
    """Run all probes; write name, kind, unit and units of each, in the order of their marks."""
    source, scratch, result = map(Path, words)
    done: list[dict[str, str | int]] = []
    # The first call also binds the function; its count belongs to no probe.
    mark()
    for probe in probes(inputs.read(source), scratch):
        if not probe.check(probe.run(0)):
            print(f"{probe.name}: the result is wrong, so nothing is counted", file=sys.stderr)
            return 1
        gc.collect()
        gc.disable()
        mark()
        probe.run(1)
        mark()
        gc.enable()
        done.append(
            {"name": probe.name, "kind": probe.kind, "unit": probe.unit, "units": probe.units}
        )
    result.write_text(json.dumps(done), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
