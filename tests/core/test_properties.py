"""What holds for every input: the engines agree, offsets are right, output is bounded.

Texts are arbitrary bytes, and strings glued from pieces of LaTeX, Markdown, units and
characters of every class, some with a byte broken.
"""

from __future__ import annotations

from itertools import cycle
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from consensuspr.core.patterns import compile_patterns
from consensuspr.core.pure.boundary import left_free, right_free
from consensuspr.core.pure.normal_form import normal_form, normalize
from consensuspr.core.tables import CHAR_MAP, COMMANDS, DISPLAYS
from tests.core.conftest import alike

PIECES = [
    # prose and units
    " ", "  ", "\n", "\n\n", "\t", "\r\n", "a", "I", "the", "Cups", "5 cups", "cm", "5cm", "of",
    "and", "that's", "roll-ups", "-ups", "3-packs", "n-gon", "km/h", "/day", "/h", "(small)",
    "5 hours (driving)", "is", "is equal to", "equals", "plus", "minus", "times", "divided by",
    "multiplied by", "percent", "mod", "(mod 7)", "sin", "log", "sqrt", "pi", "theta",
    "dollars", "3 million dollars", "¢", "g", "m", "5g", "2 m", "=5g", "+ 3 m", "\\text{ g}", "m/s",
    "°C", "^\\circ F", "°", "s'mores", "kids'", "grains (1959 penny)", "4 ac", "xy",
    # numbers and letters
    "1", "12", "120", "1,200", "1{,}200", "1\\,200", ",\\!", ".5", "2.50", "3.0", ".", "..",
    "...", "x", "X", "y", "A", "B", "x1", "é", "а", "日", "π", "θ", "½", "1½", "¾", "²", "⁻¹", "₁",
    # operators and relations
    "+", "-", "--", "---", "−", "–", "—", "*", "**", "***", "×", "·", "/", "÷", "^", "^{", "^2",
    "_", "_{", "__", "=", "==", "===", "<", ">", "<=", ">=", "=>", "->", "!=", "<<", ">>", "!",
    "5!", "5!=120", "n!=n", "±", "≤", "→", "∴", ":", ":=", ";", ",", "?", "%", "°",
    # brackets
    "(", ")", "[", "]", "{", "}", "{,}", "|", "&", "(5)", "(2)(3)", "(a+b)",
    # LaTeX
    "$", "$$", "\\$", "\\(", "\\)", "\\[", "\\\\", "\\\\[4pt]", "\\,", "\\;", "\\!", "~",
    "\\quad", "\\left", "\\right", "\\left(", "\\right)", "\\left|", "\\cdot", "\\times",
    "\\not", "\\in", "\\mathrm{P}", "\\nicefrac", "\\not\\mid", "\\div",
    "\\frac", "\\frac12", "\\dfrac{", "\\frac{1}{2}", "\\binom", "\\binom{5}{2}", "\\sqrt",
    "\\sqrt{", "\\sqrt[3]", "\\text{", "\\mathbf{", "\\boxed{", "\\begin{align*}",
    "\\begin{array}{cc}", "\\end{array}", "\\hspace{1cm}", "\\cite{", "\\pmod{7}", "\\bmod", "\\%",
    "^\\circ", "^{\\circ}", "^{\\prime}", "\\pi", "\\theta", "\\sin", "\\log_2", "\\pm", "\\to",
    "\\therefore", "\\le", "\\mid", "\\foo", "\\", "\\{", "\\}",
    # Markdown
    "#", "## ", "> ", "- ", "* ", "1. ", "2) ", "•", "■", "`", '"', "'", "“", "’", "| ", " |",
    # factorials, repeating decimals, answers
    "6!2!", "2!", "!=", "C(6,4)", "(3)^2", " (8)", " (x+1)", "0.\\overline{2}", "\\overline{36}",
    "\\bar3", "0.", "2 \\frac{1+u}{x}", "\\[", "\n\n\\[", "\n\n$$", "\\boxed{5}", "\\fbox{12}",
    "####", "Answer:", "answer is", "\nA:", "答案是",
    # encoding
    "ｘ", "５", "＝", "𝑥", "𝟓", "\u200b", "\u00a0", "\u2009", "\ufeff", "\u0301", "\u2028", "\x00",
    "\x1a", "\ud800", "\udfff", "😀", "\u00ad",
]  # fmt: skip


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


