"""The page in a real browser: Chromium, headless, driven through chromedriver.

Skipped where there is no Chromium, unless ``CONSENSUSPR_REQUIRE_BROWSER`` is 1: then its absence
is a failure, so that a machine that is meant to look at the page cannot pass without it.
"""

from __future__ import annotations

import json
import math
import shutil
import time
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from tests.consensusbench.report.conftest import (
    BROWSER_REQUIRED,
    HOSTILE,
    Written,
    ordinary_rollouts,
    problem,
    response,
    rollout,
    write_page,
)

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
)


def absent(what: str) -> None:
    """Fail where a browser is required, else skip."""
    if BROWSER_REQUIRED:
        pytest.fail(f"CONSENSUSPR_REQUIRE_BROWSER is set, but {what}")
    pytest.skip(what)


class Browser:
    """A browser with what the tests ask of it."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver

    def open(
        self,
        page: Path,
        fragment: str = "",
        *,
        width: int | None = None,
        scheme: str = "",
        scripts: bool = True,
    ) -> None:
        """Load a page afresh; logs of earlier pages are dropped.

        Args:
            page: the file.
            fragment: with its ``#``.
            width: of the window, None for a wide one; below 500 it is a telephone's.
            scheme: that the reader prefers, ``light`` or ``dark``.
            scripts: whether the page's own run.
        """
        command = self.driver.execute_cdp_cmd
        features = [{"name": "prefers-color-scheme", "value": scheme}] if scheme else []
        command("Emulation.setEmulatedMedia", {"features": features})
        command("Emulation.setScriptExecutionDisabled", {"value": not scripts})
        if width is None:
            command("Emulation.clearDeviceMetricsOverride", {})
        else:
            size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
            command("Emulation.setDeviceMetricsOverride", size)
        self.driver.set_window_size(1200, 900)
        self.driver.get("about:blank")
        self.logs()
        self.driver.get(page.as_uri() + fragment)
        # On a busy machine the driver may come back while the page is still being read.
        end = time.monotonic() + 30
        state = "return [location.href, document.readyState]"
        while self.run(state) != [page.as_uri() + fragment, "complete"]:
            assert time.monotonic() < end, "the page did not load within 30 s"
            time.sleep(0.02)

    def run(self, script: str, *arguments: Any) -> Any:
        """Run a script, which the page's policy does not bind, and return what it returns."""
        return self.driver.execute_script(script, *arguments)

    def logs(self) -> tuple[list[str], dict[str, str]]:
        """Return what went wrong since the last call, and what was to be requested.

        Returns:
            Messages, and for each URL why it was blocked, empty where it was not.
        """
        faults = [entry["message"] for entry in self.driver.get_log("browser")]
        urls, blocked = {}, {}
        for entry in self.driver.get_log("performance"):
            event = json.loads(entry["message"])["message"]
            told = event["params"]
            if event["method"] == "Network.requestWillBeSent":
                urls[told["requestId"]] = told["request"]["url"]
            elif event["method"] == "Network.loadingFailed":
                blocked[told["requestId"]] = told.get("blockedReason", "")
        return faults, {url: blocked.get(name, "") for name, url in urls.items()}

    def shown(self) -> list[str]:
        """Return the names of the rollouts that are shown."""
        names: list[str] = self.run(
            "return [...document.querySelectorAll('details.rollout')]"
            ".filter(d => d.offsetParent !== null)"
            ".map(d => d.querySelector('.name').textContent)"
        )
        return names

    def choose(self, name: str, value: str) -> None:
        """Set a filter as a person does."""
        self.run(
            "const field = document.querySelector(`#filters [name=${arguments[0]}]`);"
            "field.value = arguments[1];"
            "field.dispatchEvent(new Event('input', {bubbles: true}));",
            name,
            value,
        )


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """A headless Chromium with logs."""
    try:
        from selenium.webdriver import Chrome, ChromeOptions
        from selenium.webdriver.chrome.service import Service
    except ModuleNotFoundError:
        absent("the package selenium is not installed")
    binary = next((found for name in BROWSERS if (found := shutil.which(name))), None)
    driver_binary = shutil.which("chromedriver")
    if binary is None or driver_binary is None:
        absent("there is no Chromium with its chromedriver on the path")
    options = ChromeOptions()
    options.binary_location = str(binary)
    for flag in FLAGS:
        options.add_argument(flag)
    options.add_argument(f"--user-data-dir={tmp_path_factory.mktemp('profile')}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = Chrome(options=options, service=Service(str(driver_binary)))
    try:
        yield Browser(driver)
    finally:
        driver.quit()


@pytest.fixture
def ordinary(browser: Browser, ordinary_page: Written) -> Browser:
    """The browser on the page about ordinary rollouts."""
    browser.open(ordinary_page.path)
    return browser


@pytest.mark.parametrize("name", ["ordinary_page", "hostile_page"])
def test_the_page_opens_without_a_fault_and_without_a_request(
    name: str, browser: Browser, request: pytest.FixtureRequest
) -> None:
    page: Written = request.getfixturevalue(name)
    browser.open(page.path)
    browser.run("document.querySelectorAll('details').forEach(each => each.open = true)")
    faults, requests = browser.logs()
    assert faults == []
    assert [url for url in requests if url not in (page.path.as_uri(), "data:,")] == []
    assert page.path.as_uri() in requests  # the log does see requests


def test_hostile_texts_do_nothing_and_can_be_read(browser: Browser, hostile_page: Written) -> None:
    browser.open(hostile_page.path)
    assert browser.run("return window.owned") is None
    assert browser.run("return location.href") == hostile_page.path.as_uri()
    counts = "script style img iframe base".split()
    script = "return arguments[0].map(tag => document.querySelectorAll(tag).length)"
    assert browser.run(script, counts) == [1, 1, 0, 0, 0]
    assert browser.run("return getComputedStyle(document.body).display") != "none"
    text = browser.run("return document.querySelector('main').textContent")
    for hostile in HOSTILE[:6]:
        assert hostile in text


def test_the_policy_stops_a_script_that_got_in(ordinary: Browser) -> None:
    # What escaping prevents is done here by hand, to see the second line of defence hold.
    ordinary.run(
        "document.body.insertAdjacentHTML('beforeend',"
        ' \'<img src="https://example.org/x.png" onerror="window.owned=1">\');'
        "const script = document.createElement('script');"
        "script.textContent = 'window.owned=2';"
        "document.body.append(script);"
    )
    assert ordinary.run("return window.owned") is None
    faults, requests = ordinary.logs()
    assert any("Content Security Policy" in fault for fault in faults)
    assert requests["https://example.org/x.png"] == "csp"


def test_charts_are_drawn(ordinary: Browser) -> None:
    sizes = ordinary.run(
        "return [...document.querySelectorAll('[data-scope=all] figure > svg')].map(svg => {"
        " const box = svg.getBoundingClientRect();"
        " const marks = [...svg.querySelectorAll('[data-tip]')];"
        " const seen = marks.filter(m => m.getBoundingClientRect().width > 0).length;"
        " return [svg.getAttribute('aria-label'), box.width > 200, box.height > 100, seen] })"
    )
    assert [name for name, *_ in sizes] == [
        "Node coverage, right and wrong",
        "NCR against Acc, by problem",
        "Coverage along the response",
        "Nodes reached, by their order",
        "Tokens per node",
        "Response length",
        "Mean linear reward, right and wrong",
        "Signal inside groups",
    ]
    assert all(wide and high and marks for _, wide, high, marks in sizes)
    fills = ordinary.run(
        "return ['right', 'wrong'].map(side => getComputedStyle("
        "document.querySelector(`figure > svg .bar.${side}`)).stroke)"
    )
    assert len(set(fills)) == 2 and "none" not in fills


def test_charts_can_be_seen_for_one_model(ordinary: Browser) -> None:
    visible = (
        "return [...document.querySelectorAll('[data-scope] h3:first-child')]"
        ".filter(h => h.offsetParent !== null && h.parentElement.dataset.scope)"
        ".map(h => h.textContent)"
    )
    assert ordinary.run(visible) == ["All models", "All models"]
    ordinary.run(
        "const scope = document.querySelector('#scope');"
        "scope.value = [...scope.options].find(o => o.textContent === 'terse').value;"
        "scope.dispatchEvent(new Event('change'))"
    )
    assert ordinary.run(visible) == ["terse", "terse"]


def test_pointing_at_a_mark_tells_its_figures(ordinary: Browser) -> None:
    from selenium.webdriver import ActionChains

    mark = ordinary.run(
        "const mark = document.querySelector('#chart-all-ncr [data-tip]');"
        "mark.scrollIntoView({block: 'center'}); return mark"
    )
    ActionChains(ordinary.driver).move_to_element(mark).perform()
    tip = ordinary.run(
        "const tip = document.querySelector('#tip'); return [tip.hidden, tip.textContent]"
    )
    assert tip == [False, mark.get_attribute("data-tip")]
    assert ordinary.logs()[0] == []


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ({}, 24),
        ({"model": "=terse"}, 12),
        ({"source": "=odd"}, 12),
        ({"side": "=wrong"}, 12),
        ({"side": "=wrong", "model": "=plain"}, 6),
        ({"kind": "=almost correct"}, 6),
        ({"from": "60"}, 12),
        ({"from": "60", "to": "67"}, 6),
        ({"words": "11 * 3 = 33"}, 2),
        ({"words": "P12-DIRECT"}, 1),
        ({"words": "nowhere to be found"}, 0),
    ],
)
def test_filters_filter(filters: dict[str, str], expected: int, ordinary: Browser) -> None:
    for name, value in filters.items():
        ordinary.choose(name, value)
    assert len(ordinary.shown()) == expected
    status = ordinary.run("return document.querySelector('#shown').textContent")
    assert status == f"{expected} of 24 rollouts shown"


