"""The comparison of two answers: what is certain, what stays open, intervals against membership."""

from __future__ import annotations

import operator
from fractions import Fraction

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from consensuspr.scoring.answers.compare import (
    compare,
    compare_regions,
    form_of,
    memoised_form,
    read_region,
)
from consensuspr.scoring.answers.normalize import canonical
from tests.linear import assert_linear

# (ground truth, answer, equal)
DECIDED = [
    # rationals
    ("5", "5.0", True), ("5", "6", False), ("0001", "1", True), ("-3", "(-3)", True),
    ("1/2", "0.5", True), (r"\frac{5}{2}", "2.50", True), (r"\frac{1}{2}", r"\frac{2}{4}", True),
    (r"-\frac{1}{2}", r"\frac{-1}{2}", True), (r"-\frac{1}{2}", r"\frac{1}{-2}", True),
    ("13/8", r"1 \frac{5}{8}", True), ("13/8", "1 5/8", True), ("13/8", r"1 \frac{3}{8}", False),
    ("1024", "2^{10}", True), ("0.0075", r"7.5 \times 10^{-3}", True), ("1000000", "1e6", True),
    (r"0.\bar{3}", "1/3", True), ("0.333...", "1/3", True), (r"0.1666\ldots", "1/6", True),
    ("0.333...", "0.333", False), (r"0.\overline{3}", "0.3", False), ("3.1415...", "3.1415", True),
    (r"0.\overline{3}", r"\frac{1}{3}", True), (r"0.1\overline{6}", r"\frac{1}{6}", True),
    # decimals agree to six places
    (r"\frac{1}{12}", "0.0833333333333333", True), (r"\frac{2}{3}", "0.666667", True),
    (r"\frac{2}{3}", "0.67", False), (r"\frac{100}{3}", "33.33", False), ("0.0000001", "0", False),
    ("1.5", "1,5", True),
    # percent is a unit and a hundredth
    (r"28\%", "28", True), (r"28\%", "0.28", True), (r"\frac{3}{4}", r"75\%", True),
    (r"10\%", "1", False),
    # closed forms that differ
    (r"\frac{\sqrt{7}}{12}", "7/12", False),
    (r"\frac{\sqrt{7}}{12}", r"\sqrt{\frac{7}{12}}", False),
    (r"\frac{\sqrt{7}}{12}", "0.22048", False), (r"\sqrt{8}", "2.828427", True),
    (r"12\pi", "36", False), (r"12\pi", r"10\pi", False), (r"\pi", "3.14", False),
    (r"\sqrt{2}", "2^{2000}", False), (r"\sqrt{2}", "2.5^{2000}", False),
    # words
    (r"\text{odd}", "odd", True), ("odd", r"\text{Odd}", True), ("odd", r"\text{oddd}", False),
    ("0", "None", False), ("Tuesday", "Monday", False), (r"\text{(C)}", "C", True),
    ("C", r"\text{(C) } 5", True), ("C", "(D) 5", False), ("4:30 PM", "4:30 AM", False),
    # equations
    ("x=5", "5", True), ("5", "x=5", True), ("11", "x = 5+5+1 = 7 = 11", True),
    ("11", r"x \approx 11", True), ("x=5", "x = 5.0", True), ("(p,q)=(3,2)", "(3,2)", True),
    ("x=1,y=2", "(1,2)", True), ("x=1,y=2", "y=2, x=1", True), (r"x \in [-2,7]", "[-2,7]", True),
    # tuples, intervals, sets, lists
    ("(12/5, 8/5)", "(2.4, 1.6)", True), ("(12/5, 8/5)", "(12/5, 8/5]", False),
    ("(12/5, 8/5)", "4", False), ("(1,2,3)", "(3,2,1)", False), ("(1,2)", "(1,2,3)", False),
    ("(1,2)", r"\left( 1, \frac{4}{2} \right)", True), ("[0,1)", "(0,1)", False),
    (r"\{1,2,3\}", "3, 2, 1", True), (r"\{1,2,3\}", "1, 2", False), ("{1,2}", r"\{2,1\}", True),
    ("1,2,2", "2,1", True), ("24, 28, 3200", r"24, 28, 3,\!200", True),
    ("24, 28, 3200", "28", False), ("(0,0),(1,1)", "(1,1), (0,0)", True),
    ("(0,0),(1,1)", "(1,1), (0,1)", False), ("p=5,q=2;p=7,q=2", "(5,2),(7,2)", True),
    ("p = 5, q = 2 and p = 7, q = 2", "p=5,q=2;p=7,q=2", True), ("1,3", "(1,3)", True),
    # expressions with roots, pi and letters
    (r"\sqrt{8}", r"2\sqrt{2}", True), (r"\frac{1}{\sqrt{2}}", r"\frac{\sqrt{2}}{2}", True),
    (r"\frac{\sqrt{7}}{12}", r"\sqrt{7/144}", True), (r"\frac{9\pi}{4}", r"\frac{9}{4}\pi", True),
    (r"\frac{49\pi}{4}", "49/4*pi", True), (r"\frac{\sqrt{7}}{12}", r"1/12 * \sqrt{7}", True),
    (r"\frac{x}{2}", r"1/2 \cdot x", True), ("12", r"\binom{12}{1}", True),
    (r"{5 \choose 2}", "10", True), (r"{5 \choose 2}", r"{5 \choose 2}+1", False),
    ("x^2-1", "(x+1)(x-1)", True), (r"\frac{x^2-1}{x-1}", "x+1", True),
    (r"\frac{11+9a}{20}", r"\frac{11}{20}+\frac{9a}{20}", True), ("x^2-1", "x^2+1", False),
    ("x^2-1", "y^2-1", False), ("2050", "2550 - 5x", False), ("12", r"12\phi", False),
    ("5", "5x", False), ("xy", "yx", True), ("6-5i", "-5i+6", True), ("6-5i", "6+5i", False),
    ("0.5x", r"\frac{x}{2}", True),
    # equations
    ("2x+4y-3=0", r"y=-\frac{1}{2}x+\frac{3}{4}", True), ("5x-7y+11z+4=0", "-5x+7y-11z=4", True),
    ("5x-7y+11z+4=0", "5x-7y+11z=4", False), ("x^2+y^2=1", "2x^2+2y^2=2", True),
    ("x=5", "5=x", True), ("x=5", "y=5", False), ("2x+z=1", "1", False), ("y=2x+3", "2x+3", True),
    # two signs
    (r"\pm 3", "3,-3", True), ("3,-3", r"\pm 3", True),
    (r"1 \pm \sqrt{19}", r"1-\sqrt{19}, 1+\sqrt{19}", True), (r"\pm\sqrt{3}", r"\pm 3", False),
    (r"\pm\sqrt{3}", r"\sqrt{3}", False),
    (r"\{1\pm\sqrt{5},-2\}", r"-2, 1+\sqrt{5}, 1-\sqrt{5}", True),
    # matrices
    (r"\begin{pmatrix}-1/3\\2\end{pmatrix}", r"\begin{bmatrix}-\frac{1}{3}\\2\end{bmatrix}", True),
    (r"\begin{pmatrix}1&2\\3&4\end{pmatrix}", r"\begin{pmatrix}1&2\\3&5\end{pmatrix}", False),
    (r"\begin{pmatrix}1\\2\end{pmatrix}", r"\begin{pmatrix}1&2\end{pmatrix}", False),
    # sets of real numbers
    (r"(0,9)\cup(9,36)", r"(9,36) \cup (0,9)", True), (r"(0,5]\cup(3,7)", "(0,7)", True),
    (r"(0,9)\cup(9,36)", "(0,36)", False), (r"(-\infty,0]", r"(-\infty,0)", False),
    (r"(-\infty,0]", r"[-\infty,0]", True), (r"(2,\infty)", "(2,5)", False),
    (r"\infty", r"-\infty", False), (r"\infty", "7", False), ("x>3", r"x \ge 3", False),
    (r"x \ge 5", r"5 \le x", True), ("x<1", "-x>-1", True), ("x<1", "y<1", False),
    ("-793<a<10", "(-793,10)", True), ("[1,2]", r"1 \le x \le 2", True), ("x<1", "1", False),
    # bases as they are written
    ("52_8", "52", True), ("52_8", "42_8", False), ("52_8", "52_9", False),
    ("204_5", r"204_{5}", True), ("-204_5", "-204", True), ("204_5", "18.90", False),
    # remainders with their modulus
    ("3", r"x \equiv 3 \pmod{5}", True), (r"x \equiv 3 \pmod{5}", "3", True),
    ("4", r"x \equiv 3 \pmod 5", False), (r"3 \pmod{5}", r"8 \pmod{5}", True),
    (r"3 \pmod{5}", r"7 \pmod{5}", False), (r"3 \pmod{5}", "7", False),
    # differences are no words, and words and orders are no products
    ("x-x", "0", True), ("ab-ba", "0", True), ("a-b", "-b+a", True), ("yes-no", "5", False),
    ("well-known", "0", False), ("abc", "cab", True), ("mn", "nm", True), ("BCA", "ABC", False),
    ("TFT", "TTF", False), ("no", "on", False),
    # brackets behind a letter that are factors for certain
    ("x(x+1)", "x^2+x", True), ("a(b+c)", "ab+ac", True),
    (r"\pi(R^2-r^2)", r"\pi R^2-\pi r^2", True), ("2ab", "2ba", True), ("2xy", "2ab", False),
    ("6", "6 cm", True), (r"d\pi", r"\pi d", True), (r"\mp 3", "3,-3", True),
    ("x^1", "x", True), ("1n", "n", True), ("(a,b)", r"(\frac{2a}{2},b)", True),
    # what stands behind 5 may be an operation
    ("72", "72 inches cubed", True),
    # as people write them
    (r"168+48\sqrt{7}", r"24(7+2\sqrt{7})", True), ("x^2+2x+1", "x^2 + 2*x + 2", False),
    ("y = 2x+3", "y = 3 + 2x", True), (r"(-\infty, 7]", r"x \le 7", True),
    (r"(-\infty, 7]", "x < 7", False), (r"x \in [-2,7]", r"-2 \le x \le 7", True),
    (r"{40 \choose 10}", r"\frac{40!}{10! \cdot 30!}", True), ("3 + 4i", "4i+3", True),
    (r"60^\circ", r"\frac{\pi}{3}", False),
]  # fmt: skip

