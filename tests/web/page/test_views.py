"""The page in a real browser: every view, by pointer and by keyboard, in any window."""

from __future__ import annotations

import hashlib
import json
import math
from pathlib import Path
from typing import Any

import pytest

from consensuspr.client import RewardSpec
from consensuspr.data import read_problem_rows
from consensuspr.score_log.curves import coarsen, read_curve
from consensuspr.scoring import DatasetIndex
from tests.score_logs import log_formulas, write_log
from tests.watched import DATASET, watching
from tests.web.page.conftest import PageBrowser

ASSETS = Path(__file__).resolve().parents[3] / "server/consensuspr/web/assets"
PROBLEM = "sample-counting-003"


def percent(share: float) -> str:
    """Return a share as the page says it, halves upwards."""
    return f"{math.floor(100 * share + 0.5)}\u202f%"


def group_of(browser: PageBrowser, wanted: str = "kind=wrong_all") -> dict[str, Any]:
    """Return a sample that the page shows."""
    row: dict[str, Any] = browser.documents(f"samples?{wanted}&limit=1")["rows"][0]
    return row


def states(browser: PageBrowser, address: str) -> dict[str, str]:
    """Return the address of each view."""
    browser.show(address)
    row = group_of(browser)
    digest = browser.documents("datasets")["rows"][0]["digest"].replace(":", "%3A")
    return {
        "overview": "#/overview",
        "samples": "#/samples?kind=suspicious",
        "sample": f"#/sample/{row['run']}/{row['key']}",
        "group": f"#/group/{row['run']}?step={row['step']}&group={row['group']}",
        "problems": "#/problems?sort=change&desc=0",
        "problem": f"#/problem/{row['run']}/{row['problem']}",
        "datasets": "#/datasets",
        "dataset": f"#/dataset/{digest}?sort=gap&limit=3",
        "compare": "#/compare?a=0&b=1",
        "pair": f"#/pair?problem={row['problem']}&a=0&b=1",
        "nowhere": "#/nowhere",
    }


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_views_open_without_fault_and_axe_finds_nothing(
    scheme: str, browser: PageBrowser, address: str
) -> None:
    views = states(browser, address)
    for view, state in views.items():
        if scheme == "light" or view in ("overview", "sample", "pair"):
            browser.show(address, state, scheme=scheme)
            assert browser.axe() == [], view
    faults, requests = browser.logs()
    assert faults == []
    assert [url for url in requests if not url.startswith((address, "data:"))] == []


def test_nothing_is_wider_than_a_narrow_window(browser: PageBrowser, address: str) -> None:
    addresses = states(browser, address).values()
    browser.show(address, width=360)
    for address in addresses:
        browser.go(address)
        assert browser.run("return document.documentElement.scrollWidth") <= 360, address


@pytest.mark.parametrize("view", ["problems", "problem", "samples"])
def test_tables_are_as_narrow_as_a_laptop(view: str, browser: PageBrowser, address: str) -> None:
    browser.show(address, states(browser, address)[view], width=1300)
    cut = "[...document.querySelectorAll('.scroll')].filter(e => e.scrollWidth > e.clientWidth)"
    assert browser.run(f"return {cut}.map(e => e.ariaLabel)") == []
    if view == "problems":
        assert browser.texts("thead th")[-1] == "of wrong answers"
        assert browser.run("return document.querySelectorAll('.excerpt .katex').length") > 0


def test_a_curve_without_values_says_so(browser: PageBrowser, tmp_path: Path) -> None:
    known = {"time": 10**15, "problem_id": "p", "response": "1", "status": "OK", "reward": 0.5}
    write_log(tmp_path / "run", [{**known, "acc": 1.0, "step": step} for step in (1, 2)])
    with watching(tmp_path / "run") as watched:
        watched.wait_read()
        browser.show(f"{watched.url}/")
        [plot] = browser.texts("[data-chart=num_tokens] .plot")
        assert plot == "rollouts have no num_tokens"
        assert browser.texts(".reading") == [""]  # it is not written to any more


