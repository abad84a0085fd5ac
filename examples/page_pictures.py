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
    while not (found := ask(address, "samples?run=0&kind=wrong_high&q=Recall&limit=1"))["search"][
        "complete"
    ]:
        pass
    [named] = found["rows"]
    [listed] = ask(address, "samples?run=0&kind=guarded&sort=ncr_raw&limit=1")["rows"]
    [worse] = ask(address, "compare?a=0&b=1&change=worse&desc=0&limit=1")["rows"]
    group = f"step={named['step']}&group={quote(named['group'])}"
    digest = quote(ask(address, "datasets")["rows"][0]["digest"], safe="")
    return {
        "overview": "#/overview?smooth=5",
        "samples": "#/samples?kind=wrong_high",
        "sample": f"#/sample/0/{listed['key']}",
        "group": f"#/group/0?{group}",
        "problem": f"#/problem/0/{quote(named['problem'])}",
        "dataset": f"#/dataset/{digest}?sort=gap",
        "compare": "#/compare?a=0&b=1",
        "pair": f"#/pair?problem={quote(worse['problem'])}&a=0&b=1",
    }


def wait_for(browser: Chrome, condition: str) -> None:
    """Return once a JavaScript expression is true."""
    WebDriverWait(browser, MOST_WAIT_S).until(
        lambda one: one.execute_script(f"return Boolean({condition})")
    )


@contextmanager
def browsing(profile: str) -> Iterator[Chrome]:
    """Start a browser."""
    options = ChromeOptions()
    options.binary_location = str(shutil.which("chromium") or shutil.which("google-chrome"))
    for flag in ("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"):
        options.add_argument(flag)
    options.add_argument(f"--user-data-dir={profile}")
    browser = Chrome(options=options, service=Service(str(shutil.which("chromedriver"))))
    try:
        yield browser
    finally:
        browser.quit()


# Charts are there once each has its picture, or says why it has none.
DRAWN = (
    "[...document.querySelectorAll('.plot')]"
    ".every(plot => plot.querySelector('svg') || plot.matches('.empty'))"
)


def draw(address: str, folder: Path, profile: str) -> None:
    """Write a picture of each view, and of one in dark colours."""
    with browsing(profile) as browser:
        states = views(address)
        for name, state in {**states, "dark": states["sample"]}.items():
            scheme = "dark" if name == "dark" else "light"
            feature = {"name": "prefers-color-scheme", "value": scheme}
            browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
            browser.set_window_size(WIDTH, 900)
            browser.get("about:blank")
            browser.get(f"{address}/{state}")
            wait_for(browser, "document.querySelector('main').dataset.shown === location.hash")
            height = browser.execute_script("return document.documentElement.scrollHeight")
            browser.set_window_size(WIDTH, min(height, MOST_HEIGHT) + 90)
            wait_for(browser, DRAWN)
            browser.save_screenshot(str(folder / f"page-{name}.png"))


def draw_report(page: Path, folder: Path, profile: str) -> None:
    """Write a picture of the charts of a report."""
    with browsing(profile) as browser:
        browser.set_window_size(WIDTH, 1600)
        browser.get(f"{page.as_uri()}#/report")
        wait_for(browser, "document.querySelectorAll('.charts .plot svg').length >= 6")
        charts = browser.find_element(By.CSS_SELECTOR, ".charts")
        browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", charts)
        charts.screenshot(str(folder / "report-charts.png"))


def main() -> None:
    """Make two runs and a report, and draw the pages about them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="where the pictures go")
    folder = parser.parse_args().folder
    with tempfile.TemporaryDirectory() as scratch:
        runs = [Path(scratch) / "stuffing", Path(scratch) / "honest"]
        make = [sys.executable, str(EXAMPLES / "stuffing" / "make.py")]
        subprocess.run([*make, str(runs[0])], check=True)
        subprocess.run([*make, str(runs[1]), "--honest"], check=True)
        with watched(*runs) as address:
            draw(address, folder, str(Path(scratch) / "profile"))
        page = Path(scratch) / "report.html"
        rollouts = [str(EXAMPLES / "sample" / "rollouts.jsonl"), "--dataset", str(DATASET)]
        if consensusbench(["report", *rollouts, "--output", str(page), "--no-probes"]):
            raise SystemExit(1)
        draw_report(page, folder, str(Path(scratch) / "report-profile"))


if __name__ == "__main__":
    main()
