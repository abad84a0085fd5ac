"""Build consensuspr: four source roots, one optional compiled core.

``pyproject.toml`` has the static metadata.  This file gathers the packages of four roots into the
namespace package ``consensuspr``, makes the README's links absolute, and compiles extensions that
may fail without failing the install.  Environment variables read at build time:

``CONSENSUSPR_BUILD``
    ``release`` (default): ``-O2``, on which the normaliser is 3 % faster than on ``-O3``.
    ``checked``: every run-time check of Cython and the C assertions on.
    ``sanitize``: AddressSanitizer and UndefinedBehaviorSanitizer.
``CONSENSUSPR_REQUIRE_NATIVE=1``
    A compile that fails is an error instead of a warning.
``CONSENSUSPR_PURE_PYTHON=1``
    Build no extension.
"""

from __future__ import annotations

import os
import re
import sys
import tomllib
from pathlib import Path

from setuptools import Extension, find_namespace_packages, find_packages, setup
from setuptools.command.build_ext import build_ext
from setuptools.errors import BaseError, CompileError, LinkError

SOURCE_ROOTS = ("proto", "core_ext", "server", "client")
CYTHON_ROOT = Path("core_ext")
PACKAGE_DATA = (
    "py.typed *.pyi *.proto *.pxd *.pxi *.h *.overrides prompts/*.txt card.md assets/**/*".split()
)

# No -march=native: a wheel built on one machine must run on the next.  -fno-wrapv: Python is
# built with -fwrapv, which defines signed overflow, so that it is not reported.
_DEBUG = ["-O1", "-g", "-UNDEBUG", "-fno-wrapv"]
COMPILE_ARGS = {
    "release": ["-O2", "-g0"],
    "checked": [
        *_DEBUG,
        # Cython's own overflowcheck cannot translate constant expressions in enums.
        "-fsanitize=signed-integer-overflow,shift,bounds",
        "-fsanitize-undefined-trap-on-error",
    ],
    "sanitize": [
        *_DEBUG,
        "-fno-omit-frame-pointer",
        "-fsanitize=address,undefined",
        "-fno-sanitize-recover=undefined",
    ],
}
LINK_ARGS = {"sanitize": ["-fsanitize=address,undefined"]}

# ``checked`` switches on what a source file switches off for speed.  Directives in a file
# override those given to cythonize, hence a rewritten copy of the sources.
CHECK_SWITCHED_OFF = re.compile(r"\b(boundscheck|initializedcheck|nonecheck)(\s*[=(]\s*)False\b")

FALLBACK = (
    "WARNING: the compiled core of consensuspr could not be built ({reason}); "
    "installing without it, so scoring runs on the slower pure-Python core."
)


def variant() -> str:
    """Return the build variant that CONSENSUSPR_BUILD names."""
    name = os.environ.get("CONSENSUSPR_BUILD") or "release"
    if name not in COMPILE_ARGS:
        sys.exit(f"CONSENSUSPR_BUILD must be one of {', '.join(COMPILE_ARGS)}, got {name!r}")
    return name


def is_set(name: str) -> bool:
    """Return whether an environment variable has a value other than 0."""
    return os.environ.get(name, "0") not in ("", "0")


def packages() -> dict[str, str]:
    """Return every package with its directory, relative to this file."""
    found = {"consensuspr": "server/consensuspr"}
    for root in SOURCE_ROOTS:
        for name in find_namespace_packages(where=root, include=["consensuspr.*"]):
            found[name] = f"{root}/{name.replace('.', '/')}"
    for name in find_packages(include=["consensusbench", "consensusbench.*"]):
        found[name] = name.replace(".", "/")
    return found


def readme() -> str:
    """Return the README, its links absolute if pyproject.toml has the repository's address."""
    text = Path("README.md").read_text("utf-8")
    project = tomllib.loads(Path("pyproject.toml").read_text("utf-8"))["project"]
    repository = project.get("urls", {}).get("Repository", "").rstrip("/")
    if not repository:
        return text
    local = r"\]\((?![a-z]+:|#)"
    text = re.sub(rf"(!\[[^\]]*){local}", rf"\1]({repository}/raw/main/", text)
    return re.sub(local, f"]({repository}/blob/main/", text)


def cython_files(root: Path) -> list[Path]:
    """Return the files that extensions are made of."""
    suffixes = (".pyx", ".pxd", ".pxi", ".h")
    return sorted(path for path in root.rglob("*") if path.suffix in suffixes)


def copy_with_checks_on(target: Path) -> None:
    """Copy the Cython files to a folder, with all run-time checks switched on."""
    for source in cython_files(CYTHON_ROOT):
        copy = target / source.relative_to(CYTHON_ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(CHECK_SWITCHED_OFF.sub(r"\1\2True", source.read_text()))


def extensions() -> list[Extension]:
    """Translate each Cython module to C and return what is to be compiled."""
    if is_set("CONSENSUSPR_PURE_PYTHON"):
        return []
    from Cython.Build import cythonize

    # A folder per variant: the C text depends on it.
    build_dir, root = Path("build") / f"cython-{variant()}", CYTHON_ROOT
    if variant() == "checked":
        root = build_dir / "sources"
        copy_with_checks_on(root)
    checks = dict.fromkeys(("boundscheck", "initializedcheck", "nonecheck"), True)
    translated: list[Extension] = cythonize(  # type: ignore[no-untyped-call]
        [
            Extension(
                ".".join(source.relative_to(root).with_suffix("").parts),
                [str(source)],
                depends=list(map(str, cython_files(root))),
                include_dirs=sorted({str(path.parent) for path in root.rglob("*.h")}),
                extra_compile_args=COMPILE_ARGS[variant()],
                extra_link_args=LINK_ARGS.get(variant(), []),
            )
            for source in sorted(root.rglob("*.pyx"))
        ],
        build_dir=str(build_dir),
        include_path=[str(root)],
        compiler_directives=checks if variant() == "checked" else {},
    )
    for module in translated:  # cythonize makes new objects and drops this
        module.optional = not is_set("CONSENSUSPR_REQUIRE_NATIVE")
    return translated


class OptionalBuildExt(build_ext):
    """Compile the extensions; if that fails, print a warning and go on without them.

    Objects of another variant look up to date to setuptools: hence a directory of objects for
    each variant, and ``force`` for all but the release build.
    """

    def finalize_options(self) -> None:
        super().finalize_options()
        self.build_temp = os.path.join(self.build_temp, variant())
        self.force = self.force or variant() != "release"

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


def main() -> None:
    """Run setuptools with what pyproject.toml cannot express."""
    found = packages()
    # A plain build would take what stands in build/lib.
    base = {} if variant() == "release" else {"build": {"build_base": f"build/{variant()}/base"}}
    setup(
        options=base,
        long_description=readme(),
        long_description_content_type="text/markdown",
        packages=list(found),
        package_dir=found,
        package_data=dict.fromkeys(found, PACKAGE_DATA),
        ext_modules=extensions(),
        cmdclass={"build_ext": OptionalBuildExt},
    )


if __name__ == "__main__":
    main()
