"""Deployment files name commands, options and settings that exist."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

from consensuspr.cli import main
from consensuspr.credentials import Scope, read_tokens
from consensuspr.server.config import ServerConfig
from consensuspr.server.supervisor import STOP_MARGIN_S
from consensuspr.settings import environment_name


def directives(path: Path) -> dict[str, str]:
    """Return the assignments of a unit or environment file."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))


def known_options(command: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert main([command, "--help"]) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("instruction", ["CMD", "ENTRYPOINT"])
def test_the_image_starts_a_command_that_exists(
    instruction: str, repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (repository / "deploy/docker/Dockerfile").read_text(encoding="utf-8")
    for found in re.findall(rf"^(?:    )?{instruction} (\[.*\])$", text, flags=re.MULTILINE):
        words = [word for word in json.loads(found) if word != "consensuspr"]
        if words:
            help_text = known_options(words[0], capsys)
            assert [w for w in words if w.startswith("--") and w not in help_text] == []


def test_the_image_copies_nothing_that_is_missing(repository: Path) -> None:
    ignore = (repository / "deploy/docker/Dockerfile.dockerignore").read_text(encoding="utf-8")
    wanted = {line[1:] for line in ignore.splitlines() if line.startswith("!")}
    assert [name for name in wanted if not (repository / name).exists()] == []


@pytest.mark.parametrize(
    "path",
    [
        "deploy/docker/Dockerfile",
        "deploy/systemd/consensuspr.env",
        "deploy/README.md",
        "deploy/kubernetes/deployment.yaml",
        "deploy/kubernetes/page/kustomization.yaml",
    ],
)
def test_settings_are_spelled_right(path: str, repository: Path) -> None:
    text = (repository / path).read_text(encoding="utf-8")
    known = {environment_name("CONSENSUSPR", setting) for setting in ServerConfig.model_fields}
    known |= {"CONSENSUSPR_REQUIRE_NATIVE"}
    assert set(re.findall(r"CONSENSUSPR_[A-Z_]+", text)) <= known


def test_the_image_has_extras_that_there_are(repository: Path) -> None:
    text = (repository / "deploy/docker/Dockerfile").read_text(encoding="utf-8")
    project = tomllib.loads((repository / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    [extras] = re.findall(r"^ARG EXTRAS=(\S+)$", text, re.M)
    assert set(extras.split(",")) <= set(project["optional-dependencies"])


def test_the_unit_waits_until_draining_is_over(repository: Path) -> None:
    unit = directives(repository / "deploy/systemd/consensuspr.service")
    defaults = ServerConfig(datasets={"default": repository})
    patience_s = float(unit["TimeoutStopSec"].removesuffix("s"))
    assert patience_s > defaults.drain_delay_s + defaults.grace_s + STOP_MARGIN_S
    assert unit["KillSignal"] == "SIGTERM"


def test_systemd_accepts_the_unit(repository: Path, tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed")
    # It looks for the binary too, which only an installed server has.
    text = (repository / "deploy/systemd/consensuspr.service").read_text(encoding="utf-8")
    unit = tmp_path / "consensuspr.service"
    unit.write_text(text.replace("/opt/consensuspr/bin/consensuspr", "/bin/true"))
    checked = subprocess.run(
        ["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, check=False
    )
    assert (checked.returncode, checked.stderr) == (0, "")


def test_the_compose_file_starts_what_there_is(repository: Path, tmp_path: Path) -> None:
    compose = yaml.safe_load((repository / "deploy/docker/compose.yaml").read_text())
    server, token = compose["services"]["server"], compose["services"]["token"]
    given = {word[2:].replace("-", "_") for word in server["command"] if word.startswith("--")}
    assert given <= {"dataset", *ServerConfig.model_fields}
    # The command that makes the tokens makes them once, at the path that the server is given.
    path = server["command"][server["command"].index("--token-file") + 1]
    folder = path.rpartition("/")[0]
    [shell, flag, script] = token["entrypoint"]
    assert path in script
    program = f"{shlex.quote(sys.executable)} -m consensuspr.cli token"
    script = script.replace(folder, str(tmp_path)).replace("consensuspr token", program)
    made = []
    for _ in range(2):
        subprocess.run([shell, flag, script], check=True, capture_output=True)
        made.append([(tmp_path / name).read_text() for name in ("tokens", "prometheus")])
    assert made[0] == made[1]
    scoring, reading = read_tokens(tmp_path / "tokens")
    assert (scoring.scope, reading.scope) == (Scope.SCORE, Scope.READ)
    # Prometheus shows all of its file.
    assert made[0][1].strip() == reading.text
    scraping = yaml.safe_load((repository / "deploy/observability/prometheus.yml").read_text())
    [job] = scraping["scrape_configs"]
    assert job["authorization"]["credentials_file"] == f"{folder}/prometheus"
    metrics_port = server["command"][-1].rpartition(":")[2]
    assert job["static_configs"] == [{"targets": [f"server:{metrics_port}"]}]
    # The image has the folder, for a volume is its first user's.
    assert (
        f"install -d -o consensuspr {folder}"
        in (repository / "deploy/docker/Dockerfile").read_text()
    )
    for service in (server, token):
        assert (service["read_only"], service["cap_drop"]) == (True, ["ALL"])
        assert any(volume.startswith(f"secrets:{folder}") for volume in service["volumes"])
    for service in compose["services"].values():
        for volume in service.get("volumes", []):
            if volume.startswith("."):
                assert (repository / "deploy/docker" / volume.split(":")[0]).exists(), volume
