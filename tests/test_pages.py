"""The pages that messages and help texts name are pages of the documentation."""

from __future__ import annotations

import re
from importlib import metadata
from pathlib import Path

import pytest

from consensuspr import pages


def named(repository: Path) -> set[str]:
    """Return the titles that code names."""
    found = set()
    for folder in ("proto", "server", "client", "core_ext", "consensusbench"):
        for path in (repository / folder).rglob("*.py"):
            text = path.read_text(encoding="utf-8")
            if path.name != "pages.py":
                found |= set(re.findall(r"\bpage\(['\"]([^'\"]+)['\"]\)", text))
                found |= set(re.findall(r'the\s+page "([^"]+)"', text))
    return found


def test_every_page_that_code_names_exists(repository: Path) -> None:
    assert named(repository) == set(pages.PAGES)
    docs = repository / "docs"
    for title, name in pages.PAGES.items():
        path = docs / f"{name}.md"
        assert path.read_text(encoding="utf-8").startswith(f"# {title}\n"), path


@pytest.mark.parametrize(
    ("urls", "link"),
    [
        (None, ""),
        (["Source, https://host/code"], ""),
        (["Documentation, https://host/docs/"], " (https://host/docs/guides/serve/)"),
    ],
)
def test_a_page_has_a_link_if_the_package_declares_the_site(
    monkeypatch: pytest.MonkeyPatch, urls: list[str] | None, link: str
) -> None:
    package = metadata.metadata("pytest")
    monkeypatch.setattr(package, "get_all", lambda name: urls)
    monkeypatch.setattr(metadata, "metadata", lambda name: package)
    pages._site.cache_clear()
    try:
        assert pages.page("Run a server") == f'the page "Run a server"{link}'
        text = 'Read the page "Run a server".'
        assert pages.linked(text) == f'Read the page "Run a server"{link}.'
    finally:
        pages._site.cache_clear()
