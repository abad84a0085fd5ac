"""Which forms are derived, which must not be, and in which order."""

from __future__ import annotations

import pytest

from consensuspr.core import Matcher, derive_forms, normalize
from consensuspr.core.expressions.derive import MAX_FORMS


@pytest.mark.parametrize(
    ("expression", "forms"),
    [
        ("3*4=12", ["4*3=12", "12=3*4", "12=4*3"]),
        ("16-3-4=9", ["16-4-3=9", "16-(3+4)=9", "16-(4+3)=9", "9=16-3-4", "9=16-4-3"]),
        ("2x+3=11", ["3+2*x=11", "11=2*x+3", "11=3+2*x"]),
        ("n=12", ["12=n"]),
        ("x>=3", ["3<=x"]),
        ("0<x\\le 5", ["5>=x>0"]),
        ("x\\neq 0", ["0≠x"]),
        ("a\\equiv 3 \\pmod{7}", ["3≡a \\pmod{7}"]),
        ("x=0.5", ["x=1/2", "0.5=x"]),
        ("x=2.50", ["x=5/2", "2.50=x"]),
        ("P(A)=1/2", ["P(A)=0.5", "1/2=P(A)"]),
        ("x=25\\%", ["x=0.25", "x=1/4", "25%=x"]),
        ("number of cups = 5", ["5=number of cups"]),
        ("1/2x=3", ["3=1/2x"]),
        ("A=\\{1,2\\}", ["\\{1,2\\}=A"]),
        ("x=\\frac{144^\\circ}{5}", ["x=28.8", "144/5=x"]),
        (
            "120 \\text{ minutes} \\div 60 \\text{ minutes/hour} = 2 \\text{ hours}",
            ["120/60=2", "120*1/60=2", "1/60*120=2", "2=120/60", "120*(1/60)=2", "(1/60)*120=2"],
        ),
        ("2x+3", ["3+2*x"]),
        ("5 cups * $2 = $10", ["2*5=10", "10=5*2", "10=2*5"]),
    ],
)
def test_all_forms_nearest_first(expression: str, forms: list[str]) -> None:
    assert derive_forms(expression) == forms


@pytest.mark.parametrize(
    ("expression", "forms"),
    [
        ("3+4+5=12", ["5+4+3=12", "4+3+5=12", "12=5+4+3"]),
        ("1+2+3+4=10", ["4+3+2+1=10", "2+1+4+3=10"]),
        ("60*2/5=24", ["2/5*60=24", "2*60/5=24", "60/5*2=24", "60*(2/5)=24", "0.4*60=24"]),
        ("\\frac{2}{5}\\cdot 60=24", ["60*2/5=24", "(60*2)/5=24", "0.4*60=24"]),
        ("20/100*250=50", ["0.2*250=50", "250*0.2=50", "(20/100)*250=50", "1/5*250=50"]),
        (".25*240=60", ["25%*240=60", "240*25/100=60", "1/4*240=60", "240/4=60"]),
        ("480/2=240", ["480*0.5=240", "1/2*480=240", "480*1/2=240", "240=480/2"]),
        ("(20+30)*4=200", ["4*(20+30)=200", "4*(30+20)=200", "50*4=200"]),
        ("3(4+5)=27", ["(4+5)*3=27", "3*(5+4)=27"]),
        ("5*100+700=1200", ["700+5*100=1200", "(5*100)+700=1200", "500+700=1200"]),
        ("75/2=37.5", ["1/2*75=37.5", "75*0.5=37.5", "37.5=75/2"]),
        ("0.5*8=4", ["1/2*8=4", "8*1/2=4", "50%*8=4", "8*50/100=4"]),
        ("60+50-10=100", ["50+60-10=100", "(60+50)-10=100", "110-10=100"]),
        ("(x-2)(x-3)=0", ["(x-3)*(x-2)=0"]),
        ("\\frac{n(n+1)}{2}=210", ["1/2*n(n+1)=210", "n(1+n)/2=210"]),
        ("2\\frac12+1=3.5", ["2.5+1=3.5", "5/2+1=3.5", "1+2\\frac{1}{2}=7/2"]),
        ("25% of 80 = 20", ["0.25*80=20", "80/4=20", "1/4*80=20"]),
    ],
)
def test_forms_that_solutions_write(expression: str, forms: list[str]) -> None:
    derived = {normalize(form) for form in derive_forms(expression)}
    assert {normalize(form) for form in forms} - derived == set()


