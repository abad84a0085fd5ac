"""The committed stubs: fresh, and loadable by everything that trainers pin."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

EXIT_NO_GENERATOR = 3


def test_stubs_are_what_the_pinned_generator_makes(repository: Path) -> None:
    """By a Python of its own: ``make proto-check`` or CONSENSUSPR_PROTOC_PYTHON."""
    named = os.environ.get("CONSENSUSPR_PROTOC_PYTHON")
    made = repository / ".venv-proto/bin/python"
    python = named or (str(made) if made.exists() else sys.executable)
    command = [python, str(repository / "proto/generate.py"), "--check"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode == EXIT_NO_GENERATOR and not named:
        pytest.skip(f"{result.stderr.strip()}; make proto-check")
    assert result.returncode == 0, result.stderr


def test_gencode_loads_on_the_oldest_supported_libraries(repository: Path) -> None:
    """Newer gencode refuses older libraries; these numbers are what pins allow."""
    package = repository / "proto/consensuspr/v1"
    messages = (package / "scoring_pb2.py").read_text()
    assert re.search(r"Domain\.PUBLIC,\s*5,\s*29,\s*0,", messages)
    services = (package / "scoring_pb2_grpc.py").read_text()
    assert "GRPC_GENERATED_VERSION = '1.71.2'" in services


def test_every_message_field_and_enum_value_is_commented(repository: Path) -> None:
    source = (repository / "proto/consensuspr/v1/scoring.proto").read_text()
    uncommented = [
        line.strip()
        for line in source.splitlines()
        if re.match(r"\s+[\w. ]+ = \d+;", line) and "//" not in line
    ]
    assert uncommented == []


def test_enums_begin_with_unspecified() -> None:
    from consensuspr.v1 import scoring_pb2 as pb

    for name, enum in pb.DESCRIPTOR.enum_types_by_name.items():
        prefix = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).upper()
        assert enum.values_by_number[0].name == f"{prefix}_UNSPECIFIED"
