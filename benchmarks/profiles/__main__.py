"""``python -m benchmarks.profiles --label before``: flame graphs of the whole step.

Needs py-spy (``consensuspr[bench]``), the right to look at other processes (root, or
``kernel.yama.ptrace_scope`` 0), and the environment with verl.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.harness.measure import REPOSITORY
from benchmarks.profiles import flame, stacks
from benchmarks.suites import verl_python

# Native stacks hold the process up at each look; more of them would show the profiler.
_RATE = 100
_SIDES = {"client": "the trainer's process", "server": "the server"}


def main(
    label: Annotated[str, typer.Option(help="End of the pictures' names.")],
    output: Annotated[
        Path, typer.Option(file_okay=False, help="Folder for the pictures.")
    ] = REPOSITORY / "docs" / "images" / "profiles",
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
    command = [str(python), "-m", "benchmarks.profiles.workload"]
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
                counts = stacks.cleaned(lines)
            path = output / f"flame-{side}-{label}.svg"
            title = f"A whole step, {what}, {label} ({sum(counts.values())} samples at work)"
            path.write_text(flame.svg(counts, title), encoding="utf-8")
            typer.echo(f"{path.name}, {path.stat().st_size / 1024:.0f} KiB")
            for share, frame in stacks.shares(counts)[:40]:
                typer.echo(f"  {share:6.1%}  {frame}")


if __name__ == "__main__":
    typer.run(main)
