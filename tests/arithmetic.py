"""Arithmetic read by Python's own grammar: the oracle of what reads or writes mathematics."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from fractions import Fraction
from types import MappingProxyType

OPERATORS: dict[type[ast.operator], Callable[[Fraction, Fraction], Fraction]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: lambda base, exponent: base ** int(exponent),
}


def exact(source: str, letters: Mapping[str, Fraction] = MappingProxyType({})) -> Fraction:
    """Return the exact value of numbers and letters, ``+ - * / **`` and brackets."""

    def value(node: ast.expr) -> Fraction:
        match node:
            case ast.Constant():
                return Fraction(ast.get_source_segment(source, node) or "")
            case ast.Name():
                return letters[node.id]
            case ast.BinOp():
                return OPERATORS[type(node.op)](value(node.left), value(node.right))
            case ast.UnaryOp(op=ast.USub()):
                return -value(node.operand)
        raise AssertionError(f"{source!r} is no arithmetic")

    return value(ast.parse(source, mode="eval").body)
