"""The worker's own side: text is refused, memory errors are not swallowed.

In processes of their own, for hardening takes SymPy's parser away from the whole process.
"""

from __future__ import annotations

import subprocess
import sys
import textwrap


def run(source: str) -> subprocess.CompletedProcess[str]:
    program = textwrap.dedent(
        """
        from consensuspr.scoring.answers import symbolic
        symbolic.warm_up()
        symbolic.harden()
        """
    ) + textwrap.dedent(source)
    return subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120
    )


CALLS = [
    "sympy.sympify('x+1')",
    "sympy.sympify('__import__(\"os\").getpid()')",
    "sympy.parsing.sympy_parser.parse_expr('1+1')",
    "sympy.parsing.sympy_parser.eval_expr('1+1', {}, {})",
    "math_verify.parser.parse_expr('1+1')",
    "sympy.S('2*x')",
    "sympy.Number('1_0')",
]


def test_nothing_evaluates_text_any_more() -> None:
    done = run(
        f"""
        import sympy, math_verify
        for call in {CALLS!r}:
            try:
                exec(call)
            except (symbolic.EvaluationForbidden, sympy.SympifyError):
                print(call)
        """
    )
    assert done.stdout.splitlines() == CALLS
    assert done.stderr == ""


def test_number_literals_are_still_numbers() -> None:
    done = run(
        """
        import sympy
        print(sympy.Number("007"), sympy.Number("1000.99"), sympy.Number(".5"), sympy.Number("1e3"))
        """
    )
    assert done.stdout.split() == ["7", "1000.99000000000", "0.500000000000000", "1000.00000000000"]


def test_running_out_of_memory_is_told_from_being_different() -> None:
    done = run(
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
        """
    )
    assert (done.stdout, done.stderr) == ("noticed\n", "")


def test_a_confined_process_has_no_way_out() -> None:
    done = run(
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
        """
    )
    assert done.stdout == "7\n"