def test_curves_of_both_runs_are_drawn(browser: PageBrowser, address: str) -> None:
    browser.show(address)
    browser.until("document.querySelectorAll('[data-chart=ncr_of_wrong] svg path').length > 4")
    assert browser.texts(".runs tbody th button") == ["stuffing", "honest"]
    assert "NCR of wrong answers" in browser.texts(".chart h3")
    # The figures beside a chart are those of the document.
    browser.run("document.querySelector('[data-chart=ncr_of_wrong] details').open = true")
    browser.until("document.querySelector('[data-chart=ncr_of_wrong] tbody tr')")
    [first, *_] = browser.run(
        "return [...document.querySelectorAll('[data-chart=ncr_of_wrong] tbody tr')]"
        ".map(row => [...row.cells].map(cell => cell.textContent))"
    )
    curves = browser.documents("curves")["runs"]
    lines = [(run, f"ncr_of_{answer}") for run in curves for answer in ("wrong", "right")]
    shown = [f"{round(100 * run[name][0])}\u202f%" for run, name in lines]
    assert first == ["1", *shown]
    # One run can be looked at alone, and the address says so.
    browser.run("document.querySelectorAll('.runs tbody th button')[1].click()")
    browser.until("location.hash === '#/overview?run=0'")
    browser.wait()
    assert browser.run("return document.querySelectorAll('.run-toggle')[1].ariaPressed") == "false"
    label = browser.run("return document.querySelector('[data-chart=acc] .plot').ariaLabel")
    assert "stuffing: from" in label and "honest" not in label


def test_a_file_is_added_up_by_model_source_and_answer(
    browser: PageBrowser, file_address: str
) -> None:
    browser.show(file_address, width=400)
    captions = ["By model", "By source", "By answer and nodes reached"]
    assert browser.texts("main caption")[-3:] == captions
    browser.until("document.querySelectorAll('.chart svg').length === 2")
    assert browser.axe() == []
    assert browser.run("return document.documentElement.scrollWidth") <= 400
    links = browser.run(
        "return [...document.querySelectorAll('.scroll[aria-label^=By] tbody a')]"
        ".map(a => [a.hash, a.textContent])"
    )
    assert len(links) > 10
    for hash, count in (links[0], links[-1]):
        browser.go(hash)
        assert browser.texts("#count")[0].endswith(f" of {count}")
    # Rows of the file have the texts of their problems.
    browser.go("#/problems?q=Lighthouse")
    browser.until("document.querySelectorAll('a.row').length === 1")
    assert browser.texts("#count") == ["1–1 of 1 (60 searched)"]
    assert "lighthouse" in browser.texts(".excerpt")[0]


def test_several_reward_formulas_are_announced_and_one_is_shown(
    browser: PageBrowser, tmp_path: Path
) -> None:
    log_formulas(tmp_path, RewardSpec.linear(0.3), RewardSpec.maximum())
    with watching(tmp_path) as watched:
        watched.wait_read()
        browser.show(f"{watched.url}/")
        [warning] = browser.texts("[data-finding=mixed]")
        assert warning.startswith("This run has 2 reward formulas.")
        chosen = "return document.querySelector('[name=formula]').selectedOptions[0].textContent"
        assert browser.run(chosen) == "max(Acc, NCR) (2 samples)"


def test_a_click_into_a_chart_leads_to_the_samples_of_that_step(
    browser: PageBrowser, address: str
) -> None:
    from selenium.webdriver import ActionChains

    browser.show(address)
    plot = browser.until("document.querySelector('[data-chart=reward] .plot svg')")
    ActionChains(browser.driver).move_to_element(plot).click().perform()
    browser.until("location.hash.startsWith('#/samples?step=')")
    browser.wait()
    step, _, rest = browser.run("return location.hash").partition("step=")[2].partition("&")
    chosen = int(step)
    # Of the split that the curve is drawn of.
    assert 1 < chosen < 8 and rest == "split=train"
    assert set(browser.texts("table.rows tbody td:nth-child(4)")) == {str(chosen)}


