"""The pages of the documentation that messages and help texts name."""

from __future__ import annotations

import re
from functools import cache
from importlib import metadata
from typing import Final

# By title, the file under ``docs`` without its suffix.
PAGES: Final = {
    "Build nodes": "tutorials/build-nodes",
    "Check nodes": "guides/check-nodes",
    "Evaluation in depth": "guides/evaluate",
    "File formats": "reference/file-formats",
    "Run a server": "guides/serve",
    "The score log": "guides/score-log",
    "Train with verl": "tutorials/verl",
    "Watch a run": "guides/watch",
}


def page(title: str) -> str:
    """Return ``the page "Run a server"``, with its link if the package declares the site's address.

    The address is ``documentation`` under ``[project.urls]`` of pyproject.toml.
    """
    site = _site()
    link = f" ({site}/{PAGES[title]}/)" if site else ""
    return f'the page "{title}"{link}'


def linked(text: str) -> str:
    """Return a text with the link of each ``the page "TITLE"``."""
    return re.sub(r'the\s+page "([^"]+)"', lambda found: page(found[1]), text)


@cache
def _site() -> str:
    """Return the address of the documentation, empty if the installed package declares none."""
    try:
        urls = metadata.metadata("consensuspr").get_all("Project-URL") or []
    except metadata.PackageNotFoundError:
        return ""
    labelled = (str(url).partition(",") for url in urls)
    found = (url.strip() for label, _, url in labelled if label.strip().lower() == "documentation")
    return next(found, "").rstrip("/")
