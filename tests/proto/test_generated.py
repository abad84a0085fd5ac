"""The committed stubs: fresh, and loadable by everything that trainers pin."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

EXIT_NO_GENERATOR = 3


@pytest.fixture
def protoc_python(repository: Path) -> str:
    """The Python that has the pinned generator, which lives in an environment of its own."""
    named = os.environ.get("CONSENSUSPR_PROTOC_PYTHON")
    made = repository / ".venv-proto/bin/python"
    python = named or (str(made) if made.exists() else sys.executable)
    result = check(python, repository / "proto")
    if result.returncode == EXIT_NO_GENERATOR and not named:
        pytest.skip(f"{result.stderr.strip()}; `make proto-check` or CONSENSUSPR_PROTOC_PYTHON")
    return python


def check(python: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [python, str(folder / "generate.py"), "--check"],
        capture_output=True,
        text=True,
        check=False,
    )


def test_stubs_are_what_the_pinned_generator_makes(protoc_python: str, repository: Path) -> None:
    result = check(protoc_python, repository / "proto")
    assert result.returncode == 0, result.stderr


def test_a_stale_stub_is_noticed(protoc_python: str, repository: Path, tmp_path: Path) -> None:
    """The check itself can fail: a field added to the source makes the stubs stale."""
    package = tmp_path / "proto/consensuspr/v1"
    package.mkdir(parents=True)
    for name in ("generate.py", "requirements.txt"):
        (tmp_path / "proto" / name).write_bytes((repository / "proto" / name).read_bytes())
    for path in (repository / "proto/consensuspr/v1").glob("scoring*"):
        (package / path.name).write_bytes(path.read_bytes())
    source = package / "scoring.proto"
    declaration = "message ServerInfoRequest {"
    assert declaration in source.read_text()
    source.write_text(source.read_text().replace(declaration, f"{declaration}\n  bool more = 99;"))
    result = check(protoc_python, tmp_path / "proto")
    assert result.returncode == 1
    assert "scoring_pb2.py" in result.stderr


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