LEFT_TO_MATH_VERIFY = [
    ("x^2=4", "x=2,-2"), ("(1,3)", "{3,1}"), ("[1,3]", "1,3"), ("(1,2)", "1<x<2"), ("5", "5m"),
    ("3R^2", "3r^2"), ("2i", "(1+i)^2"), (r"\ln(2x)", r"2\ln(x)"), ("f(2x)", "2f(x)"),
    ("ln(2x)", "2ln(x)"), ("1/2x", r"\frac{x}{2}"), (r"\sqrt[3]{2}", r"\sqrt[6]{4}"),
    (r"\sin^2 x", r"1-\cos^2 x"), ("2^{n+1}", r"2 \cdot 2^n"),
    (r"\begin{pmatrix}1\\2\end{pmatrix}", "(1,2)"),
    # derivatives, differentials and differences are no products
    (r"\frac{dy}{dx}", r"\frac{y}{x}"), (r"\frac{d^2y}{dx^2}", r"\frac{dy}{x^2}"),
    (r"\frac{d}{dx}x^2", "x"), (r"\frac{dx}{dt}", r"\frac{x}{t}"),
    (r"\frac{\mathrm{d}y}{\mathrm{d}x}", r"\frac{y}{x}"), (r"\frac{{d}y}{{d}x}", r"\frac{y}{x}"),
    (r"\frac{\partial y}{\partial x}", r"\frac{y}{x}"),
    (r"\frac{d\theta}{dt}", r"\frac{\theta}{t}"), (r"\frac{\Delta y}{\Delta x}", r"\frac{y}{x}"),
    ("dy/dx", "y/x"), ("2xdx", "2dx^2"), ("2", "2dx"), ("2ab", "2"),
    # neither are applied functions
    ("0", "y(0)"), ("0", "y{(0)}"), ("0", "y^{(2)}(0)"), ("0", "3y_1(0)"), ("y^{(2)}", "y^2"),
    ("T(n)", "nT"), ("T(n-1)", "nT-T"), ("a[n]", "an"), (r"\phi(6)", r"6\phi"),
    (r"\Gamma(5)", r"5\Gamma"), (r"\Gamma(\frac{1}{2})", r"\frac{\Gamma}{2}"),
    (r"\zeta(2)", r"2\zeta"), (r"\lambda(2)", r"2\lambda"), (r"\pi(10)", r"10\pi"),
    ("4", r"\pi(10)"), (r"\pi(n)", r"n\pi"),
    # segments and words
    ("AB", "BA"), (r"AB\cdot CD", r"AC\cdot BD"), ("eat", "tea"),
    # an interval that is one number
    ("5", "[5,5]"), ("[5,5]", "5"), ("x=1", "[1,1]"), ("[2,2]", r"\{2\}"), ("1", r"1 \le x \le 1"),
    # remainders
    (r"x \equiv 3 \pmod{5}", "8"), ("2", "2ab"), ("8", r"x \equiv 3 \pmod{5}"),
    (r"3 \pmod{5}", r"3 \pmod{6}"), ("3", r"3 \pmod{0}"),
    # what stands behind a number may be an operation
    ("5", "5 squared"), ("5", "5th power"), ("6n^2+6n", "2n(3)(n+1)"),
]  # fmt: skip