@st.composite
def _broken(draw: st.DrawFn, glued: st.SearchStrategy[bytes]) -> bytes:
    data = bytearray(draw(glued))
    if data:
        data[draw(st.integers(0, len(data) - 1))] = draw(st.integers(0, 255))
    return bytes(data)


STRINGS = st.lists(st.sampled_from(PIECES), max_size=30).map("".join)
_GLUED = STRINGS.map(_encoded)
TEXTS = st.one_of(_GLUED, _GLUED, _GLUED, _broken(_GLUED), st.binary(max_size=60))
# What rollouts are full of, and what the compiled engine takes a faster way for; it goes the
# general way again near a text's end.
COMMON = [
    "the", "we", "so", "total", "to", "by", "equal", "divided", "multiplied", "is", "cats", "a",
    "b", "x", "I", "two", "Since", "a longwordthatdoesnotendwithinonestep", "4", "12", "365",
    "1000000", "x1", "a_1", "b_i", "2^n", "x^{2", "f(x)", "(n-1)", "a - b", "3 - 2", "well-known",
    "don't", "=", "+", "-", ",", ".", ":", "?", ";", "$", "\\(", "\\)", "\\text{", "}", "**", "α",
    "Φ", "\n", "\n\n",
]  # fmt: skip
_TAIL = b" and that is all that had to be said of it" * 3
LONG_TEXTS = st.lists(
    st.tuples(
        st.one_of(st.sampled_from(COMMON), st.sampled_from(COMMON), st.sampled_from(PIECES)),
        st.sampled_from([" ", " ", " ", "", ", ", ". "]),
    ),
    min_size=10,
    max_size=60,
).map(lambda pairs: _encoded("".join(a + b for a, b in pairs)) + _TAIL)
# Short ones, so that they occur.
_EXPRESSIONS = st.one_of(
    st.lists(st.sampled_from(PIECES), min_size=1, max_size=3).map("".join),
    st.sampled_from(["x", "1", "12", "5", "x=5", "1/2", "5 cups", "-5", "(5)", "√2", "5!", "a+b"]),
    st.sampled_from(["\\boxed{5}", "$\\boxed{12}$", "0.(2)", "36", "6!*2!", "5 (x+1)"]),
)
NODES = st.lists(st.lists(_EXPRESSIONS, max_size=4), max_size=4)


# --- the engines are one -------------------------------------------------------------------


@alike(2)
@given(data=TEXTS | LONG_TEXTS)
def test_engines_agree_on_form_and_offsets(engines: Any, data: bytes) -> None:
    native, python = engines
    form = native.with_offsets(data)
    assert form == python.with_offsets(data)
    assert native.normalize(data) == python.normalize(data) == form[0].decode()


@alike()
@given(nodes=NODES, data=TEXTS)
def test_engines_agree_on_hits(engines: Any, nodes: list[list[str]], data: bytes) -> None:
    native, python = (engine.Matcher(nodes) for engine in engines)
    assert native.num_patterns == python.num_patterns
    assert native.hits(data) == python.hits(data)
    assert native.match(data) == python.match(data)


@pytest.mark.parametrize("char", "éа日π½²₁𝑥𝟓ｘ５＝\u0301\u200b\u00a0≤±√×−°")
def test_engines_agree_on_a_command_before_any_character(engines: Any, char: str) -> None:
    native, python = engines
    for command in sorted(COMMANDS):
        for text in (f"6\\{command}{char}3", f"x \\{command} {char}", f"\\{command}{char}=5"):
            data = text.encode()
            assert native.with_offsets(data) == python.with_offsets(data), text
            assert native.normalize(data) == python.normalize(data), text


