"""Prepared datasets hold forms: other forms need another version, or old files go on silently."""

from __future__ import annotations

import hashlib
import json

from consensuspr.core import EXPANSION_VERSION, derive_forms

# One of every kind that is treated in its own way, and some of several kinds at once.
EXPRESSIONS = r"""
3+4+5=12
x>=3
0<x<5
60*2/5=24
16-3-4=9
5*100+700=1200
0.25*240=60
A=b*h/2=24
5 cups * $2 = $10
9*2/3=6
48/2=24
a+b=c
9*2=18
x = \frac{3}{4}
x = 0.75
x=-\frac{7}{3}
\frac{a+b}{2}=5
y = 2\frac{1}{2}
p = 25\%
\sqrt{16}=4
\sqrt{50} = 5\sqrt{2}
x^2 + y^2 = 25
x^{-1} = 1/x
(a+b)^2 = a^2+2ab+b^2
(x-1)(x+2) = 0
2*3*5=30
12-5-4=3
a-b = -(b-a)
x < 5
5 \ge y
a \le b < c
a = b = c
x \ne 0
10!=3628800
\binom{5}{2}=10
\log_2 8 = 3
\sin x = \frac{1}{2}
|x-3| = 4
f(2) = 7
a_1 + a_2 = 10
n \equiv 3 \pmod{7}
\{1,2,3\}
(3, 4)
[0, 1)
x \in \{2, 5\}
1{,}000 + 24 = 1024
1,250 * 4 = 5000
3:4
90^\circ
5 \text{ cm}
\$12.50
2\pi r = 6\pi
\frac{1}{2}+\frac{1}{3}=\frac{5}{6}
0.1+0.2=0.3
1.50
100000000000000000000
x=1 or x=2
the total is 40
four apples cost 12
\angle ABC = 60
AB \parallel CD
7
\frac{}{2}
""".strip().splitlines()

# Of the forms of these expressions, by version.
DIGESTS = {"1": "235d38783bf776bb9f19caa2cf793489b381650f5599b4c2943d3e2b350829ba"}


def test_other_forms_have_another_version() -> None:
    forms = json.dumps([derive_forms(text) for text in EXPRESSIONS])
    digest = hashlib.sha256(forms.encode()).hexdigest()
    assert DIGESTS.get(EXPANSION_VERSION) == digest, (
        "derive_forms gives other forms: raise EXPANSION_VERSION and write the new digest here"
    )


def test_the_expressions_have_forms_to_watch() -> None:
    with_forms = [text for text in EXPRESSIONS if derive_forms(text)]
    assert len(with_forms) > len(EXPRESSIONS) / 2
