"""Logs for people and for machines."""

from __future__ import annotations

import io
import json
import logging
import re
from collections.abc import Iterator

import pytest

from consensuspr.server import logs


@pytest.fixture(autouse=True)
def restored_logging() -> Iterator[None]:
    root, ours = logging.getLogger(), logging.getLogger("consensuspr")
    handlers, level, our_level = root.handlers[:], root.level, ours.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    ours.setLevel(our_level)


def test_json_lines_carry_fields_and_tracebacks() -> None:
    stream = io.StringIO()
    logs.configure("json", "info", "worker 3", stream)
    log = logging.getLogger(logs.LOGGER_NAME)
    log.debug("not shown")
    log.info("scored %d", 5, extra={"incident": "abc"})
    try:
        raise ValueError("two\nlines")
    except ValueError:
        log.exception("failed")
    first, second = (json.loads(line) for line in stream.getvalue().splitlines())
    assert (first["message"], first["level"], first["role"]) == ("scored 5", "info", "worker 3")
    assert first["incident"] == "abc"
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", first["time"])
    assert isinstance(first["pid"], int)
    assert "ValueError: two\nlines" in second["traceback"]


def test_text_lines_name_the_process() -> None:
    stream = io.StringIO()
    logs.configure("text", "warning", "supervisor", stream)
    logging.getLogger(logs.LOGGER_NAME).warning("worker 0 died")
    logging.getLogger(logs.LOGGER_NAME).info("not shown")
    logging.getLogger("asyncio").info("not shown either")
    assert re.fullmatch(r"\S+Z WARNING \[supervisor \d+\] worker 0 died\n", stream.getvalue())