# What normal form does to digits: joins, divides, drops and writes them.
_DIGITS = [
    "1", "2", "5", "12", "20", "200", "48", "1,200", "1{,}200", "1\\,200", "3.5", ".5", "3.50",
    "2.0", "07", "½", "1½", "²", "₂", "⁻¹", "５", "𝟓", "\\frac12", "\\frac{1}{2}",
    "\\dfrac 3 48", "\\binom52", "\\nicefrac", "\\frac", "\\frac x", "\\sqrt[3]8",
    "3\\mathbf{5}", "{1}2", "1\\!2", "5!", "57°", "x_1", "x_{12}", "x^{2}", "2^10", "15\\%",
    "$20", "12m", "12 cm",
]  # fmt: skip
_AROUND = [
    "+", "-", "*", "/", "=", "(", ")", " ", " ", " + ", " = ", "\\times ", "\\cdot", "{", "}",
    "\\left", "~", "\\mathbf", "\\mathbf{", "\\bf ", "\\cancel{", "\\!", "\\,", ",", ".", "%",
    "_", "^", "°", "dollars", "x", "the", "\n", "\n\n", "\n- ", "é", "\u200b", "\u00a0", "**",
]  # fmt: skip


@st.composite
def _numbers(draw: st.DrawFn) -> tuple[list[list[str]], str]:
    """Draw nodes that are pieces of a text, with something put between now and then, and it."""
    piece = st.one_of(st.sampled_from(_DIGITS), st.sampled_from(_DIGITS), st.sampled_from(_AROUND))
    pieces = draw(st.lists(piece, min_size=1, max_size=40))
    filling = draw(st.sampled_from(["", "a", "so it goes, and on. " * 8]))
    nodes = []
    for _ in range(draw(st.integers(1, 4))):
        first = draw(st.integers(0, len(pieces) - 1))
        node = pieces[first : first + draw(st.integers(1, 5))]
        node.insert(draw(st.integers(0, len(node))), draw(st.sampled_from(["", "", "", *_AROUND])))
        nodes.append(["".join(node)])
    return nodes, "".join(
        piece + (filling + "\n\n" if draw(st.integers(0, 9)) == 0 else "") for piece in pieces
    )


@alike(3)
@given(drawn=_numbers())
def test_what_is_passed_over_for_its_numbers_holds_no_node(
    engines: Any, drawn: tuple[list[list[str]], str]
) -> None:
    nodes, text = drawn
    for engine in engines:
        matcher = engine.Matcher(nodes, statements=False)
        # For spans the whole text is read.
        assert matcher.match(text) == [hit is not None for hit in matcher.hits(text)]


@pytest.mark.parametrize(
    ("node", "text"),
    [
        ("n=1200", "n=1,200"), ("n=1234567", "n=1{,}234{,}567"), ("n=3.5", "n=3.50"),
        ("n=0.5", "n=.500"), ("n=12", "n=1\\mathbf {2}"), ("n=1/2", "n=\\frac12"),
        ("n=3/48", "n=\\dfrac 3 {48}"), ("n=7/2 34", "n=\\frac~7 234"),
        ("C(5,2)=10", "\\binom52=10"), ("n=7.5", "n=7.5\\%"), ("n=x^12", "n=x¹²"),
        ("n=x_12", "n=x₁₂"), ("n=1/2", "n=½"), ("n=57", "n=５７"), ("n=0", "n=0.0"),
        ("n≡12 mod 534/7", "n ≡ 12 (mod 53 )4/7"),
    ],
)  # fmt: skip
def test_a_number_is_known_however_it_is_written(engine: Any, node: str, text: str) -> None:
    assert engine.normalize(text).strip() == engine.normalize(node)
    assert engine.Matcher([[node]], statements=False).match(text) == [True]


# Patterns that are pieces of one another, and what decides on either end of them.
_NESTED = [
    "a", "ab", "abcd", "x", "1", "12", "1/2", "(", ")", "[", "]", "|", "!", "'", "(a+b)", "(2)",
    "f(x)", "|x|", "n!", "=", "+", "-", "±", "/", "^", "_", "√", "°", ".", ",", " ", "\n", "\n\n",
    "π", "≠",
]  # fmt: skip


