"""The worker's own side: text is refused, memory errors are not swallowed.

In a process of its own, which forks for each case: hardening takes SymPy's parser away from the
whole process, and a case may take away more.
"""

from __future__ import annotations

from textwrap import dedent

import pytest

from tests.commands import run_python

PROGRAM = """
import os, sys
from consensuspr.scoring.answers import symbolic
symbolic.warm_up()
symbolic.harden()
for name, source in zip(sys.argv[1::2], sys.argv[2::2]):
    print("#", name, flush=True)
    if not os.fork():
        exec(source, {"symbolic": symbolic})
        sys.stdout.flush()
        os._exit(0)
    os.wait()
"""
CALLS = [
    "sympy.sympify('x+1')", "sympy.sympify('__import__(\"os\").getpid()')",
    "sympy.parsing.sympy_parser.parse_expr('1+1')",
    "sympy.parsing.sympy_parser.eval_expr('1+1', {}, {})", "math_verify.parser.parse_expr('1+1')",
    "sympy.S('2*x')", "sympy.Number('1_0')",
]  # fmt: skip
# What is run in a hardened process, and the lines that it prints.
CASES = {
    "nothing evaluates text any more": (
        f"""
        import sympy, math_verify
        for call in {CALLS!r}:
            try:
                exec(call)
            except (symbolic.EvaluationForbidden, sympy.SympifyError):
                print(call)
        """,
        CALLS,
    ),
    "number literals are still numbers": (
        """
        import sympy
        for literal in ("007", "1000.99", ".5", "1e3"):
            print(sympy.Number(literal))
        """,
        ["7", "1000.99000000000", "0.500000000000000", "1000.00000000000"],
    ),
    "running out of memory is not a difference": (
        """
        import math_verify.grader
        def full(*arguments):
            raise MemoryError
        for name in ("simplify", "solve", "safe_sympy_doit"):
            hungry = getattr(math_verify.grader, name)
            assert hungry.__wrapped__ is not None, name
        math_verify.grader.simplify = symbolic._escalating(full)
        try:
            symbolic.equal("x+1", "x+2+x", "")
        except symbolic.OutOfMemory:
            print("noticed")
        """,
        ["noticed"],
    ),
    "a confined process has no way out": (
        """
        import os, socket, subprocess, sys
        from consensuspr.scoring.answers import worker
        sys.addaudithook(worker._refuse_side_effects)
        refused = 0
        for attempt in (
            lambda: os.system("true"),
            lambda: subprocess.run(["true"]),
            lambda: open("/tmp/should-not-be", "w"),
            lambda: os.fork(),
            lambda: os.remove("/tmp/should-not-be"),
            lambda: socket.socket().connect(("127.0.0.1", 9)),
            lambda: os.kill(os.getppid(), 0),
        ):
            try:
                attempt()
            except PermissionError:
                refused += 1
        print(refused)
        """,
        ["7"],
    ),
    "a worker loads neither the core nor numpy": (
        """
        import sys
        from consensuspr.scoring.answers import pool, worker
        print([name for name in ("consensuspr.core", "numpy", "grpc") if name in sys.modules])
        """,
        ["[]"],
    ),
}


@pytest.fixture(scope="module")
def printed() -> dict[str, list[str]]:
    """The lines that each case printed."""
    cases = [word for name, (source, _) in CASES.items() for word in (name, dedent(source))]
    done = run_python("-c", PROGRAM, *cases)
    assert (done.code, done.err) == (0, "")
    parts = [part.splitlines() for part in done.out.split("# ")[1:]]
    return {name: lines for name, *lines in parts}


@pytest.mark.parametrize("name", CASES)
def test_a_hardened_process(printed: dict[str, list[str]], name: str) -> None:
    assert printed[name] == CASES[name][1]