def test_a_rise_by_wrong_answers_is_a_warning(
    browser: PageBrowser, make_run: Any, tmp_path: Path
) -> None:
    for name, learns in (("stuffing", True), ("honest", False)):
        for _ in make_run(tmp_path / name, steps=40, learns=learns):
            pass
    with watching(tmp_path / "stuffing", tmp_path / "honest") as watched:
        watched.wait_read()
        browser.show(f"{watched.url}/")
        [sentence] = browser.texts("[data-finding=rise]")
        curve, _ = watched.get("curves", split="train")["runs"]

        (low, high), (few, many), (none, some) = (
            [end[name] for end in curve["ends"]]
            for name in ("reward", "reward_from_wrong", "ncr_of_wrong")
        )
        rows = coarsen(read_curve(tmp_path / "stuffing", "train"), 10)  # as `curves` prints them
        assert [none, some] == pytest.approx([rows[0].ncr_of_wrong, rows[-1].ncr_of_wrong])
        assert f"their NCR rose from {percent(none)} to {percent(some)}." in sentence
        assert sentence.startswith(f"stuffing: The reward rose by {high - low:.3f}, but Acc went")
        assert f"Wrong answers account for {many - few:.3f}: " in sentence
        assert (many - few) > (high - low) / 2
        # It leads to them.
        browser.run("document.querySelector('[data-finding=rise] a').click()")
        browser.until("location.hash.startsWith('#/samples?')")
        browser.wait()
        assert set(browser.texts("table.rows .verdict")) == {"✗ wrong"}
        assert set(browser.texts("table.rows tbody td:nth-child(2)")) == {"stuffing"}
        assert min(map(int, browser.texts("table.rows tbody td:nth-child(4)"))) >= 37


def test_two_runs_are_compared_problem_by_problem(browser: PageBrowser, address: str) -> None:
    browser.show(address, "#/compare")
    document = browser.documents("compare?a=0&b=1&limit=50")
    assert browser.texts(".looks a") == [
        "all",
        *(
            f"{words} {document['counts'][name]}"
            for words, name in (
                ("better", "better"), ("worse", "worse"), ("the same", "same"),
                ("only in A", "only_a"), ("only in B", "only_b"),
            )
        ),
    ]  # fmt: skip
    assert browser.texts("table.rows tbody td:first-child") == [
        row["problem"] for row in document["rows"]
    ]
    # A change that may be chance has no colour.
    colours = browser.run(
        "return [...document.querySelectorAll('.facts b > span:first-child')].map(s => s.className)"
    )
    for name, colour in zip(("acc", "ncr", "reward"), colours, strict=True):
        change = document["differences"][name]
        clear = abs(change["mean"]) > 1.96 * change["error"]
        assert bool(colour) == clear, name
    browser.run("[...document.querySelectorAll('.looks a')][2].click()")
    browser.until("location.hash.includes('change=worse')")
    browser.wait()
    worse = browser.documents("compare?a=0&b=1&change=worse&sort=acc&desc=0&limit=50")["rows"]
    assert browser.texts("table.rows tbody td:first-child") == [row["problem"] for row in worse]
    # The keyboard opens a pair, and goes on to the next.
    browser.press("j", "\ue007")
    browser.until("location.hash.startsWith('#/pair?')")
    browser.wait()
    assert browser.texts("h1") == [worse[0]["problem"]]
    # Where it got worse, one that was right stands beside one that is not.
    assert [text[2:] for text in browser.texts(".pair-side .verdict")] == ["right", "wrong"]
    assert len(browser.texts(".pair-text .response")) == 2
    browser.press("j")
    browser.until(f"document.querySelector('h1').textContent === {worse[1]['problem']!r}")
    # Another sample of a side is in the address.
    browser.run(
        "const field = document.querySelector('[name=left]');"
        "field.selectedIndex = field.selectedIndex ? 0 : 1;"
        "field.dispatchEvent(new Event('change'))"
    )
    browser.until("location.hash.includes('left=')")
    browser.wait()
    state = browser.run("return location.hash")
    picked = browser.run("return document.querySelector('[name=left]').value")
    browser.show(address, state)
    assert browser.run("return document.querySelector('[name=left]').value") == picked


