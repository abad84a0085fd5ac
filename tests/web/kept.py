"""What a page that was kept holds, read as the page reads it."""

from __future__ import annotations

import json
import re
import zlib
from base64 import b64decode
from typing import Any

_BLOCK = re.compile(r'<script type="application/octet-stream" id="chunk-(\d+)">([^<]*)</script>')


def kept_documents(page: str) -> dict[str, Any]:
    """Return the documents of a page by what they are asked for by."""
    chunks = {
        int(number): json.loads(zlib.decompress(b64decode(packed)))
        for number, packed in _BLOCK.findall(page)
    }
    index = chunks.pop(0)
    assert set(index.values()) == set(chunks)
    return {path: chunks[number][path] for path, number in index.items()}
