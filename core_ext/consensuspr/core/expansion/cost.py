"""How far a form is from the expression as written, and how many forms there may be.

The prices are set so that what solutions really write comes first; how often each kind
of form is found, and what it costs in false hits, is in ``docs/quality.md``.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

# Sums and products of more operands keep their order: 5! orders would be 120 forms.
MAX_PERMUTED = 4

# Forms of one expression, the expression itself not counted.
MAX_FORMS = 64

# Rewrites that add up to more than this are not combined.
MAX_COST = 5


# Digits of an arithmetic statement in all, from which on it is unlikely to stand in the
# solutions of other problems: 18/3=6 is said in too many to stand for 9*2/3=6, and 8/2=4
# for 8*0.5=4.  Below it, half of what such forms find is found in wrong places.
MIN_DISTINCTIVE_DIGITS = 6


class Scope(NamedTuple):
    """What holds for the whole statement that a tree is part of.

    Attributes:
        arithmetic: it holds numbers only.  Only then may a factor become a percentage (the
            normal form drops the sign, so that ``25%*x`` would be taken for ``25x``), and
            only then do products within a sum get brackets.
        quotients: a factor 1/2 may become a division by 2 and back.
    """

    arithmetic: bool
    quotients: bool


class Cost(IntEnum):
    """The price of one rewrite; prices add up."""

    ORDER = 1  # operands in another order
    SIDES = 4  # the relation read from the right
    NUMBER = 2  # 0.5 as 1/2
    HUNDREDTHS = 2  # 0.25 as 25/100 or 25%
    BRACKET = 3  # (a+b)-c, a*(b/c)
    STEP = 3  # one operation carried out
    PIECE = 1  # a part of a chain of equalities
