"""A real browser: Chromium, headless, driven through chromedriver.

Without a Chromium, tests are skipped, or fail if ``CONSENSUSPR_REQUIRE_BROWSER`` is 1.  A Chromium
without its chromedriver is a failure.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import pytest

BROWSER_REQUIRED = os.environ.get("CONSENSUSPR_REQUIRE_BROWSER", "0") not in ("", "0")
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


def absent(reason: str) -> None:
    """Fail if a browser is required, else skip."""
    if BROWSER_REQUIRED:
        pytest.fail(f"CONSENSUSPR_REQUIRE_BROWSER is set, but {reason}")
    pytest.skip(reason)


def binaries() -> tuple[str, str]:
    """Return the paths of Chromium and chromedriver; skip or fail without them."""
    browser = next((found for name in BROWSERS if (found := shutil.which(name))), None)
    if browser is None:
        absent(f"no Chromium is on the path (tried {', '.join(BROWSERS)})")
        raise AssertionError
    driver = shutil.which("chromedriver")
    if driver is None:
        pytest.fail(
            f"{browser} is installed, but chromedriver is not on the path; install the chromedriver"
            " of its version (Debian: chromium-driver)"
        )
    return browser, driver


class Browser:
    """A browser with the actions of the tests."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver

    def open(
        self,
        page: Path | str,
        fragment: str = "",
        *,
        width: int | None = None,
        scheme: str = "",
        scripts: bool = True,
    ) -> None:
        """Load a page afresh; logs of earlier pages are dropped.

        Args:
            page: the file, or an address.
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
        address = page if isinstance(page, str) else page.as_uri()
        self.driver.get(address + fragment)
        # On a busy machine the driver may come back while the page is still being read.  Until its
        # load event is over, an address that scripts go to takes this one's place in the history.
        end = time.monotonic() + 60
        state = (
            "return [location.href, document.readyState === 'complete'"
            " && performance.getEntriesByType('navigation')[0].loadEventEnd > 0]"
        )
        while self.run(state) != [address + fragment, True]:
            assert time.monotonic() < end, "the page did not load within 60 s"
            time.sleep(0.02)

    def run(self, script: str, *arguments: Any) -> Any:
        """Run a script, which the page's policy does not bind, and return what it returns."""
        return self.driver.execute_script(script, *arguments)

    def logs(self) -> tuple[list[str], dict[str, str]]:
        """Return faults and requests since the last call.

        Returns:
            Messages, and for each URL the reason why it was blocked, empty if it was not.
        """
        faults = [entry["message"] for entry in self.driver.get_log("browser")]
        urls, blocked = {}, {}
        for entry in self.driver.get_log("performance"):
            event = json.loads(entry["message"])["message"]
            parameters = event["params"]
            if event["method"] == "Network.requestWillBeSent":
                urls[parameters["requestId"]] = parameters["request"]["url"]
            elif event["method"] == "Network.loadingFailed":
                blocked[parameters["requestId"]] = parameters.get("blockedReason", "")
        return faults, {url: blocked.get(name, "") for name, url in urls.items()}

    @classmethod
    @contextmanager
    def started(cls, profile: Path) -> Iterator[Self]:
        """Start a headless Chromium with logs.

        Args:
            profile: a folder for it.
        """
        try:
            from selenium.webdriver import Chrome, ChromeOptions
            from selenium.webdriver.chrome.service import Service
        except ModuleNotFoundError:
            absent("the package selenium is not installed")
        browser, driver_binary = binaries()
        options = ChromeOptions()
        options.binary_location = browser
        for flag in FLAGS:
            options.add_argument(flag)
        options.add_argument(f"--user-data-dir={profile}")
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        driver = Chrome(options=options, service=Service(driver_binary))
        try:
            yield cls(driver)
        finally:
            driver.quit()