@st.composite
def _nested(draw: st.DrawFn) -> tuple[list[list[str]], str]:
    """Draw nodes whose expressions are pieces of one text, and that text or more of the kind."""
    pieces = st.lists(st.sampled_from(draw(st.lists(st.sampled_from(_NESTED), min_size=1))))
    text = "".join(draw(pieces)) * draw(st.sampled_from([1, 2, 12, 60])) + "x"
    start = st.integers(0, len(text) - 1)
    length = st.sampled_from([1, 2, 3, 4, 5, 8, 13, 30, 120])
    cut = st.tuples(start, length).map(lambda part: text[part[0] : sum(part)])
    nodes = draw(st.lists(st.lists(cut, max_size=3), min_size=1, max_size=16))
    # Long enough, now and then, that several places are searched at once.
    return nodes, "".join(draw(pieces)) + text + "".join(draw(pieces)) * draw(st.integers(0, 40))


def _first_by_trying(nodes: list[list[str]], text: str) -> list[str | None]:
    """Return the expression by which each node is first found, by trying all at every place."""
    form = normal_form(text.encode()).data
    first: dict[int, tuple[int, int, str]] = {}
    for pattern in compile_patterns(nodes, normalize, lambda text: []):
        start = form.find(pattern.data)
        while start >= 0:
            end = start + len(pattern.data)
            if left_free(form, start, pattern.edges) and right_free(form, end, pattern.edges):
                hit = (end, start, pattern.expression)
                first[pattern.node] = min(hit, first.get(pattern.node, hit))
                break
            start = form.find(pattern.data, start + 1)
    return [first[node][2] if node in first else None for node in range(len(nodes))]


@alike()
@given(drawn=_nested())
def test_nested_patterns_are_found_as_by_trying_each(
    engines: Any, drawn: tuple[list[list[str]], str]
) -> None:
    nodes, text = drawn
    expected = _first_by_trying(nodes, text)
    for engine in engines:
        matcher = engine.Matcher(nodes, statements=False)
        assert [hit and hit.expression for hit in matcher.hits(text)] == expected
        assert matcher.match(text) == [expression is not None for expression in expected]


# --- output --------------------------------------------------------------------------------


@alike()
@given(TEXTS)
def test_output_is_bounded_and_offsets_are_monotone(engine: Any, data: bytes) -> None:
    form, starts, ends = engine.with_offsets(data)
    assert form.decode() == engine.normalize(data)
    assert 2 * len(form) <= 3 * len(data) + 2
    assert len(starts) == len(ends) == len(form)
    assert starts == sorted(starts) and ends == sorted(ends)
    assert all(0 <= start <= end <= len(data) for start, end in zip(starts, ends, strict=True))


@pytest.mark.parametrize(
    "text",
    [
        "8 cups\\cite{-:in...}",
        "8 cups\\begin{-:in...}",
        "8 cups\\label{+≤≤≤≤≤≤≤}",
        "is equal\\cite{to …………}",
    ],
)
def test_what_is_thrown_away_leaves_whole_characters(engine: Any, text: str) -> None:
    """An operator inside drops the units before the argument; the cut lies behind them."""
    form = engine.with_offsets(text.encode())[0]
    assert form.decode() == engine.normalize(text)


# A blank line in several spellings, and line ends before a list mark.
_BLANK_LINES = st.sampled_from(["\n\n", "\n \n", "\r\n\r\n", "\n\t\u200b\n", "\n\n\n", "\u2028\n"])
_MARKED = st.sampled_from(["\n- ", "\n* ", "\n1. ", "\n2) ", "\n(3) x", "\n•", "\n  - "])


def _is_display(text: str) -> bool:
    """Tell whether a blank line before a text may be a line break."""
    blanks = "".join(char for char in text[:9] if CHAR_MAP.get(ord(char), char) in " ~")
    return text.lstrip(blanks).startswith(DISPLAYS)


def _paragraphs(engine: Any, texts: list[str]) -> list[str]:
    return [form for form in map(engine.normalize, texts) if form]


@alike()
@given(STRINGS, _BLANK_LINES, STRINGS)
def test_a_paragraph_reads_alone_as_in_a_text(
    engine: Any, first: str, between: str, second: str
) -> None:
    # What opens the gap may be the end of a CR LF pair, what closes it the middle of one.
    assume(not _is_display(second))
    form = engine.normalize(first + between + second)
    assert form == "\n\n".join(_paragraphs(engine, [first, second]))


