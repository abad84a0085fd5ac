"""The page with its documents inside: one file that loads nothing, or a file and a folder.

A snapshot is the page that is served live, with the same documents under the same paths.  They are
packed into chunks (JSON, deflated, in base64), which the page unpacks when it wants one of them,
so that a file of thousands of rollouts opens at once.  Where they make more than
:data:`INLINE_BYTES`, the chunks stand beside the page, in a folder of its name.

Scripts and styles are inline and allowed by their digests; nothing else may run, and no request
may be made, so that even a hole in how the page shows text could load and run nothing.  Data is
never in a script that runs: a chunk in the page is a data block, and one of the folder calls one
function with one text of base64.
"""

from __future__ import annotations

import html
import json
import os
import re
import shutil
import zlib
from base64 import b64encode
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from importlib import resources
from pathlib import Path
from typing import Any, Final

from consensuspr.data.writers import atomic_file
from consensuspr.errors import InputError
from consensuspr.web.figures import PageReport, document

# Of a chunk before it is packed: what the browser unpacks to show one document.
CHUNK_BYTES: Final = 1 << 20
# Of the chunks that stand in the page itself: what a browser opens at once, and mail still takes.
INLINE_BYTES: Final = 24 << 20

_SCRIPT: Final = re.compile(r'<script defer src="assets/([^"]+)"></script>\n?')
_STYLE: Final = re.compile(r'<link rel="stylesheet" href="assets/([^"]+)">')
_FONT: Final = re.compile(r"url\(([^)]+\.woff2)\)")
_CHUNK: Final = re.compile(r"\d{5,}\.js")
# Older kinds of the same fonts, for browsers that could not read the page anyway.
_OLD_FONT: Final = re.compile(r',url\([^)]+\.(?:woff|ttf)\) format\("[a-z]+"\)')


@dataclass(frozen=True, slots=True)
class Written:
    """What was written.

    Attributes:
        folder: of the chunks that do not stand in the page, None where all do.
        size_bytes: of all files.
    """

    path: Path
    folder: Path | None
    size_bytes: int
    documents: int


def write_snapshot(path: Path, title: str, documents: Iterable[tuple[str, Any]]) -> Written:
    """Write the page about documents; it appears complete or not at all.

    Args:
        path: of the page; its folder, where it needs one, is ``STEM_files`` beside it.
        documents: path behind ``/api/``, and what is answered there; read once.

    Raises:
        InputError: it cannot be written, or a folder of the name holds what no report wrote.
    """
    folder = path.with_name(f"{path.stem}_files")
    _check_own(folder)
    with _beside(folder) as unfinished:
        index: dict[str, int] = {}
        inline: list[str] = []
        size = 0
        spilled = False
        for number, (names, packed) in enumerate(_chunks(documents), start=1):
            index.update(dict.fromkeys(names, number))
            size += len(packed)
            if not spilled and size > INLINE_BYTES:
                spilled = True
                for before, earlier in enumerate(inline, start=1):
                    _write_chunk(unfinished, before, earlier)
                inline.clear()
            if spilled:
                _write_chunk(unfinished, number, packed)
            else:
                inline.append(packed)
        page = render(title, [_pack(json.dumps(index)), *inline], folder.name if spilled else None)
        if spilled:
            _replace(unfinished, folder)
        with atomic_file(path) as stream:
            stream.write(page)
    return Written(path, folder if spilled else None, len(page) + (size * spilled), len(index))


def render_report(report: PageReport) -> str:
    """Return a page that shows a report and nothing else."""
    told, index = json.dumps({"report": document(report)}), json.dumps({"report": 1})
    return render(report.title, [_pack(index), _pack(told)], None).decode()


def render(title: str, chunks: Iterable[str], folder: str | None) -> bytes:
    """Return the page as UTF-8; the first chunk says where each document is."""
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
    where = "" if folder is None else html.escape(folder, quote=True)
    blocks = "".join(
        f'<script type="application/octet-stream" id="chunk-{number}">{packed}</script>'
        for number, packed in enumerate(chunks)
    )
    allowed = " ".join([*digests["script"], *(["'self'"] if folder is not None else [])])
    policy = (
        f"default-src 'none'; script-src {allowed}; style-src {' '.join(digests['style'])}; "
        "img-src data:; font-src data:; base-uri 'none'; form-action 'none'"
    )
    head = (
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        f'<meta name="consensuspr-snapshot" content="{where}">'
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


def _write_chunk(folder: Path, number: int, packed: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / f"{number:05}.js").write_text(f'consensuspr.chunk({number},"{packed}");\n')


@contextmanager
def _beside(folder: Path) -> Iterator[Path]:
    """Yield a name beside a folder for what is not finished; nothing is left of it."""
    unfinished = folder.with_name(f".{folder.name}.{os.getpid()}")
    try:
        yield unfinished
    except OSError as error:
        raise InputError(f"{folder}: cannot be written: {error.strerror}") from None
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def _check_own(folder: Path) -> None:
    """Refuse to take the place of a folder that holds anything but chunks.

    Browsers that save a page with its files name their folder alike.
    """
    if folder.is_dir() and (
        odd := next((one.name for one in folder.iterdir() if not _CHUNK.fullmatch(one.name)), None)
    ):
        raise InputError(f"{folder} holds {odd!r}, which no report wrote: move it, or name another")


def _replace(unfinished: Path, folder: Path) -> None:
    """Put a finished folder in its place."""
    if folder.exists():
        shutil.rmtree(folder)
    unfinished.rename(folder)


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
