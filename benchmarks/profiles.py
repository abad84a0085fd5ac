"""Flame graphs of the whole step: ``python -m benchmarks.profiles --label before``.

:mod:`benchmarks.children.verl_step` does the work, py-spy looks at it with native frames; what it
saw is cleaned (no waiting, no interpreter, no nameless addresses) and drawn as a small SVG without
script, in which width is time and callers are below.

Needs py-spy (``consensuspr[bench]``), the right to look at other processes (root, or
``kernel.yama.ptrace_scope`` 0), and the environment with verl.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.harness import verl_python
from benchmarks.harness.measure import REPOSITORY

# A stack that holds one of these is a thread that waits, for work or for the interpreter's lock.
_WAITING = re.compile(
    r"^(epoll_wait|poll|select|accept4?|futex|sem_(timed)?wait|pthread_cond_(timed)?wait"
    r"|pthread_cond_clockwait|PyThread_acquire_lock_timed|take_gil|os_read(_impl)?|read|nanosleep"
    r"|clock_nanosleep|os_waitpid(_impl)?|wait4) \("
)
_ADDRESS = re.compile(r"^0x[0-9a-f]+ \((.*)\)$")
_LINE = re.compile(r":\d+\)$")
# The one part of the interpreter that is work of its own.
_COLLECTOR = "gc_collect_main"
_LIBRARY = re.compile(r"/(?:[^/]*site-packages|lib/python3\.\d+)/")

WIDTH, ROW, TOP, BOTTOM = 1200, 17, 34, 10
_LETTER = 6.3
# Narrower ones could not be seen, and are most of the file.
_NARROWEST = 1.0
# Of what a frame belongs to, by parts of its name; the first that fits.
_COLOURS = (
    ("garbage collection", "#b0a8b9"),
    ("core/", "#e4572e"),
    ("scoring/", "#f08a4b"),
    ("wire/", "#f6c667"),
    ("client/", "#f2a65a"),
    ("server/", "#f2a65a"),
    ("verl/", "#76b7b2"),
    ("grpc", "#8cb4e8"),
    ("", "#d9d9d9"),
)
# Native stacks hold the process up at each look; more of them would show the profiler.
_RATE = 100
_SIDES = {"client": "the trainer's process", "server": "the server"}


def cleaned(lines: Iterable[str]) -> Counter[tuple[str, ...]]:
    """Return how often each stack was seen at work, outermost frame first.

    Args:
        lines: of py-spy's ``raw`` format, ``frame;frame;frame count``.
    """
    counts: Counter[tuple[str, ...]] = Counter()
    for line in lines:
        text, _, count = line.rstrip().rpartition(" ")
        frames = text.split(";")
        if any(_WAITING.match(frame) for frame in frames):
            continue
        stack: list[str] = []
        for frame in frames:
            name = _named(frame)
            if name is not None and (not stack or stack[-1] != name):
                stack.append(name)
        if stack:
            counts[tuple(stack)] += int(count)
    return counts


def shares(counts: Counter[tuple[str, ...]]) -> list[tuple[float, str]]:
    """Return each frame's share of all samples, what it calls included, the largest first."""
    total = sum(counts.values())
    within: Counter[str] = Counter()
    for stack, count in counts.items():
        for frame in set(stack):
            within[frame] += count
    return [(count / total, frame) for frame, count in within.most_common()]


def _named(frame: str) -> str | None:
    """Return a frame as it is drawn; None: left out."""
    if frame.startswith(("process ", "thread (")):
        return None
    if frame.startswith(_COLLECTOR):
        return "garbage collection"
    if "(libpython" in frame or ".c:" in frame or ".c.h:" in frame:
        return None
    address = _ADDRESS.match(frame)
    if address is not None and address[1].startswith("libc"):
        return None  # where every thread begins
    if address is not None:
        return address[1].rpartition("/")[2].split(".cpython")[0]
    return _LINE.sub(")", _LIBRARY.sub("", frame)).replace(".cpython-311-x86_64-linux-gnu", "")


@dataclass
class _Node:
    count: int = 0
    children: dict[str, _Node] = field(default_factory=dict)


