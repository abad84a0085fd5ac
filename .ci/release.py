"""Make a release of the "Unreleased" section: version, changelog, commit and tag in one step.

Usage: ``python .ci/release.py 1.2.3``, or ``--check v1.2.3`` to compare a tag with the tree.

Nothing is pushed: ``git push --follow-tags`` does that, and .github/workflows/release.yml the rest.
"""

import datetime
import re
import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
VERSION_FILE = REPOSITORY / "server/consensuspr/version.py"
CHANGELOG = REPOSITORY / "CHANGELOG.md"
VERSION_LINE = re.compile(r'^VERSION: Final = "([^"]+)"$', re.MULTILINE)
# A release, or a candidate of one.
VERSION = re.compile(r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(?:rc([1-9]\d*))?")
UNRELEASED = "## Unreleased\n"


def fail(reason: str) -> None:
    print(reason, file=sys.stderr)
    sys.exit(2)


def order(version: str) -> tuple[int, ...]:
    """Return a sort key of a version; a candidate comes before its release."""
    found = VERSION.fullmatch(version)
    if found is None:
        fail(f"VERSION must be like 1.2.3 or 1.2.3rc1, got {version!r}")
    *numbers, candidate = found.groups()
    return (*map(int, numbers), int(candidate) if candidate else sys.maxsize)


def git(*words: str) -> str:
    command = ["git", *words]
    return subprocess.run(
        command, cwd=REPOSITORY, check=True, stdout=subprocess.PIPE, text=True
    ).stdout


def release(version: str) -> None:
    """Write both files, commit them, and tag the commit."""
    text, changelog = VERSION_FILE.read_text(), CHANGELOG.read_text()
    before = VERSION_LINE.search(text)[1]
    # The version in the file may be the one that is worked on, and not released yet.
    if order(version) < order(before) or f"v{version}" in git("tag", "--list").split():
        fail(f"{version} is not newer than {before}, or was released")
    if git("status", "--porcelain"):
        fail("the working tree has changes; commit them first")
    above, found, below = changelog.partition(UNRELEASED)
    if not found or not below.partition("\n## ")[0].strip():
        fail("CHANGELOG.md has nothing under Unreleased")
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    VERSION_FILE.write_text(VERSION_LINE.sub(f'VERSION: Final = "{version}"', text))
    CHANGELOG.write_text(f"{above}{UNRELEASED}\n## {version} - {today}\n{below}")
    git("commit", "--quiet", "--all", "--message", f"Release {version}")
    git("tag", "--annotate", f"v{version}", "--message", f"consensuspr {version}")
    print(f"tagged v{version}; publish it: git push --follow-tags")


def check(tag: str) -> None:
    """Compare a tag with the tree."""
    version = VERSION_LINE.search(VERSION_FILE.read_text())[1]
    if tag != f"v{version}":
        fail(f"the tag is {tag}, and the tree's version {version}")
    if f"\n## {version} - " not in CHANGELOG.read_text():
        fail(f"CHANGELOG.md has no heading for {version}")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--check"]:
        check(sys.argv[2])
    else:
        release("".join(sys.argv[1:]))
