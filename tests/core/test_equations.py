"""Equations: which ones are equal, what is counted, both engines alike, bounded work."""

from __future__ import annotations

import random
import time
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consensuspr.core import algebra
from consensuspr.core.algebra import PRIME, SQUARES, Fact, FactKind, FactRun
from consensuspr.core.patterns import Channel, Hit
from consensuspr.core.pure.algebra import read_facts
from tests.core.conftest import alike

native = pytest.importorskip("consensuspr.core.native.algebra", reason="no compiled core")

LETTERS = "abcdefghijklmnopqrstuvwxyz"


def facts_of(form: str) -> list[Fact]:
    return [fact for run in read_facts(form.encode()) for fact in run.facts]


def key_of(form: str) -> int:
    """The key of the one equation that a normal form is."""
    return facts_of(form)[-1].keys[0]


def renamed_key_of(form: str) -> int:
    return facts_of(form)[-1].renamed


# One line each: normal forms of equal equations.
EQUAL = """
x+y=5 | y+x=5 | 5=x+y | 2x+2y=10 | x+y-5=0 | -x=y-5
x/y=3/z | xz=3y | 3y=xz
a^2-b^2=c | (a-b)(a+b)=c
1/x+1/y=1/6 | 6x+6y=xy
√8x=y | 2√2x=y | y/x=√8
C(5,2)x=y | 10x=y
4!x=y | 24x=y | 6*4x=y
7!!x=y | 105x=y
x^-2=y | 1/x^2=y
2^(3)x=y | 8x=y
x^(1/2)=y+z | √x=y+z
2 1/2x=y | 5x=2y
0.(3)x=y | x=3y
0.1(6)x=y | x=6y
sin2x=y+1 | y+1=sin(2x)
2sinxcosx=y | y=2cosxsinx
sin^2x+cos^2y=z | cos^2y=z-sin^2x
|a-b|=c+1 | |b-a|=c+1
∠abc+x=90 | ∠cba+x=90
V_cube+x=3 | x=3-V_cube
a_(n+1)=a_n+2 | a_n-a_(n+1)=-2
f(x+1)=y+1 | f(1+x)=1+y
x_ny=3+z | yx_n=3+z
πr^2=A+1 | A=r^2π-1
logab=c+1 | log(ab)=1+c
m∠abc+x=90 | ∠cba+x=90
x<y+1 | y+1>x | y>x-1
x≤3 | 3≥x
n≡3 mod 7 | n≡-4 mod 7 | n-3≡0 mod 7
n^2≡2 mod 5 | n^2+3≡0 mod 5
n^2≡1 mod p | 1≡n^2 mod p | n^2-1≡0 mod p | n^2=1 modulo p
n≡3 mod 7 | n=3 mod 7 | n≡3 modulo 7
n≡3 mod 1000 | n≡3 mod 10^3
2016≡16 mod 1000 | 2016 mod 1000=16
-x=3 | x=-3 | 3=-x
-sinx=1/2 | sinx=-1/2
AB*CD=25 | DC*BA=25 | CD=25/AB
AB^2=25+x | (BA)^2-x=25
AB=5 | |BA|=5
AB/CD=EF/GH | AB*GH=CD*EF
1/2AB*AC sinA=6 | AC*AB sinA=12
log_xy=10/x | x log_xy=10 | x lny=10 lnx | xlogy=10logx | lny/lnx=10/x
ln8=x+y | y+x=3 ln2
log(x^2y)=z | z=log(yx^2)
log_ab*log_bc=y+1 | log_ac=y+1
log_(ab)x=y+1 | y=log_(ab)(x)-1
sin x/2=y+1 | sin(x/2)=1+y
sin θ/2 cos θ/2=1/4 | cos(θ/2)sin(θ/2)=1/4
b=r cot A/2+x | b-x=rcot(A/2)
x^3+y^3=(x+y)(x^2-xy+y^2) | (y+x)(x^2+y^2-yx)=y^3+x^3
log_xy*log_yx=1 | 1=log_yx*log_xy
gcd(12,18)=n+1 | gcd(18,12)=1+n
max(x,y)=z+1 | z=max(y,x)-1
[abc]=x+1 | [cab]=1+x | [Δbca]-x=1
area(Δabc)=7 | area(bca)=7
2 sinx cosx=y | y=2cosxsinx | 1/2y=cosx sinx
1/2ab sinC=6 | 12=absinC
x log_xy=10+z | xlog_x(y)-z=10
x=2,3 | x=3 or x=2 | x∈3,2 | x=2 and x=3
x=±3 | x=-3 or x=3 | x=3,-3
x=1±√2 | x=1+√2,1-√2 | x=1-√2 or x=1+√2
x=±√5 | x=√5,-√5
(x,y)=(2,3) | y=3,x=2
P=(2,x+1) | P=(6/3,1+x)
2^10≡24 mod 1000 | 24≡2^10 mod 1000
""".strip().splitlines()

