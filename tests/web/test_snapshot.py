"""A snapshot: its documents, in one file or beside it, and that nothing but its own can run."""

from __future__ import annotations

import re
from base64 import b64encode
from hashlib import sha256
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consensuspr.errors import InputError
from consensuspr.web import snapshot
from consensuspr.web.snapshot import write_snapshot
from tests.web.kept import kept_documents

HOSTILE = "</script><script>alert(1)</script>\u2028\ud800\x00<!--"


def documents(number: int, size: int = 100) -> list[tuple[str, Any]]:
    return [(f"sample/run/{at}", {"text": f"{at} {'é' * size}"}) for at in range(number)]


def test_documents_are_kept_in_one_file(tmp_path: Path) -> None:
    kept = [*documents(3), ("state", {"runs": [HOSTILE]})]
    written = write_snapshot(tmp_path / "r.html", "Title & <more>", kept)
    page = (tmp_path / "r.html").read_text()
    assert kept_documents(page) == dict(kept)
    assert "<title>Title &amp; &lt;more&gt;</title>" in page
    assert "alert(1)" not in page
    assert written == (tmp_path / "r.html").stat().st_size
    assert [path.name for path in tmp_path.iterdir()] == ["r.html"]


def test_one_that_cannot_be_written_leaves_the_one_before(tmp_path: Path) -> None:
    write_snapshot(tmp_path / "r.html", "before", documents(1))

    def broken() -> Any:
        yield from documents(2)
        raise InputError("the log is gone")

    with pytest.raises(InputError, match="gone"):
        write_snapshot(tmp_path / "r.html", "after", broken())
    assert "<title>before</title>" in (tmp_path / "r.html").read_text()
    with pytest.raises(InputError, match="cannot be written"):
        write_snapshot(tmp_path / "absent" / "r.html", "t", documents(1))


class Parts(HTMLParser):
    """Inline scripts and styles of a page, and all its attributes."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.inline: dict[str, list[str]] = {"script": [], "style": []}
        self.attributes: list[tuple[str, str, str | None]] = []
        self._in = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes += [(tag, name, value) for name, value in attrs]
        self._in = tag if tag in self.inline and not attrs else ""

    def handle_endtag(self, tag: str) -> None:
        self._in = ""

    def handle_data(self, data: str) -> None:
        if self._in:
            self.inline[self._in].append(data)


def test_only_the_scripts_of_the_page_may_run(tmp_path: Path) -> None:
    write_snapshot(tmp_path / "r.html", "t", documents(1))
    page = (tmp_path / "r.html").read_text()
    parts = Parts(page)
    [policy] = [
        value for tag, name, value in parts.attributes
        if name == "content" and value is not None and value.startswith("default-src")
    ]  # fmt: skip
    for tag, texts in parts.inline.items():
        assert texts
        digests = {b64encode(sha256(text.encode()).digest()).decode() for text in texts}
        [sources] = re.findall(rf"{tag}-src ([^;]+);", policy)
        assert sources.split() and set(sources.split()) == {f"'sha256-{d}'" for d in digests}
    assert "default-src 'none'" in policy and "connect-src" not in policy
    for tag, name, value in parts.attributes:
        assert not name.startswith("on") and name != "style", (tag, name)
        assert name not in ("src", "srcset") and (
            name != "href" or value in ("data:,", "#main", "#/")
        )
    assert not re.search(r"url\((?!data:|\"data:|#)", "".join(parts.inline["style"]))


@settings(max_examples=15)
@given(st.dictionaries(st.text(max_size=20), st.text(max_size=50), max_size=8))
def test_any_text_comes_back(kept: dict[str, str]) -> None:
    assert kept_documents(snapshot._render("t", kept.items()).decode()) == kept
