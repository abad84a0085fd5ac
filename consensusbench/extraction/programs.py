"""The steps of program code in a rollout as equations: ``48/2=24`` of ``may = april / 2``.

Straight-line code is followed with exact numbers; nothing is executed.  The core decides what is
code (:mod:`consensuspr.core`).  Left out: loops, branches, comprehensions and what they assign;
calls but those that round; values that no short decimal writes, and what is computed from them.
"""

from __future__ import annotations

import ast
import re
import textwrap
import warnings
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Final, NamedTuple

from consensuspr.core.pure.statements.code import split_code

# Longer code is a program, not a solution; the parser's own limits are far above.
MAX_CODE_CHARS: Final = 1 << 15
# Characters of an equation.
MAX_EQUATION_CHARS: Final = 120
# Digits behind the point that an operand may have, and those that a result is rounded to.
MAX_PLACES: Final = 4
MAX_VALUE: Final = 10**15
MAX_EXPONENT: Final = 16

# Seen through: their value is that of their first argument where it is whole already.
_TRANSPARENT: Final = frozenset(("int", "float", "abs", "round", "Rational", "Integer", "Fraction"))
_OPERATIONS: Final[dict[type[ast.operator], tuple[str, int]]] = {
    ast.Add: ("+", 1),
    ast.Sub: ("-", 1),
    ast.Mult: ("*", 2),
    ast.Div: ("/", 2),
    ast.Pow: ("^", 3),
}
_ATOM: Final = 4
_PROMPT: Final = re.compile(r"^(?:>>>|\.\.\.) ?", re.MULTILINE)


class Equation(NamedTuple):
    """One step of a program.

    Attributes:
        text: the equation, for example ``48/2=24``.
        start: place of its line in the response, in code points.
    """

    text: str
    start: int


class _Known(NamedTuple):
    """A value with how it is written and how tightly that binds."""

    value: Fraction
    text: str
    binding: int
    operations: int


def read_equations(response: str) -> list[Equation]:
    """Return the distinct steps of the code of a response, in order."""
    reader = _Reader()
    for start, end, is_code in split_code(response):
        if is_code and end - start <= MAX_CODE_CHARS:
            reader.read(response[start:end], start)
    return list(reader.found.values())


