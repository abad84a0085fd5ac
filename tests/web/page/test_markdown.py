"""Markdown of responses: what is set, what stays as written, and that nothing is lost or run."""

from __future__ import annotations

import random

import pytest

from tests.web.page.conftest import PageBrowser

# A text, and the elements that it is set with.
CASES = {
    "**Step 1:** add *both* parts": ["strong Step 1:", "em both"],
    "**bold with $x$ inside**": ["strong bold with"],
    "run `f(x)` and ``g`h``": ["code f(x)", "code g`h"],
    "### Step 1\n\ntext": ["strong.heading Step 1"],
    "- one\n  - two\n* three\n1. four\n2) five": [
        "span.item - one", "span.item - two", "span.item * three", "span.item 1. four",
        "span.item 2) five",
    ],
    "a\n\n---\nb": ["hr"],
    "| n | value |\n|---|:-:|\n| 1 | `2` |\nend": [
        "td n", "td value", "td 1", "td 2", "code 2",
    ],
    # Arithmetic and answers are no markup.
    "5*3*2 = 30, (2*3)*4*(5), 2**3 + 3**2, 2 *3* 4": [],
    "so 2*3 is 6* one, and *one of 2*3": [],
    "x * y * z and a_1 b_2 __init__": [],
    "#### 72": [],
    "+ 5\n> 3\n12 |x| 4": [],
    # No links, no pictures, no HTML.
    "[x](javascript:owned=1) ![y](https://example.org/y.png) <b>z</b> https://example.org": [],
    "<script>owned=1</script>\n![](data:image/png;base64,AAAA)\n[r]: https://example.org": [],
    "```\n<img src=x onerror=owned=1>\n```": ["code.fenced ``` <img src=x onerror=owned=1> ```"],
}  # fmt: skip
OUTLINE = """
const box = prose(arguments[0]);
const name = ({ localName, classList }) => [localName,
  ...["heading", "item", "fenced"].filter((each) => classList.contains(each))].join(".");
return [...box.querySelectorAll("strong, em, code, hr, td, .item, a, img, script, b, svg > script")]
  .map((one) => [name(one), one.textContent.replace(/\\s+/g, " ").trim()].join(" ").trim());
"""


def test_markdown_is_set_where_it_cannot_be_arithmetic(browser: PageBrowser, address: str) -> None:
    browser.show(address)
    for text, expected in CASES.items():
        found = browser.run(OUTLINE, text)
        assert [outline.split("\ue000")[0][: len(each)] for outline, each in
                zip(found, expected, strict=True)] == expected, text  # fmt: skip
    faults, requests = browser.logs()
    assert faults == [] and not [url for url in requests if "example.org" in url]
    assert browser.run("return window.owned") is None


LABELS = {
    r"\frac{225}{25} = 9": True,
    "AE * AB = AD^2": True,
    "m + n = 33": True,
    r"\text{winter}: 14 * 118 = 1652": True,
    "adding the three equations: a + b = 5": False,
    "902 ways": False,
    "He has spent $8 on candy because 4 x 2 = 8": False,
    "5 kg = 5000 g": False,
    r"\frac{1}{": False,
}


def test_labels_that_are_formulas_are_set(browser: PageBrowser, address: str) -> None:
    browser.show(address)
    for label, is_formula in LABELS.items():
        found = browser.run(
            "const shown = nodeLabel({ label: arguments[0] });"
            "return [Boolean(shown.querySelector('.katex')), shown.textContent]",
            label,
        )
        assert found[0] is is_formula, label
        assert is_formula or found[1] == label


# Markup, words and hits in any order.
PARTS = (
    "*", "**", "***", "`", "``", "```\n", "#", "# ", "### ", "- ", "1. ", "  ", "|", "|-|-|", "---",
    "\n", "\n\n", "a", "Ab c", "2", " ", "(", ")", "$x$", "$", r"\[y\]", "\\", "> ", "<b>", "é",
    "😀",
)  # fmt: skip
SQUEEZED = """
return arguments[0].map(([text, cuts]) => {
  const bare = (shown) => shown.replace(/[*#|`\\s-]|\\$|\\\\[[\\]]/g, "");
  let start = 0;
  const pieces = cuts.map((end, at) => {
    const nodes = at % 2 ? [at] : [];
    const piece = { text: text.slice(start, end), nodes, ends: nodes };
    start = end;
    return piece;
  });
  const box = marked(pieces, cuts.map((_, number) => ({ number, channel: "pattern" })));
  const numbers = [...box.querySelectorAll(".number")];
  const ends = numbers.map((one) => Number(one.textContent) - 1);
  numbers.forEach((one) => one.remove());
  box.querySelectorAll(".formula").forEach((one) => one.replaceWith(one.title));
  return [bare(text), bare(box.textContent), ends];
});
"""


@pytest.mark.parametrize("seed", range(4))
def test_no_character_and_no_hit_is_lost(seed: int, browser: PageBrowser, address: str) -> None:
    if not browser.run("return location.href").startswith(address):
        browser.show(address)
    draw = random.Random(seed)
    given = []
    for _ in range(300):
        text = "".join(draw.choices(PARTS, k=draw.randint(1, 25)))
        units = len(text.encode("utf-16-le")) // 2
        cuts = sorted({draw.randint(0, units) for _ in range(draw.randint(0, 6))} | {units})
        given.append((text, cuts))
    for (text, cuts), (bare, shown, ends) in zip(given, browser.run(SQUEEZED, given), strict=True):
        assert shown == bare, (text, cuts)
        assert sorted(ends) == [at for at in range(len(cuts)) if at % 2], (text, cuts)
