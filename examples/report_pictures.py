"""The pictures of docs/report.md: the sample's report in a headless Chromium.

Writes ``report-charts.png`` and ``report-rollout.png`` into a folder. Needs Chromium,
chromedriver and selenium besides the extra ``consensusbench``.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from pathlib import Path

from selenium.webdriver import Chrome, ChromeOptions
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By

from consensusbench.cli import main as consensusbench

SAMPLE = Path(__file__).resolve().parent / "sample"
WIDTH = 1000

# A rollout that reaches most of its nodes, written as a person thinks.
SHOWN_ROLLOUT = "sample-arith-001-r3"


def open_page(page: Path, profile: str) -> Chrome:
    """Return a browser that shows the page."""
    options = ChromeOptions()
    options.binary_location = str(shutil.which("chromium") or shutil.which("google-chrome"))
    for flag in ("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"):
        options.add_argument(flag)
    options.add_argument(f"--user-data-dir={profile}")
    browser = Chrome(options=options, service=Service(str(shutil.which("chromedriver"))))
    browser.set_window_size(WIDTH, 1600)
    browser.get(page.as_uri())
    return browser


def draw(page: Path, folder: Path, profile: str) -> None:
    """Write both pictures."""
    browser = open_page(page, profile)
    try:
        charts = browser.find_element(By.CSS_SELECTOR, "[data-scope=all] .charts")
        charts.screenshot(str(folder / "report-charts.png"))
        rollout = next(
            each
            for each in browser.find_elements(By.CSS_SELECTOR, "details.rollout")
            if each.find_element(By.CLASS_NAME, "name").text == SHOWN_ROLLOUT
        )
        browser.execute_script("arguments[0].open = true", rollout)
        rollout.screenshot(str(folder / "report-rollout.png"))
    finally:
        browser.quit()


def main() -> None:
    """Write the sample's report and draw it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="where the pictures go")
    folder = parser.parse_args().folder
    with tempfile.TemporaryDirectory() as scratch:
        page = Path(scratch) / "report.html"
        files = [str(SAMPLE / "rollouts.jsonl"), "--dataset", str(SAMPLE / "dataset.jsonl")]
        shown = ["--max-rollouts", "300", "--no-probes", "--no-progress"]
        if consensusbench(["report", *files, "--output", str(page), *shown]):
            raise SystemExit(1)
        draw(page, folder, str(Path(scratch) / "profile"))


if __name__ == "__main__":
    main()