@pytest.mark.parametrize(("gold", "answer", "equal"), DECIDED)
def test_decides(gold: str, answer: str, equal: bool) -> None:
    assert compare(form_of(gold), form_of(answer))[0] is equal


@pytest.mark.parametrize(("gold", "answer"), LEFT_TO_MATH_VERIFY)
def test_leaves_open_what_it_cannot_know(gold: str, answer: str) -> None:
    assert compare(form_of(gold), form_of(answer))[0] is None


# Beyond what a product of two may have, alone or together.
BIG = st.sampled_from(
    ["1", "x", "10^{16}", "(10^{16})^{16}", "(10^{16})^{19}", "9" * 40, "500!", "2^{9999}",
     r"\sqrt{999999937}", r"\pi^{620}", r"1.79769313486231\times 10^{308}", "(x+1)^{16}"]
)  # fmt: skip
FRACTION = st.tuples(BIG, BIG).map(lambda pair: rf"\frac{{{pair[0]}}}{{{pair[1]}}}")
RELATION = st.sampled_from(["<", ">", r"\le ", "=", ",", "+", r"\pi ", r"\pm "])
BIG_ANSWER = st.one_of(FRACTION, st.tuples(FRACTION, RELATION, FRACTION).map("".join))


@example("5", r"\frac{x}{(10^{16})^{16}}<\frac{1}{(10^{16})^{16}}")
@example("1.5", r"1.7976931348623157\times 10^{308}\pi^0\sqrt[3]{1}")
@given(BIG_ANSWER, BIG_ANSWER)
def test_numbers_beyond_the_limits_do_no_harm(gold: str, answer: str) -> None:
    assert compare(form_of(gold), form_of(answer))[0] in (True, False, None)


