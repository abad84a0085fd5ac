"""One spelling for each answer: LaTeX variants, characters, spacing, words around a number.

:func:`canonical` maps what different models write for the same answer to one string, so that
most comparisons end with a string comparison.  It only unifies notation; values (1/2 and
0.5) are compared elsewhere.  A unit is dropped, as the ground truths of most datasets drop it;
whether it is the right one is not checked.  Every step is linear in the length of the text: no
pattern has two neighbouring repetitions that could share a run of characters.
"""

from __future__ import annotations

import re

_CHARACTERS = str.maketrans(
    {
        **dict.fromkeys("−–—﹣－", "-"),
        **dict.fromkeys("×·⋅∙∗＊", "*"),
        **dict.fromkeys([0xA0, *range(0x2000, 0x200B), 0x202F, 0x3000], " "),
        **dict.fromkeys("\u200b\u200c\u200d\u2060\ufeff", ""),
        **dict.fromkeys("€£¥₹₩₽°º", ""),
        **{chr(0xFF10 + digit): str(digit) for digit in range(10)},
        **{letter: f"^{digit}" for digit, letter in enumerate("⁰¹²³⁴⁵⁶⁷⁸⁹")},
        **{letter: f"_{digit}" for digit, letter in enumerate("₀₁₂₃₄₅₆₇₈₉")},
        "＋": "+", "÷": "/", "⁄": "/", "∕": "/", "＝": "=", "π": "\\pi ", "√": "\\sqrt ",
        "∞": "\\infty ", "≤": "\\le ", "⩽": "\\le ", "≥": "\\ge ", "⩾": "\\ge ", "≠": "\\ne ",
        "≈": "\\approx ", "±": "\\pm ", "∪": "\\cup ", "∩": "\\cap ", "∈": "\\in ",
        "∅": "\\emptyset ", "θ": "\\theta ", "φ": "\\phi ", "α": "\\alpha ", "β": "\\beta ",
        "λ": "\\lambda ", "½": " 1/2", "⅓": " 1/3", "⅔": " 2/3", "¼": " 1/4", "¾": " 3/4",
        "⅕": " 1/5", "⅛": " 1/8", "（": "(", "）": ")", "，": ",", "［": "[", "］": "]",
        "…": "...",
        "。": ".", "、": ",", "；": ";", "：": ":", "’": "'", "“": '"', "”": '"', "％": "%",
        "⟨": "\\langle ", "⟩": "\\rangle ",
    }
)  # fmt: skip

_DROPPED = (
    "left right big Big bigg Bigg bigl bigr Bigl Bigr biggl biggr Biggl Biggr displaystyle "
    "textstyle scriptstyle limits nolimits quad qquad thinspace medspace thickspace enspace "
    "hfill strut mathstrut rm bf it boldsymbol text textbf textit textrm textnormal mathrm "
    "mathbf mathit mathbb mathcal mathsf mbox hbox operatorname boxed fbox bm emph degree "
    "degrees textdollar pounds euro"
).split()
_RENAMED = {
    "dfrac": "\\frac", "tfrac": "\\frac", "cfrac": "\\frac", "dbinom": "\\binom",
    "tbinom": "\\binom", "leq": "\\le ", "leqslant": "\\le ", "le": "\\le ", "geq": "\\ge ",
    "geqslant": "\\ge ", "ge": "\\ge ", "lt": "<", "gt": ">", "neq": "\\ne ", "ne": "\\ne ",
    "cdot": "*", "times": "*", "ast": "*", "div": "/", "lbrace": "\\{", "rbrace": "\\}",
    "lbrack": "[", "rbrack": "]", "lparen": "(", "rparen": ")", "lvert": "|", "rvert": "|",
    "vert": "|", "mid": "|", "dots": "...", "ldots": "...", "cdots": "...", "colon": ":",
    "varnothing": "\\emptyset ", "land": ",", "lor": ",", "sim": "\\approx ",
    "thickapprox": "\\approx ", "dot": "\\overline",
}  # fmt: skip
_COMMANDS = (
    {f"\\{name}": "" for name in _DROPPED}
    | {f"\\{name}": text for name, text in _RENAMED.items()}
    | {f"\\{mark}": "" for mark in ",!;:>$()[]"}
    | {"\\ ": " ", "\\\n": " ", "\\%": "%", "\\&": "&", "\\#": "#", "\\_": "_", "\\|": "|"}
)
_COMMAND = re.compile(r"\\(?:[A-Za-z]+|.)", re.DOTALL)