def test_nodes_show_who_reaches_them(browser: PageBrowser, address: str) -> None:
    browser.show(address, states(browser, address)["dataset"])
    browser.run("document.querySelector('.examples').open = true")
    browser.until("document.querySelectorAll('.examples[open] article').length > 1")
    assert [text[2:].split()[0] for text in browser.texts(".examples[open] h3")] == [
        "right", "wrong",
    ]  # fmt: skip
    digest = browser.run("return location.hash").split("/")[2].split("?")[0]
    [problem] = browser.documents(f"dataset/{digest}?sort=gap&limit=1")["rows"]
    for verdict in ("right", "wrong"):
        rows = browser.documents(
            f"samples?problem={problem['id']}&node=0&verdict={verdict}&limit=2"
        )["rows"]
        links = browser.run(
            "return [...document.querySelectorAll('.examples[open] article a')].map(a => a.hash)"
        )
        assert {f"#/sample/{row['run']}/{row['key']}" for row in rows} <= set(links)
    marked = browser.run(
        "return [...document.querySelectorAll('.examples[open] article')]"
        ".every(one => one.querySelector('.hit, .formula.all'))"
    )
    assert marked


def test_the_filter_is_in_the_address_and_in_the_history(tab: PageBrowser, address: str) -> None:
    tab.show(address, "#/samples")
    tab.run(
        "const field = document.querySelector('.filters [name=verdict]');"
        "field.value = 'wrong'; field.dispatchEvent(new Event('change', {bubbles: true}))"
    )
    tab.until("location.hash === '#/samples?verdict=wrong'")
    tab.wait()
    assert {text[2:] for text in tab.texts("table.rows .verdict")} == {"wrong"}
    tab.run(
        "[...document.querySelectorAll('thead button')].find(b => b.textContent === 'NCR').click()"
    )
    tab.until("location.hash === '#/samples?verdict=wrong&sort=ncr'")
    tab.wait()
    assert tab.run("return document.querySelector('th[aria-sort]').ariaSort") == "descending"
    shares = [float(text.split("\u202f")[0]) for text in tab.texts("table.rows .share")]
    assert shares == sorted(shares, reverse=True) and shares[0] > 0
    tab.run("history.back()")
    tab.until(
        "location.hash === '#/samples?verdict=wrong' && !document.querySelector('th[aria-sort]')"
    )
    tab.wait()
    assert tab.run("return document.querySelector('[name=verdict]').value") == "wrong"
    tab.run("history.back()")
    tab.until("location.hash === '#/samples'")
    tab.wait()
    assert "right" in {text[2:] for text in tab.texts("table.rows .verdict")}
    assert tab.run("return document.querySelector('[name=verdict]').value") == ""


def test_texts_are_searched(browser: PageBrowser, address: str) -> None:
    browser.show(address, "#/samples")
    browser.press("/")
    browser.press(*"could be of use", "\ue007")
    browser.until("location.hash === '#/samples?q=could+be+of+use'")
    browser.wait()
    found = browser.documents("samples?q=could+be+of+use&limit=50")["rows"]
    browser.until(f"document.querySelectorAll('table.rows a.row').length === {len(found)}")
    assert found and browser.texts("#count")[0].startswith(f"{len(found)} matches in all ")


