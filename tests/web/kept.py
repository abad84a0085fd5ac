"""What a snapshot holds, read as its page reads it."""

from __future__ import annotations

import json
import re
import zlib
from base64 import b64decode
from pathlib import Path
from typing import Any

_BLOCK = re.compile(r'<script type="application/octet-stream" id="chunk-(\d+)">([^<]*)</script>')
_FILE = re.compile(r'consensuspr\.chunk\((\d+),"([^"]*)"\);\n')


def kept_documents(page: str, folder: Path | None = None) -> dict[str, Any]:
    """Return the documents of a page, and of the folder that belongs to it, by path."""
    chunks = {int(number): _unpack(packed) for number, packed in _BLOCK.findall(page)}
    for path in sorted(folder.iterdir()) if folder is not None else ():
        found = _FILE.fullmatch(path.read_text())
        assert found is not None and path.name == f"{int(found[1]):05}.js"
        chunks[int(found[1])] = _unpack(found[2])
    index = chunks.pop(0)
    assert set(index.values()) == set(chunks)
    return {path: chunks[number][path] for path, number in index.items()}


def _unpack(packed: str) -> Any:
    return json.loads(zlib.decompress(b64decode(packed)))
