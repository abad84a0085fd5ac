"""A page to keep: the page that is served live, with its documents inside, in one file.

Documents are packed into chunks (JSON, deflated, in base64), which the page unpacks when it wants
one of them, so that a file of thousands of rollouts opens at once.

Scripts and styles are inline and allowed by their digests; nothing else may run, and no request
may be made, so that even a hole in how the page shows text could load and run nothing.
"""

from __future__ import annotations

import html
import json
import re
import zlib
from base64 import b64encode
from collections.abc import Iterable, Iterator
from functools import cache
from hashlib import sha256
from importlib import resources
from pathlib import Path
from typing import Any, Final

from consensuspr.data.writers import atomic_file

# Of a chunk before it is packed: the browser unpacks one to show a document.
CHUNK_BYTES: Final = 1 << 20

_SCRIPT: Final = re.compile(r'<script defer src="assets/([^"]+)"></script>\n?')
_STYLE: Final = re.compile(r'<link rel="stylesheet" href="assets/([^"]+)">')
_FONT: Final = re.compile(r"url\(([^)]+\.woff2)\)")
# Older kinds of the same fonts, for browsers that could not read the page anyway.
_OLD_FONT: Final = re.compile(r',url\([^)]+\.(?:woff|ttf)\) format\("[a-z]+"\)')


def write_snapshot(path: Path, title: str, documents: Iterable[tuple[str, Any]]) -> int:
    """Write the page about documents, complete or not at all; return its size in bytes.

    Args:
        documents: what each is asked for by, and the document; read once.

    Raises:
        InputError: it cannot be written.
    """
    page = _render(title, documents)
    with atomic_file(path) as stream:
        stream.write(page)
    return len(page)


def _render(title: str, documents: Iterable[tuple[str, Any]]) -> bytes:
    """Return the page as UTF-8; chunk 0 has the chunk of each document."""
    index: dict[str, int] = {}
    chunks = [""]
    for names, packed in _chunks(documents):
        index.update(dict.fromkeys(names, len(chunks)))
        chunks.append(packed)
    chunks[0] = _pack(json.dumps(index))
    page = _asset("index.html")
    digests: dict[str, list[str]] = {"script": [], "style": []}

    def inlined(tag: str, text: str) -> str:
        if f"</{tag}" in text.lower():
            raise AssertionError(f"an asset ends its own <{tag}>")
        digest = b64encode(sha256(text.encode()).digest()).decode()
        digests[tag].append(f"'sha256-{digest}'")
        return f"<{tag}>{text}</{tag}>"

    page = _STYLE.sub(lambda found: inlined("style", _style(found[1])), page)
    # At the end of the body, where they run when all of it is there.
    scripts = "".join(inlined("script", _asset(found[1])) for found in _SCRIPT.finditer(page))
    page = _SCRIPT.sub("", page)
    blocks = "".join(
        f'<script type="application/octet-stream" id="chunk-{number}">{packed}</script>'
        for number, packed in enumerate(chunks)
    )
    policy = (
        f"default-src 'none'; script-src {' '.join(digests['script'])};"
        f" style-src {' '.join(digests['style'])}; "
        "img-src data:; font-src data:; base-uri 'none'; form-action 'none'"
    )
    head = (
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        f"<title>{html.escape(title)}</title>"
    )
    page = re.sub(r"<title>[^<]*</title>", lambda _: head, page, count=1)
    return page.replace("</body>", f"{blocks}{scripts}</body>", 1).encode()


def _chunks(documents: Iterable[tuple[str, Any]]) -> Iterator[tuple[list[str], str]]:
    """Yield the documents of each chunk by name, and the chunk packed."""
    names: list[str] = []
    texts: list[str] = []
    size = 0
    for name, value in documents:
        text = f"{json.dumps(name)}:{json.dumps(value, allow_nan=False, separators=(',', ':'))}"
        if names and size + len(text) > CHUNK_BYTES:
            yield names, _pack(f"{{{','.join(texts)}}}")
            names, texts, size = [], [], 0
        names.append(name)
        texts.append(text)
        size += len(text)
    if names:
        yield names, _pack(f"{{{','.join(texts)}}}")


def _pack(text: str) -> str:
    # ASCII: json.dumps writes all else as escapes, lone surrogates too.
    return b64encode(zlib.compress(text.encode("ascii"), 6)).decode()


@cache
def _asset(name: str) -> str:
    return str(_file(name).read_text(encoding="utf-8"))


def _file(name: str) -> Any:
    return resources.files("consensuspr.web").joinpath("assets", *name.split("/"))


@cache
def _style(name: str) -> str:
    """Return a style sheet with its fonts inside."""
    base = name.rpartition("/")[0]

    def embedded(found: re.Match[str]) -> str:
        font = _file(f"{base}/{found[1]}" if base else found[1]).read_bytes()
        return f"url(data:font/woff2;base64,{b64encode(font).decode()})"

    return _FONT.sub(embedded, _OLD_FONT.sub("", _asset(name)))