PIECES = [
    "7", "12", "0", ".5", "10^", "^", "{", "}", "(", ")", "[", "]", ",", ";", "=", "+", "-", "*",
    "/", "!", "x", "ab", " ", "\\", "\\frac", "\\sqrt", "\\pi", "\\pm", "\\text", "\\{", "\\}", "%",
    "\\infty", "\\in", "\\cup", "e9", "and", "\\overline", "2^{9999}", "999!", ":", "pm",
]  # fmt: skip
MATH = st.lists(st.sampled_from(PIECES), max_size=14).map("".join)


@given(MATH, MATH)
def test_any_two_answers_can_be_compared(gold: str, answer: str) -> None:
    there, back = (compare(form_of(a), form_of(b))[0] for a, b in ((gold, answer), (answer, gold)))
    assert there in (True, False, None)
    # Only an equation or a list on one side makes the order matter.
    if there is not back:
        assert {"=", ",", ";", "\\in", "and"} & {
            piece for piece in PIECES if piece in gold + answer
        }


@pytest.mark.parametrize(
    "part", ["1,", "x,", r"\sqrt{2},", "(1,2),", "a=1,", "1;", "((", "=1", r"\in "]
)
def test_comparing_takes_linear_time_in_an_answer(part: str) -> None:
    gold = form_of("1,2,3")

    def read_and_compare(text: str) -> None:
        memoised_form.cache_clear()
        compare(gold, form_of(text))

    assert_linear(read_and_compare, lambda size: part * (size // len(part)))


# Ends are whole; halves tell what lies between two of them.
POINTS = [Fraction(n, 2) for n in range(-22, 42)]
INTERVAL = st.tuples(
    st.sampled_from("(["), st.integers(-10, 9), st.integers(1, 10), st.sampled_from(")]")
)
UNION = st.lists(INTERVAL, min_size=1, max_size=4)
Interval = tuple[str, int, int, str]


def _text(intervals: list[Interval]) -> str:
    return r" \cup ".join(f"{a}{low},{low + width}{b}" for a, low, width, b in intervals)


def _holds(intervals: list[Interval], point: Fraction) -> bool:
    return any(
        (point > low or (a == "[" and point == low))
        and (point < low + width or (b == "]" and point == low + width))
        for a, low, width, b in intervals
    )


@given(UNION, UNION)
def test_unions_are_equal_if_they_hold_the_same_points(
    first: list[Interval], second: list[Interval]
) -> None:
    a, b = read_region(canonical(_text(first))), read_region(canonical(_text(second)))
    assert a is not None and b is not None
    same = all(_holds(first, point) is _holds(second, point) for point in POINTS)
    assert compare_regions(a, b, _text(first)) is same


SIGNS = {"<": operator.lt, ">": operator.gt, r"\le ": operator.le, r"\ge ": operator.ge}
LINE = st.tuples(
    st.integers(-3, 3).filter(bool), st.integers(-6, 6), st.sampled_from(sorted(SIGNS))
)


@given(LINE, LINE)
def test_inequalities_are_equal_if_the_same_points_solve_them(
    first: tuple[int, int, str], second: tuple[int, int, str]
) -> None:
    regions = [read_region(canonical(f"{a}x{sign}{b}")) for a, b, sign in (first, second)]
    assert regions[0] is not None and regions[1] is not None
    # Bounds are multiples of 1/3 and 1/2: sixths lie on them and between them.
    points = [Fraction(n, 12) for n in range(-100, 101)]
    solved = [[SIGNS[sign](a * x, b) for x in points] for a, b, sign in (first, second)]
    assert compare_regions(regions[0], regions[1], "") is (solved[0] == solved[1])


@pytest.mark.parametrize(
    "text",
    ["", "5", "(1,2", "(2,1)", "(1,x)", r"(1,\sqrt{2})", "x<", "x<y", "x<1<2", "|x|<1", "x^2<1",
     "(0,1)" + r"\cup(0,1)" * 20, "(1,2,3)", "0<x<0"],
)  # fmt: skip
def test_reads_nothing_else(text: str) -> None:
    assert read_region(canonical(text)) is None
