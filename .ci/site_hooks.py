"""Hooks of mkdocs and griffe: home page, links out of docs/, addresses, docstrings.

A link to a file outside docs/ becomes a link into the repository if pyproject.toml has the
repository's address ([project.urls] Repository), and plain text with the path if it has not.
"""

import inspect
import logging
import posixpath
import re
import tomllib
from pathlib import Path

from griffe import Docstring, Extension
from mkdocs.structure.files import File

ROOT = Path(__file__).resolve().parents[1]
URLS = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"].get("urls", {})
REPOSITORY = URLS.get("Repository", "").rstrip("/")
LINK = re.compile(r"(?<!!)\[([^\]\[]+)\]\(([^)\s:]+)\)")
FENCED = re.compile(r"^```.*?^```$", re.M | re.S)

log = logging.getLogger("mkdocs.consensuspr")


# What docstrings have of reStructuredText, as HTML has it.
ROLE = re.compile(r":(?:class|func|meth|mod|data|attr|exc):<code>~?(?:\w+\.)*(\w+)</code>")


def on_config(config):
    config.repo_url = REPOSITORY or None
    config.site_url = URLS.get("Documentation") or None
    # A site on a server has .../guides/serve/; without one, files that open by themselves.
    config.use_directory_urls = bool(config.site_url)
    if not REPOSITORY:
        print(
            "no [project.urls] Repository in pyproject.toml: links out of docs/ become plain text"
        )
    return config


def on_files(files, config):
    """Add the README as index.md, with its links as docs/ has them."""
    text = ROOT.joinpath("README.md").read_text("utf-8")
    text = re.sub(r"\]\((?![\w+]+:)([^)]+)\)", lambda m: f"](../{m[1]})", text).replace(
        "](../docs/", "]("
    )
    files.append(File.generated(config, "index.md", content=text))
    return files


def on_page_markdown(markdown, page, config, files):
    """Rewrite the links of a page that lead out of docs/; code stays as it is."""
    folder = posixpath.dirname(f"docs/{page.file.src_uri}")

    def rewrite(link):
        label, target = link.groups()
        path, _, anchor = target.partition("#")
        path = posixpath.normpath(posixpath.join(folder, path)) if path else "docs/"
        if f"{path}/".startswith("docs/"):
            return link[0]
        if not (ROOT / path).exists():
            log.warning("%s: no file %s in the repository", page.file.src_uri, path)
        if REPOSITORY:
            return f"[{label}]({REPOSITORY}/blob/main/{path}{anchor and '#' + anchor})"
        return label if path in label else f"{label} (`{path}` in the repository)"

    parts = []
    end = 0
    for code in FENCED.finditer(markdown):
        parts += [LINK.sub(rewrite, markdown[end : code.start()]), code[0]]
        end = code.end()
    return "".join([*parts, LINK.sub(rewrite, markdown[end:])])


def on_page_content(html, page, config, files):
    """Drop the roles of docstrings, and the second colon before an indented example."""
    html = html.replace("<p>::</p>", "").replace("::</p>", ":</p>")
    return ROLE.sub(r"<code>\1</code>", html)


# Functions, properties and classes of a .pyx, each with its docstring.
COMPILED = re.compile(
    r'^ *(?:def|cdef class) (\w+)(?:(?!\n *c?def )[^"])*?:\n +"""(.*?)"""', re.M | re.S
)


class Comments(Extension):
    """Takes docstrings from elsewhere: of a field the comment behind it, of a stub the .pyx.

    The docstring of an enumeration gets its values.
    """

    def on_instance(self, *, obj, **_):
        source = obj.filepath.with_suffix(".pyx")
        if obj.filepath.suffix == ".pyi" and source.exists() and not obj.is_module:
            text = dict(COMPILED.findall(source.read_text("utf-8"))).get(obj.name)
            obj.docstring = text and Docstring(inspect.cleandoc(text), parent=obj)

    def on_class_members(self, *, cls, **_):
        if cls.docstring and any(str(base).endswith("Enum") for base in cls.bases):
            values = (str(each.value).strip("'\"") for each in cls.attributes.values())
            cls.docstring.value += f"\n\nValues: {', '.join(f'`{value}`' for value in values)}."

    def on_attribute_instance(self, *, attr, **_):
        documented = attr.parent.docstring and "Attributes:" in attr.parent.docstring.value
        if attr.docstring is None and attr.parent.is_class and not documented:
            _, _, comment = attr.lines_collection[attr.filepath][attr.lineno - 1].partition("  # ")
            if comment:
                text = f"{comment[:1].upper()}{comment[1:].rstrip('.')}."
                attr.docstring = Docstring(text, lineno=attr.lineno, parent=attr)