# Each differs from all others.
DIFFERENT = """
x+y=5; x-y=5; x+y=6; x+2y=5; xy=5; x^y=5; x+y^2=5; x+z=5; X+y=5; x=5; x=5y; 3x=15;
sinx=5; cosx=5; sin^2x=5; f(x)=5; g(x)=5; log_2x=5; logx=5; x!=5; |x|=5; √x=5; ∛x=5; x1=5; x2=5;
x_n=5; x'=5; ∠abc=5; ∠acb=5; [abc]=5; P(X=2)=5; x<5; x≤5; x>5; x≥5; n≡5 mod 7; n≡5 mod 8;
n≡4 mod 7; 2n≡5 mod 7; C(5,2)=10; 5*2=10; √9=3; √16=4; 3!=6; 2,3,5; 3,5,7; 2,3,5,7;
AB=5; AC=5; ab=5; AB*CD=5; AC*BD=5; AB/AC=5; DB/DC=5; x^2-y^2=(x-y)(x+y); x^2-y^2=(x+y)^2-2y(x+y);
lnx=5; log_3x=5; log_ax=5; log_x2=5; log(x+1)=5; sin x/2=5; sinx/2=5; log_2(x^2)=5;
x=1,y=2; x=2,y=1; (x,y)=(5,2); (x,y)=(2,5); P=(2,5); P=(5,2); P=(2,5,0); x=±5; x=2,5; x∈2,7;
y=2,5; -x=5; gcd(x,2)=5; gcd(x,3)=5; [abd]=5; [abcd]=5; n≡5 mod p; n≡5 mod q; n≡4 mod p;
x=10/2; x=5!/24; area=5; perimeter=5; 0.3x=y; 0.(3)x=y; x=π; x=√2; x=2√2
""".replace("\n", " ").split(";")


@pytest.mark.parametrize("line", EQUAL)
def test_equal_equations_share_a_key(line: str) -> None:
    keys = [
        {key for fact in facts_of(form.strip()) for key in fact.keys} for form in line.split(" | ")
    ]
    assert all(keys)
    assert set.intersection(*keys)


def test_other_equations_have_other_keys() -> None:
    forms = [form.strip() for form in DIFFERENT]
    keys = [facts_of(form)[-1].keys[0] for form in forms]
    assert len(set(keys)) == len(forms)


def test_names_are_free_in_renamed_keys_only() -> None:
    one, other = "x^2+3xy-2y=41", "b^2-2a=41-3ab"
    assert key_of(one) != key_of(other)
    assert renamed_key_of(one) == renamed_key_of(other) != 0
    assert renamed_key_of("x^2+3xy-2x=41") != renamed_key_of(one)
    assert renamed_key_of("x=5") == 0  # solved
    assert renamed_key_of("a+b+c+d+f=7") == 0  # more names than are tried


