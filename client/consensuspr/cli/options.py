"""Options that several commands share, and options made from settings."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable, Collection, Mapping
from enum import Enum, StrEnum
from pathlib import Path
from types import NoneType, UnionType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Final,
    Literal,
    TypeAlias,
    TypeVar,
    Union,
    get_args,
    get_origin,
)

import typer
from pydantic import BeforeValidator, ByteSize, Field

from consensuspr.console import ColorMode
from consensuspr.credentials import TOKEN_FILE_VARIABLE
from consensuspr.errors import InputError
from consensuspr.scoring.reward_options import OF_ONE_REWARD, RewardOptions
from consensuspr.scoring.rewards import RewardKind
from consensuspr.scoring.types import ScoreOptions
from consensuspr.settings import Setting, Settings, all_settings, load_settings, settings_template

if TYPE_CHECKING:
    from consensuspr.client import Access


# The panel of the options that few people need.
MORE: Final = "Less common options"

# Help of options that are settings of some commands.
ON_ERROR: Final = "At a bad row: stop and write nothing, or skip and count it."
COLOR: Final = "When to colour the output; auto: only on a terminal."
NO_PROGRESS: Final = "Show no progress bar."


def more_option(metavar: str, help: str, **limits: Any) -> Any:
    """Return an option of the panel :data:`MORE`; ``limits`` are typer's own arguments."""
    return typer.Option(metavar=metavar, help=help, rich_help_panel=MORE, **limits)


def flag(name: str, help: str, panel: str | None = None) -> Any:
    """Return an option without a value."""
    return typer.Option(name, metavar="", help=help, rich_help_panel=panel)


def seconds_option(help: str) -> Any:
    """Return an option of the panel :data:`MORE` that takes a time limit."""
    return more_option("SECONDS", help, min=0.001)


class OnErrorChoice(StrEnum):
    """What a bad row of a file does."""

    STOP = "stop"
    SKIP = "skip"


# help= speaks to a person who has read neither the paper nor this code.
RolloutsPath: TypeAlias = Annotated[
    Path, typer.Argument(metavar="ROLLOUTS", help="File of rollouts: JSONL, JSONL.gz or Parquet.")
]
RunFolder: TypeAlias = Annotated[
    Path,
    typer.Argument(metavar="RUN", help="Folder of a run with a score log."),
]
Address: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="HOST:PORT",
        help="Score with the server at this address, or with several, separated by commas.",
    ),
]
MoreAddress: TypeAlias = Annotated[
    str | None, more_option("HOST:PORT", "Score with the server at this address.")
]
# Rarer means of access (a client's certificate, public authorities) are variables alone.
TokenFile: TypeAlias = Annotated[
    Path | None,
    more_option("FILE", f"File with the token for the server. [default: ${TOKEN_FILE_VARIABLE}]"),
]
TlsCa: TypeAlias = Annotated[
    Path | None,
    more_option(
        "FILE",
        "CA certificates (PEM) of the server; turns TLS on. [default: $CONSENSUSPR_TLS_CA]",
    ),
]
DatasetChoice: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="PATH",
        help="Dataset with nodes and ground truths. With --address: the name of the server's "
        "dataset, or a file with the same content.",
    ),
]
OnErrorOption: TypeAlias = Annotated[
    OnErrorChoice,
    typer.Option(rich_help_panel=MORE, help=ON_ERROR),
]
Json: TypeAlias = Annotated[bool, flag("--json", "Print JSON instead of tables.", MORE)]
Color: TypeAlias = Annotated[ColorMode, typer.Option(rich_help_panel=MORE, help=COLOR)]
NoProgress: TypeAlias = Annotated[bool, flag("--no-progress", NO_PROGRESS, MORE)]


def access_of(address: str | None, token_file: Path | None, tls_ca: Path | None) -> Access | None:
    """Return the access to a server, None without an address.

    Raises:
        InputError: a file cannot be used.
    """
    if address is None:
        return None
    from consensuspr.client import Access

    return Access(token_file, tls_ca)


class RewardCommandSettings(RewardOptions):
    """How rollouts are scored and shown, for every command that scores some."""

    in_training = False

    epoch: int = Field(
        0, ge=0, description="Training epoch, counted from 0; the curriculum reward needs it."
    )
    timeout: float | None = Field(None, gt=0, description="Seconds for each call to the server.")
    color: ColorMode = Field(ColorMode.AUTO, description=COLOR)

    def check_options(self, given: Collection[str]) -> None:
        """Reject options of another reward."""
        for name, kind in OF_ONE_REWARD.items():
            if name in given and self.reward is not kind:
                option = f"--{name.replace('_', '-')}"
                raise InputError(
                    f"{option} is for --reward {kind}, and the reward is {self.reward}"
                )

    def options(self, *, spans: bool = False) -> ScoreOptions:
        """Return the options of the scorer; raise InputError if the curriculum has no epoch."""
        if self.reward is RewardKind.CURRICULUM and "epoch" not in self.model_fields_set:
            raise InputError("--reward curriculum depends on the epoch: give --epoch")
        return ScoreOptions(
            self.spec,
            self.epoch,
            answer_rule=self.answer_rule,
            on_undecided=self.on_undecided,
            include_spans=spans,
        )


# Options of RewardCommandSettings that every help shows, everyday ones and others.
REWARD_OPTIONS: Mapping[str, str | None] = {"reward": "NAME", "alpha": "SHARE", "epoch": "N"}
MORE_REWARD_OPTIONS: Mapping[str, str | None] = {
    "switch_epoch": "N",
    **dict.fromkeys(("guard", "statements", "after_think", "color")),
}