@dataclass(slots=True)
class _Reader:
    """Reads the code of one response, whose parts share their names."""

    names: dict[str, _Known] = field(default_factory=dict)
    found: dict[str, Equation] = field(default_factory=dict)

    def read(self, code: str, start: int) -> None:
        """Read one part; what the parser refuses is passed over."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # about escapes in what is never run
                tree = ast.parse(textwrap.dedent(_PROMPT.sub("", code)))
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return
        lines = [start]
        for line in code.splitlines(keepends=True):
            lines.append(lines[-1] + len(line))
        self._block(tree.body, lines)

    def _block(self, body: list[ast.stmt], lines: list[int]) -> None:
        for statement in body:
            match statement:
                case ast.FunctionDef():
                    arguments = statement.args
                    for one in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
                        self.names.pop(one.arg, None)  # whatever it is called with
                    self._block(statement.body, lines)
                case ast.Assign(targets=[ast.Name(id=name)], value=value):
                    self._assign(name, value, lines)
                case ast.Assign(targets=[ast.Tuple(elts=names)], value=ast.Tuple(elts=values)) if (
                    len(names) == len(values)
                ):
                    known = [self._state(value, lines) for value in values]
                    for target, given in zip(names, known, strict=True):
                        self._put(target, given)
                case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                    self._assign(name, value, lines)
                case ast.AugAssign(target=ast.Name(id=name), op=op, value=value):
                    left = ast.copy_location(ast.Name(name, ast.Load()), statement)
                    self._assign(
                        name, ast.copy_location(ast.BinOp(left, op, value), statement), lines
                    )
                case ast.Return(value=ast.expr() as value) | ast.Expr(value=value):
                    self._show(value, lines)
                case _:
                    self._forget(statement)

    def _show(self, value: ast.expr, lines: list[int]) -> None:
        if isinstance(value, ast.Call) and _name(value.func) == "print":
            for argument in value.args:
                self._state(argument, lines)
        else:
            self._state(value, lines)

    def _assign(self, name: str, value: ast.expr, lines: list[int]) -> None:
        known = self._state(value, lines)
        if known is None:
            self._forget(value)
            self.names.pop(name, None)
        else:
            self.names[name] = known

    def _put(self, target: ast.expr, known: _Known | None) -> None:
        if isinstance(target, ast.Name) and known is not None:
            self.names[target.id] = known
        else:
            self._forget(target)

    def _forget(self, tree: ast.AST) -> None:
        """Forget every name that a loop, a branch or anything else not followed may assign."""
        for node in ast.walk(tree):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store | ast.Del):
                self.names.pop(node.id, None)

    def _state(self, tree: ast.expr, lines: list[int]) -> _Known | None:
        """Note what an expression works out; return its value as one number."""
        try:
            known = self._evaluate(tree)
        except RecursionError:
            return None
        if known is None:
            return None
        shown = _written(known.value)
        said = shown or _rounded(known.value)
        if known.operations and said is not None:
            text = f"{known.text}={said}"
            if len(text) <= MAX_EQUATION_CHARS:
                place = lines[min(tree.lineno, len(lines)) - 1]
                self.found.setdefault(text, Equation(text, place))
        return None if shown is None else _Known(known.value, shown, _ATOM, 0)

    def _evaluate(self, tree: ast.expr) -> _Known | None:
        match tree:
            case ast.Constant(value=int() | float() as number) if not isinstance(number, bool):
                return _number(ast.unparse(tree))
            case ast.Name(id=name):
                return self.names.get(name)
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                inner = self._evaluate(operand)
                if inner is None:
                    return None
                text = inner.text if inner.binding == _ATOM else f"({inner.text})"
                return _Known(-inner.value, f"-{text}", 1, inner.operations)
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATIONS:
                return _combine(self._evaluate(left), op, self._evaluate(right))
            case ast.BinOp(left=left, op=ast.FloorDiv(), right=right):
                known = _combine(self._evaluate(left), ast.Div(), self._evaluate(right))
                return known if known is not None and known.value.denominator == 1 else None
            case ast.Call(func=function, args=[argument, *rest]) if (
                _name(function) in _TRANSPARENT and not tree.keywords
            ):
                if rest and _name(function) in ("Rational", "Fraction"):
                    return _combine(self._evaluate(argument), ast.Div(), self._evaluate(rest[0]))
                known = self._evaluate(argument)
                return known if known is not None and known.value.denominator == 1 else None
        return None


def _name(tree: ast.expr) -> str:
    return tree.id if isinstance(tree, ast.Name) else ""


def _number(text: str) -> _Known | None:
    try:
        value = Fraction(text.replace("_", ""))
    except (ValueError, ZeroDivisionError):
        return None
    shown = _written(value)
    return None if shown is None else _Known(value, shown, _ATOM, 0)


def _combine(left: _Known | None, op: ast.operator, right: _Known | None) -> _Known | None:
    if left is None or right is None:
        return None
    sign, binding = _OPERATIONS[type(op)]
    value = _result(left.value, sign, right.value)
    if value is None or abs(value) > MAX_VALUE:
        return None
    # A quotient or difference on the right, a power on the left, stand in brackets.
    first = left.text if left.binding > binding - (sign != "^") else f"({left.text})"
    second = right.text if right.binding > binding else f"({right.text})"
    text = f"{first}{sign}{second}"
    if len(text) > MAX_EQUATION_CHARS:
        return None
    return _Known(value, text, binding, left.operations + right.operations + 1)


def _result(left: Fraction, sign: str, right: Fraction) -> Fraction | None:
    if sign == "+":
        return left + right
    if sign == "-":
        return left - right
    if sign == "*":
        return left * right
    if sign == "/":
        return left / right if right else None
    if right.denominator != 1 or abs(right) > MAX_EXPONENT or (right < 0 and not left):
        return None
    return Fraction(left**right.numerator)


def _written(value: Fraction) -> str | None:
    """Return a value as it is written with few decimals; None where it is not."""
    scaled = value * 10**MAX_PLACES
    if scaled.denominator != 1 or abs(value) > MAX_VALUE:
        return None
    whole, rest = divmod(abs(scaled.numerator), 10**MAX_PLACES)
    shown = f"{whole}.{rest:0{MAX_PLACES}d}".rstrip("0").rstrip(".") if rest else str(whole)
    return f"-{shown}" if value < 0 else shown


def _rounded(value: Fraction) -> str | None:
    """Return a value with two decimals, if it shows some: others do not look like rounded ones.

    Nor do negative ones to whoever checks their arithmetic.
    """
    shown = _written(Fraction(round(value * 100), 100))
    return shown if shown is not None and "." in shown and value > 0 else None