_TEXT_GROUP = re.compile(
    r"\\(?:text(?:bf|it|rm|normal|sf|tt)?|math(?:rm|bf|it|sf|tt|bb|cal)|mbox|hbox|operatorname"
    r"|emph|bm|boxed|fbox)\s*\{([^{}]*)\}"
)
_MAX_NESTED_TEXT = 3
# A unit behind a value: 15\mbox{ cm}^2.  The value in front must end like an operand.
_TEXT_UNIT = re.compile(
    r"(?<=[0-9A-Za-z)}\]%])[\s~]*+(?:\\[,;:! ][\s~]*+)*+"
    r"\\(?:text(?:bf|it|rm|normal)?|math(?:rm|bf|it)|mbox|hbox)\s*+\{[^{}]*\}"
    r"(?:\s*+\^\s*+(?:\{\s*+\d\s*+\}|\d))?+[\s.]*+\Z"
)
_TEXT_START = re.compile(r"[\s$]*\\(?:text|mbox|hbox|math)")
_DEGREES = re.compile(r"\^\s*(?:\\circ(?![A-Za-z])|\{\s*\\circ\s*\})")
_BRACED_COMMA = re.compile(r"\{\s*,\s*\}")
_SHORT_FRACTION = re.compile(r"\\frac\s*+(?:(\d)\s*+(\d)|\{([^{}]*)\}\s*+(\d)|(\d)\s*+(?=\{))")
_CHOOSE = re.compile(r"\{\s*+(\d{1,9})\s*+\\choose\s*+(\d{1,9})\s*+\}")
_SHORT_ROOT = re.compile(r"\\sqrt\s*+([0-9A-Za-z])")
_SIGNS = (
    ("<=", "\\le "),
    ("=<", "\\le "),
    (">=", "\\ge "),
    ("!=", "\\ne "),
    ("~=", "\\approx "),
)

# Names as they are typed outside LaTeX: 49*pi, 2sqrt(3).
_BARE_PI = re.compile(r"(?<![A-Za-z\\])pi(?![A-Za-z])")
_BARE_ROOT = re.compile(r"(?<![A-Za-z\\])sqrt\s*+(?=[({0-9])(?:\(([^()]*)\))?")

_SPACES = re.compile(r"\s+")
# A space is kept between two letters or two digits only: 2 x is 2x, but 1 1/2 is not 11/2.
_LOOSE_SPACE = re.compile(
    r"(?<![0-9A-Za-z]) +| +(?![0-9A-Za-z])|(?<=[0-9]) +(?=[A-Za-z])|(?<=[A-Za-z]) +(?=[0-9])"
)
_NEEDLESS_BRACES = re.compile(r"([\^_])\{([0-9A-Za-z]|[0-9]+)\}(?![0-9A-Za-z])")
# AB*CD is no order of four letters.
_PRODUCT_SIGN = re.compile(
    r"(?<=[0-9A-Za-z)}\]])\*(?=[A-Za-z\\(])(?!(?<=[A-Z]\*)[A-Z])|(?<=[A-Za-z)}\]])\*(?=[0-9])"
)
_SIGNED_INFINITY = re.compile(r"(?<![0-9A-Za-z)}\]])\+(?=\\infty)")
# 0.1666... is a repeating decimal.
_DOTS = re.compile(r"(\d{1,20}\.\d{0,20}?)(\d{1,12}?)\2{1,20} ?\.{2,}[ .]*\Z")
# What surrounds an answer without belonging to it; a leading point does belong: .5
_EDGES = " ,;:*`~'\""


