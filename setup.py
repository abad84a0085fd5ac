"""Build consensuspr: four source roots, one optional compiled core.

Static metadata lives in ``pyproject.toml``.  Here is what needs code: packages that are
gathered from four roots into the namespace package ``consensuspr``, and extensions that
may fail to compile without failing the install.

Environment variables read at build time:

``CONSENSUSPR_BUILD``
    ``release`` (default): ``-O2``, on which the normaliser is 3 % faster than on ``-O3``.
    ``checked``: every run-time check of Cython and the C assertions on.
    ``sanitize``: AddressSanitizer and UndefinedBehaviorSanitizer.
``CONSENSUSPR_REQUIRE_NATIVE=1``
    A compile that fails is an error instead of a warning.
``CONSENSUSPR_PURE_PYTHON=1``
    Build no extension at all.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

from setuptools import Extension, find_namespace_packages, find_packages, setup
from setuptools.command.build_ext import build_ext
from setuptools.errors import BaseError, CompileError, LinkError

SOURCE_ROOTS = ("proto", "core_ext", "server", "client")

# The root whose consensuspr/ directory holds the modules that belong to no subpackage.
TOP_MODULES_ROOT = "server"

# Where Cython modules are looked for, at any depth, and what they are made of.
CYTHON_ROOTS = (Path("core_ext"),)
CYTHON_FILES = (".pyx", ".pxd", ".pxi", ".h")

RELEASE, CHECKED, SANITIZE = "release", "checked", "sanitize"

# No -march=native: a wheel built on one machine must run on the next.  -fno-wrapv: Python is
# built with -fwrapv, under which a signed overflow counts as wanted and is not reported.
COMPILE_ARGS = {
    RELEASE: ["-O2", "-g0"],
    CHECKED: [
        "-O1",
        "-g",
        "-UNDEBUG",
        "-fno-wrapv",
        # Cython's own overflowcheck cannot translate constant expressions in enums.
        "-fsanitize=signed-integer-overflow,shift,bounds",
        "-fsanitize-undefined-trap-on-error",
    ],
    SANITIZE: [
        "-O1",
        "-g",
        "-UNDEBUG",
        "-fno-wrapv",
        "-fno-omit-frame-pointer",
        "-fsanitize=address,undefined",
        "-fno-sanitize-recover=undefined",
    ],
}
LINK_ARGS = {RELEASE: [], CHECKED: [], SANITIZE: ["-fsanitize=address,undefined"]}

# What a source file switches off for speed, ``checked`` switches on again.  Directives in
# a file win over those given to cythonize, hence a rewritten copy of the sources.
CHECK_SWITCHED_OFF = re.compile(r"\b(boundscheck|initializedcheck|nonecheck)(\s*[=(]\s*)False\b")
CHECK_SWITCHED_ON = {"boundscheck": True, "initializedcheck": True, "nonecheck": True}

FALLBACK = (
    "WARNING: the compiled core of consensuspr could not be built ({reason}); "
    "installing without it, so scoring runs on the slower pure-Python core."
)


def variant() -> str:
    """Return the build variant that CONSENSUSPR_BUILD names."""
    name = os.environ.get("CONSENSUSPR_BUILD") or RELEASE
    if name not in COMPILE_ARGS:
        sys.exit(f"CONSENSUSPR_BUILD must be one of {', '.join(COMPILE_ARGS)}, got {name!r}")
    return name


def flag(name: str) -> bool:
    """Tell whether an environment variable is set to something other than 0."""
    return os.environ.get(name, "0") not in ("", "0")


def packages() -> dict[str, str]:
    """Return every package with its directory, relative to this file."""
    found = {"consensuspr": f"{TOP_MODULES_ROOT}/consensuspr"}
    for root in SOURCE_ROOTS:
        for name in find_namespace_packages(where=root, include=["consensuspr.*"]):
            found[name] = f"{root}/{name.replace('.', '/')}"
    # An ordinary package: it counts once it has an __init__.py.
    for name in find_packages(include=["consensusbench", "consensusbench.*"]):
        found[name] = name.replace(".", "/")
    return found


def cython_files(root: Path, *suffixes: str) -> list[Path]:
    """Return the files of these kinds below a folder."""
    return sorted(path for path in root.rglob("*") if path.suffix in suffixes)


def copy_with_checks_on(target: Path) -> None:
    """Copy all Cython files to a folder, with what they switch off for speed switched on."""
    for root in CYTHON_ROOTS:
        for source in cython_files(root, *CYTHON_FILES):
            text = source.read_text(encoding="utf-8")
            if source.suffix != ".h":
                text = CHECK_SWITCHED_OFF.sub(r"\1\2True", text)
            copy = target / source.relative_to(root)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_text(text, encoding="utf-8")


def extensions() -> list[Extension]:
    """Translate each Cython module to C and return what is to be compiled."""
    if flag("CONSENSUSPR_PURE_PYTHON") or not any(cython_files(r, ".pyx") for r in CYTHON_ROOTS):
        return []
    from Cython.Build import cythonize

    # A folder per variant: the C text depends on it.
    build_dir = Path("build") / f"cython-{variant()}"
    roots: tuple[Path, ...] = CYTHON_ROOTS
    if variant() == CHECKED:
        roots = (build_dir / "sources",)
        copy_with_checks_on(roots[0])
    modules = [
        Extension(
            ".".join(source.relative_to(root).with_suffix("").parts),
            [str(source)],
            depends=[str(path) for path in cython_files(root, *CYTHON_FILES)],
            include_dirs=sorted({str(path.parent) for path in cython_files(root, ".h")}),
            extra_compile_args=COMPILE_ARGS[variant()],
            extra_link_args=LINK_ARGS[variant()],
        )
        for root in roots
        for source in cython_files(root, ".pyx")
    ]
    translated: list[Extension] = cythonize(  # type: ignore[no-untyped-call]
        modules,
        build_dir=str(build_dir),
        compiler_directives=CHECK_SWITCHED_ON if variant() == CHECKED else {},
        include_path=[str(root) for root in roots],
    )
    for module in translated:  # cythonize makes new objects and drops this
        module.optional = not flag("CONSENSUSPR_REQUIRE_NATIVE")
    return translated


class OptionalBuildExt(build_ext):
    """Compile the extensions; where that fails, say so once and go on without them.

    Objects of another variant look up to date to setuptools, hence ``force`` whenever the
    flags are not the usual ones and a directory for objects per variant.
    """

    def finalize_options(self) -> None:
        super().finalize_options()
        self.build_temp = os.path.join(self.build_temp, variant())
        self.force = self.force or variant() != RELEASE

    def build_extension(self, ext: Extension) -> None:
        try:
            super().build_extension(ext)
        except (CompileError, LinkError, BaseError, OSError) as error:
            if not ext.optional:
                raise
            # A binary of older sources in the tree must not outlive them.
            if self.inplace or self.editable_mode:
                Path(self.get_ext_fullpath(ext.name)).unlink(missing_ok=True)
            reason = " ".join(str(error).split()) or type(error).__name__
            print(FALLBACK.format(reason=reason), file=sys.stderr)


# What consensusbench asks models with, and what its reports are made of.
_DATA = "prompts/*.txt assets/**/*"


def main() -> None:
    """Run setuptools with what pyproject.toml cannot say."""
    found = packages()
    # What stands in build/lib counts as built, and the next plain build would take it.
    apart = {} if variant() == RELEASE else {"build": {"build_base": f"build/{variant()}/base"}}
    setup(
        options=apart,
        packages=list(found),
        package_dir=found,
        package_data={
            name: f"py.typed *.pyi *.proto *.pxd *.pxi *.h *.overrides {_DATA}".split()
            for name in found
        },
        ext_modules=extensions(),
        cmdclass={"build_ext": OptionalBuildExt},
    )


if __name__ == "__main__":
    main()
