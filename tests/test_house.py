"""Rules of the repository that no linter knows.

The layout (four source roots of one namespace package), the way of the data
(docs/design/architecture.md: nothing imports what is above it, no circle of files), that a public
class name means one thing, and that what the README tells a person to type exists.
"""

from __future__ import annotations

import ast
import graphlib
import re
import shlex
import subprocess
from collections.abc import Container, Iterator
from pathlib import Path

import pytest

SOURCE_ROOTS = ("proto", "core_ext", "server", "client")
CODE_FOLDERS = (*SOURCE_ROOTS, "consensusbench", "benchmarks", "reliability", "examples", "tests")

# What each package may import of the project itself; docs/design/architecture.md draws it.
BASE = {"child_processes", "errors", "events", "lazy", "pages", "short_repr", "version"}
MAY_IMPORT: dict[str, set[str]] = {
    **{name: set() for name in ("v1", *BASE)},
    "settings": BASE,
    "credentials": BASE,
    "console": BASE | {"core"},
    "core": BASE,
    "data": BASE,
    "scoring": BASE | {"console", "settings", "core", "data"},
    "wire": BASE | {"v1", "core", "scoring"},
    "score_log": BASE | {"console", "core", "data", "scoring", "wire"},
    "server": BASE | set("score_log settings credentials v1 wire core data scoring".split()),
    "ray": BASE | set("credentials v1 wire core data scoring server".split()),
    "http": BASE | set("credentials wire core data scoring server".split()),
    "web": BASE | set("credentials console core data scoring score_log server http".split()),
    "client": BASE
    | set("settings credentials console v1 wire core data scoring score_log".split()),
    "doctor": BASE | set("console wire core data scoring client".split()),
    "launch": BASE | set("settings credentials console scoring score_log server client".split()),
    "loadtest": BASE | set("console wire data scoring client".split()),
}
MAY_IMPORT["cli"] = {*MAY_IMPORT}


def code_files(repository: Path, *suffixes: str) -> Iterator[Path]:
    """Yield the hand-written source files."""
    for folder in CODE_FOLDERS:
        for path in sorted((repository / folder).rglob("*")):
            if path.suffix in suffixes and "_pb2" not in path.name:
                yield path


def test_consensuspr_stays_a_namespace_package(repository: Path) -> None:
    assert [r for r in SOURCE_ROOTS if (repository / r / "consensuspr/__init__.py").exists()] == []


def test_every_subpackage_is_a_package_and_declares_its_types(repository: Path) -> None:
    missing = [
        str(package.relative_to(repository) / name)
        for root in SOURCE_ROOTS
        for package in sorted((repository / root / "consensuspr").iterdir())
        if package.is_dir() and package.name != "__pycache__"
        for name in ("__init__.py", "py.typed")
        if not (package / name).exists()
    ]
    assert missing == []


def imported_packages(source: str) -> Iterator[tuple[int, str]]:
    """Yield line and package of every import from consensuspr, lazy ones included."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            module = node.module
            names = [f"{module}.{a.name}" for a in node.names] if module == "consensuspr" else []
            names = names or [module]
        else:
            continue
        for name in names:
            top, _, rest = name.partition(".")
            if top == "consensuspr" and rest:
                yield node.lineno, rest.partition(".")[0]


def test_imports_go_one_way(repository: Path) -> None:
    upward = []
    for root in SOURCE_ROOTS:
        base = repository / root / "consensuspr"
        for path in sorted(base.rglob("*.py")):
            package = path.relative_to(base).parts[0].removesuffix(".py")
            for line, imported in imported_packages(path.read_text(encoding="utf-8")):
                if imported != package and imported not in MAY_IMPORT[package]:
                    upward.append(f"{path.relative_to(repository)}:{line} imports {imported}")
    assert upward == []


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("import consensuspr.server.app", ["server"]),
        ("from consensuspr import core", ["core"]),
        ("from consensuspr.client import Rollout", ["client"]),
        ("def f():\n    from consensuspr.cli.app import main", ["cli"]),
        ("import numpy", []),
    ],
)
def test_imports_are_found_wherever_they_stand(source: str, found: list[str]) -> None:
    assert [package for _, package in imported_packages(source)] == found


def modules(repository: Path) -> dict[str, Path]:
    """Return every hand-written module that is installed, by its dotted name."""
    found = {}
    for root in (*SOURCE_ROOTS, "."):
        base = repository / root
        top = "consensusbench" if root == "." else "consensuspr"
        for path in sorted((base / top).rglob("*.py")):
            parts = path.relative_to(base).with_suffix("").parts
            if "_pb2" not in path.name:
                found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imported_modules(tree: ast.AST, known: Container[str]) -> Iterator[str]:
    """Yield the project's modules that a tree imports, but for those of TYPE_CHECKING blocks."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield from (name for name in (inner, node.module) if name in known)
        else:
            yield from imported_modules(node, known)


