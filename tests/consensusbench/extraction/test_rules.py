"""Extraction by rules: statements, conclusions, phrases, clusters, and the extractor."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consensusbench.extraction.rules import (
    Cluster,
    ConclusionKind,
    RulesExtractor,
    RulesSettings,
    add_phrases,
    cluster,
    is_distinctive,
    prose_of,
    read_chains,
    read_conclusions,
    read_phrases,
)
from consensusbench.extraction.types import CorrectRollout, Extraction
from consensuspr.core import Matcher
from consensuspr.data import Problem

# Statements found in responses: where they begin and end, and which links they have.


@pytest.mark.parametrize(
    ("response", "chains"),
    [
        ("She has 3 * 4 = 12 apples.", ["3*4=12"]),
        (r"so $3 \times 4 = 12$ and $12 - 2 = 10$.", ["3*4=12", "12-2=10"]),
        (r"\[ 2x + 6 = 20 \implies x = 7 \]", ["2x+6=20", "x=7"]),
        ("10*3 + 8*5 = 30 + 40 = 70", ["10*3+8*5=30+40=70"]),
        ("x = 2, y = 3; z = 4", ["x=2", "y=3", "z=4"]),
        ("P(X=5) = 0.3", ["P(X=5)=0.3"]),  # a relation inside brackets is no statement
        ("the points (1,2) and f(1,2)=3", ["f(1,2)=3"]),
        ("(so x=5)", ["x=5"]),  # brackets around prose have no partner in the run
        ("x=5) then y=6", ["x=5", "y=6"]),
        ("total cost = 5 * 3 = 15", ["cost=5*3=15"]),
        ("252*2 = 252*2 = 504", ["252*2=504"]),  # a side repeated is one side
        ("= 60 - 20", []),  # no left side
        ("3 + 4 =", []),
        ("1/2 = 4/(D km)", []),
        ("x = -3", ["x=-3"]),
        ("x \\ne 3 and y = 4", ["y=4"]),
        ("5 apples and 7 pears", []),
        ("7^2 \\equiv 1 \\pmod{8}", ["7^2≡1 mod 8"]),
        ("3 \\frac{1}{2} * 2 = 7", ["3 1/2*2=7"]),
        ("```python\nx = 41\n```\nso x = 42", ["x=42"]),
        ("<answer>\n601\n</answer>", []),
        ("", []),
    ],
)
def test_chains(response: str, chains: list[str]) -> None:
    read = list(read_chains(response))
    texts = [chain[0].left + "".join(one.relation + one.right for one in chain) for chain in read]
    assert texts == chains


@pytest.mark.parametrize(
    ("response", "prose"),
    [
        ("a ```x=1``` b", "a \n b"),
        ("a ```x=1", "a \n"),  # cut off inside code
        ("a ```x=1 `y`", "a \n"),
        ("a <think>b</think>", "a \nb\n"),
        ("1 < 2 and 3 > 2", "1 < 2 and 3 > 2"),
    ],
)
def test_code_and_tags_are_no_prose(response: str, prose: str) -> None:
    assert prose_of(response) == prose


# What a single rollout concludes.

COMPUTED, ASSIGNED, FORMULA = ConclusionKind


def conclude(response: str) -> list[tuple[ConclusionKind, Hashable, str]]:
    found = read_conclusions(CorrectRollout("r", "m", response), RulesSettings())
    return [(one.kind, one.value, one.wording) for one in found]


@pytest.mark.parametrize(
    ("response", "conclusions"),
    [
        ("So 3 * 10 = 30.", [(COMPUTED, 30, "3 * 10 = 30")]),
        (r"\[ 3 \times 10 = 30 \]", [(COMPUTED, 30, r"3 \times 10 = 30")]),
        ("30 = 3 * 10", [(COMPUTED, 30, "30 = 3 * 10")]),
        # A value of one or two digits does not tell what has it.
        ("Thus x = 7.", [(ASSIGNED, None, "x = 7")]),
        ("P(A) = 1/4", [(ASSIGNED, None, "P(A) = 1/4")]),
        ("P(A) = 1/462", [(ASSIGNED, Fraction(1, 462), "P(A) = 1/462")]),
        ("2x + 6 = 20", [(FORMULA, None, "2x + 6 = 20")]),
        ("a + b = c", [(FORMULA, None, "a + b = c")]),
        ("n < 12", [(FORMULA, None, "n < 12")]),
        (r"\binom{8}{2} = 28", [(COMPUTED, 28, r"\binom{8}{2} = 28")]),
        # Rounded is true, and gives what is written.
        ("10 / 3 = 3.33", [(COMPUTED, Fraction("3.33"), "10 / 3 = 3.33")]),
        # A slip in a correct rollout is no conclusion.
        ("2 + 2 = 5", []),
        # What is said is a number, not something that would come to one.
        ("total = 12 + 6", []),
        ("total = 18", [(ASSIGNED, 18, "total = 18")]),
        # Everybody names quantities differently.
        ("income = price * count", []),
        ("5 = 5", []),
        ("3.33 = 10/3", [(COMPUTED, Fraction("3.33"), "3.33 = 10/3")]),
        ("30 + 40 = 35 * 2", []),
        # A piece of something larger is not what the rollout says.
        ("12 + 3 * 10 = 42", [(COMPUTED, 42, "12 + 3 * 10 = 42")]),
        ("5 cups * $2 = $10", [(COMPUTED, 10, "5 cups * $2 = $10")]),
        ("no formula at all", []),
        (r"\[ 6 \left(-\frac{2}{3}(x-5)\right) = 12 \]", []),  # not without its 6
        ("10x = 8.444...now", []),  # a line break is missing
        ("", []),
    ],
)
def test_conclusions(
    response: str, conclusions: list[tuple[ConclusionKind, Fraction | int | None, str]]
) -> None:
    assert conclude(response) == conclusions


def test_a_chain_is_one_place() -> None:
    response = "10*3 + 8*5 = 30 + 40 = 70, later 7 * 10 = 70"
    found = read_conclusions(CorrectRollout("r", "m", response), RulesSettings())
    assert {one.wording: one.chain for one in found if one.value == 70} == {
        "30 + 40 = 70": 0,
        "7 * 10 = 70": 1,
    }


@pytest.mark.parametrize(
    ("response", "ends"),
    [
        (r"so $\sqrt{3}x = 2y+1 = \frac{7z}{5}$", r"\sqrt{3}x = \frac{7z}{5}"),
        ("\\pi r^2 &= km \\\\\n &= 7z \\\\", r"\pi r^2 = 7z"),
    ],
)
def test_the_ends_of_a_chain_are_worded_as_written(response: str, ends: str) -> None:
    assert conclude(response)[-1] == (FORMULA, None, ends)


def test_steps_of_code_stand_in_chains_of_their_own() -> None:
    response = "3*10=30, again 3*10=30, and 30+5=35.\n```python\na = 12 * 7\nb = a + 5\n```"
    found = read_conclusions(CorrectRollout("r", "m", response), RulesSettings())
    assert [(one.wording, one.chain) for one in found] == [
        *(("3*10=30", 0), ("30+5=35", 2)),
        *(("12*7=84", 3), ("84+5=89", 4)),
    ]


def test_what_is_looked_at_is_bounded() -> None:
    response = "\n".join(f"{number} + 1 = {number + 1}" for number in range(1, 200))
    settings = RulesSettings(max_statements=10)
    found = read_conclusions(CorrectRollout("r", "m", response), settings)
    assert len(found) == 10
    long = "1" + "+1" * 300 + "=301"
    assert read_conclusions(CorrectRollout("r", "m", long), settings) == []


@given(st.text(max_size=300))
def test_any_response_is_read(response: str) -> None:
    for one in read_conclusions(CorrectRollout("r", "m", response), RulesSettings()):
        assert 0 <= one.position <= 1


# Numbers in prose: which phrases name a quantity, and which numbers are distinctive.


@pytest.mark.parametrize(
    ("response", "phrases"),
    [
        ("That leaves 30 minutes.", ["30 minutes"]),
        ("He earns $45 per week.", ["45 per week", "earns 45"]),
        ("That leaves 30", ["leaves 30"]),
        ("They are 5 and 7 of them.", []),  # neither word names anything
        ("The answer is 30.", []),
        ("split 36 equally", ["split 36"]),
        ("divide 72 by 8, add 24, rounding 37", []),  # what is done with a value comes later
        ("They eat 7 of 9 rolls", ["9 rolls"]),  # before a digit stands any word
        ("There are 2 possibilities and 1 use", []),  # any text may hold these
        ("3 * 10 = 30 minutes", ["30 minutes"]),
        ("It takes 2,500 steps", ["2500 steps"]),
        ("It takes 2,510 steps", ["2510 steps", "2510"]),
        ("In all 2.5 km and 30/2 km", ["2.5 km"]),
        ("`30 minutes`", ["30 minutes"]),
        ("```\n30 minutes\n```", []),
        # A phrase ends where its line or sentence does, and the name of a quantity is no unit.
        ("a = 72\nIncome: 72*3 = 216\n\nProfit", []),
        ("x + y = 14\nxy = 45", []),
        (r"x + y = 14 \\ xy", []),
        ("| 72 | loaves |", []),
        ("so 14 xy = 45", []),
        ("He has 72. Loaves", []),
        ("", []),
    ],
)
def test_phrases(response: str, phrases: list[str]) -> None:
    assert sorted(phrase.words for phrase in read_phrases(response, 100)) == sorted(phrases)


@pytest.mark.parametrize(
    ("number", "distinctive"),
    [
        ("1250", True),
        ("1234.5", True),
        ("3.75", True),
        ("146410000", True),
        ("250", False),  # counting to 300 prints it
        ("999", False),
        ("2000", False),  # one significant digit
        ("0.25", False),
        ("7", False),
    ],
)
def test_distinctive_numbers(number: str, distinctive: bool) -> None:
    assert is_distinctive(number) is distinctive


# Which statements of several rollouts count as one conclusion.


BOTH = "Ann: 2*4=8. Bob: 5+3=8."
CHAIN = "10*3+8*5=30+40=70"


def clusters_of(*responses: str) -> list[Cluster]:
    return cluster(
        [read_conclusions(CorrectRollout("r", "m", one), RulesSettings()) for one in responses]
    )


@pytest.mark.parametrize(
    ("responses", "clusters"),
    [
        # One structure is one conclusion.
        (["3*10=30", "10 * 3 = 30", "30 = 3 * 10"], [{"3*10=30", "10 * 3 = 30", "30 = 3 * 10"}]),
        # So are two ways to a value, where no rollout takes both.
        (["200-50=150", "300-150=150", "200-50=150"], [{"200-50=150", "300-150=150"}]),
        # A rollout that computes a value twice shows two steps; a chain is one.
        ([BOTH, BOTH, "2*4=8"], [{"2*4=8"}, {"5+3=8"}]),
        ([CHAIN, CHAIN], [{"30+40=70"}]),
        # Muffins and dollars: what uses a small value tells whether it is the same.
        (
            ["48+24=72, 72*3=216", "24*3=72, 144+72=216"],
            [{"72*3=216", "144+72=216"}, {"24*3=72"}, {"48+24=72"}],
        ),
        (
            ["3*4=12, 12-5=7", "4+4+4=12, 1+12=13"],
            [{"3*4=12", "4+4+4=12"}, {"1+12=13"}, {"12-5=7"}],
        ),
        (["2*6=12, 12-5=7", "3+9=12, 12-5=7"], [{"12-5=7"}, {"2*6=12", "3+9=12"}]),
        # A name belongs to the way in whose chain it stands.
        (
            ["48+24=72, 72*3=216", "48+24=72, 72*3=216", "Tuesday=24*3=72, 144+72=216"],
            [{"72*3=216", "144+72=216"}, {"48+24=72"}, {"24*3=72", "Tuesday = 72"}],
        ),
        # An assignment says what the computation behind it says, unless its value is small.
        (["616/4=154, so x=154"] * 2, [{"616/4=154", "x=154"}]),
        (["60/2=30, so x=30"] * 2, [{"60/2=30"}, {"x=30"}]),
        # Equal equations are one conclusion, and so are large ones with other names.
        (["x^2-y^2=15", "2x^2 = 30 + 2y^2"], [{"x^2-y^2=15", "2x^2 = 30 + 2y^2"}]),
        (["x^2+3xy-2y=41", "a^2+3ab=41+2b"], [{"x^2+3xy-2y=41", "a^2+3ab=41+2b"}]),
        (["u=0", "h(1)=0"], [{"h(1)=0"}, {"u=0"}]),
        # The ends of a chain, and a root as a value.
        (["S=2x+y=310"], [{"2x+y=310"}, {"S = 310"}, {"S=2x+y"}]),
        (["r=6\u221a21", "s = 6\\sqrt{21}"], [{"r=6\u221a21", "s = 6\\sqrt{21}"}]),
        # A quantity named by a word is a wording, and no conclusion.
        (["total = 30", "total = 30"], []),
        (["total = 30", "3*10=30"], [{"total = 30", "3*10=30"}]),
        (["a=3, b=3"] * 2, [{"a=3"}, {"b=3"}]),
        (["a+b=c", "a+b=d"], [{"a+b=c"}, {"a+b=d"}]),
        # The best supported come first.
        (["2+5=7, 4*6=24", "4*6=24"], [{"4*6=24"}, {"2+5=7"}]),
    ],
)
def test_clusters(responses: list[str], clusters: list[set[str]]) -> None:
    found = clusters_of(*responses)
    assert [{*one.wordings, *one.names} for one in found] == clusters


def phrased(*responses: str) -> tuple[list[Cluster], list[Cluster]]:
    """Return the clusters with their phrases, and those of bare numbers."""
    found = clusters_of(*responses)
    return found, add_phrases(found, [read_phrases(one, 100) for one in responses])


@pytest.mark.parametrize(
    ("responses", "phrases"),
    [
        (["3*10=30", "3*10=30", "That is 30 minutes."], {"30 minutes": 1}),
        # A digit with a word needs two rollouts.
        (["14/2=7", "A week has 7 days."], {}),
        (["14/2=7", "A week has 7 days.", "So it takes 7 days.", "14/2=7"], {"7 days": 2}),
        # Of two conclusions that of its writers.
        (
            ["48+24=72 rolls, 72*3=216", *["48+24=72"] * 2, "24*3=72 euros, 144+72=216"],
            {"72 rolls": 1},
        ),
    ],
)
def test_a_phrase_joins_the_best_supported_conclusion_of_its_value(
    responses: list[str], phrases: dict[str, int]
) -> None:
    found, alone = phrased(*responses)
    assert dict(found[0].phrases) == phrases
    assert alone == []


def test_a_distinctive_number_that_no_formula_gives_stands_alone() -> None:
    _, alone = phrased("It costs 1250 in all.", "1250 euros")
    assert [(one.value, one.rollouts) for one in alone] == [(Fraction(1250), {0, 1})]


# Extraction by rules on invented problems: what becomes a candidate, and with which words.

BAKERY = Problem(
    "bakery",
    ground_truth="142",
    problem="A baker sells 12 trays of 14 rolls. He gives away 26 rolls. How many are left?",
)
SOLUTIONS = (
    ("ada", "12 * 14 = 168 rolls. Then 168 - 26 = 142. Answer: 142"),
    ("ada", r"He bakes \(14 \times 12 = 168\) rolls, and \(168 - 26 = 142\) are left."),
    ("bob", "12 trays of 14 are 168 rolls. So 168 - 26 = 142."),
    ("bob", "Total = 12*14 = 168. x = 142"),
    ("cem", "10 * 14 = 140, 2 * 14 = 28, 140 + 28 = 168; 168 - 26 = 142."),
)


def rollouts(solutions: Sequence[tuple[str, str]]) -> list[CorrectRollout]:
    return [
        CorrectRollout(f"r{number}", model, text) for number, (model, text) in enumerate(solutions)
    ]


def extract(
    solutions: Sequence[tuple[str, str]], problem: Problem = BAKERY, **settings: int | bool
) -> Extraction:
    return RulesExtractor(RulesSettings(**settings)).extract(problem, rollouts(solutions))  # type: ignore[arg-type]


def test_shared_conclusions_become_candidates_in_order() -> None:
    bakes, left = extract(SOLUTIONS).candidates
    assert (bakes.label, bakes.support, bakes.num_models, bakes.is_final) == (
        "12 * 14 = 168", 5, 3, False,
    )  # fmt: skip
    assert (left.label, left.support, left.num_models, left.is_final) == (
        "168 - 26 = 142", 5, 3, True,
    )  # fmt: skip
    assert bakes.position < left.position
    assert bakes.type == left.type == "equation"


def test_what_the_problem_says_itself_supports_nothing() -> None:
    problem = Problem("echo", ground_truth="142", problem="Show that 150 - 8 = 142.")
    solutions = [
        ("ada", "168 - 26 = 142, done."),
        ("bob", "So 168 - 26 = 142, as was to be shown."),
        ("cem", "168-26=142."),
        ("ada", "Indeed 150 - 8 = 142."),
        ("bob", "It is plain that 150 - 8 = 142!"),
    ]
    [left] = extract(solutions, problem).candidates
    assert (left.label, left.support) == ("168 - 26 = 142", 3)
    assert not Matcher([[*left.expressions, *left.derived]]).match(problem.problem)[0]


def test_wordings_are_those_that_were_seen() -> None:
    bakes, left = extract(SOLUTIONS).candidates
    assert {"12 * 14 = 168", "140 + 28 = 168", "168 rolls"} <= set(bakes.expressions)
    assert "x = 142" in left.expressions
    every = Matcher([[*bakes.expressions, *bakes.derived]])
    assert every.match(r"14 \times 12 = 168") == [True]


def test_what_too_few_rollouts_state_is_dropped_with_its_reason() -> None:
    dropped = {one.label: one for one in extract(SOLUTIONS).dropped}
    assert dropped["10 * 14 = 140"].reason == "unsupported"
    assert dropped["10 * 14 = 140"].detail == "stated by 1 of the rollouts, 2 are needed"


def test_what_one_model_alone_writes_is_its_style() -> None:
    solutions = [*SOLUTIONS[:4], ("ada", "7 * 24 = 168"), ("ada", "5 + 9 = 14, 12 * 14 = 168")]
    solutions += [("ada", "5 + 9 = 14 and 12*14=168")]
    assert "few models" in {one.reason for one in extract(solutions).dropped}
    assert "5 + 9 = 14" in [one.label for one in extract(solutions, min_models=1).candidates]


def test_phrases_are_wordings_only_where_they_are_wanted() -> None:
    plain = extract(SOLUTIONS, phrases=False).candidates[0]
    assert "168 rolls" not in plain.expressions
    assert plain.support == 4  # one solution says it in words


def test_numbers_of_the_problem_are_no_conclusion() -> None:
    problem = Problem("p", problem="A town of 12500 people", ground_truth="3")
    stories = [("ada", "There are 12500 people."), ("bob", "12500 people live there.")]
    assert extract(stories, problem).candidates == ()
    other = Problem("p", problem="A town", ground_truth="3")
    [value] = extract(stories, other).candidates
    assert (value.type, value.label) == ("value", "12500")


STATEMENTS = st.sampled_from(
    ["3*4=12", "4*3 = 12", "12-5=7", "x=7", "a+b=c", "2+2=5", "7 apples", "1250", "n<9", "so", "="]
)
TEXTS = st.lists(STATEMENTS, max_size=8).map(". ".join)


@given(st.lists(st.tuples(st.sampled_from(["ada", "bob"]), TEXTS), max_size=6))
def test_candidates_are_what_rollouts_say(solutions: list[tuple[str, str]]) -> None:
    extraction = extract(solutions)
    assert extraction == extract(solutions)
    for one in extraction.candidates:
        matcher = Matcher([[*one.expressions, *one.derived]])
        reached = [index for index, (_, text) in enumerate(solutions) if matcher.match(text)[0]]
        assert len(reached) == one.support >= 2
        assert one.label == one.expressions[0]
        assert len(one.expressions) + len(one.derived) <= 128
        assert "2+2=5" not in one.expressions
