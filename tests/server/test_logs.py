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


def test_text_lines_name_the_process_and_no_bytes_of_callers() -> None:
    stream = io.StringIO()
    logs.configure("text", "warning", "supervisor", stream)
    logging.getLogger(logs.LOGGER_NAME).info("not shown")
    logging.getLogger("asyncio").info("not shown either")
    # As gRPC says it of metadata that is no text.
    logging.getLogger("grpc._cython.cygrpc").error("Invalid %s", b"Bearer secret\xff")
    assert re.fullmatch(r"\S+Z ERROR \[supervisor \d+\] Invalid 14 bytes\n", stream.getvalue())


def test_repeated_warnings_are_dropped_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    logs.configure("json", "info", "worker 3", stream)
    log = logging.getLogger(logs.LOGGER_NAME)

    def repeat(times: int) -> list[str]:
        stream.truncate(0)
        stream.seek(0)
        for number in range(times):
            log.warning("line %d", number, exc_info=ValueError("why"))
        return [json.loads(line)["message"] for line in stream.getvalue().splitlines()]

    assert repeat(1000) == [f"line {number}" for number in range(logs.MAX_LINES)]
    log.warning("something else")
    assert '"message": "something else"' in stream.getvalue()
    monkeypatch.setattr(logs, "PERIOD_S", 0.0)
    assert repeat(1) == [f"line 0 ({1000 - logs.MAX_LINES} similar lines dropped)"]


def test_every_incident_is_found() -> None:
    stream = io.StringIO()
    logs.configure("text", "info", "worker 3", stream)
    log = logging.getLogger(logs.LOGGER_NAME)
    for number in range(50):
        log.error(
            "incident %d", number, exc_info=ValueError("why"), extra={"incident": str(number)}
        )
    text = stream.getvalue()
    assert all(f"incident {number}\n" in text for number in range(50))
    assert text.count("ValueError: why") == logs.MAX_LINES
