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

SAMPLE = Path(__file__).resolve().parent / "sample"
DATASET = str(SAMPLE / "dataset.jsonl")
WIDTH, MAX_HEIGHT, MAX_WAIT_S = 1180, 1250, 60
# Each chart has its picture, or a text instead.
DRAWN = (
    "[...document.querySelectorAll('.plot')]"
    ".every(plot => plot.querySelector('svg') || plot.matches('.empty'))"
)


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
        WebDriverWait(self, MAX_WAIT_S).until(
            lambda _: self.execute_script(f"return Boolean({condition})")
        )


def fetch(address: str, path: str) -> Any:
    """Return a document of the page."""
    with urlopen(f"{address}/api/{path}") as reply:
        return json.load(reply)


@contextmanager
def watched(browser: Browser, *runs: Path) -> Iterator[str]:
    """Show runs on any port; yield the page's address once all of them is read."""
    command = [sys.executable, "-m", "consensuspr.cli", "watch", *map(str, runs)]
    command += ["--dataset", DATASET, "--address", "127.0.0.1:0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            address = process.stdout.readline().removeprefix("watching on ").strip()
            WebDriverWait(browser, MAX_WAIT_S).until(
                lambda _: all(run["read"] == 1 for run in fetch(address, "state")["runs"])
            )
            yield address
        finally:
            process.terminate()


def views(address: str) -> dict[str, str]:
    """Return the state of the page for each picture."""
    [named] = fetch(address, "samples?run=0&kind=wrong_high&q=Recall&limit=1")["rows"]
    [listed] = fetch(address, "samples?run=0&kind=guarded&sort=ncr_raw&limit=1")["rows"]
    [worse] = fetch(address, "compare?a=0&b=1&change=worse&desc=0&limit=1")["rows"]
    digest = quote(fetch(address, "datasets")["rows"][0]["digest"], safe="")
    return {
        "overview": "#/overview",
        "samples": "#/samples?kind=wrong_high",
        "sample": f"#/sample/0/{listed['key']}",
        "group": f"#/group/0?step={named['step']}&group={quote(named['group'])}",
        "problem": f"#/problem/0/{quote(named['problem'])}",
        "dataset": f"#/dataset/{digest}?sort=gap",
        "compare": "#/compare?a=0&b=1",
        "pair": f"#/pair?problem={quote(worse['problem'])}&a=0&b=1",
        "dark": f"#/sample/0/{listed['key']}",
    }


def main() -> None:
    """Make two runs and a report, and draw the pages about them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="of the pictures")
    folder = parser.parse_args().folder
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        runs = [scratch / "stuffing", scratch / "honest"]
        for run in runs:
            for _ in make_run(run, learns=run.name == "stuffing"):
                pass
        report = scratch / "report.html"
        words = ["report", str(SAMPLE / "rollouts.jsonl"), "--dataset", DATASET]
        if consensusbench([*words, "--output", str(report), "--no-probes"]):
            raise SystemExit(1)
        with Browser(scratch / "profile") as browser, watched(browser, *runs) as address:
            for name, state in views(address).items():
                scheme = "dark" if name == "dark" else "light"
                feature = {"name": "prefers-color-scheme", "value": scheme}
                browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
                browser.set_window_size(WIDTH, 900)
                browser.get("about:blank")
                browser.get(f"{address}/{state}")
                browser.until("document.querySelector('main').dataset.shown === location.hash")
                height = browser.execute_script("return document.documentElement.scrollHeight")
                browser.set_window_size(WIDTH, min(height, MAX_HEIGHT) + 90)
                browser.until(DRAWN)
                browser.save_screenshot(str(folder / f"page-{name}.png"))
            browser.set_window_size(WIDTH, 1600)
            browser.get(f"{report.as_uri()}#/report")
            browser.until("document.querySelectorAll('.charts .plot svg').length >= 6")
            charts = browser.find_element(By.CSS_SELECTOR, ".charts")
            browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", charts)
            charts.screenshot(str(folder / "report-charts.png"))


if __name__ == "__main__":
    main()
