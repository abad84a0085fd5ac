"""The files of a load test, each by its suffix: .html, .json or .csv."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterable
from pathlib import Path

from consensuspr.data import atomic_file
from consensuspr.errors import InputError
from consensuspr.loadtest.page import render_page
from consensuspr.loadtest.result import LoadTest


def check_outputs(paths: Iterable[Path]) -> None:
    """Refuse, before any work, files that could not be written in the end.

    Raises:
        InputError: a suffix is unknown, a file is named twice, or its folder does not exist.
    """
    seen: set[Path] = set()
    for path in paths:
        if path.suffix.lower() not in _WRITERS:
            known = ", ".join(_WRITERS)
            raise InputError(f"--output must end in one of {known}, got {str(path)!r}")
        if path in seen:
            raise InputError(f"--output names {str(path)!r} twice")
        if not path.parent.is_dir():
            raise InputError(f"--output {str(path)!r}: there is no folder {str(path.parent)!r}")
        seen.add(path)


def write_output(path: Path, test: LoadTest) -> None:
    """Write a load test; the file appears complete or not at all.

    Args:
        path: .html for one page with plots, .json for all figures, .csv for the run over time
            (the steps, of a search).
        test: to write.

    Raises:
        InputError: the file cannot be written.
    """
    text = _WRITERS[path.suffix.lower()](test)
    with atomic_file(path) as stream:
        stream.write(text.encode("utf-8"))


def _json(test: LoadTest) -> str:
    return json.dumps(test.to_json(), indent=1) + "\n"


def _csv(test: LoadTest) -> str:
    rows = test.series()
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]) if rows else ["start_s"], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


_WRITERS: dict[str, Callable[[LoadTest], str]] = {
    ".html": render_page,
    ".json": _json,
    ".csv": _csv,
}