def test_show_all_takes_the_filters_back(ordinary: Browser) -> None:
    ordinary.choose("side", "=wrong")
    assert len(ordinary.shown()) == 12
    ordinary.run("document.querySelector('#filters [type=reset]').click()")
    ordinary.driver.execute_async_script("setTimeout(arguments[0], 20)")
    assert len(ordinary.shown()) == 24


def test_a_link_opens_its_rollout_with_its_hits_marked(
    browser: Browser, ordinary_page: Written
) -> None:
    browser.open(ordinary_page.path)
    anchor = browser.run(
        "return [...document.querySelectorAll('details.rollout')]"
        ".find(d => d.querySelector('.name').textContent === 'p15-almost').id"
    )
    browser.open(ordinary_page.path, f"#{anchor}")
    found = browser.run(
        "const rollout = document.getElementById(arguments[0]);"
        "const box = rollout.getBoundingClientRect();"
        "const marks = [...rollout.querySelectorAll('mark')].map(mark => [mark.textContent,"
        " getComputedStyle(mark).backgroundColor, getComputedStyle(mark, '::after').content]);"
        "const nodes = [...rollout.querySelectorAll('.nodes li')].map(li => li.className);"
        "return [rollout.open, box.top >= -1 && box.top < innerHeight, marks, nodes]",
        anchor,
    )
    opened, in_view, marks, nodes = found
    assert opened and in_view
    assert [(text, number) for text, _, number in marks] == [
        ("15 * 2 = 30", '"1"'),
        ("15 * 3 = 45", '"2"'),
    ]
    colors = {color for _, color, _ in marks}
    assert len(colors) == 2 and "rgba(0, 0, 0, 0)" not in colors
    assert nodes == ["n1 hit", "n2 hit", "n3 missed"]