def svg(counts: Counter[tuple[str, ...]], title: str) -> str:
    """Return the drawing of stacks, each with how often it was seen."""
    root = _Node()
    for stack, count in counts.items():
        node = root
        node.count += count
        for frame in stack:
            node = node.children.setdefault(frame, _Node())
            node.count += count
    scale = WIDTH / max(1, root.count)
    boxes = list(_boxes(root, 0.0, 0, scale))
    rows = 1 + max((level for _, _, level, _, _ in boxes), default=0)
    height = TOP + rows * ROW + BOTTOM
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}"'
        f' width="{WIDTH}" height="{height}" font-family="sans-serif" font-size="11">',
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
        f'<text x="8" y="20" font-size="14" fill="#222222">{escape(title)}</text>',
    ]
    for x, width, level, name, count in boxes:
        y = height - BOTTOM - (level + 1) * ROW
        share = f"{count / root.count:.1%}"
        fill = next(colour for part, colour in _COLOURS if part in name)
        lines.append(
            f"<g><title>{escape(name)}: {share}</title>"
            f'<rect x="{x:.1f}" y="{y}" width="{max(0.4, width - 0.4):.1f}" height="{ROW - 1}"'
            f' fill="{fill}"/>{_label(name, share, x, y, width)}</g>'
        )
    return "\n".join([*lines, "</svg>", ""])


def _boxes(
    node: _Node, x: float, level: int, scale: float
) -> Iterator[tuple[float, float, int, str, int]]:
    for name, child in sorted(node.children.items()):
        width = child.count * scale
        if width >= _NARROWEST:
            yield x, width, level, name, child.count
            yield from _boxes(child, x, level + 1, scale)
        x += width


def _label(name: str, share: str, x: float, y: int, width: float) -> str:
    letters = int((width - 6) / _LETTER)
    if letters < 4:
        return ""
    text = f"{name} {share}"
    if len(text) > letters:
        text = name if len(name) <= letters else name[: letters - 1] + "…"
    return f'<text x="{x + 3:.1f}" y="{y + 12}" fill="#222222">{escape(text)}</text>'


def main(
    label: Annotated[str, typer.Option(help="End of the pictures' names.")],
    output: Annotated[
        Path, typer.Option(file_okay=False, help="Folder for the pictures.")
    ] = REPOSITORY / "build" / "profiles",
    data: Annotated[
        Path | None, typer.Option(exists=True, file_okay=False, help="Folder with rollouts/.")
    ] = None,
    seconds: Annotated[int, typer.Option(min=1, help="How long to look.")] = 20,
) -> None:
    """Draw flame-client-LABEL.svg and flame-server-LABEL.svg and print where the time goes."""
    spy = shutil.which("py-spy")
    python = verl_python.interpreter()
    if spy is None or python is None:
        lacking = "py-spy" if spy is None else f"verl (run {verl_python.MAKE})"
        raise typer.BadParameter(f"a profile needs {lacking}")
    command = [str(python), "-m", "benchmarks.children.verl_step"]
    command += [] if data is None else [str(data.resolve())]
    with (
        tempfile.TemporaryDirectory() as folder,
        subprocess.Popen(
            command, cwd=REPOSITORY, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as work,
    ):
        assert work.stdin is not None and work.stdout is not None  # pipes were asked for
        words = work.stdout.readline().split()
        if words[:1] != ["ready"]:
            raise typer.Exit(1)  # it has said why
        looks = []
        for side, pid in zip(_SIDES, words[1:], strict=True):
            # The server is a process of its own below the trainer's, and has workers below it.
            options = ["--subprocesses"] if side == "server" else []
            options += ["--native", "--rate", str(_RATE), "--format", "raw"]
            options += ["--duration", str(seconds), "--pid", pid]
            options += ["--output", str(Path(folder) / side)]
            looks.append(
                subprocess.Popen(
                    [spy, "record", *options],
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.PIPE,
                    text=True,
                )
            )
        said = [look.communicate()[1] for look in looks]
        work.stdin.close()
        for look, text in zip(looks, said, strict=True):
            if look.returncode:
                typer.echo(text, err=True)
                raise typer.Exit(1)
        output.mkdir(parents=True, exist_ok=True)
        for side, what in _SIDES.items():
            with (Path(folder) / side).open(encoding="utf-8") as lines:
                counts = cleaned(lines)
            path = output / f"flame-{side}-{label}.svg"
            title = f"A whole step, {what}, {label} ({sum(counts.values())} samples at work)"
            path.write_text(svg(counts, title), encoding="utf-8")
            typer.echo(f"{path.name}, {path.stat().st_size / 1024:.0f} KiB")
            for share, frame in shares(counts)[:40]:
                typer.echo(f"  {share:6.1%}  {frame}")


if __name__ == "__main__":
    typer.run(main)