def test_a_bad_filter_is_an_error_beside_the_form(browser: PageBrowser, address: str) -> None:
    browser.show(address, "#/samples?ncr=lots")
    assert browser.texts("[role=alert]") == ["ncr must be N, N..M, N.. or ..M, got 'lots'"]
    # Beside the form, in which it can be put right.
    browser.run(
        "const field = document.querySelector('.filters [name=ncr]');"
        "field.value = '0.5..'; field.dispatchEvent(new Event('change', {bubbles: true}))"
    )
    browser.until("location.hash === '#/samples?ncr=0.5..' && document.querySelector('a.row')")


def test_rows_are_walked_and_opened_by_keyboard(browser: PageBrowser, address: str) -> None:
    browser.show(address, "#/samples?kind=wrong_all")
    links = browser.run("return [...document.querySelectorAll('a.row')].map(a => a.hash)")
    browser.press("j", "j", "k", "j")
    assert browser.run("return document.activeElement.hash") == links[1]
    browser.press("\ue007")
    browser.until(f"location.hash === {links[1]!r}")
    browser.wait()
    browser.press("j")
    browser.until(f"location.hash === {links[2]!r}")
    browser.wait()
    browser.press("g")
    browser.until("location.hash.startsWith('#/group/')")
    browser.wait()
    browser.press("p")
    browser.until("location.hash.startsWith('#/problem/')")
    browser.wait()
    browser.press("?")
    assert browser.run("return document.querySelector('dialog').open")
    browser.press("\ue00c")
    assert not browser.run("return document.querySelector('dialog').open")
    browser.press("o")
    browser.until("location.hash === '#/overview'")


def test_a_sample_shows_its_reward_and_hits(browser: PageBrowser, address: str) -> None:
    browser.show(address)
    row = group_of(browser)
    browser.go(f"#/sample/{row['run']}/{row['key']}")
    document = browser.documents(f"sample/{row['run']}/{row['key']}")
    hit = [node for node in document["nodes"] if node["matched"]]
    numbers = browser.texts(".text-body .number")
    assert sorted(map(int, numbers)) == sorted(node["number"] + 1 for node in hit)
    marked = browser.run(
        "return [...document.querySelectorAll('.text-body mark')]"
        ".map(m => [m.dataset.nodes, m.className])"
    )
    assert ["1", f"hit {hit[0]['channel']}"] in marked or len(hit) > 1
    sums = browser.texts(".arithmetic td:last-child")
    acc, ncr, reward = (float(text) for text in sums[:3])
    assert acc + ncr == pytest.approx(reward, abs=2e-4)
    assert reward == pytest.approx(row["reward"], abs=2e-4)
    # Pressing a number shows its node, pressing a node its hit.
    browser.run("document.querySelector('.text-body .number').click()")
    assert browser.run("return document.querySelector('.node.pointed') !== null")
    browser.run("document.querySelector('.nodes button.number').click()")
    assert browser.run("return document.querySelector('.text-body .pointed') !== null")


def test_hits_are_marked_inside_set_mathematics_and_the_source_is_a_key_away(
    browser: PageBrowser, address: str
) -> None:
    browser.show(address)
    found = browser.documents("samples?q=%5Cbegin&limit=50")["rows"]
    row = next(row for row in found if row["num_matched"])
    browser.go(f"#/sample/{row['run']}/{row['key']}")
    document = browser.documents(f"sample/{row['run']}/{row['key']}")
    text = "".join(piece["text"] for piece in document["text"])
    assert browser.run("return document.querySelectorAll('.text-body .katex .hit').length") > 0
    fonts = browser.run(
        "return document.fonts.ready.then(f => [...f].some(x => x.status === 'loaded'))"
    )
    assert fonts
    browser.press("m")
    browser.until("!document.querySelector('.text-body .katex')")
    shown = browser.run(
        "const copy = document.querySelector('.text-body .response').cloneNode(true);"
        "copy.querySelectorAll('.number').forEach(n => n.remove()); return copy.textContent"
    )
    assert shown == text
    browser.press("m")
    browser.until("document.querySelector('.text-body .katex')")


