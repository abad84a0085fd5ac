"""The page in a real browser, about runs of the example and about one that is hostile."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from consensuspr.client import LocalClient, RewardSpec
from consensuspr.data import read_rollouts
from consensuspr.score_log import ScoreLog, keep_dataset
from consensuspr.scoring import (
    AnswerVerifier,
    DatasetIndex,
    Rollout,
    ScoreOptions,
    Scorer,
    rollout_from_row,
)
from consensuspr.scoring.types import Sample, SampleKeys, scored_row
from tests.browser import BROWSER_REQUIRED, Browser
from tests.consensusbench.report.conftest import HOSTILE, hostile_problem, response
from tests.rows import write_rows
from tests.watched import DATASET, watching

AXE = Path(__file__).parent / "axe-core" / "axe.min.js"

if not BROWSER_REQUIRED:
    pytest.importorskip("duckdb", reason="the extra web is not installed")

# What looks like mathematics and would do more.
HOSTILE_FORMULAS = (
    r"$\href{javascript:window.owned=5}{x}$",
    r"$\includegraphics{https://example.org/x.png}$",
    r"$\htmlStyle{position:fixed;inset:0}{x}$",
    r"$\htmlClass{top}{x} \htmlId{main}{y} \htmlData{x=1}{z}$",
    r"$\def\a{\a\a}\a$ and $\rule{9999em}{9999em}$ and ${{{{$",
)


def log_samples(run: Path, dataset: Path, samples: Sequence[tuple[str, str, str]]) -> None:
    """Write a score log: problem, name and text of each sample, all of one group."""
    index = DatasetIndex.load(dataset)
    run.mkdir(parents=True, exist_ok=True)
    keep_dataset(run, index)
    keys, options = SampleKeys(), ScoreOptions()
    rollouts = [
        Rollout(
            problem, text, num_tokens=len(text), data_source=f"source {name}", rollout_id=name,
            sample=Sample(keys.next(), 1, f"group {name[:3]}", "train"),
        )
        for problem, name, text in samples
    ]  # fmt: skip
    with closing(ScoreLog(run, "trainer")) as log, AnswerVerifier() as verifier:
        scores, identity = Scorer({"default": index}, verifier=verifier).score(rollouts, options)
        for rollout, score in zip(rollouts, scores, strict=True):
            log.put_sample(rollout, score, identity, options, "server", 0.0, score.reward)


@pytest.fixture(scope="session")
def address(runs: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The page about two runs, with a dataset that can be reviewed."""
    dataset = tmp_path_factory.mktemp("reviewed") / "dataset.jsonl"
    dataset.write_bytes(DATASET.read_bytes())
    with watching(*runs, "--dataset", dataset) as watched:
        watched.wait_read()
        yield f"{watched.url}/"


@pytest.fixture(scope="session")
def file_address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The page about a file of scored rollouts, which have no steps."""
    rows = list(read_rollouts(DATASET.with_name("rollouts.jsonl")))
    with LocalClient(dataset=DATASET) as client:
        scores = client.score([rollout_from_row(row) for row in rows], reward=RewardSpec.linear())
    scored = [scored_row(row, score) for row, score in zip(rows, scores, strict=True)]
    path = write_rows(tmp_path_factory.mktemp("file") / "scored.jsonl", scored)
    with watching(path) as watched:
        watched.wait_read()
        yield f"{watched.url}/"


@pytest.fixture(scope="session")
def hostile_address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A page in which all that a run can say is hostile."""
    folder = tmp_path_factory.mktemp("hostile")
    dataset = write_rows(folder / "hostile.jsonl", [hostile_problem()])
    # A lone surrogate is no text to a log.
    texts = [text for text in HOSTILE if text.isprintable() or "\ud800" not in text]
    samples = [
        ("p17", f"h{at} {text}", response(17, nodes=at % 4, tail=text))
        for at, text in enumerate((*texts, *HOSTILE_FORMULAS))
    ]
    log_samples(folder / "hostile run", dataset, samples)
    with watching(folder / "hostile run", "--dataset", dataset) as watched:
        watched.wait_read()
        yield f"{watched.url}/"


class PageBrowser(Browser):
    """A browser with what the tests ask of the page."""

    def show(self, address: str, state: str = "#/", **how: Any) -> None:
        """Load a state of the page afresh, and wait until it is there."""
        self.open(address, state, **how)
        self.wait()

    def go(self, state: str) -> None:
        """Follow a link inside the page."""
        self.run("location.hash = arguments[0]", state)
        self.until(f"location.hash === {state!r}")
        self.wait()

    def wait(self) -> None:
        """Wait until the view is there."""
        self.until(
            "document.querySelector('main h1') && !document.querySelector('main[aria-busy]')"
            " && document.querySelector('main').dataset.shown === location.hash"
        )

    def until(self, condition: str, most_s: float = 60) -> Any:
        """Return a JavaScript expression's value once it is true."""
        from selenium.webdriver.support.ui import WebDriverWait

        return WebDriverWait(self.driver, most_s, 0.03).until(
            lambda driver: driver.execute_script(f"return {condition}"),
            f"this did not come true: {condition}",
        )

    def press(self, *keys: str) -> None:
        """Press keys, one after the other."""
        from selenium.webdriver import ActionChains

        ActionChains(self.driver).send_keys(*keys).perform()

    def texts(self, selector: str) -> list[str]:
        """Return the text of each element."""
        found: list[str] = self.run(
            "return [...document.querySelectorAll(arguments[0])].map(e => e.textContent.trim())",
            selector,
        )
        return found

    def axe(self) -> list[tuple[str, list[str]]]:
        """Return what axe objects to, with all details open: its rule, and some of the elements."""
        self.run("document.querySelectorAll('details').forEach(each => each.open = true)")
        self.until("!document.querySelector('.examples .beside > p')")
        self.run(AXE.read_text(encoding="utf-8"))
        self.driver.set_script_timeout(120)
        found = self.driver.execute_async_script(
            "axe.run({resultTypes: ['violations']}).then(arguments[0])"
        )
        return [
            (one["id"], [node["html"] for node in one["nodes"]][:3]) for one in found["violations"]
        ]

    def documents(self, path: str) -> Any:
        """Return a document as the page gets it."""
        return self.driver.execute_async_script(
            "const done = arguments[arguments.length - 1];"
            "fetch('api/' + arguments[0]).then(r => r.json()).then(done)",
            path,
        )


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PageBrowser]:
    """A headless Chromium with logs."""
    with PageBrowser.started(tmp_path_factory.mktemp("profile")) as started:
        yield started


@pytest.fixture
def tab(browser: PageBrowser) -> Iterator[PageBrowser]:
    """The browser in a tab with a history of its own.

    Chromium keeps fifty entries of a tab, and drops those first to which a script went without a
    click: after many tests in one tab, what a test has just gone through.
    """
    before = browser.driver.current_window_handle
    browser.driver.switch_to.new_window("tab")
    try:
        yield browser
    finally:
        browser.driver.close()
        browser.driver.switch_to.window(before)