def canonical(text: str) -> str:
    """Return the one spelling of ``text``; equal strings are equal answers.

    Args:
        text: an answer without the mark that announced it, at most a few thousand
            characters; the caller clips.
    """
    if not text.isascii():
        text = text.translate(_CHARACTERS)
    if "\\" in text:
        text = _unify_commands(text)
    if "$" in text:
        text = text.replace("$", "")
    if "{" in text and "," in text:
        text = _BRACED_COMMA.sub(",", text)
    text = _SPACES.sub(" ", text).lstrip(_EDGES)
    if ".." in text:
        text = _DOTS.sub(r"\1\\overline{\2}", text)
    text = text.rstrip(_EDGES + ".\\")
    text = _unify_words(text)
    if "pi" in text:
        text = _BARE_PI.sub(r"\\pi ", text)
    if "sqrt" in text:
        text = _BARE_ROOT.sub(_latex_root, text)
    for spelling, sign in _SIGNS:
        if spelling in text:
            text = text.replace(spelling, sign)
    text = _tighten(text.removeprefix("+"))
    return "\\emptyset" if text == "\\{\\}" else text


def _unify_commands(text: str) -> str:
    text = text.rstrip("$ ")
    unit = _TEXT_UNIT.search(text)
    if unit is not None and not (_TEXT_START.match(text) or _names_half_day(unit[0])):
        text = text[: unit.start()]
    text = text.replace(",\\!", "").replace("\\left.", "").replace("\\right.", "")
    if "\\circ" in text:
        text = _DEGREES.sub("", text)
    for _ in range(_MAX_NESTED_TEXT):
        text, groups = _TEXT_GROUP.subn(r" \1 ", text)
        if not groups:
            break
    text = _COMMAND.sub(lambda found: _COMMANDS.get(found[0], found[0]), text)
    if "\\frac" in text:
        text = _SHORT_FRACTION.sub(_brace_fraction, text)
    if "\\choose" in text:
        text = _CHOOSE.sub(r"\\binom{\1}{\2}", text)
    if "\\sqrt" in text:
        text = _SHORT_ROOT.sub(r"\\sqrt{\1}", text)
    return text


def _latex_root(found: re.Match[str]) -> str:
    return "\\sqrt" if found[1] is None else f"\\sqrt{{{found[1]}}}"


def _brace_fraction(found: re.Match[str]) -> str:
    top, bottom, braced_top, short_bottom, short_top = found.groups()
    if top is not None:
        return f"\\frac{{{top}}}{{{bottom}}}"
    if braced_top is not None:
        return f"\\frac{{{braced_top}}}{{{short_bottom}}}"
    return f"\\frac{{{short_top}}}"


def _tighten(text: str) -> str:
    """Drop spaces, braces and product signs that carry nothing."""
    if " " in text:
        text = _LOOSE_SPACE.sub("", text)
    if "{" in text:
        text = _NEEDLESS_BRACES.sub(r"\1\2", text)
    if "*" in text:
        text = text.replace("**", "^")
        if "/" not in text:  # 1/2*x is half of x, and 1/2x may be either
            text = _PRODUCT_SIGN.sub("", text)
    if "\\infty" in text:
        text = _SIGNED_INFINITY.sub("", text)
    return text


# Words around a number: units, percent, million, thousands marks, and, or, a.m. and p.m.

_THOUSANDS = re.compile(r"[+-]?\d{1,3}(?:,\d{3})+(?:\.\d+)?%?")
_SPACED_THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2}(?: \d{3})+(?:\.\d+)?")
_AND_OR = re.compile(r",? ?(?<![A-Za-z\\])(?:and|or|AND|OR)(?![A-Za-z]) ?,?")
_PERCENT_WORD = re.compile(
    r"(?<=[0-9}) ])(?:percent|per cent|pct|percentage)\b\.?\Z", re.IGNORECASE
)

