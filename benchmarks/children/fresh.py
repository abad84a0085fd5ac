"""One call in a process of its own, as :func:`benchmarks.processes.fresh` asks for it.

What is called comes pickled on standard input, and so does its result on standard output; what
is printed meanwhile goes to standard error.
"""

from __future__ import annotations

import os
import pickle
import sys

if __name__ == "__main__":
    with os.fdopen(os.dup(1), "wb") as out:
        os.dup2(2, 1)
        function, arguments = pickle.load(sys.stdin.buffer)
        pickle.dump(function(*arguments), out)
