"""Pages that were kept, opened from a disk: a report, a run, a load test; nothing is asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.browser import BROWSER_REQUIRED
from tests.consensusbench.report.conftest import (
    HOSTILE,
    Written,
    hostile_problem,
    hostile_rollouts,
    ordinary_problems,
    ordinary_rollouts,
    write_page,
)
from tests.web.page.conftest import PageBrowser

if not BROWSER_REQUIRED:
    pytest.importorskip("sklearn", reason="the extra consensusbench is not installed")


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Written:
    """A report about ordinary rollouts and hostile ones."""
    problems = [*ordinary_problems(), hostile_problem()]
    rollouts = [*ordinary_rollouts(), *hostile_rollouts()]
    return write_page(tmp_path_factory.mktemp("report"), problems, rollouts, probes=False)


@pytest.fixture
def opened(browser: PageBrowser, report: Written) -> PageBrowser:
    """The report in the browser."""
    browser.show(str(report.path.as_uri()), "#/report")
    return browser


def test_it_opens_on_the_report_without_a_fault_and_without_a_request(
    opened: PageBrowser, report: Written
) -> None:
    opened.until("document.querySelectorAll('.chart svg').length >= 6")
    faults, requests = opened.logs()
    assert faults == []
    assert {url.split("#")[0] for url in requests if not url.startswith("data:")} <= {
        report.path.as_uri(), "about:blank",
    }  # fmt: skip
    assert opened.texts("main h2")[:2] == ["Results", "Distributions"]
    assert opened.run("return window.owned") is None


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_in_any_view(scheme: str, browser: PageBrowser, report: Written) -> None:
    sample = report.samples[0]
    [digest] = [
        path[8:] for path in report.documents if path.startswith("dataset/") and "?" not in path
    ]
    browser.show(report.path.as_uri(), "#/report", scheme=scheme)
    for state in (
        "#/report", "#/overview", "#/samples", f"#/sample/{sample['run']}/{sample['key']}",
        "#/problems", "#/problem/0/p11", "#/datasets", f"#/dataset/{digest}?limit=2",
        "#/compare?a=0&a_model=plain&b=0&b_model=terse",
        "#/pair?problem=p11&a=0&a_model=plain&b=0&b_model=terse",
    ):  # fmt: skip
        browser.go(state)
        assert browser.axe() == [], state
    browser.go(f"#/sample/{sample['run']}/{sample['key']}")
    browser.press("g")
    browser.until("location.hash.startsWith('#/group/')")
    browser.wait()
    assert browser.axe() == []
    assert browser.logs()[0] == []


CHOICES: dict[str, Callable[[dict[str, Any]], bool]] = {
    "#/samples": lambda one: True,
    "#/samples?verdict=wrong": lambda one: one["acc"] == 0,
    "#/samples?diagnosis=direct%20answer": lambda one: one["diagnosis"] == "direct answer",
    "#/samples?run=0&problem=p11": lambda one: one["problem"] == "p11",
    "#/samples?kind=right_none": lambda one: "right_none" in one["flags"],
    "#/samples?model=plain": lambda one: one["model"] == "plain",
}


def test_samples_are_there_by_one_choice_at_a_time(opened: PageBrowser, report: Written) -> None:
    for state, meant in CHOICES.items():
        expected = sum(map(meant, report.samples))
        assert 0 < expected <= len(report.samples)
        opened.go(state)
        opened.until(f"/of {expected}\\b/.test(document.querySelector('main').textContent)")
    opened.go("#/samples?sort=num_tokens")
    first = opened.run("return document.querySelector('tbody a.row').getAttribute('href')")
    longest = max(report.samples, key=lambda one: one["num_tokens"])
    assert first == f"#/sample/{longest['run']}/{longest['key']}"
    assert not opened.run("return document.getElementById('search').checkVisibility()")
    opened.go("#/samples?ncr=0.5..0.9")
    assert "kept without that view" in opened.texts("main")[0]


@pytest.mark.parametrize("start", ["#/samples", "#/problems", "#/compare", "#/datasets"])
def test_every_link_leads_somewhere(start: str, opened: PageBrowser) -> None:
    opened.go(start)
    links = "return [...document.querySelectorAll('main a[href^=\"#/\"]')].map(a => a.hash)"
    for state in dict.fromkeys(opened.run(links)[:12]):
        opened.go(state)
        assert opened.texts("main h1") not in (["Not found"], ["Error"]), state


def test_a_rollout_its_group_and_its_problem_are_there(
    opened: PageBrowser, report: Written
) -> None:
    [sound] = [one for one in report.samples if one["rollout_id"] == "p11-sound"]
    opened.go(f"#/sample/{sound['run']}/{sound['key']}")
    assert "11 * 2 = 22" in opened.texts("main")[0]
    opened.press("g")
    opened.until("location.hash.startsWith('#/group/')")
    opened.wait()
    assert "p11" in opened.texts("main")[0]
    opened.go("#/problems")
    assert "p11" in opened.texts("tbody")[0]
    opened.go("#/problem/0/p11")
    assert "twice" in opened.texts("main")[0]


def test_hostile_texts_do_nothing_and_can_be_read(opened: PageBrowser, report: Written) -> None:
    for at, text in enumerate(HOSTILE):
        [row] = [o for o in report.samples if o["rollout_id"].startswith(f"p17-bad-{at} ")]
        opened.go(f"#/sample/{row['run']}/{row['key']}")
        if text.isprintable():
            assert text in opened.texts("main")[0]
    assert opened.run("return window.owned") is None
    assert opened.logs()[0] == []
