"""One call in a process of its own, as :func:`benchmarks.harness.processes.fresh` asks for it.

What is called comes pickled on standard input, and so does its result on standard output.
"""

from __future__ import annotations

import pickle
import sys

if __name__ == "__main__":
    function, arguments = pickle.load(sys.stdin.buffer)
    pickle.dump(function(*arguments), sys.stdout.buffer)
