"""The pictures of the pages: made runs, the scored sample and a report, in a headless Chromium.

Writes ``page-overview.png`` and others, and ``report-charts.png``, into a folder.  Drives the
browser as the tests of the page do.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any
from urllib.parse import quote
from urllib.request import urlopen

from selenium.webdriver.common.by import By

from consensusbench.cli import main as consensusbench
from consensuspr.client import LocalClient, RewardSpec
from consensuspr.data import open_writer, read_rollouts
from consensuspr.scoring import rollout_from_row
from consensuspr.scoring.types import scored_row
from examples.stuffing.make import make_run
from tests.watched import DATASET, watching
from tests.web.page.conftest import PageBrowser

WIDTH, NARROW, MAX_HEIGHT = 1180, 400, 1250
# Each chart has its picture, or a text instead.
DRAWN = (
    "[...document.querySelectorAll('.plot')]"
    ".every(plot => plot.querySelector('svg') || plot.matches('.empty'))"
)


def views(address: str) -> dict[str, str]:
    """Return the state of the page for each picture of the runs."""

    def fetch(path: str) -> Any:
        with urlopen(f"{address}/api/{path}") as reply:
            return json.load(reply)["rows"]

    # A letter a node: p, s, c, e as in the legend.
    pages = [fetch(f"samples?run=0&limit=200&offset={start}") for start in range(0, 4000, 200)]
    found = sorted((row for page in pages for row in page), key=lambda row: row["key"])
    mixed = max(found, key=lambda row: (len(set(row["channels"]) - {"-"}), row["acc"]))
    [listed] = fetch("samples?run=0&kind=guarded&sort=ncr_raw&limit=1")
    [worse] = fetch("compare?a=0&b=1&change=worse&desc=0&limit=1")
    digest = quote(fetch("datasets")[0]["digest"], safe="")
    return {
        "overview": "#/overview",
        "sample": f"#/sample/0/{listed['key']}",
        "group": f"#/group/0?step={mixed['step']}&group={quote(mixed['group'])}",
        "dataset": f"#/dataset/{digest}?sort=gap",
        "compare": "#/compare?a=0&b=1",
        "pair": f"#/pair?problem={quote(worse['problem'])}&a=0&b=1",
    }


def picture(browser: PageBrowser, path: Path, address: str, state: str, **look: Any) -> None:
    """Write the picture of a state of the page."""
    browser.show(f"{address}/", state, **look)
    if "width" not in look:
        browser.driver.set_window_size(WIDTH, 900)
        height = browser.run("return document.documentElement.scrollHeight")
        browser.driver.set_window_size(WIDTH, min(height, MAX_HEIGHT) + 90)
    browser.until(DRAWN)
    browser.run("document.documentElement.style.scrollbarWidth = 'none'")
    browser.driver.save_screenshot(str(path))


def draw(folder: Path, scratch: Path) -> None:
    """Make two runs and a report in ``scratch``, and the pictures in ``folder``."""
    runs = [scratch / "stuffing", scratch / "honest"]
    for run in runs:
        for _ in make_run(run, learns=run.name == "stuffing"):
            pass
    report, rollouts = scratch / "report.html", DATASET.with_name("rollouts.jsonl")
    scored = scratch / "scored.jsonl"
    with open_writer(scored) as out, LocalClient(dataset=DATASET) as client:
        rows = list(read_rollouts(rollouts))
        scores = client.score([rollout_from_row(row) for row in rows], reward=RewardSpec.linear())
        for row, score in zip(rows, scores, strict=True):
            out.write(scored_row(row, score))
    files = [str(rollouts), "--dataset", str(DATASET), "--output", str(report)]
    if consensusbench(["report", *files, "--no-probes"]):
        raise SystemExit(1)
    with PageBrowser.started(scratch / "profile") as browser:
        with watching(*runs, "--dataset", DATASET) as watched:
            watched.wait_read()
            for name, state in views(watched.url).items():
                picture(browser, folder / f"page-{name}.png", watched.url, state)
        with watching(scored, "--dataset", DATASET) as watched:
            watched.wait_read()
            picture(browser, folder / "page-file.png", watched.url, "#/overview", scheme="dark")
            problem = "#/problem/0/sample-comp-002"
            picture(browser, folder / "page-problem.png", watched.url, problem, width=NARROW)
        browser.open(report, "#/report")
        browser.driver.set_window_size(WIDTH, 1600)
        browser.until("document.querySelectorAll('.charts .plot svg').length >= 6")
        charts = browser.driver.find_element(By.CSS_SELECTOR, ".charts")
        browser.run("arguments[0].scrollIntoView({block: 'center'})", charts)
        charts.screenshot(str(folder / "report-charts.png"))


def main() -> None:
    """Draw the pictures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="of the pictures")
    with tempfile.TemporaryDirectory() as scratch:
        draw(parser.parse_args().folder, Path(scratch))


if __name__ == "__main__":
    main()