@given(st.randoms())
@alike()
def test_linear_equations_are_equal_if_they_are_proportional(rng: random.Random) -> None:
    first, second = ([rng.randint(-4, 4) for _ in range(3)] for _ in range(2))
    if rng.random() < 0.5:
        factor = rng.choice([-6, -2, 4, 1])  # half of it
        second = [factor * value for value in first]
        first = [2 * value for value in first]

    def form(numbers: list[int]) -> str:
        a, b, c = numbers
        terms = [f"{a}x", f"{b}y"]
        rng.shuffle(terms)
        return "+".join(terms).replace("+-", "-") + f"={c}"

    if not (any(first[:2]) and any(second[:2])):
        return
    a, b = first, second
    proportional = all(a[i] * b[j] == a[j] * b[i] for i in range(3) for j in range(3))
    assert (key_of(form(a)) == key_of(form(b))) == proportional


PIECES = [
    *"x y z a b AB abc f g P C ( ) ( ) [ ] | | + - * / ^ ! !! = = = ≈ < > ≤ ≥ ≡ ≠ , , ;".split(),
    *": . ? 1 2 3 10 45 0.5 2.25 0.(3) √ ∛ π ∠ θ ∞ sin cos log_2 ln sinx total cost and or".split(),
    *"mod _ _n _(n+1) ' 1/2 999999999999999999 1234567890123456789 gcd max C(5,2) 0 -1".split(),
    *"Δ Δabc [abc] ± ±3 ∈ (2,3) (x,y) (x,y)=(2,3) P=(1,2) x=2,3 -x=".split(),
    *("因", "∩", " ", " ", " ", " mod 7", " mod p", " mod 2^3", " modulo 7", "\n", "\n\n"),
    *(" cosx", " sin", "2 sinx"),
]


@given(st.lists(st.sampled_from(PIECES), max_size=40).map("".join))
@alike(2)
def test_both_engines_read_the_same(form: str) -> None:
    assert native.read_facts(form.encode()) == read_facts(form.encode())


@given(st.binary(max_size=60))
@alike()
def test_any_bytes_are_read(form: bytes) -> None:
    assert native.read_facts(form) == read_facts(form)


def test_no_two_random_equations_share_a_key(full: bool) -> None:
    rng = random.Random(7)
    seen: dict[int, tuple[Fraction, ...]] = {}
    for _ in range(1_000_000 if full else 5_000):
        a, b, c, d = (rng.randint(1, 400) for _ in range(4))
        [run] = native.read_facts(f"{a}x^2+{b}xy-{c}y={d}".encode())
        normed = tuple(Fraction(value, a) for value in (b, c, d))
        assert seen.setdefault(run.facts[-1].keys[0], normed) == normed