FORMULAS = [
    ("no mathematics", []),
    ("it costs $5 and $10 more", []),
    ("the sum $1+2$ is", ["1+2"]),
    (r"paid \$5, so $x$", ["x"]),
    (r"\(a\) and \[b\]", ["a", "b"]),
    ("$$c$$", ["c"]),
    ("$a\n\nb$", []),
    (r"answer: \boxed{\frac{1}{2}}.", [r"\boxed{\frac{1}{2}}"]),
    (r"\begin{align*}x&=1\\y&=2\end{align*}", [r"\begin{align*}x&=1\\y&=2\end{align*}"]),
    (r"\begin{align}x", []),
    ("$ 5$ and $5 $", []),
    ("`$x$` and $y$ or `$z`", ["y"]),
    (r"$ n \leq 5 $ chips, $ 5 and $ 6", [r"n \leq 5"]),
    ("$", []),
]


def test_formulas_are_found(browser: PageBrowser, address: str) -> None:
    browser.show(address)
    for text, expected in FORMULAS:
        found = browser.run(
            "return formulas(arguments[0]).map(f => arguments[0].slice(f.from, f.to))",
            text,
        )
        assert found == expected, text


def test_katex_styles_do_not_violate_the_policy(browser: PageBrowser, address: str) -> None:
    browser.show(address)
    source = (
        r"$\vec{a}$ $\fcolorbox{red}{white}{x}$ $\pmb{y}$ $\sqrt[3]{\frac{1}{2}}$ $\overbrace{z}$"
    )
    shown = browser.run(
        "const box = prose(arguments[0]); document.body.append(box);"
        "return [box.querySelectorAll('.katex').length, box.querySelector('svg').style.width]",
        source,
    )
    assert shown[0] == 5 and shown[1]
    assert browser.logs()[0] == []


CODE = """Let us see:
```python
price = "$5$ and $x$"
```
Then
$$x = 5$$
and so on."""


def test_code_is_not_mathematics_and_blocks_leave_no_empty_lines(
    browser: PageBrowser, address: str
) -> None:
    browser.show(address)
    shown = browser.run(
        "const box = prose(arguments[0]); document.body.append(box);"
        "return [...box.childNodes].map(one => [one.className || '', one.textContent])",
        CODE,
    )
    kinds = [kind for kind, _ in shown]
    assert kinds == ["", "fenced", "", "formula display", ""]
    assert shown[1][1] == '```python\nprice = "$5$ and $x$"\n```'
    assert [text for kind, text in shown if not kind] == ["Let us see:\n", "Then\n", "and so on."]


def test_a_wide_display_can_be_scrolled_by_keys(browser: PageBrowser, address: str) -> None:
    browser.show(address, width=360)
    browser.run("document.body.append(prose(arguments[0]))", f"$$x = 5$$ $${'a + ' * 99}b$$")
    browser.until("document.querySelectorAll('.formula.display').length === 2")
    browser.until("document.querySelectorAll('.formula.display[tabindex=\"0\"]').length === 1")


def test_a_group_stands_side_by_side(browser: PageBrowser, address: str) -> None:
    browser.show(address)
    row = group_of(browser)
    browser.go(f"#/group/{row['run']}?step={row['step']}&group={row['group']}")
    document = browser.documents(f"group/{row['run']}?step={row['step']}&group={row['group']}")
    cells = browser.run(
        "return [...document.querySelectorAll('.matrix tbody tr')]"
        ".map(row => [...row.querySelectorAll('.cell')].map(c => c.textContent).join(''))"
    )
    assert cells == [one["channels"].upper().replace("-", "·") for one in document["rows"]]
    assert len(browser.texts(".card")) == 6
    browser.run("document.querySelector('.beside + button').click()")
    browser.until(
        f"document.querySelectorAll('.card .response').length === {len(document['rows'])}"
    )


