"""Which wordings are false, garbled or name nothing, and which share a small value by chance."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consensusbench.extraction.wordings import Fault, fault_of, merged_values

FAULTY = {
    Fault.FALSE: (
        "2+2=5", "2=C(4,2)C(6,2)", r"\binom{4}{2} = 7", r"2048 \equiv 9 \pmod{17}",
        "-1≡15 mod 17", "x = 3 = 4", "(5)(C(4,2)) = 31",
    ),
    Fault.BRACKET: ("(x+1)(x-1", r"(\frac12\right)^2 = \frac14", "1) x=5", r"\frac{1}{2 = 0.5"),
    Fault.MARKUP: (
        "25 + 8 = **33**", "**Total = 5**", "x** = 5", "x &= 3", "603 - 3 \\\\\n&= 600", "`x = 5`",
        "(1-a)(1-b)$$\n$$= 12", "# x = 5", "x = 5<br>", "so $x", r"x = 7 \tag{2}",
    ),
    Fault.OPERATOR: ("3+", "25+8=", "x=(3+)", "/4 = 5", "3 + 4 =", r"x \le", "< 5", "n^"),
    Fault.WORDS: (
        "mod 210", "me 507", "110 mod", "wait", "generically 16", "that's 404", "x = 5 and",
        "so x = 5", "15 = 17-2 mod",
    ),
}  # fmt: skip
SOUND = (
    "25 + 8 = 33", "2**3 = 8", "1+2+...", r"1+2+\cdots+n = 5", r"\{3,4,7\}", "[0,1)",
    r"x \in (2,5]", "2+17*9=155 mod 289", "-1≡16 mod 17", r"n^4 \equiv -1 \pmod p", "= 8321",
    "$5 + $3 = $8", r"\$5+\$3=\$8", "3*4=12$", "f^{-1}(3) = 2", r"\left(x+1\right)=3", "n is even",
    r"2\cdot3!\cdot4!=288", "product is equal to 1", "3 hours", "-5", "2 dozen = 24",
    r"\frac{2}{5}\text{ hour} = 24", "1/3 = 0.33", r"\sqrt{12} = 2\sqrt3", "50% of 30 = 15",
    "110, 134, 155, and 179", "exactly 51", "404 values", r"answer is \boxed{73}", "2 m = 200 cm",
    r"1000\equiv 6,\quad 100\equiv 2 \pmod 7", r"f(x) = \left\{ x \right.", "|x-3| = 5",
    r"\begin{pmatrix} 1 & 2 \\ 3 & 4 \end{pmatrix}", "", "x^* = 3", "C(4,2) = 6", "5! = 120",
    "2i", "3a", "#S = 5", "0<n>m",
)  # fmt: skip
MERGED = (
    (r"\sin(8π·0)=0", "u=0", "h(1/4)=0"), ("p=27", "a^2+2ab=27"), ("C(4,4)=1", "i = 1"),
    ("D(0)=0", "t=0"), (r"\cos(90°)=0", "k = 0"), ("3+4=7", "x=7", "g(2)=7"),
    ("48+24 = 72", r"24 \times 3 = 72"),
)  # fmt: skip
ONE = (
    ("3*10=30", "total=30", "60/2=30", "x=30"), ("x=30", "N=30"), ("2*2=4", "k=4"),
    ("n_1 = 8", "k_1 = 8"), ("x^2+y^2=41", "a^2+b^2=41"), (r"\binom{7}{2}=21", "N=21"),
    ("p=1234", "a^2+2ab=1234"), ("H(1)=1", "F(1)=1"), ("x = 1/8", "(1/2)^3=1/8"),
    ("3*4=12", "4+4+4=12"), ("24*30=720", "240+480=720"), ("60+12=72", "75-3=72"),
    ("2x+(2/√3)y=1", "x/(1/2) + y/(√3/2) = 1"), ("mean = 5", "a+b=5"), ("f(x)=3", "(5x-3)/(x+4)=3"),
)  # fmt: skip


@pytest.mark.parametrize(
    ("wording", "fault"),
    [(text, fault) for fault, texts in FAULTY.items() for text in texts]
    + [(text, None) for text in SOUND],
)
def test_the_fault_of_a_wording(wording: str, fault: Fault | None) -> None:
    assert fault_of(wording) is fault


@pytest.mark.parametrize(
    ("wordings", "merged"), [(one, True) for one in MERGED] + [(one, False) for one in ONE]
)
def test_wordings_that_share_a_small_value_alone(wordings: tuple[str, ...], merged: bool) -> None:
    assert (merged_values(wordings) is not None) is merged


@given(st.lists(st.text(alphabet="x12=+*^()[]{}$\\& \nCmod,≡é\ud800", max_size=60), max_size=4))
def test_any_text_is_judged(wordings: list[str]) -> None:
    for wording in wordings:
        assert fault_of(wording) in (None, *Fault)
    assert merged_values(wordings) is None or len(wordings) > 1
