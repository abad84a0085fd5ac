"""Enumerations inside wrappers: a wrapped list must not earn more than the same list in prose.

A *line* wrapper rewrites each equation of an enumeration, a *text* wrapper encloses the joined
lines; any two of them combine.  ``python -m benchmarks.quality.wrappers`` scores each wrapper on
three sets of nodes, with the guard's budgets, and prints the worst first.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, TypeAlias

import numpy as np

from benchmarks.harness.markdown import demand, page_parser, table
from benchmarks.harness.measure import REPOSITORY
from benchmarks.quality.measure import GOLD_NODES, read_gold, write_dataset
from consensusbench.quality.probes import constant_table, numbers_in, pairs_of, pairs_of_pairs
from consensuspr.client import LocalClient, Rollout
from consensuspr.data import Problem, read_problems

AIME_NODES = Path("data/nodes/aime24_read_nodes.jsonl.gz")
SAMPLE = REPOSITORY / "examples/sample/dataset.jsonl"
GSM8K_PROBLEMS = 120
# A wrapper fails if it earns more than LIMIT where the plain lines earn at most PLAIN_LIMIT.
LIMIT = 0.10
PLAIN_LIMIT = 0.05

Rewrite: TypeAlias = Callable[[str], str]

_NUMBER: Final = re.compile(r"\d+(?:\.\d+)?")
_DIGIT: Final = re.compile(r"(?<=\d)(?=\d)")
_TOKEN: Final = re.compile(r"\d+(?:\.\d+)?|[-+*/=]")
_WORDS: Final = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen "
    "sixteen seventeen eighteen nineteen"
).split()
_TENS: Final = "twenty thirty forty fifty sixty seventy eighty ninety".split()


def inside(template: str) -> Rewrite:
    """Return what puts a text at the `@` of a template."""
    return lambda text: template.replace("@", text)


def numbers_as(spell: Callable[[str], str]) -> Rewrite:
    """Return what rewrites each number."""
    return lambda text: _NUMBER.sub(lambda found: spell(found[0]), text)


def between_digits(glue: str) -> Rewrite:
    """Return what puts a character between the digits of each number."""
    return lambda text: _DIGIT.sub(lambda found: glue, text)


def digits_from(zero: str) -> Rewrite:
    """Return what writes digits of another script, the first of which is given."""
    digits = str.maketrans({chr(48 + at): chr(ord(zero) + at) for at in range(10)})
    return lambda text: text.translate(digits)


def tokens_as(template: str, separator: str = "") -> Rewrite:
    """Return what encloses each number and each sign."""
    return lambda text: separator.join(template.replace("@", t) for t in _TOKEN.findall(text))


def sides(template: str) -> Rewrite:
    """Return what puts the left side at `<` and the value at `>` of a template."""

    def rewrite(text: str) -> str:
        left, _, right = text.partition("=")
        return template.replace("<", left, 1).replace(">", right, 1)

    return rewrite


def in_words(number: str) -> str:
    """Return a whole number below 1,000 in English."""
    if not number.isdigit() or int(number) > 999:
        return number
    value = int(number)
    if value >= 100:
        rest = f" {in_words(str(value % 100))}" if value % 100 else ""
        return f"{_WORDS[value // 100]} hundred{rest}"
    if value >= 20:
        return _TENS[value // 10 - 2] + (f"-{_WORDS[value % 10]}" if value % 10 else "")
    return _WORDS[value]


# Of each equation.
LINES: Final[Mapping[str, Rewrite]] = {
    "plain": inside("@"),
    # code
    **{
        f"line {template}": inside(template)
        for template in (
            "# @", "x = 1  # @", "// @", "-- @", "; @", "% @", "/* @ */", "<!-- @ -->", "(* @ *)",
            "'@'", '"@"', '"""@"""', "f'@'", 'f"{@}"', "r'@'", "b'@'", "'@',", "x = '@'", "x = f'''@'''",
            "print('@')", 'print("@")', 'print(f"@")', 'print("x", "@")', "return '@'", "raise E('@')",
            "log.info('@')", "    # @", "    '@'", "x['@'] = 1", "f(@)", "f(x='@')", "('@',)",
            "{'@': 1},", "{'@'}", "['@'],", '{"x": "@"}', '"x": "@",', "- x: '@'", "x: @", "export X='@'",
            "echo '@'", "printf '@\\n'", "\\n@", "'\\n@\\n'", "@\\n", "lambda: '@'", "del '@'", "import @",
            "def f(x='@'): pass", "@:", "case '@':", "x.@", "x->@", "x::@", "$x@", "__@__", "v_@", "a[@]",
        )
    },
    "print with value": sides("print('<', '=', >)"),
    "f-string with operation": sides('print(f"{<}=>")'),
    "assert ==": sides("assert < == >"),
    "if ==": sides("if < == >: pass"),
    "while ==": sides("while < == >: pass"),
    "==": sides("< == >"),
    "===": sides("< === >"),
    "x = a == b": sides("x = < == >"),
    "walrus": sides("(< := >)"),
    ":=": sides("<:=>"),
    "≡": sides("<≡>"),
    "≈": sides("<≈>"),
    "≅": sides("<≅>"),
    "\\equiv": sides("<\\equiv >"),
    "≔": sides("<≔>"),
    "≟": sides("<≟>"),
    "=>": sides("<=>>"),
    "->": sides("<->>"),
    "→": sides("<→>"),
    "is": sides("< is >"),
    "becomes": sides("< becomes >"),
    "value first": sides("< <- >"),
    "!=": sides("<!=>"),
    "≠": sides("<≠>"),
    "<=": sides("<<=>"),
    "≤": sides("<≤>"),
    "negated": inside("not @"),
    # LaTeX
    **{
        f"latex {template}": inside(template)
        for template in (
            "$@$", "$$@$$", "\\(@\\)", "\\[@\\]", "x_{@}", "x^{@}", "_{@}", "^{@}", "\\label{@}",
            "\\tag{@}", "\\text{@}", "\\mbox{@}", "\\mathrm{@}", "\\phantom{@}", "\\hphantom{@}",
            "\\underbrace{@}", "\\underbrace{x}_{@}", "\\overbrace{x}^{@}", "\\overset{@}{x}",
            "\\underset{@}{x}", "\\stackrel{@}{=}", "\\color{@}", "\\textcolor{red}{@}", "\\verb|@|",
            "\\href{@}{x}", "\\ref{@}", "\\cite{@}", "\\hspace{@}", "\\begin{@}", "\\boxed{@}",
            "\\fbox{@}", "\\cancel{@}", "\\footnote{@}", "\\newcommand{\\x}{@}", "\\sqrt{@}",
            "\\sqrt[@]{2}", "\\frac{@}{1}", "\\frac{1}{@}", "\\left(@\\right)", "\\left.@\\right|",
            "\\sum_{@}", "\\lim_{@}", "\\operatorname{@}", "\\{@\\}", "{@}", "@ &", "& @ \\\\",
            "\\item @", "\\xrightarrow{@}", "\\substack{@}", "\\vcenter{@}", "\\texttt{@}",
            "\\quad@\\quad", "|@|", "\\lvert @\\rvert", "\\lfloor @\\rfloor", "\\displaystyle @",
        )
    },
    # markup
    **{
        f"markup {template}": inside(template)
        for template in (
            '<x y="@">', "<x y='@'/>", "<b>@</b>", "<@>", "</@>", '<a href="@">x</a>', "&lt;@&gt;",
            "<sub>@</sub>", "<sup>@</sup>", "<td>@</td>", "<!--@", "<![CDATA[@]]>", "<?@?>",
            "| @ |", "|x|@|y|", "[@](u)", "[x](@)", "![@](u)", "![x](@)", "[@]", "[^1]: @", "[^@]",
            "[x]: @", "# @", "### @", "- @", "* @", "+ @", "1. @", "1) @", "(a) @", "- [ ] @", "> @",
            ">> @", "`@`", "``@``", "**@**", "*@*", "_@_", "~~@~~", "==@==", ":::@", "{{@}}", "{%@%}",
            "\t@", "    @", "        @", "https://x.org/?q=@", "http://x/@", "mailto:@", "x@y.org/@",
            "«@»", "“@”", "‘@’", "…@…", "—@—", "@;", "@,", "@.", "@!", "@?", "@:", ":@", "3:@",
            "@:3", "1/2:@", "v1.@", "\\@", "/@", "@/", "~@", "^@", "&@", "%@", "$@", "#@", "·@", "•@",
        )
    },
    # what the reader of statements refuses beside it
    **{
        f"beside {template}": inside(template)
        for template in (
            "k + @", "k*@", "k(@", "@ + k", "@k", "x@", "@x", "@^2", "@!", "@%", "1/0+@", "@+1/0", "@=1/0",
            "@=0^0", "@=x", "x=@", "x=y=@", "@=1", "0=@", "@ mod 7", "@ (mod 7)", "@ or @", "0^0=@",
            "99999999999999999999=@", "10^99+@", "@=10^99", "10^99; @", "(" * 30 + "@", "@" + ")" * 30,
            "(" * 30 + "@" + ")" * 30, "[" * 30 + "@" + "]" * 30, "{" * 30 + "@" + "}" * 30,
            "0*" * 70 + "x+@", "1+" * 70 + "x, @", "1 " * 70 + "@", "w " * 300 + "@", "let @", "suppose @",
            "wrong: @", "1 @", "@ 1", "12 34 @", "1,2,@", "1.@", "1-@", "+@", "-@", "*@", "=@", "==@",
            "@=", "@==", "2024-01-02 @", "12:30 @", "1 2/3 @", "§@", "№@", "°@", "'@", "@'", '"@', "@\"",
            "`@", "@`", "$@ $", "@$", "{@", "@}", "\\{@", "\\left(@", "@\\right)", "(@", "@)", "[@", "@]",
        )
    },
    # spellings of numbers
    "full-width digits": digits_from("０"),
    "Arabic digits": digits_from("٠"),
    "Persian digits": digits_from("۰"),
    "Devanagari digits": digits_from("०"),
    "bold digits": digits_from("𝟎"),
    "monospace digits": digits_from("𝟶"),
    "subscript digits": digits_from("₀"),
    "circled digits": lambda text: text.translate(
        str.maketrans("0123456789", "⓪①②③④⑤⑥⑦⑧⑨")
    ),
    "superscript digits": lambda text: text.translate(
        str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")
    ),
    "full-width all": lambda text: text.translate({c: c + 0xFEE0 for c in range(33, 127)}),
    **{
        f"digits glued by {name}": between_digits(glue)
        for name, glue in {
            "zero-width space": "\u200b", "zero-width joiner": "\u200d", "zero-width no-break": "\ufeff",
            "word joiner": "\u2060", "soft hyphen": "\u00ad", "combining mark": "\u0301",
            "bidi mark": "\u200e", "bidi override": "\u202e", "variation selector": "\ufe0f",
            "{}": "{}", "\\,": "\\,", "\\!": "\\!", "{,}": "{,}", ",": ",", "_": "_", "space": " ",
            "no-break space": "\u00a0", "thin space": "\u2009", "'": "'", "`": "`", "*": "*", "**": "**",
            "$$": "$$", "NUL": "\0", "newline": "\n", "\\": "\\", "}{": "}{", "\\/": "\\/", "~": "~",
            "<!---->": "<!---->", "<b></b>": "<b></b>", "%\\n": "%\n", ".": ".", "interpunct": "·",
        }.items()
    },
    **{
        f"numbers {template}": numbers_as(inside(template))
        for template in (
            "{@}", "\\text{@}", "$@$", "**@**", "`@`", "\\boxed{@}", "@ apples", "\\$@", "$@", "€@",
            "@.0", "@.00", "0@", "00@", "+@", "(@)", "[@]", "@e0", "@E0", "@j", "@L", "@n", "@px", "@%",
            "'@'", '"@"', "<b>@</b>", "\\mathbf{@}", "\\,@\\,", "\\textcolor{red}{@}", "_@_", "x@", "@_",
            "@^1", "@^{1}", "@**1", "@_{1}", "@!", "@.", "#@", "int(@)", "Fraction(@)", "float('@')",
            "@/1", "1*@", "@\\cdot 1", "\\frac{@}{1}", "\\sqrt{@^2}", "--@", "\u2212-@", "0x@", "@(1)",
        )
    },
    "thousands": numbers_as(lambda n: f"{int(n):,}" if n.isdigit() else n),
    "thousands {,}": numbers_as(lambda n: f"{int(n):,}".replace(",", "{,}") if n.isdigit() else n),
    "number words": numbers_as(in_words),
    "scientific": numbers_as(lambda n: f"{float(n):e}"),
    "hexadecimal": numbers_as(lambda n: hex(int(n)) if n.isdigit() else n),
    "tokens $…$": tokens_as("$@$"),
    "tokens {}": tokens_as("{@}"),
    "tokens **": tokens_as("**@**", " "),
    "tokens `": tokens_as("`@`", " "),
    "tokens by zero-width": tokens_as("@", "\u200b"),
    "tokens by no-break": tokens_as("@", "\u00a0"),
    "tokens by \\;": tokens_as("@", "\\;"),
    "tokens by ~": tokens_as("@", "~"),
    "tokens by {}": tokens_as("@", "{}"),
    "tokens by &": tokens_as("@", "&"),
    "tokens by |": tokens_as("@", "|"),
    "tokens by newline": tokens_as("@", "\n"),
    "tokens by CRLF": tokens_as("@", "\r\n"),
    "tokens by \\\\": tokens_as("@", "\\\\"),
    "tokens by tab": tokens_as("@", "\t"),
    "tokens by comma": tokens_as("@", ","),
    "tokens as strings": tokens_as("'@'", ", "),
    "tokens by +": tokens_as("'@'", "+"),
    "tokens in text": tokens_as("\\text{@}"),
    "tokens in tags": tokens_as("<b>@</b>"),
    "\\times": lambda text: text.replace("*", "\\times "),
    "×, ÷": lambda text: text.replace("*", "×").replace("/", "÷"),
    "words": lambda text: text.replace("*", " times ").replace("+", " plus ").replace("=", " is "),
    "value first =": lambda text: "=".join(reversed(text.split("="))),
    "fractions": lambda text: re.sub(r"([\d.]+)/([\d.]+)", r"\\frac{\1}{\2}", text),
    "fractions without braces": lambda text: re.sub(r"\b(\d)/(\d)\b", r"\\frac\1\2", text),
}  # fmt: skip

# Of the joined lines.
TEXTS: Final[Mapping[str, Rewrite]] = {
    "plain": inside("@"),
    **{
        f"fence {language}": inside(f"```{language}\n@\n```")
        for language in (
            "", "python", "py", "python3", "Python", "ipython", "pycon", "js", "text", "latex", "yaml",
            "json", "diff", "bash", "sql", "output", "tool_output", "markdown", "c", "math", "{python}",
        )
    },
    **{
        f"text {template!r}": inside(template)
        for template in (
            "~~~python\n@\n~~~", "````python\n```\n@\n```\n````", "```python\n@", "```\n```python\n@",
            "```python\n```\n@\n```python\n```", "> ```python\n@\n> ```", "  ```python\n@\n  ```",
            '"""\n@\n"""', "'''\n@\n'''", "x = '''\n@\n'''", '```python\n"""\n@\n"""\n```',
            "```python\nx = '''\n@\n'''\n```", "```python\nx = f'''\n@\n'''\n```",
            "```python\nx = [\n@\n]\n```", "```python\nx = (\n@\n)\n```", "```python\nx = {\n@\n}\n```",
            "```python\nf(\n@\n)\n```", "```python\nprint('''\n@\n''')\n```",
            'def f():\n    """\n@\n    """', "def f():\n@", "def f():\n    x = [\n@\n    ]", "class A:\n@",
            "class A:\n    x = '''\n@\n    '''", "def f():\n    pass\n@", "x = 1\n@", "import x\n@",
            "for i in x:\n@", "if x:\n@", "try:\n@", "while True:\n@", "x = '@", 'x = "@', "x = (@", "f('@",
            "```python\nx = '@'\n```", "```python\nx = (@\n```", "```python\nx = '\n@\n'\n```",
            "```python\nfor i in x:\n    y = i\n@\n```", "```python\nif x:\n@\n```",
            "```python\nx = '''\n```\n@\n```python\n'''\n```", "```python\n# \\\n@\n```",
            '{"steps": ["@"]}', "[@]", "{@}", "(@)", "{@", "(@", "[@", "$@", "$$@$$", "\\[@\\]", "\\(@\\)",
            "\\begin{align*}@\\end{align*}", "\\begin{cases}@\\end{cases}", "\\begin{matrix}@\\end{matrix}",
            "\\begin{array}{cc}@\\end{array}", "\\begin{verbatim}\n@\n\\end{verbatim}",
            "\\begin{lstlisting}\n@\n\\end{lstlisting}", "\\begin{comment}\n@\n\\end{comment}",
            "\\begin{tikzpicture}@\\end{tikzpicture}", "\\iffalse\n@\n\\fi", "\\text{@}", "\\text{\n@\n}",
            "\\label{@}", "\\footnote{@}", "x_{@}", "x^{@}", "\\boxed{@}", "\\underbrace{@}_{x}",
            "\\phantom{@}", "\\frac{@}{1}", "\\sqrt{@}", "\\verb|@|", "\\left\\{@\\right.",
            "<!--\n@\n-->", "<!-- @", "<pre>@</pre>", "<code>@</code>", "<script>\n@\n</script>",
            "<style>@</style>", "<details>@</details>", "<think>@</think>", "<think>\n@", "</think>\n@",
            "<tool_response>@</tool_response>", "<tool_call>@</tool_call>", "<answer>@</answer>",
            "<interpreter>\n@\n</interpreter>", "<output>@</output>", '<x y="@">', "<x>@</x>", "---\n@\n---",
            "%%%\n@", "/*\n@\n*/", "=begin\n@\n=end", "|||\n@\n|||", "\x00@", "\x1b[8m@\x1b[0m", "\u202e@\u202c",
            "\ufeff@", "Question: @", "User: @", "Answer: @", "#### @", "\\boxed{1}\n@", "@\n\\boxed{1}",
        )
    },
    **{
        f"joined by {separator!r}": lambda text, separator=separator: text.replace("\n", separator)  # type: ignore[misc]
        for separator in (
            " ", ", ", "; ", " | ", "|", " || ", "=", " = ", " and ", " or ", "\\n", "\\\\", "\\\\\n", " & ",
            "\t", "\f", "\v", "\r", "\r\n", "\n\n", "\u2028", "\x00", "\\quad ", "\\; ", "$ $", ". ", ": ",
            " : ", " - ", " + ", " * ", "/", "\\", "`", "``", "**", " ", "\u00a0", "\u200b", "\u3000",
            "<br>", "</td><td>", " => ", " -> ", " → ", " ⇒ ", "\\implies ", "\\Rightarrow ", "\\iff ",
            " != ", " < ", " > ", "≠", ">", "<", "<>", "]['", "', '", '", "', "`, `", "'", '"', ")(", "][",
            "}{", "_", "^", "x", "!", "?", "%", "#", "&", "~", "$", "·", "•", "…", "—", "–", "//", "@",
            ", x, ", " x=", ", but not ", ")", "(", "\n# ", "\n\n\n# ", ",\n'", "(((", ")))", " w w w w w w w ",
        )
    },
}  # fmt: skip

# Pairs that belong to the default run: what the text makes of lines that suit it.
PAIRS: Final = tuple(
    (line, text)
    for text in (
        "fence python", "fence ", "fence js", "fence text", "text 'def f():\\n@'",
        "text 'class A:\\n@'", "text '```python\\nx = [\\n@\\n]\\n```'",
    )
    for line in (
        "line # @", "line x = 1  # @", "line '@'", "line '@',", 'line "@"', 'line print("@")',
        "line     # @", "line     '@'", "line f'@'", 'line """@"""', "line f(x='@')", "line {'@': 1},",
        "assert ==", "if ==", "==", "x = a == b", "walrus", "f-string with operation", "markup | @ |",
        "latex x_{@}", "latex \\text{@}", "latex $@$", "line % @", "line <!-- @ -->", "markup `@`",
        "number words", "full-width digits", "tokens by zero-width", "line return '@'", "line \\n@",
    )
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Earned:
    """Means over the problems of a set."""

    ncr: float
    ncr_raw: float
    guard: float


@dataclass(frozen=True, slots=True)
class WrapperFigures:
    """What one wrapper earns, by set and enumeration ("gsm8k deep")."""

    line: str
    text: str
    earned: dict[str, Earned]

    @property
    def name(self) -> str:
        """The parts of the wrapper."""
        parts = [part for part in (self.line, self.text) if part != "plain"]
        return " in ".join(parts) or "plain"


def enumerations(problem: str, kinds: Sequence[str]) -> dict[str, str]:
    """Return lines of true equations by kind, without a look at the nodes."""
    numbers = numbers_in(problem)
    made: dict[str, Callable[[], str]] = {
        "pairs": lambda: pairs_of(numbers).prose(),
        "deep": lambda: pairs_of_pairs(numbers).prose(),
        "table": lambda: constant_table().prose(),
    }
    return {kind: made[kind]() for kind in kinds}


def measure(
    datasets: Mapping[str, Path],
    wrappers: Iterator[tuple[str, str]],
    kinds: Sequence[str],
) -> Iterator[WrapperFigures]:
    """Score wrapped enumerations of all problems of all datasets, in this process."""
    with LocalClient(datasets, answer_budget_s=0.01) as client:
        lists = {
            name: [
                (problem.problem_id, enumerations(problem.problem, kinds))
                for problem in read_problems(path)
                if problem.nodes
            ]
            for name, path in datasets.items()
        }
        for line, text in wrappers:
            earned: dict[str, Earned] = {}
            for name, problems in lists.items():
                for kind in kinds:
                    rollouts = [
                        Rollout(problem_id, wrapped(by_kind[kind], line, text))
                        for problem_id, by_kind in problems
                    ]
                    scores = client.score(rollouts, dataset=name)
                    figures = np.array([(one.ncr, one.ncr_raw, one.guard) for one in scores], float)
                    earned[f"{name} {kind}"] = Earned(*map(float, figures.mean(axis=0)))
            yield WrapperFigures(line, text, earned)


def wrapped(lines: str, line: str, text: str) -> str:
    """Return an enumeration inside a line wrapper and a text wrapper."""
    return TEXTS[text]("\n".join(map(LINES[line], lines.split("\n"))))


def excess(one: WrapperFigures, plain: WrapperFigures) -> tuple[float, str]:
    """Return the most that a wrapper earns where plain lines earn little, and of what."""
    return max(
        (
            (earned.ncr, name)
            for name, earned in one.earned.items()
            if plain.earned[name].ncr <= PLAIN_LIMIT
        ),
        default=(0.0, ""),
    )


def wrappers_table(figures: Sequence[WrapperFigures], plain: WrapperFigures) -> str:
    """Return a row for each wrapper, the worst first, plain lines on top."""
    ordered = sorted(figures, key=lambda one: -excess(one, plain)[0])
    rows = []
    for one in [plain, *ordered]:
        _, where = excess(one, plain)
        worst = one.earned[where]
        rows.append(
            [
                f"`{one.name!r}`",
                where,
                _share(worst.ncr),
                _share(worst.ncr_raw),
                _share(worst.guard),
            ]
            + [_share(earned.ncr) for earned in one.earned.values()]
        )
    return table(["wrapper", "most of", "NCR", "raw", "guard", *plain.earned], rows, 2)


def _share(value: float) -> str:
    return f"{value:.3f}"


def chosen(everything: bool) -> Iterator[tuple[str, str]]:
    """Yield wrappers: each alone and the pairs that suit, or all pairs."""
    if everything:
        yield from ((line, text) for text in TEXTS for line in LINES)
        return
    yield from ((line, "plain") for line in LINES)
    yield from (("plain", text) for text in TEXTS if text != "plain")
    yield from PAIRS


def main() -> int:
    """Measure, print; return 1 if a wrapper earns more than the limit."""
    parser = page_parser("benchmarks.quality.wrappers", __doc__)
    parser.add_argument("--all", action="store_true", help="combine every line with every text")
    parser.add_argument(
        "--only", default="", help="wrappers whose name has this regular expression"
    )
    parser.add_argument("--problems", type=int, default=GSM8K_PROBLEMS, help="of each set (120)")
    parser.add_argument("--kinds", nargs="+", default=["deep", "pairs"], help="pairs, deep, table")
    parser.add_argument("--show", type=int, default=0, help="rows to print (all)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    arguments = parser.parse_args()
    demand(arguments.shared, [GOLD_NODES, AIME_NODES])
    with TemporaryDirectory(prefix="wrappers-") as folder:
        sets: dict[str, list[Problem]] = {
            "gsm8k": read_gold(arguments.shared),
            "aime": [*read_problems(arguments.shared / AIME_NODES)],
            "sample": [*read_problems(SAMPLE)],
        }
        paths = {name: Path(folder) / f"{name}.jsonl" for name in sets}
        for name, problems in sets.items():
            with_nodes = [one for one in problems if one.nodes]
            step = max(len(with_nodes) // arguments.problems, 1)
            write_dataset(paths[name], with_nodes[::step][: arguments.problems])
        (plain,) = measure(paths, iter([("plain", "plain")]), arguments.kinds)
        wanted = re.compile(arguments.only)
        names = (pair for pair in chosen(arguments.all) if wanted.search(" in ".join(pair)))
        figures = [*measure(paths, names, arguments.kinds)]
    ordered = sorted(figures, key=lambda one: -excess(one, plain)[0])
    failed = [one for one in ordered if excess(one, plain)[0] > LIMIT]
    shown = ordered[: arguments.show or None]
    if arguments.json:
        rows = [asdict(one) | {"name": one.name} for one in [plain, *shown]]
        print(json.dumps(rows, ensure_ascii=False))
    else:
        print(wrappers_table(shown, plain))
        print(f"\n{len(failed)} of {len(figures)} wrappers earn more than {LIMIT:.2f}")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
