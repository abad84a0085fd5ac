"""The pictures of the pages: each view about two made runs, and a report, in a headless Chromium.

Writes ``page-overview.png`` and others, of docs/watch.md, and ``report-charts.png``, of
docs/evaluate.md, into a folder.  Needs Chromium, chromedriver and selenium besides the extra
``consensusbench``.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote
from urllib.request import urlopen

from selenium.webdriver import Chrome, ChromeOptions
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

from consensusbench.cli import main as consensusbench
from examples.stuffing.make import make_run

EXAMPLES = Path(__file__).resolve().parent
DATASET = EXAMPLES / "sample" / "dataset.jsonl"
WIDTH = 1180
# Of a list, what a reader takes in at a glance.
MOST_HEIGHT = 1250
MOST_WAIT_S = 60


@contextmanager
def watched(*runs: Path) -> Iterator[str]:
    """Show runs on any port; give the page's address once all of them is read."""
    command = [sys.executable, "-m", "consensuspr.cli", "watch", *map(str, runs)]
    command += ["--dataset", str(DATASET), "--address", "127.0.0.1:0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        address = process.stdout.readline().removeprefix("watching on ").strip()
        end = time.monotonic() + MOST_WAIT_S
        while any(run["read"] < 1 for run in ask(address, "state")["runs"]):
            if time.monotonic() > end:
                raise SystemExit(f"the runs were not read within {MOST_WAIT_S} s")
            time.sleep(0.1)
        yield address
    finally:
        process.terminate()
        process.wait()


def ask(address: str, path: str) -> Any:
    """Return a document of the page."""
    with urlopen(f"{address}/api/{path}") as reply:
        return json.load(reply)


def views(address: str) -> dict[str, str]:
    """Return the state of the page for each picture."""
    [named] = ask(address, "samples?run=0&kind=wrong_high&q=Recall&limit=1")["rows"]
    [listed] = ask(address, "samples?run=0&kind=guarded&sort=ncr_raw&limit=1")["rows"]
    [worse] = ask(address, "compare?a=0&b=1&change=worse&desc=0&limit=1")["rows"]
    group = f"step={named['step']}&group={quote(named['group'])}"
    digest = quote(ask(address, "datasets")["rows"][0]["digest"], safe="")
    return {
        "overview": "#/overview",
        "samples": "#/samples?kind=wrong_high",
        "sample": f"#/sample/0/{listed['key']}",
        "group": f"#/group/0?{group}",
        "problem": f"#/problem/0/{quote(named['problem'])}",
        "dataset": f"#/dataset/{digest}?sort=gap",
        "compare": "#/compare?a=0&b=1",
        "pair": f"#/pair?problem={quote(worse['problem'])}&a=0&b=1",
    }


class Browser(Chrome):
    """A headless Chromium with a profile of its own."""

    def __init__(self, profile: Path) -> None:
        options = ChromeOptions()
        options.binary_location = str(shutil.which("chromium") or shutil.which("google-chrome"))
        for flag in ("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"):
            options.add_argument(flag)
        options.add_argument(f"--user-data-dir={profile}")
        super().__init__(options=options, service=Service(str(shutil.which("chromedriver"))))

    def until(self, condition: str) -> None:
        """Return once a JavaScript expression is true."""
        WebDriverWait(self, MOST_WAIT_S).until(
            lambda _: self.execute_script(f"return Boolean({condition})")
        )


# Charts are there once each has its picture, or says why it has none.
DRAWN = (
    "[...document.querySelectorAll('.plot')]"
    ".every(plot => plot.querySelector('svg') || plot.matches('.empty'))"
)


def draw(browser: Browser, address: str, folder: Path) -> None:
    """Write a picture of each view, and of one in dark colours."""
    states = views(address)
    for name, state in {**states, "dark": states["sample"]}.items():
        scheme = "dark" if name == "dark" else "light"
        feature = {"name": "prefers-color-scheme", "value": scheme}
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
        browser.set_window_size(WIDTH, 900)
        browser.get("about:blank")
        browser.get(f"{address}/{state}")
        browser.until("document.querySelector('main').dataset.shown === location.hash")
        height = browser.execute_script("return document.documentElement.scrollHeight")
        browser.set_window_size(WIDTH, min(height, MOST_HEIGHT) + 90)
        browser.until(DRAWN)
        browser.save_screenshot(str(folder / f"page-{name}.png"))


def draw_report(browser: Browser, page: Path, folder: Path) -> None:
    """Write a picture of the charts of a report."""
    browser.set_window_size(WIDTH, 1600)
    browser.get(f"{page.as_uri()}#/report")
    browser.until("document.querySelectorAll('.charts .plot svg').length >= 6")
    charts = browser.find_element(By.CSS_SELECTOR, ".charts")
    browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", charts)
    charts.screenshot(str(folder / "report-charts.png"))


def main() -> None:
    """Make two runs and a report, and draw the pages about them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="where the pictures go")
    folder = parser.parse_args().folder
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        runs = [scratch / "stuffing", scratch / "honest"]
        for run in runs:
            for _ in make_run(run, learns=run.name == "stuffing"):
                pass
        page = scratch / "report.html"
        rollouts = [str(EXAMPLES / "sample" / "rollouts.jsonl"), "--dataset", str(DATASET)]
        if consensusbench(["report", *rollouts, "--output", str(page), "--no-probes"]):
            raise SystemExit(1)
        with Browser(scratch / "profile") as browser, watched(*runs) as address:
            draw(browser, address, folder)
            draw_report(browser, page, folder)


if __name__ == "__main__":
    main()