@alike()
@given(STRINGS, _MARKED, STRINGS)
def test_a_list_item_reads_alone_as_in_a_text(
    engine: Any, first: str, mark: str, second: str
) -> None:
    second = "k " + second  # a number that nothing follows is no list mark
    form = engine.normalize(first + mark + second)
    assert form == "\n\n".join(_paragraphs(engine, [first, mark[1:] + second]))


@alike()
@given(LONG_TEXTS, LONG_TEXTS)
def test_long_paragraphs_read_alone_too(engine: Any, first: bytes, second: bytes) -> None:
    assume(not _is_display(second.decode(errors="replace")))
    form = engine.normalize(first + b"\n\n" + second)
    assert form == engine.normalize(first) + "\n\n" + engine.normalize(second)


@alike()
@given(NODES, STRINGS, STRINGS)
def test_no_hit_reaches_across_paragraphs(
    engine: Any, nodes: list[list[str]], first: str, second: str
) -> None:
    assume(not _is_display(second))
    matcher = engine.Matcher(nodes)
    alone = [a or b for a, b in zip(matcher.match(first), matcher.match(second), strict=True)]
    assert matcher.match(first + "\n\n" + second) == alone


# Paragraphs without a sign of equality are passed over, if nothing in them can become one.
EQUATIONS = [
    *("x = 5", "x ＝ 5", "x equals 5", "X EQUALS 5", "x is equal to 5", "x is e𝐪ual to 5"),
    *("x is e\\mathbf{q}ual to 5", "x is eq\\mathrm{ual} to 5", "x is e\u200bqual to 5", "x\\=5"),
    *("x is 5", "x is equ", "unique 5", "x sequals 5", "x equates 5", "x ≠ 5", "x — 5", "q"),
]


@pytest.mark.parametrize("equation", EQUATIONS)
@pytest.mark.parametrize("filler", ["A cat sat.\n\n", "A = B.\n\n", "Unique — — squares.\n\n"])
def test_equations_are_found_among_paragraphs_without(
    engine: Any, equation: str, filler: str
) -> None:
    matcher = engine.Matcher([["x=5"]], statements=False)
    for before, behind in ((0, 0), (1, 0), (0, 30), (30, 0), (30, 30)):
        text = before * filler + equation + "\n\n" + behind * filler
        assert matcher.match(text) == [hit is not None for hit in matcher.hits(text)]


# What may stand behind a sign of equality, and in what.
_BEHIND = [
    "5", "12", "120", "1,200", "1{,}200", "12\\,000", "1²", "½", ".5", "2.50", "５", "1５", "-5",
    "--5", "- 5", "-> 5", "x", "A", "AB", "A B", "xy", "s'mores", "cups", "Cups", "é", "aé",
    "plus 3", "pi", "Theta", "sqrt 2", "mod 7", "is equal to 5", "equals 5", "divided by 5",
    "\\pi", "\\sqrt{5}", "+5", "5%", "5 %3", "5\\!3", "(5)3", "(mod 5 )3", "5 cups", "|x|", "[5]",
    "=5", "√5", "",
]  # fmt: skip
_SIGNS = [
    "=", " = ", "=\n", "==", "= =", "===", ":=", "!=", "<=", "=>", ":=>", "\\=", "&=", "＝",
    " equals ", " is equal to ", " is Equal\nto ", " is **equal** to ", " equal to ", " equally ",
]  # fmt: skip
_WRAPPED = [
    "{}", "{}", "({})", "( {})", "((({})))", "${}$", "**{}**", "__{}__", "`{}`", "{{{}}}",
    "\\({}\\)", "\\boxed{{{}}}", "\\text{{{}}}", "\\mathrm{{ {}}}", "\\mathbf{}",
    "\\left({}\\right)", "\\left|{}", "\\frac{{{}}}{{2}}", "\\frac{}2", "\\dfrac {}",
    "\\frac${}$", "\\tfrac\\text{{{}}}", "\\phantom{{{}}}7", "\\hspace{{1cm}}{}", "\n- {}",
    "\n1. {}", "\n\n{}", "\\\\[2pt]{}", "\\ {}", "\\;{}", "\\{{{}", "\\quad {}",
]  # fmt: skip
_BEHIND_SIGN = st.builds(
    lambda sign, wrapped, operand: sign + wrapped.format(operand),
    *map(st.sampled_from, (_SIGNS, _WRAPPED, _BEHIND)),
)


