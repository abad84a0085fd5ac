"""Text of models is data: what it says is shown, and nothing of it is done."""

from __future__ import annotations

import re

import pytest

from tests.consensusbench.report.conftest import HOSTILE
from tests.web.page.conftest import HOSTILE_FORMULAS, PageBrowser


def test_hostile_texts_are_read_and_do_nothing(browser: PageBrowser, hostile_address: str) -> None:
    browser.show(hostile_address)
    rows = browser.documents("samples?limit=100")["rows"]
    assert len(rows) > len(HOSTILE_FORMULAS)
    digest = browser.documents("datasets")["rows"][0]["digest"]
    states = [
        "#/samples",
        "#/problems",
        "#/problem/0/p17",
        f"#/dataset/{digest.replace(':', '%3A')}",
    ]
    states += [f"#/sample/0/{row['key']}" for row in rows]
    elements = browser.run("return document.querySelectorAll('script, link, style').length")
    seen = ""
    for state in states:
        browser.go(state)
        seen += browser.run(
            "document.querySelectorAll('details').forEach(each => each.open = true);"
            "return document.querySelector('main').textContent"
        )
        counts = browser.run(
            "return ['iframe', 'img', 'base', 'object', '[http-equiv]', '[onload]', '[onerror]',"
            " 'a[href^=javascript]', '#main #main', '.katex .top', '.katex [data-x]']"
            ".map(s => document.querySelectorAll(s).length)"
        )
        assert set(counts) == {0}, state
    assert browser.run("return window.owned") is None
    assert browser.run("return document.querySelectorAll('script, link, style').length") == elements
    for text in HOSTILE[:6]:
        assert text in seen
    for formula in HOSTILE_FORMULAS:
        assert re.split(r"[{ ]", formula)[0] in seen
    faults, requests = browser.logs()
    assert faults == []
    assert [url for url in requests if not url.startswith((hostile_address, "data:"))] == []


def test_control_characters_are_written_out(browser: PageBrowser, hostile_address: str) -> None:
    browser.show(hostile_address)
    [row] = browser.documents("samples?q=escape")["rows"]
    browser.go(f"#/sample/0/{row['key']}")
    [text] = browser.texts(".text-body .response")
    assert "escape ␛[31m" in text and "⟨202E⟩left" in text
    assert not re.search("[\u0000\u001b\u202e]", text)


@pytest.mark.parametrize(
    "part",
    [
        "$x$ ", r"\[", r"\boxed{", "$$", "$1", r"\begin{align}", "${{{{", r"\(\frac", "$ x",
        "**a ", "*a", "`", "``` ", "# a\n", "- a\n", "|a\n|-|-\n", "|a|b\n", "|-", "- ", "[a](",
        "> ", "**`*", "\n",
    ],
)  # fmt: skip
def test_a_long_text_of_delimiters_does_not_hang(
    part: str, browser: PageBrowser, hostile_address: str
) -> None:
    if not browser.run("return location.href").startswith(hostile_address):
        browser.show(hostile_address)
    browser.driver.set_script_timeout(60)
    text = part * (100_000 // len(part))
    shown = browser.run(
        "const begin = performance.now();"
        "const box = prose(arguments[0]);"
        "const took = performance.now() - begin;"
        "return [box.querySelectorAll('.katex').length, box.textContent.length, took]",
        text,
    )
    assert shown[0] <= 2000 and shown[1] > 0 and shown[2] < 10_000, shown


@pytest.mark.parametrize("what", ["script", "image", "style"])
def test_the_policy_stops_injected_markup(what: str, browser: PageBrowser, address: str) -> None:
    # What the page never does is done here by hand, to see the second line of defence hold.
    browser.show(address)
    markup = {
        "script": "<svg><script>window.owned=1</script></svg><b onclick='window.owned=2'>x</b>",
        "image": "<img src='https://example.org/x.png' onerror='window.owned=3'>",
        "style": "<i style='background:url(https://example.org/y.png)'>x</i>",
    }[what]
    browser.run(
        "document.body.insertAdjacentHTML('beforeend', arguments[0]);"
        "document.querySelector('body > b')?.click();"
        "const script = document.createElement('script'); script.textContent = 'window.owned = 4';"
        "document.body.append(script);",
        markup,
    )
    assert browser.run("return window.owned") is None
    faults, requests = browser.logs()
    assert any("Content Security Policy" in fault for fault in faults)
    assert {blocked for url, blocked in requests.items() if "example.org" in url} <= {"csp"}