@pytest.mark.parametrize(
    ("chain", "parts", "no_parts"),
    [
        ("3*4=12=2*6", ["3*4=12", "12=2*6", "3*4=2*6"], []),
        ("A=b*h/2=24", ["A=24", "b*h/2=24"], ["A=b*h/2"]),
        ("total = 3*4 = 12", ["total=12", "3*4=12"], []),
        ("6/3=2=2", ["6/3=2"], ["2=2"]),
        ("A=\\pi r^2=\\pi(4)^2=16\\pi", ["A=16\\pi", "\\pi\\cdot 4^2=16\\pi"], ["A=\\pi r^2"]),
        ("w=10*3/2=10*\\frac{3}{2}=15", ["w=15", "10*3/2=15"], ["10*3/2=10*3/2"]),
        ("P=f(2)=1/2", ["P=1/2", "f(2)=1/2"], ["P=f(2)"]),
        ("x=y=z", ["x=y", "y=z", "x=z"], []),
        ("0<x<5", [], ["0<x", "x<5", "0<5"]),
        ("a\\approx b=c", [], ["b=c"]),
    ],
)
def test_a_chain_of_equalities_yields_its_parts(
    chain: str, parts: list[str], no_parts: list[str]
) -> None:
    derived = {normalize(form) for form in derive_forms(chain)}
    assert {normalize(part) for part in parts} <= derived
    assert derived.isdisjoint(normalize(part) for part in no_parts)


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        ("x=12", "n=12"),  # another variable
        ("x+y=12", "y+z=12"),
        ("8-5=3", "5-8=3"),
        ("8/4=2", "4/8=2"),
        ("x<3", "3<x"),
        ("x>=3", "3>=x"),
        ("20-15=5", "20-5=15"),  # another conclusion
        ("20-15=5", "15+5=20"),
        ("3*4=12", "12/4=3"),
        ("2^3=8", "3^2=8"),
        ("f(a+b)=c", "(a+b)f=c"),
        ("0.25*x=6", "25*x=6"),  # a percentage only among numbers
        ("x=0.25", "x=25"),
        ("x/2=3", "2/x=3"),
        ("6-(2-1)=5", "6-2-1=5"),
        ("8/(4/2)=4", "8/4/2=4"),
        ("9*2/3=6", "18/3=6"),  # too small to be told from another problem's
        ("8/2=4", "8*0.5=4"),
        ("10+20+30=60", "10+20=30"),
        ("x=3", "3"),
    ],
)
def test_other_statements_do_not_match(expression: str, text: str) -> None:
    assert Matcher([[expression]], expand=True).match(f"Hence {text}.") == [False]


@pytest.mark.parametrize(
    "expression",
    ["", " ", "48", "3/4", "0.75", "25%", "x", "n is divisible by 7", "x=3 or x=5", "6=6",
     "x=5, y=7", "11x-3=11x-3", "4=\\boxed{\\phantom{2}}", "3 pens cost = 6", "\ud800", "\0",
     "x" * 10_000, "1=" * 10_000],
)  # fmt: skip
def test_nothing_is_derived_from_values_prose_and_noise(expression: str) -> None:
    assert derive_forms(expression) == []


def test_constants_are_not_respelled_into_identities() -> None:
    sides = [form.split("=") for form in derive_forms("3/4=0.75")]
    assert sides
    assert all(normalize(left) != normalize(right) for left, right in sides)


def test_large_expressions_keep_their_order_and_the_limit() -> None:
    assert derive_forms("1+2+3+4+5+x=y") == ["y=1+2+3+4+5+x"]
    many = derive_forms("(a+b+c)*(d+e+f)=p*q*r")
    assert len(many) == MAX_FORMS
    assert len({normalize(form) for form in many}) == MAX_FORMS