def test_a_link_wins_over_the_filters(ordinary: Browser) -> None:
    anchor = ordinary.run("return document.querySelector('details.rollout').id")
    ordinary.choose("words", "nowhere to be found")
    assert ordinary.shown() == []
    ordinary.run("location.hash = arguments[0]", anchor)
    ordinary.driver.execute_async_script("setTimeout(arguments[0], 50)")
    assert len(ordinary.shown()) == 24
    assert ordinary.run("return document.getElementById(arguments[0]).open", anchor)


def test_tables_sort_by_their_headings(ordinary: Browser) -> None:
    column = (
        "return [...document.querySelectorAll('section[aria-labelledby=problems] tbody tr')]"
        ".map(row => row.cells[0].textContent)"
    )
    click = (
        "document.querySelector('section[aria-labelledby=problems] thead th button').click();"
        "return document.querySelector('section[aria-labelledby=problems] thead th').ariaSort"
    )
    names = [f"p{number}" for number in range(11, 17)]
    assert ordinary.run(click) == "ascending"
    assert ordinary.run(column) == names
    assert ordinary.run(click) == "descending"
    assert ordinary.run(column) == names[::-1]


def test_everything_can_be_reached_and_opened_by_keyboard(ordinary: Browser) -> None:
    from selenium.webdriver import ActionChains, Keys

    keys = ActionChains(ordinary.driver)
    keys.send_keys(Keys.TAB, Keys.ENTER).perform()
    assert ordinary.run("return location.hash") == "#main"
    ordinary.run("document.querySelector('#unfold').focus()")
    ActionChains(ordinary.driver).send_keys(Keys.TAB, Keys.ENTER).perform()
    assert ordinary.run("return document.querySelector('details.rollout').open")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_classes_can_be_told_apart(scheme: str, browser: Browser, ordinary_page: Written) -> None:
    browser.open(ordinary_page.path, scheme=scheme)
    fills = browser.run(
        "const context = document.createElement('canvas').getContext('2d');"
        "return [...document.querySelectorAll('#chart-all-diagnosis .legend rect')].map(e => {"
        " context.fillStyle = getComputedStyle(e).fill; context.fillRect(0, 0, 1, 1);"
        " return [...context.getImageData(0, 0, 1, 1).data].slice(0, 3) })"
    )
    assert len(fills) >= 6
    for one, other in combinations(fills, 2):
        assert math.dist(one, other) > 40, (one, other)