# Words behind a number that change its value or its kind.
_NO_UNIT = (
    r"(?!(?:sin|cos|tan|cot|sec|csc|log|ln|exp|sqrt|mod|gcd|lcm|max|min|pi|and|or|over|choose"
    r"|million|billion|trillion|thousand|hundred|to|times|plus|minus|if|for|when|where|is"
    r"|AM|PM|am|pm)\b)"
)
# What is no unit right behind a number: 5 squared, but 5 inches squared.
_NO_OPERATION = r"(?!(?:squared|cubed|factorial|(?:st|nd|rd|th) (?:power|root))\b)"
# Few letters behind a number are a product, as in 2ab, unless they are the sign of a unit; in
# both cases they are one: kJ, Mb.
_NO_LETTERS = (
    r"(?!(?!(?i:[cmkdn]m|[mkc]g|gr|lbs?|oz|ft|in|yds?|mi|ha|ly|au|hrs?|[kmg]?hz|[mcdk]l|cc|[km][wva]"
    r"|pa|k?wh|[kmgt]bs?|kj|ev|db|[mn]s|mph|kph|kmh|rpm|bps|pts?|cts?|qts?|pcs|kgs|cms|mls|rs"
    r"|wks?|yrs?|mo|sq|us|st|nd|rd|th)(?![A-Za-z]))"
    r"(?:[a-z]{2}|[A-Z]{2}|[abcxyz]{3}|[b-df-hj-np-tv-z]{3})(?:\.?\Z| ?\^| ?/ ?[A-Za-z]\b))"
)
_NUMBER = r"[+-]?(?:\d[\d,]*+(?:\.\d+)?+|\.\d+)"
_UNIT = re.compile(
    rf"({_NUMBER}(?: ?/ ?\d++)?) ?-?"
    rf" ?{_NO_UNIT}{_NO_OPERATION}{_NO_LETTERS}[A-Za-z]{{2,}}+\.?"
    rf"(?:[-/ ]{_NO_UNIT}[A-Za-z]++\.?){{0,3}}"
    r"(?: ?\^ ?(?:\{\d\}|\d))?"
)
_SCALED = re.compile(
    rf"({_NUMBER}) ?(thousand|million|billion|trillion)(?: [A-Za-z]{{2,}}+){{0,2}}",
    re.IGNORECASE,
)
_ZEROS = {"thousand": 3, "million": 6, "billion": 9, "trillion": 12}
# 12 元, 3 千克; but 3 千 is 3,000.
_IDEOGRAPHIC_UNIT = re.compile(
    rf"({_NUMBER}) ?(?:千[克米]|分钟|(?![十百千万亿半分点之])[\u4e00-\u9fff]{{1,4}}+)"
)
# Which half of the day is part of the answer, not a unit.
_HALF_DAY = re.compile(r"\b([ap])\.?\s?m\b\.?", re.IGNORECASE)


def _unify_words(text: str) -> str:
    """Drop units and marks, write percent as a sign, scales as digits, conjunctions as commas."""
    if _THOUSANDS.fullmatch(text):
        return text.replace(",", "")
    if " " in text and _SPACED_THOUSANDS.fullmatch(text):
        return text.replace(" ", "")
    if text.isdigit():
        return text
    if ":" in text:
        text = _HALF_DAY.sub(lambda found: f"{found[1].lower()}m", text)
    text = _PERCENT_WORD.sub("%", text)
    if text[:1] in "+-.0123456789":
        scaled = _SCALED.fullmatch(text)
        if scaled is not None:
            return _with_zeros(scaled[1].replace(",", ""), _ZEROS[scaled[2].lower()])
        unit = (_UNIT if text.isascii() else _IDEOGRAPHIC_UNIT).fullmatch(text)
        if unit is not None:
            return _unify_words(unit[1])
    return _AND_OR.sub(",", text)


def _names_half_day(text: str) -> bool:
    """Return whether a supposed unit is a.m. or p.m."""
    return _HALF_DAY.search(text) is not None


def _with_zeros(number: str, power: int) -> str:
    whole, _, fraction = number.partition(".")
    if len(fraction) <= power:
        return whole + fraction.ljust(power, "0")
    return f"{whole}{fraction[:power]}.{fraction[power:]}"