def test_nodes_are_reviewed_and_written_as_a_dataset(browser: PageBrowser, address: str) -> None:
    browser.show(address, states(browser, address)["dataset"].partition("?")[0] + f"?q={PROBLEM}")
    assert browser.texts(".problem-review h2")[0].startswith(PROBLEM)
    box = browser.run("return document.querySelector('.problem-review input[type=checkbox]')")
    box.click()
    assert "1 node to drop" in browser.texts(".review")[0]
    # It is kept until it is written.
    browser.show(address, browser.run("return location.hash"))
    assert "1 node to drop" in browser.texts(".review")[0]
    browser.run("document.querySelector('.review .main').click()")
    browser.until("document.querySelectorAll('.review code').length === 2")
    [file, digest] = browser.texts(".review code")
    assert DatasetIndex.load(Path(file)).digest == digest
    kept = {problem.problem_id: row["nodes"] for problem, row in read_problem_rows(Path(file))}
    before = {problem.problem_id: row["nodes"] for problem, row in read_problem_rows(DATASET)}
    assert kept[PROBLEM] == before[PROBLEM][1:]
    assert {**kept, PROBLEM: None} == {**before, PROBLEM: None}
    assert "Untick" in browser.texts(".review")[0]


def test_a_growing_run_is_followed(browser: PageBrowser, make_run: Any, tmp_path: Path) -> None:
    growing = make_run(tmp_path / "growing", steps=14, live=True)
    for _ in range(3):
        next(growing)
    with watching(tmp_path / "growing") as watched:
        browser.show(f"{watched.url}/")
        browser.until("document.querySelector('.runs tbody td').textContent.startsWith('1–')")
        browser.run("window.loaded = document.querySelector('[data-chart=acc]')")
        seen = browser.run("return document.querySelector('.runs tbody td').textContent")
        for _ in range(6):
            next(growing)
        browser.until(
            f"document.querySelector('.runs tbody td').textContent !== {seen!r}"
            " && document.querySelector('[data-chart=acc]') === window.loaded"
        )
        assert browser.texts(".reading") == ["live"]
        # Lists do not move under the reader: what is new is offered.
        browser.go("#/samples")
        for _ in growing:
            pass
        browser.until("!document.querySelector('.fresh').hidden")
        browser.run("document.querySelector('.fresh').click()")
        browser.until("document.querySelector('.fresh').hidden")
    browser.until("document.querySelector('.reading').textContent.includes('does not answer')")


def test_the_page_asks_for_a_token(browser: PageBrowser, runs: list[Path], tmp_path: Path) -> None:
    token = "x" * 40
    (tmp_path / "tokens").write_text(f"{token}\n")
    (tmp_path / "tokens").chmod(0o600)
    with watching(runs[0], "--token-file", tmp_path / "tokens") as watched:
        browser.show(f"{watched.url}/")
        assert browser.texts("h1") == ["Enter the token"]
        browser.run("window.before = document.querySelector('[name=token]')")
        browser.press("wrong", "\ue007")
        # The form is made anew for the next try.
        browser.until("!window.before.isConnected && document.activeElement.name === 'token'")
        browser.press(token, "\ue007")
        browser.until("document.querySelector('h1').textContent === 'stuffing'")
        browser.run("sessionStorage.clear()")


def test_vendored_files_are_the_released_ones() -> None:
    vendor = ASSETS / "vendor"
    document = {
        f"{one['folder']}/{name}": digest
        for one in json.loads((vendor / "versions.json").read_text())
        for name, digest in one["sha256"].items()
    }
    found = {
        path.relative_to(vendor).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in vendor.rglob("*")
        if path.is_file() and path.name != "versions.json"
    }
    assert found == document