_ConfigFile: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FILE",
        rich_help_panel=MORE,
        help="TOML file of settings. Use --no-FLAG to override a flag set in the file.",
    ),
]

ResultT = TypeVar("ResultT")


def with_settings(
    model: type[Settings],
    *,
    prefix: str,
    shown: Mapping[str, str | None],
    more: Mapping[str, str | None] | None = None,
    unused: Collection[str] = (),
) -> Callable[[Callable[..., ResultT]], Callable[..., ResultT]]:
    """Give a command an option for every setting of a model, and the settings as one value.

    The command's keyword ``settings`` gets the checked ``model`` of ``--config FILE``, then the
    environment, then the command line.

    Args:
        model: what can be set; its descriptions are the help.
        prefix: of the environment variables, such as ``"CONSENSUSPR_SCORE"``.
        shown: settings that ``--help`` shows, in its order, with the metavar of each (None: its
            type); ``--list-settings`` prints all.
        more: settings that ``--help`` shows in the panel :data:`MORE`.
        unused: settings and groups that this command does not use.
    """
    known = all_settings(model)
    # Of two settings of one name the first is the option.
    options: dict[str, str] = {}
    more = more or {}
    for name in (*shown, *more, *known):
        is_used = name not in unused and name.partition(".")[0] not in unused
        if is_used and _option_type(known[name], model) is not None:
            options.setdefault(name.rpartition(".")[2], name)

    def print_template(wanted: bool) -> None:
        if wanted:
            typer.echo(settings_template(model, prefix=prefix), nl=False)
            raise typer.Exit

    listing = typer.Option(
        "--list-settings",
        metavar="",
        is_eager=True,
        callback=print_template,
        rich_help_panel=MORE,
        help="Print all settings as a TOML file to start from, and exit.",
    )

    def decorate(command: Callable[..., ResultT]) -> Callable[..., ResultT]:
        @functools.wraps(command)
        def run(config: Path | None, list_settings: bool, **given: Any) -> ResultT:
            # A repeated option that was not given is an empty list.
            overrides = {
                name: None if (value := given.pop(option)) == [] else value
                for option, name in options.items()
            }
            settings = load_settings(
                model, prefix=prefix, file=config, environment=os.environ, overrides=overrides
            )
            settings.check_options([name for name, value in overrides.items() if value is not None])
            return command(**given, settings=settings)

        parameters: list[inspect.Parameter] = []

        def add(name: str, annotation: Any, default: object = None) -> None:
            kind = inspect.Parameter.KEYWORD_ONLY
            parameters.append(inspect.Parameter(name, kind, default=default, annotation=annotation))

        # The settings stand in the help where the command has them among its own parameters.
        for own in inspect.signature(command, eval_str=True).parameters.values():
            if own.name != "settings":
                add(own.name, own.annotation, own.default)
                continue
            for option, name in options.items():
                panel = MORE if name in more else None
                metavar = shown.get(name) or more.get(name)
                hidden = name not in shown and name not in more
                kind = _option_type(known[name], model)
                add(option, _option(option, known[name], kind, metavar, panel, hidden=hidden))
        add("config", _ConfigFile)
        add("list_settings", Annotated[bool, listing], False)
        run.__annotations__ = {each.name: each.annotation for each in parameters}
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        return run

    return decorate


def _option(
    name: str, setting: Setting, kind: Any, metavar: str | None, panel: str | None, *, hidden: bool
) -> Any:
    """Return the annotation of a setting's option; None is "not given"."""
    # A default that is made may depend on the machine; its description says how.
    default = None if setting.field.default_factory else setting.default
    flag = "--" + name.replace("_", "-")
    # Lets the command line override a flag that a file or the environment sets.
    opposite = flag.replace("--no-", "--", 1) if flag.startswith("--no-") else f"--no-{flag[2:]}"
    flags = [f"{flag}/{opposite}" if kind is bool else flag]
    if get_origin(kind) is list and flag.endswith("s"):
        flags.append(flag.removesuffix("s"))  # given one at a time
    if isinstance(default, tuple | list):
        default = ", ".join(map(str, default))
    metavar = "" if kind is bool else metavar
    text = setting.field.description or ""
    if default not in (None, "", False):
        text += f" [default: {str(default).lower() if kind is bool else default}]"
    described = typer.Option(
        *flags, metavar=metavar, hidden=hidden, help=text, rich_help_panel=panel, show_default=False
    )
    return Annotated[kind | None, described]


def _option_type(setting: Setting, model: type[Settings]) -> Any:
    """Return the type of a setting as typer reads it; None where no option can give it."""
    if setting.name in model.read_words:
        return list[str]
    if any(isinstance(rule, BeforeValidator) for rule in setting.field.metadata):
        return str  # which the validator reads
    return _plain_type(setting.field.annotation)


def _plain_type(annotation: Any) -> Any:
    if get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin in (Union, UnionType):
        kinds = {_plain_type(part) for part in parts if part is not NoneType}
        return kinds.pop() if len(kinds) == 1 else str
    if origin in (list, tuple):
        kind = _plain_type(parts[0])
        return None if kind is None else list[kind]  # type: ignore[valid-type]
    if origin is Literal or annotation is ByteSize:
        return str
    if annotation in (str, int, float, bool, Path):
        return annotation
    return annotation if isinstance(annotation, type) and issubclass(annotation, Enum) else None