def test_a_table_of_some_rows_stands_whole(browser: Browser, tmp_path: Path) -> None:
    rows = [rollout(number, "one", response(number)) for number in range(11, 51)]
    page = write_page(tmp_path, [problem(number) for number in range(11, 51)], rows)
    browser.open(page.path)
    cut = browser.run(
        "return [...document.querySelectorAll('.scroll')]"
        ".filter(e => e.scrollHeight > e.clientHeight + 1).map(e => e.ariaLabel)"
    )
    assert cut == []


def test_headings_leave_no_gap_in_a_narrow_window(browser: Browser, ordinary_page: Written) -> None:
    browser.open(ordinary_page.path, width=400)
    heights = browser.run(
        "return [...document.querySelectorAll('thead tr')].map(row => row.offsetHeight)"
    )
    assert 0 < max(heights) < 90  # three lines at the most


@pytest.mark.parametrize("width", [400, 800, 1600])
def test_nothing_sticks_out_of_a_window(
    width: int, browser: Browser, hostile_page: Written
) -> None:
    browser.open(hostile_page.path, width=width)
    browser.run("document.querySelectorAll('details').forEach(each => each.open = true)")
    assert browser.run("return document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_texts_stand_out_from_their_background(
    scheme: str, browser: Browser, ordinary_page: Written
) -> None:
    browser.open(ordinary_page.path, scheme=scheme)
    colors = browser.run(
        "const root = getComputedStyle(document.documentElement);"
        "return ['--back', '--panel', '--ink', '--quiet', '--link', '--right', '--wrong',"
        " '--loud'].map(name => root.getPropertyValue(name).trim())"
    )
    back, panel, *inks = [luminance(color) for color in colors]
    assert (back > 0.5) is (scheme == "light")
    for ink in inks:  # WCAG 2, level AA for text of any size
        assert min(contrast(ink, back), contrast(ink, panel)) >= 4.5


def luminance(color: str) -> float:
    """Return the relative luminance of WCAG 2 of ``#rgb`` or ``#rrggbb``."""
    digits = color.lstrip("#")
    digits = "".join(d * 2 for d in digits) if len(digits) == 3 else digits
    parts = [int(digits[at : at + 2], 16) / 255 for at in (0, 2, 4)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: float, other: float) -> float:
    """Return the contrast ratio of two luminances."""
    light, dark = max(one, other), min(one, other)
    return (light + 0.05) / (dark + 0.05)


def test_a_folded_part_unfolds(browser: Browser, tmp_path: Path) -> None:
    text = response(11, tail="filler " * 2000)
    page = write_page(tmp_path, [problem(11)], [rollout(11, "long", text)])
    browser.open(page.path)
    heights = browser.run(
        "const rollout = document.querySelector('details.rollout'); rollout.open = true;"
        "const fold = rollout.querySelector('details.fold');"
        "const before = rollout.offsetHeight;"
        "fold.querySelector('summary').click();"
        "return [before, rollout.offsetHeight, fold.querySelector('summary').textContent]"
    )
    assert heights[1] > 2 * heights[0]
    assert heights[2].endswith(" characters folded away")


def test_the_page_reads_without_its_script(browser: Browser, ordinary_page: Written) -> None:
    browser.open(ordinary_page.path, scripts=False)
    text = browser.driver.find_element("css selector", "main").text
    assert "p11-sound" in text and "Charts show" not in text
    names = [row["rollout_id"] for row in ordinary_rollouts()]
    assert [name for name in names if f"\n{name}\n" not in text] == []
