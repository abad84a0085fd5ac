"""`python -m examples.smollm2`: train with two rewards, report."""

from __future__ import annotations

import json
import os
import platform
import time
from collections import defaultdict
from dataclasses import asdict
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
from .training import SMOKE, Actor, Problems, Settings, fine_tune, train

COMPARED = ("outcome", "linear")
# Of the last steps, the mean in training.
LAST = 20
Results = dict[str, Any]

app = typer.Typer(add_completion=False, no_args_is_help=True)


@app.command()
def run(
    gsm8k: Annotated[Path, typer.Option(help="GSM8K's train.jsonl (question, answer).")],
    output: Annotated[Path, typer.Option(help="File of results, JSON; rewritten at each step.")],
    model: Annotated[Path | None, typer.Option(help="GGUF file or folder of the model.")] = None,
    seeds: Annotated[int, typer.Option(help="Pairs of runs.")] = 1,
    minutes: Annotated[float, typer.Option(help="Begin no pair that would end later.")] = 1e9,
    smoke: Annotated[bool, typer.Option(help="A few small steps, as a test.")] = False,
) -> None:
    """Fine-tune, then train with each reward from the same start, step by step side by side.

    Without --model, a tiny random model is trained.
    """
    began = time.monotonic()
    settings = SMOKE if smoke else Settings()
    theirs, tokens = load(model) if model else tiny(seed=0)
    cuda = torch.cuda.is_available()
    torch.set_default_device("cuda" if cuda else "cpu")
    torch.set_float32_matmul_precision("high")
    problems = Problems.split(read(gsm8k), tokens, settings)
    results: Results = {
        "machine": torch.cuda.get_device_name() if cuda else f"{platform.machine()}, CPU",
        "torch": torch.__version__,
        "cores": os.cpu_count(),
        "model": model.name if model else "tiny",
        "settings": asdict(settings),
        "problems": {name: len(part) for name, part in vars(problems).items()},
        "tuning": [],
        "runs": [],
    }
    with TemporaryDirectory() as folder:
        dataset = Path(folder) / "gsm8k.jsonl"
        with open_writer(dataset) as out:
            for problem in (*problems.train, *problems.held_out):
                out.write(problem_to_row(problem))
        with LocalClient({str(Nodes.AUTHOR): dataset}) as client:
            end = tokens.response("")[-1]
            actors = {
                arm: Actor(
                    Sampler(
                        Llama(theirs).to(torch.get_default_device()),
                        end, settings.rows, settings.longest, settings.max_tokens,
                    ),
                    tokens, client,
                )
                for arm in COMPARED
            }  # fmt: skip
            start = actors[COMPARED[0]].sampler.model
            say(began, f"{len(problems.train)} problems to train on")
            for look in fine_tune(actors[COMPARED[0]], start, problems, settings):
                say(began, f"fine-tuning {shown(look)}")
                results["tuning"].append(rounded(look))
                write(output, results)
            results["tuning_seconds"] = round(time.monotonic() - began, 1)
            weights = {name: value.clone() for name, value in start.state_dict().items()}
            longest = 0.0
            for seed in range(seeds):
                pair_began = time.monotonic()
                if pair_began - began + longest > 60 * minutes:
                    say(began, f"no time for seed {seed}")
                    break
                runs = []
                for arm, actor in actors.items():
                    actor.sampler.model.load_state_dict(weights)
                    row: Results = {"run": {"arm": arm, "seed": seed}}
                    results["runs"].append(row)
                    runs.append((row, train(actor, ARMS[arm], problems, settings, seed)))
                # A limit of time cuts both off at the same step.
                for events in zip(*(steps for _, steps in runs), strict=True):
                    for (row, _), (kind, figures) in zip(runs, events, strict=True):
                        add(row, kind, rounded(figures))
                        name = f"{row['run']['arm']} {seed}"
                        say(began, f"{name} {kind} {shown(figures)}")
                    write(output, results)
                longest = max(longest, time.monotonic() - pair_began)
    typer.echo(report_of(results))


@app.command()
def report(file: Annotated[Path, typer.Argument(help="Results of `run`.")]) -> None:
    """Print the table of complete runs."""
    typer.echo(report_of(json.loads(file.read_text())))


def add(row: Results, kind: str, figures: dict[str, float]) -> None:
    """Add figures to a row: the last ones as they are, others to the columns of their kind."""
    if kind == "final":
        row[kind] = figures
        return
    columns = row.setdefault(kind, defaultdict(list))
    for name, value in figures.items():
        columns[name].append(value)


def report_of(results: Results) -> str:
    """Return the table of the runs that ended, as Markdown."""
    body = []
    for row in results["runs"]:
        if "final" not in row:
            continue
        final, trained = row["final"], row["train"]
        shares = (
            area(row), final["greedy"], final["acc"], final["throughout"], final["ncr"],
            fmean(trained["acc"][-LAST:]), fmean(trained["ncr"][-LAST:]),
        )  # fmt: skip
        body.append(
            (
                f"{row['run']['seed']}", row["run"]["arm"],
                " ".join(f"{100 * value:.1f}" for value in row["curve"]["greedy"]),
                *(f"{value:.1%}" for value in shares),
                f"{final['tokens']:.0f}", f"{fmean(trained['seconds']):.1f}",
            )
        )  # fmt: skip
    head = (
        "seed", "reward", f"greedy Acc by {results['settings']['curve_every']} steps, %",
        "mean height", "greedy Acc", "sampled Acc", "right throughout", "NCR",
        f"Acc, last {LAST} steps", "NCR in training", "tokens", "s a step",
    )  # fmt: skip
    return f"{results['machine']}, torch {results['torch']}\n\n{table(head, body, 2)}"


def rounded(figures: dict[str, float]) -> dict[str, float]:
    return {name: round(value, 5) for name, value in figures.items()}


def shown(figures: dict[str, float]) -> str:
    return " ".join(f"{name} {value:.4g}" for name, value in figures.items())


def say(began: float, text: str) -> None:
    print(f"[{time.monotonic() - began:.0f} s] {text}", flush=True)


def write(path: Path, results: Results) -> None:
    with atomic_file(path) as out:
        out.write(json.dumps(results).encode())


if __name__ == "__main__":
    app()