def test_the_prime_has_the_roots(repository: Any) -> None:
    assert PRIME % 8 == 7
    assert pow(3, PRIME - 1, PRIME) == 1
    assert all(pow(prime, (PRIME - 1) // 2, PRIME) == 1 for prime in SQUARES)
    text = (repository / "core_ext/consensuspr/core/native/field.pxi").read_text()
    assert f"0x{PRIME:X}u" in text


# --- matching -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("node", "text", "reached"),
    [
        ("x=6", "x = 12/2", False), ("x=6", "x = 12/2 = 7", False), ("x=12/2", "x = 6", True),
        ("x=6", "x = 12/2 = 6", True), ("x=6", "x = 12/2 = 6 > 0", True),
        ("x=6", "y = x = 12/2 = 6", True), ("V=216", "$V = s^3 = 6^3 = 216 > 200$", True),
        ("N=360", r"$N = 12 \cdot 30 = 360 = 2^3 \cdot 3^2 \cdot 5$", True),
        ("d=5", r"$d = \sqrt{25} = 5 < 6$", True), ("x=1/2", "x = 2/4", True),
        ("x=(14+4)/2, y=5", "x = 9, y = 5", True), ("x=9, y=5", "x = (14+4)/2, y = 5", False),
        ("(x,y)=(4/2,3)", "(x,y)=(2,3)", True), ("(x,y)=(2,3)", "(x,y)=(4/2,3)", False),
        ("P=(2,5)", "P=(6/3,5)", False), ("P=(2,5)", "P=(6/3,5)=(2,5)", True),
        ("P=(6/3,5)", "P=(2,5)", True), ("P=(1/2,5)", "P=(2/4,5)", True),
        (r"x=\pm3", r"x=\pm6/2", False), (r"x=\pm6/2", "x=3,-3", True), ("x=2,3", "x=4-2,3", False),
        ("{2,3,4}", "4/2, 3, 4", False), ("{4/2,3,4}", "3, 2, 4", True),
        ("{2,3,4}, 5", "2, 3, 4, 10/2", False), ("{2,3,x+1}", "2, x+1, 3", True),
        ("x=6000", r"x = 6 \cdot 10^3", True), ("6000=x", r"x = 6.0 \times 10^{3}", True),
        ("x=-6500", r"x = -6.5 \times 10^3", True), ("x=60000", r"x = 60 \times 10^3", False),
        ("x=1000", "x = 10^3", False), ("x=60", r"x = 6 \cdot 10", False),
        (r"\binom42/21=6/21", "6/21 = 2/7", False), (r"\binom42/21=6/21", r"\binom42/21=2/7", True),
    ],
)  # fmt: skip
def test_a_value_is_written_out(engine: Any, node: str, text: str, reached: bool) -> None:
    assert engine.Matcher([[node]]).match(text) == [reached]


def test_a_hit_names_its_place_and_its_channel(engine: Any) -> None:
    matcher = engine.Matcher([["x+y=5"], ["x=2"]])
    text = "So **5 = y + x** holds, hence $x = 6/3 = 2$."
    assert matcher.hits(text) == [
        Hit(5, 14, "x+y=5", Channel.EQUATION),
        Hit(31, 42, "x=2", Channel.EQUATION),
    ]
    assert matcher.spans(text, statements=False) == [None, None]


def test_equations_of_the_problem_reach_no_node(engine: Any) -> None:
    node = [["9/s+t/60=4"]]
    text = "we have $4 = \\frac{t}{60} + \\frac 9s$"
    assert engine.Matcher(node).match(text) == [True]
    assert engine.Matcher(node, given="walks $\\frac{9}{s}+\\frac{t}{60}=4$").match(text) == [False]


def test_a_rare_equation_may_have_other_names(engine: Any) -> None:
    text = "$a^2 + b = 7$"
    assert engine.Matcher([["x^2+y=7"]]).match(text) == [False]
    assert engine.Matcher([["x^2+y=7"]], rare=["x^2+y=7"]).match(text) == [True]


@pytest.mark.parametrize(
    ("nodes", "text", "count"),
    [
        ([["x+y=5"]], "x+y=5, y+x=5, a=1", 1),  # two equations, the first one twice
        ([["x+y=5"]], "\n".join(f"x + y = {n}" for n in range(60)), 20),
        ([["x+y=5"]], "x<5, 1,2,3, 3!=6", 0),  # of other kinds
        ([["x<5"]], "x<5, x<6, x=1", 1),
        ([["x=2, y=3"]], "x=1 and y=1. x=2, y=2. x=1, y=2", 2),  # a pair of old ones
        ([["1/x=y"]], "x+y=5, (x+y)/z=5/z, (x+y-5)/1=0", 1),
        ([["3*4=12"]], "x+y=5", 0),  # arithmetic has its own count
    ],
)
def test_equations_of_wanted_kinds_are_counted(
    engine: Any, nodes: list[list[str]], text: str, count: int
) -> None:
    [found] = engine.match_batch([engine.Matcher(nodes)], [text]).num_equations.tolist()
    assert found == count


@given(st.lists(st.sampled_from([f"{a}{r}{b}" for a in "xyz" for r in "=<" for b in "123"])))
@alike(0.2)
def test_what_reaches_a_node_is_counted(engine: Any, wordings: list[str]) -> None:
    matcher = engine.Matcher([[wording] for wording in dict.fromkeys(wordings)])
    batch = engine.match_batch([matcher], [". ".join(wordings)])
    reached = [number for number in batch.channels(0).tolist() if number == Channel.EQUATION]
    assert 3 * batch.num_equations[0] >= len(reached)


@pytest.mark.parametrize(
    "unit",
    [
        "x=", "=", "x=1,", "x=1;" * 1000 + " ", "(x=", "x+y=z ", "a^2-b^2=c^2-d^2 ", "√(",
        "1/(1+", "x^", "999!", "C(9,", "|x", "x^99^", "sin", "≡1 mod 7 ", "n≡1 mod 2 ", "1,2,",
        "x and ", "x=1 and ", "∠", "[abc]=", "log_2 3",
    ],
)  # fmt: skip
def test_hostile_equations_are_read_in_bounded_time(unit: str, full: bool) -> None:
    # Each byte costs some microseconds at most, however the rest goes on.
    form = (unit * 100_000)[: 1 << (20 if full else 17)].encode()
    start = time.process_time()
    native.read_facts(form)
    assert time.process_time() - start < 20e-6 * len(form)


def test_nodes_that_say_more_than_one_thing_have_no_key() -> None:
    def keys(text: str) -> list[Any]:
        def read(expression: str) -> tuple[bytes, list[FactRun]]:
            return expression.encode(), read_facts(expression.encode())

        return algebra.equation_keys([[text]], read, lambda _: False, "", frozenset())

    assert keys("t=24 minutes")
    assert keys("x=2 and y=3")[0].kind is FactKind.JOINED
    assert keys("2,3,5")[0].kind is FactKind.LIST
    for text in ("b=1 gives 252", "x=1 so y=2", "the sum x=1", "2,3", "the total is 5", "x=1=2"):
        assert not keys(text), text


@pytest.mark.parametrize(
    ("node", "text", "reached"),
    [
        ("{2,5,11}", "The primes are 2, 5, and 11.", True),
        ("{2,5,11}", "The primes are $2$, $5$, or $11$.", True),
        ("{2,5,11}", "The primes are 2, 5, 11, and 13.", False),
        ("{2,5,11}", "$2,5,\\ldots,11$", False),
        ("{2,5,11}", "$\\{2,5,11,\\dots\\}$", False),
        ("x=2, y=3", "so $y=3$, and $x=2$", True),
        ("x=2, y=3", "$x=2$ and $\\sqrt9=2+1$ and $y=3$", False),  # no neighbours
        ("x=2, y=3", "\\begin{cases} x=2 \\\\ y=3 \\end{cases}", True),
        ("\\begin{cases} x+y=5 \\\\ x-y=1 \\end{cases}", "$x-y=1$ and $y+x=5$", True),
        ("x=2 or x=3", "$x=3$; $x=2$", True),
        ("x=2, y=3", "$x=2$\nso\n$y=3$", False),
        ("x=2, y=3", "$x=2$\n\n$y=3$", False),
        ("{2,3,5}", "2\n3\n5", False),
        ("x=2, \\sqrt4=2", "$\\sqrt4=2$ and $x=2$", True),
        ("\\binom42=6", "$4+2=6$", False),
        ("\\sqrt4*3=6", "$4+3-1=6$", False),
        ("x+1=x", "$y-y=5$", False),  # what is never true is all the same
        ("x/(x-1)=1/(x-1)", "$y+1=y$", False),
    ],
)
def test_what_reaches_a_node(engine: Any, node: str, text: str, reached: bool) -> None:
    assert engine.Matcher([[node]]).match(text) == [reached]


def test_congruences_of_other_names_differ() -> None:
    names = [a + b for a in LETTERS for b in ("", *(f"+{c}" for c in LETTERS if c > a))]
    forms = [f"{name}≡{residue} mod 2" for name in names for residue in range(2)]
    assert len({key for form in forms for key in facts_of(form)[-1].keys}) == len(forms)