@alike(3)
@given(
    sides=st.lists(
        st.tuples(st.sampled_from(["x", "5 m", "f(2)", ""]), _BEHIND_SIGN), min_size=1, max_size=12
    ),
    operands=st.lists(st.sampled_from(_BEHIND), min_size=1, max_size=3),
    gaps=st.lists(st.sampled_from(["\n\n", "\n\n", ".\n\nSo it goes. " * 8 + "\n\n", " ", ""])),
)
def test_what_is_passed_over_for_its_signs_holds_no_node(
    engines: Any, sides: list[tuple[str, str]], operands: list[str], gaps: list[str]
) -> None:
    text = "".join(
        left + right + gap
        for (left, right), gap in zip(sides, cycle([*gaps, "\n\n"]), strict=False)
    )
    nodes = [[f"x = {operand}"] for operand in operands] + [
        ["".join(sides[0])],
        [f"{operands[0]} y"],
    ]
    for engine in engines:
        for some in (nodes, nodes[:-1], nodes[-1:]):
            matcher = engine.Matcher(some, statements=False)
            assert matcher.match(text) == [hit is not None for hit in matcher.hits(text)]


@alike()
@given(STRINGS, NODES)
def test_str_and_bytes_are_one(engine: Any, text: str, nodes: list[list[str]]) -> None:
    data = _encoded(text)
    matcher = engine.Matcher(nodes)
    assert engine.normalize(text) == engine.normalize(data)
    assert matcher.hits(text) == matcher.hits(data)
    assert matcher.match(text) == matcher.match(data)


# --- hits ----------------------------------------------------------------------------------


@alike()
@given(st.lists(st.tuples(NODES, TEXTS), max_size=5), st.integers(0, 4))
def test_match_hits_and_batch_agree(
    engine: Any, tasks: list[tuple[list[list[str]], bytes]], threads: int
) -> None:
    matchers = [engine.Matcher(nodes) for nodes, _ in tasks]
    texts = [text for _, text in tasks]
    batch = engine.match_batch(matchers, texts, threads)
    assert len(batch) == len(tasks)
    for index, (matcher, text) in enumerate(zip(matchers, texts, strict=True)):
        flags = matcher.match(text)
        assert flags == [hit is not None for hit in matcher.hits(text)]
        assert batch.matched(index).tolist() == flags
        assert batch.num_matched[index] == sum(flags)


@alike()
@given(NODES, STRINGS)
def test_hits_lie_in_the_text_and_name_an_expression_of_the_node(
    engine: Any, nodes: list[list[str]], text: str
) -> None:
    for node, hit in zip(nodes, engine.Matcher(nodes).hits(text), strict=True):
        if hit is not None:
            assert 0 <= hit.start <= hit.end <= len(text)
            assert hit.expression in node


# Words, so that they stand for themselves wherever they stand.
_FILLERS = st.sampled_from(["the", "cat", "sat", "on", "日本", "and 7", "then y = 2,", "😀"])


@pytest.mark.parametrize("repeat", [1, 60])
def test_a_statement_is_found_wherever_it_stands(engine: Any, repeat: int) -> None:
    # Long texts are scanned in several parts at once: no hit may be lost between them.
    matcher = engine.Matcher([["x=5"], ["12*4=48"], ["never=0"]])

    @alike(0.5)
    @given(st.lists(_FILLERS, min_size=1, max_size=30), st.data())
    def check(words: list[str], data: st.DataObject) -> None:
        words = words * repeat
        places = data.draw(st.tuples(*[st.integers(0, len(words))] * 2))
        for place, statement in zip(places, ("so x = 5,", "so 12 × 4 = 48,"), strict=True):
            words.insert(place, statement)
        text = " ".join(words)
        assert matcher.match(text) == [True, True, False]
        hits = matcher.hits(text)
        assert [text[hit.start : hit.end] for hit in hits[:2]] == ["x = 5", "12 × 4 = 48"]
        assert hits[0].start == text.index("x = 5")

    check()