def test_no_files_need_each_other(repository: Path) -> None:
    known = modules(repository)
    needs = {}
    for name, path in known.items():
        imported = set(imported_modules(ast.parse(path.read_text(encoding="utf-8")), known))
        # A package re-exports its modules, so an import of the package from inside is no circle.
        needs[name] = {other for other in imported if not name.startswith(f"{other}.")} - {name}
    graphlib.TopologicalSorter(needs).prepare()  # raises CycleError, which names the circle


def test_consensusbench_imports_go_one_way(repository: Path) -> None:
    """No two packages need each other, and only the commands know commands."""
    known = modules(repository)
    needs: dict[str, set[str]] = {}
    for name, path in known.items():
        if not name.startswith("consensusbench."):
            continue
        package = name.split(".")[1]
        for other in imported_modules(ast.parse(path.read_text(encoding="utf-8")), known):
            assert package == "cli" or not f"{other}.".startswith("consensusbench.cli."), (
                f"{name} imports a command, {other}"
            )
            if other.startswith("consensusbench."):
                needs.setdefault(package, set()).add(other.split(".")[1])
    for package, needed in needs.items():
        needed.discard(package)
    graphlib.TopologicalSorter(needs).prepare()  # raises CycleError


def test_a_public_class_name_means_one_thing(repository: Path) -> None:
    """Except in the two engines of the core, which implement one specification."""
    homes: dict[str, list[str]] = {}
    for name, path in modules(repository).items():
        if name.startswith("consensuspr.core.native"):
            continue
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes.setdefault(node.name, []).append(name)
    assert {name: found for name, found in homes.items() if len(found) > 1} == {}


def test_architecture_names_every_package(repository: Path) -> None:
    text = (repository / "docs/design/architecture.md").read_text(encoding="utf-8")
    assert [name for name in MAY_IMPORT if f"`consensuspr.{name}`" not in text] == []
    folders = sorted(
        path.parent.name for path in (repository / "consensusbench").glob("*/__init__.py")
    )
    assert [name for name in folders if f"`{name}`" not in text] == []


def readme_commands(repository: Path) -> list[str]:
    """Return the commands of the README's bash blocks, continuation lines joined."""
    text = (repository / "README.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```bash\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)
    return "".join(blocks).replace("\\\n", " ").splitlines()


def test_readme_names_only_commands_that_exist(repository: Path) -> None:
    makefile = (repository / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z-]+):", makefile, flags=re.MULTILINE))
    commands = [shlex.split(line, comments=True) for line in readme_commands(repository)]
    made = [words[1:] for words in commands if words[:1] == ["make"]]
    assert {"demo", "test"} <= {target for words in made for target in words}
    assert [t for words in made for t in words if t not in targets and "=" not in t] == []


def test_ci_runs_the_commands_of_the_readme(repository: Path) -> None:
    """It takes them out of the README with sed, and has steps for those that call make."""
    script = (repository / ".ci/run").read_text(encoding="utf-8")
    command = next(line for line in script.splitlines() if line.startswith("sed ")).split(" >")[0]
    shown = subprocess.run(
        ["bash", "-c", command], cwd=repository, check=True, capture_output=True, text=True
    ).stdout.replace("\\\n", " ")
    lines = readme_commands(repository)
    assert shown.splitlines() == [line for line in lines if not line.startswith("make ")]
    steps = script.splitlines()
    assert [line for line in lines if line.startswith("make ") and line not in steps] == []
