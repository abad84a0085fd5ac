"""The equation reader of the pure-Python engine: equations with names, read from a normal form.

Sides become values (``sides``), pairs of sides keys (``keys``), and a text chains of sides
(``chains``).  The compiled reader does the same, step for step; what an equation is stands in
``docs/concepts/statements.md``, and limits in :mod:`consensuspr.core.algebra`.
"""

from consensuspr.core.pure.algebra.chains import read_facts

__all__ = ["read_facts"]
