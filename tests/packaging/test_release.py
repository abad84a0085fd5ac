"""A release in one step: files, commit and tag, versions it rejects, and the workflow behind it."""

from __future__ import annotations

import datetime
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from consensuspr.version import VERSION

TODAY = datetime.datetime.now(datetime.UTC).date().isoformat()


@pytest.fixture
def tree(repository: Path, tmp_path: Path) -> Path:
    """A repository of the files that a release changes, all committed."""
    for name in (".ci/release.py", "server/consensuspr/version.py"):
        (tmp_path / name).parent.mkdir(parents=True)
        shutil.copy(repository / name, tmp_path / name)
    version = tmp_path / "server/consensuspr/version.py"
    # The tests of a released tree are those of the next version's.
    version.write_text(version.read_text().replace(f'"{VERSION}"', '"0.1.0"'))
    (tmp_path / "CHANGELOG.md").write_text(
        "# Changelog\n\n## Unreleased\n\n### Added\n- A thing.\n\n## 0.0.9 - 2026-01-01\n- Older.\n"
    )
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "config", "user.name", "T")
    git(tmp_path, "config", "user.email", "t@example.org")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "--quiet", "--message", "Begin")
    return tmp_path


def git(folder: Path, *words: str) -> str:
    done = subprocess.run(["git", *words], cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout


def release(folder: Path, *words: str) -> tuple[int, str]:
    command = [sys.executable, str(folder / ".ci/release.py"), *words]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def test_a_release_is_one_commit_with_a_tag(tree: Path) -> None:
    assert release(tree, "0.2.0") == (0, "tagged v0.2.0; publish it: git push --follow-tags\n")
    assert 'VERSION: Final = "0.2.0"\n' in (tree / "server/consensuspr/version.py").read_text()
    assert (tree / "CHANGELOG.md").read_text() == (
        f"# Changelog\n\n## Unreleased\n\n## 0.2.0 - {TODAY}\n\n### Added\n- A thing.\n\n"
        "## 0.0.9 - 2026-01-01\n- Older.\n"
    )
    assert git(tree, "log", "--format=%s", "-1") == "Release 0.2.0\n"
    assert git(tree, "describe").strip() == "v0.2.0"
    assert git(tree, "status", "--porcelain") == ""
    assert release(tree, "--check", "v0.2.0") == (0, "")
    assert release(tree, "--check", "v0.3.0") == (
        2,
        "the tag is v0.3.0, and the tree's version 0.2.0\n",
    )


@pytest.mark.parametrize(
    ("version", "sentence"),
    [
        ("v1.0.0", "VERSION must be like 1.2.3 or 1.2.3rc1, got 'v1.0.0'"),
        ("0.0.8", "0.0.8 is not newer than 0.1.0, or was released"),
        ("0.1.0rc1", "0.1.0rc1 is not newer than 0.1.0, or was released"),
    ],
)
def test_a_version_that_does_not_fit(tree: Path, version: str, sentence: str) -> None:
    assert release(tree, version) == (2, f"{sentence}\n")
    assert git(tree, "status", "--porcelain") == git(tree, "tag") == ""


def test_nothing_is_released_twice_or_without_a_word(tree: Path) -> None:
    # The version that the tree has been worked on under, for the first time.
    assert release(tree, "0.1.0")[0] == 0
    assert release(tree, "0.1.0") == (2, "0.1.0 is not newer than 0.1.0, or was released\n")
    assert release(tree, "0.1.1") == (2, "CHANGELOG.md has nothing under Unreleased\n")
    (tree / "new").touch()
    assert release(tree, "0.1.1") == (2, "the working tree has changes; commit them first\n")


@pytest.fixture(scope="module")
def workflow(repository: Path) -> Any:
    return yaml.safe_load((repository / ".github/workflows/release.yml").read_text())


def test_actions_and_tools_are_pinned_and_no_job_may_more_than_it_needs(workflow: Any) -> None:
    steps = [step for job in workflow["jobs"].values() for step in job["steps"]]
    used = [step["uses"] for step in steps if "uses" in step]
    assert len(used) == 8
    assert [action for action in used if not re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", action)] == []
    installed = [
        word
        for step in steps
        for line in step.get("run", "").splitlines()
        if "pip install" in line
        for word in line.split("pip install")[1].split()
    ]
    assert installed
    assert all("==" in word for word in installed)
    assert workflow["permissions"] == {}
    allowed = {name: job["permissions"] for name, job in workflow["jobs"].items()}
    read = {"contents": "read"}
    assert allowed == {"source": read, "wheels": read, "publish": {"id-token": "write"}}
    assert workflow["jobs"]["publish"]["environment"] == "pypi", "where people have to let it go on"


@pytest.mark.parametrize(
    ("schema", "pattern"),
    [
        ("citation-file-format", "CITATION.cff"),
        ("compose-spec", "deploy/docker/compose.yaml"),
        ("github-issue-config", ".github/ISSUE_TEMPLATE/config.yml"),
        ("github-issue-forms", ".github/ISSUE_TEMPLATE/[!c]*.yml"),
        ("github-workflows", ".github/workflows/*.yml"),
    ],
)
def test_files_for_other_programs_are_valid(repository: Path, schema: str, pattern: str) -> None:
    files = sorted(map(str, repository.glob(pattern)))
    assert files
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", f"vendor.{schema}"]
    done = subprocess.run([*command, *files], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_the_ci_workflow_runs_what_any_machine_can(repository: Path) -> None:
    text = (repository / ".github/workflows/ci.yml").read_text()
    assert re.findall(r"- run: (.+)", text) == [".ci/run"]
    assert all(re.search(r"@[0-9a-f]{40} ", line) for line in text.splitlines() if "uses:" in line)


def test_wheels_are_built_for_the_pythons_that_are_promised(repository: Path) -> None:
    project = tomllib.loads((repository / "pyproject.toml").read_text())
    promised = re.findall(r"Python :: 3\.(\d+)", "\n".join(project["project"]["classifiers"]))
    built = project["tool"]["cibuildwheel"]["build"].split()
    assert built == [f"cp3{minor}-*" for minor in promised]
