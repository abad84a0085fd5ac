"""`python -m examples.smollm2`: train with two rewards, report."""

from __future__ import annotations

import json
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import torch
import typer

from benchmarks.markdown import table
from consensuspr.client import LocalClient
from consensuspr.data import atomic_file, open_writer, problem_to_row
from examples.study.nodes import Nodes
from examples.study.plan import ARMS, area

from .model import Llama, Sampler, load, tiny
from .problems import read
from .training import SMOKE, Actor, Figures, Problems, Settings, fine_tune, train

COMPARED = ("outcome", "linear")
# Steps of the last means in training.
LAST = 20
Results = dict[str, Any]

app = typer.Typer(add_completion=False, no_args_is_help=True)


@app.command()
def run(
    gsm8k: Annotated[Path, typer.Option(help="GSM8K's train.jsonl (question, answer).")],
    output: Annotated[Path, typer.Option(help="File of results, JSON; rewritten at each step.")],
    model: Annotated[Path | None, typer.Option(help="GGUF file or folder of the model.")] = None,
    seeds: Annotated[int, typer.Option(help="Pairs of runs.")] = 1,
    learning_rate: Annotated[float, typer.Option(help="Of GRPO.")] = Settings.learning_rate,
    smoke: Annotated[bool, typer.Option(help="A few small steps, as a test.")] = False,
) -> None:
    """Fine-tune, then train with each reward from the same start, step by step side by side.

    Without --model, a tiny random model is trained.
    """
    settings = replace(SMOKE if smoke else Settings(), learning_rate=learning_rate)
    theirs, tokens = load(model) if model else tiny(seed=0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.set_default_device(device)
    torch.set_float32_matmul_precision("high")
    problems = Problems.split(read(gsm8k), tokens, settings)
    results: Results = {
        "machine": torch.cuda.get_device_name() if device == "cuda" else platform.machine(),
        "torch": torch.__version__,
        "model": model.name if model else "tiny",
        "settings": asdict(settings),
        "problems": {name: len(part) for name, part in vars(problems).items()},
        "tuning": [],
        "runs": [],
    }

    def noted(name: str, figures: Figures) -> Figures:
        typer.echo(f"{name}: {' '.join(f'{key} {value:.4g}' for key, value in figures.items())}")
        return {key: round(value, 5) for key, value in figures.items()}

    def write() -> None:
        with atomic_file(output) as out:
            out.write(json.dumps(results).encode())

    with _scoring(problems) as client:
        end = tokens.response("")[-1]
        samplers = {
            arm: Sampler(
                Llama(theirs).to(device), end, settings.rows, settings.longest, settings.max_tokens
            )
            for arm in COMPARED
        }
        actors = {arm: Actor(sampler, tokens, client) for arm, sampler in samplers.items()}
        start = samplers[COMPARED[0]].model
        for look in fine_tune(actors[COMPARED[0]], problems, settings):
            results["tuning"].append(noted("fine-tuning", look))
            write()
        weights = {name: value.clone() for name, value in start.state_dict().items()}
        for seed in range(seeds):
            rows: list[Results] = [{"run": {"arm": arm, "seed": seed}} for arm in COMPARED]
            results["runs"] += rows
            for sampler in samplers.values():
                sampler.model.load_state_dict(weights)
            runs = [train(actors[arm], ARMS[arm], problems, settings, seed) for arm in COMPARED]
            # If the command is stopped, both have the same steps.
            for events in zip(*runs, strict=True):
                for row, (kind, figures) in zip(rows, events, strict=True):
                    found = noted(f"{row['run']['arm']} {seed} {kind}", figures)
                    if kind == "final":
                        row[kind] = found
                    else:
                        columns = row.setdefault(kind, {name: [] for name in found})
                        for name, value in found.items():
                            columns[name].append(value)
                write()
    typer.echo(report_of(results))


@contextmanager
def _scoring(problems: Problems) -> Iterator[LocalClient]:
    """Yield a client that has the problems, in this process."""
    with TemporaryDirectory() as folder:
        dataset = Path(folder) / "gsm8k.jsonl"
        with open_writer(dataset) as out:
            for problem in (*problems.train, *problems.held_out):
                out.write(problem_to_row(problem))
        with LocalClient({str(Nodes.AUTHOR): dataset}) as client:
            yield client


@app.command()
def report(file: Annotated[Path, typer.Argument(help="Results of `run`.")]) -> None:
    """Print the table of the runs that ended."""
    typer.echo(report_of(json.loads(file.read_text())))


def report_of(results: Results) -> str:
    """Return the table of the runs that ended, as Markdown."""
    body = []
    for row in (row for row in results["runs"] if "final" in row):
        final, trained, curve = row["final"], row["train"], row["curve"]
        shares = [final[name] for name in ("greedy", "greedy_ncr", "greedy_throughout", "acc")]
        shares += [fmean(trained[name][-LAST:]) for name in ("acc", "ncr")]
        greedy = " ".join(f"{100 * value:.1f}" for value in curve["greedy"])
        measured = [f"{value:.1%}" for value in (area(row), *shares)]
        sizes = [f"{final['tokens']:.0f}", f"{fmean(trained['seconds']):.1f}"]
        body.append([str(row["run"]["seed"]), row["run"]["arm"], greedy, *measured, *sizes])
    every = results["settings"]["curve_every"]
    head = ["seed", "reward", f"greedy Acc each {every} steps, %", "mean of the curve"]
    head += ["final greedy Acc", "greedy NCR", "right and all nodes", "sampled Acc"]
    head += [f"Acc in training, last {LAST} steps", "NCR there", "tokens", "seconds a step"]
    return f"{results['machine']}, torch {results['torch']}\n\n{table(head, body, 2)}"


if __name__ == "__main__":
    app()
