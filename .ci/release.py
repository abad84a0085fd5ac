"""Make a release of what is under "Unreleased": version, changelog, commit and tag in one step.

Usage: ``python .ci/release.py 1.2.3``, or ``--check v1.2.3`` to compare a tag with the tree.

Nothing is pushed: ``git push --follow-tags`` does that, and .github/workflows/release.yml the rest.
"""

from __future__ import annotations

import argparse
import datetime
import re
import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
VERSION_FILE = REPOSITORY / "server/consensuspr/version.py"
CHANGELOG = REPOSITORY / "CHANGELOG.md"

VERSION_LINE = re.compile(r'^VERSION: Final = "([^"]+)"$', re.MULTILINE)
# A release, or a candidate of one; nothing that an index would take for something else.
VERSION = re.compile(r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(?:rc([1-9]\d*))?")
UNRELEASED = "## Unreleased\n"


class Refused(Exception):
    """What keeps the release from being made, in one sentence."""


def order(version: str) -> tuple[int, ...]:
    """Return what sorts versions; a candidate comes before its release.

    Raises:
        Refused: it is no version.
    """
    found = VERSION.fullmatch(version)
    if found is None:
        raise Refused(f"VERSION must be like 1.2.3 or 1.2.3rc1, got {version!r}")
    *numbers, candidate = found.groups()
    return (*map(int, numbers), int(candidate) if candidate else sys.maxsize)


def current(text: str) -> str:
    """Return the version that the version file says."""
    found = VERSION_LINE.search(text)
    if found is None:
        raise Refused(f"{VERSION_FILE} has no line VERSION")
    return found[1]


def with_version(text: str, version: str, tags: frozenset[str]) -> str:
    """Return the version file for a release.

    Raises:
        Refused: it is not newer than what the file says, or was released.
    """
    before = current(text)
    # What the file says may be the version that is worked on, and not released yet.
    if order(version) < order(before) or f"v{version}" in tags:
        raise Refused(f"{version} is not newer than {before}, or was released")
    return VERSION_LINE.sub(f'VERSION: Final = "{version}"', text)


def with_heading(changelog: str, version: str, day: datetime.date) -> str:
    """Return the changelog with what is unreleased under the version, and nothing unreleased.

    Raises:
        Refused: nothing is unreleased, or the version has a heading.
    """
    above, found, below = changelog.partition(UNRELEASED)
    if not found or not below.partition("\n## ")[0].strip():
        raise Refused("CHANGELOG.md says nothing under Unreleased")
    if re.search(rf"^## {re.escape(version)}\b", changelog, re.MULTILINE):
        raise Refused(f"CHANGELOG.md has a heading for {version}")
    return f"{above}{UNRELEASED}\n## {version} - {day.isoformat()}\n{below}"


def git(*words: str) -> str:
    done = subprocess.run(
        ["git", *words], cwd=REPOSITORY, check=True, stdout=subprocess.PIPE, text=True
    )
    return done.stdout


def release(version: str) -> None:
    """Write both files, commit them, and tag the commit.

    Raises:
        Refused: the tree has changes, or the version does not fit; nothing was written then.
    """
    order(version)
    if git("status", "--porcelain"):
        raise Refused("the working tree has changes; commit or stash them")
    tags = frozenset(git("tag", "--list").split())
    version_text = with_version(VERSION_FILE.read_text(encoding="utf-8"), version, tags)
    today = datetime.datetime.now(datetime.UTC).date()
    changelog = with_heading(CHANGELOG.read_text(encoding="utf-8"), version, today)
    VERSION_FILE.write_text(version_text, encoding="utf-8")
    CHANGELOG.write_text(changelog, encoding="utf-8")
    git("commit", "--quiet", "--all", "--message", f"Release {version}")
    git("tag", "--annotate", f"v{version}", "--message", f"consensuspr {version}")
    print(f"tagged v{version}; publish it: git push --follow-tags")


def check(tag: str) -> None:
    """Compare a tag with the tree.

    Raises:
        Refused: it names another version than the tree, or one without a heading.
    """
    version = current(VERSION_FILE.read_text(encoding="utf-8"))
    if tag != f"v{version}":
        raise Refused(f"the tag is {tag}, and the tree's version {version}")
    if f"\n## {version} - " not in CHANGELOG.read_text(encoding="utf-8"):
        raise Refused(f"CHANGELOG.md has no heading for {version}")


def main() -> int:
    """Do what the arguments say; return an exit code."""
    parser = argparse.ArgumentParser(description="Make a release, or compare a tag with the tree.")
    parser.add_argument("version", help="1.2.3, or with --check the tag")
    parser.add_argument("--check", action="store_true")
    given = parser.parse_args()
    try:
        (check if given.check else release)(given.version)
    except Refused as refused:
        print(refused, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
