"""The command line's options, and the values they become."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING, get_args

import engine
from engine.config import (
    DEFAULT_MAX_SEQUENCES,
    DEFAULT_MAX_TOKENS,
    MAX_DEFAULT_CONTEXT_TOKENS,
    data_folder,
)
from engine.domain import LinkPrecision
from engine.errors import UsageError
from engine.messages.hidden_states import hidden_precision
from engine.messages.limits import MAX_SEQUENCES
from engine.messages.pool_control import LoadModel
from engine.models.shown_path import shown_path

if TYPE_CHECKING:
    from engine.domain import ComputeMode

_SAMPLING_OPTIONS: tuple[tuple[str, type, str], ...] = (
    ("temperature", float, "0 is greedy (the default)"),
    ("top-k", int, "keep the k likeliest tokens; 0 is off"),
    ("top-p", float, "keep the likeliest tokens up to this share; 1 is off"),
    ("min-p", float, "drop tokens below this share of the likeliest; 0 is off"),
    ("repetition-penalty", float, "above 1 discourages what prompt and answer hold already"),
    ("presence-penalty", float, "discourages what the answer holds already"),
    ("frequency-penalty", float, "discourages by how often the answer holds it"),
    ("seed", int, "the same seed gives the same answer"),
)

_ANSWERED_BY = (
    "The pool answers, where a node of Daisy runs on this PC. Options that say which model is to "
    "answer or how (--model, --stages, --cuts, --kind, --exact, --link-precision, --context, "
    "--threads, --port, --draft) make a chain on this PC alone instead, as does a PC without a "
    "node."
)


_CONTEXT = (
    "tokens a chat may have, answer included; what the model takes where left out, "
    f"{MAX_DEFAULT_CONTEXT_TOKENS} at most"
)


_DRAFT = (
    "a small model with the same vocabulary, a folder with an OpenVINO IR, that guesses what the "
    "model will write and makes answers faster; none for no such model; Daisy's own where it "
    "fits, if left out"
)


def _text(word: str) -> str:
    """Return a word of the command line as text, which is UTF-8 whatever the locale says."""
    return os.fsencode(word).decode("utf-8", "replace")


class _Parser(argparse.ArgumentParser):
    """Raises instead of exiting, so that every error leaves by one door."""

    def error(self, message: str) -> None:  # type: ignore[override]
        raise UsageError(f"{message[0].upper()}{message[1:]}.", f"See {self.prog} --help.")


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of ``daisy``."""
    parser = _Parser(prog="daisy", description="Runs a language model over several PCs.")
    parser.add_argument("--version", action="version", version=f"daisy {engine.__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    split = commands.add_parser("split", help="cut a model into shards")
    split.add_argument("model", metavar="MODEL", help="a folder with an OpenVINO IR, or a GGUF")
    split.add_argument("--out", type=Path, required=True, metavar="DIR", help="the folder to make")
    _add_common(split)
    _add_division(split)
    ask = commands.add_parser("ask", help="ask one question")
    ask.add_argument("question", nargs="?", type=_text, metavar="QUESTION")
    ask.add_argument("--request", type=Path, metavar="FILE", help="a JSON body instead")
    ask.add_argument("--raw", action="store_true", help="continue the text; no chat template")
    chat = commands.add_parser("chat", help="talk, turn by turn")
    demo = commands.add_parser("demo", help="the main job, start to finish, with figures")
    demo.add_argument(
        "question", nargs="?", type=_text, default="Why is the sky blue?", metavar="QUESTION"
    )
    demo.add_argument("--max-tokens", type=int, default=64, metavar="N", help="of the answer")
    demo.add_argument("--model", metavar="MODEL", help="a model; the embedded one if left out")
    _add_common(demo)
    _add_node(commands.add_parser("node", help="make this PC part of the pool"))
    status = commands.add_parser("status", help="how the pool looks from this PC")
    status.add_argument("--watch", action="store_true", help="again every second, until Ctrl-C")
    _add_common(status)
    _add_common(
        commands.add_parser("doctor", help="find what is wrong: network, firewall, devices")
    )
    _add_load(commands)
    _add_roster(commands)
    _add_own_pc(commands)
    for command in (ask, chat):
        command.description = _ANSWERED_BY
        command.add_argument("--model", metavar="MODEL", help="a model or a folder of shards")
        _add_common(command)
        _add_division(command)
        _add_chain(command)
        _add_sampling(command)
    return parser


def _add_load(commands: argparse._SubParsersAction[_Parser]) -> None:
    load = commands.add_parser(
        "load",
        help="have the pool run a model",
        description="Divides a model among the PCs of the pool and shows how far that is. Ctrl-C "
        "stops showing; once the plan is there the pool goes on, until daisy unload.",
    )
    load.add_argument(
        "model", nargs="?", metavar="MODEL", help="a folder or a GGUF; the embedded one if left out"
    )
    load.add_argument("--context", type=int, metavar="N", help=_CONTEXT)
    load.add_argument(
        "--users",
        type=int,
        default=DEFAULT_MAX_SEQUENCES,
        metavar="N",
        help=f"answers at the same time; {DEFAULT_MAX_SEQUENCES} where left out",
    )
    load.add_argument(
        "--private",
        action="store_true",
        help="the first and the last stage stay on this PC, so that no other sees the text",
    )
    load.add_argument(
        "--no-speculation",
        action="store_true",
        help="guess ahead for nobody; for pools so busy that others' tokens fill every pass",
    )
    _add_how(load)
    _add_common(load)
    unload = commands.add_parser("unload", help="have the pool run nothing")
    _add_common(unload)


def _add_roster(commands: argparse._SubParsersAction[_Parser]) -> None:
    invite = commands.add_parser("invite", help="let one more PC into the pool")
    invite.add_argument("--link", action="store_true", help="a link, for a PC without a screen")
    invite.add_argument(
        "--member", action="store_true", help="that PC may not let in or remove others"
    )
    join = commands.add_parser("join", help="join the pool of another PC")
    join.add_argument("code", nargs="*", type=_text, metavar="CODE", help="or link; else asked for")
    join.add_argument("--at", metavar="HOST:PORT", help="of the PC that shows the code")
    pcs = commands.add_parser("pcs", help="who is in the pool")
    rename = commands.add_parser("rename", help="call a PC otherwise, everywhere")
    remove = commands.add_parser("remove", help="remove a PC, everywhere and at once")
    for command in (rename, remove):
        command.add_argument("pc", type=_text, metavar="PC", help="its name, or how its id begins")
    rename.add_argument("name", type=_text, metavar="NAME", help="the new one")
    leave = commands.add_parser("leave", help="leave the pool, with a new key")
    for command in (invite, join, pcs, rename, remove, leave):
        _add_common(command)


def _add_own_pc(commands: argparse._SubParsersAction[_Parser]) -> None:
    lend = commands.add_parser("lend", help="when this PC lends itself to the pool")
    lend.add_argument(
        "rule",
        nargs="?",
        choices=("now", "idle", "never"),
        help="idle needs the window, which sees whether somebody is here; asked where left out",
    )
    lend.add_argument("--pause", type=float, metavar="MINUTES", help="lend nothing for so long")
    lend.add_argument("--on-battery", choices=("yes", "no"), help="whether it lends then too")
    models = commands.add_parser("models", help="which models this PC keeps")
    drop = commands.add_parser("drop", help="take a model off this PC's disk")
    drop.add_argument("model", type=_text, metavar="MODEL", help="as daisy models shows it")
    drop.add_argument("--everywhere", action="store_true", help="off every PC that is there")
    for command in (lend, models, drop):
        _add_common(command)


def _add_common(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--data",
        type=Path,
        metavar="DIR",
        help=f"where models and shards are kept; {data_folder()} where left out",
    )
    command.add_argument("--json", action="store_true", help="lines of JSON on standard output")


def _add_node(node: argparse.ArgumentParser) -> None:
    node.add_argument("--name", type=_text, help="as the others are shown it")
    node.add_argument("--memory", metavar="SIZE", help="lend at most this much: 6GiB")
    node.add_argument("--port", type=int, default=0, metavar="N", help="to listen on")
    node.add_argument(
        "--interface",
        action="append",
        default=[],
        metavar="NAME",
        help="the only network to use; may be given again",
    )
    node.add_argument(
        "--peer",
        action="append",
        default=[],
        metavar="HOST:PORT",
        help="a PC that is not found by itself; may be given again",
    )
    node.add_argument("--draft", type=_text, metavar="MODEL", help=_DRAFT)
    node.add_argument("--until-stdin-closes", action="store_true", help=argparse.SUPPRESS)
    _add_common(node)


def _add_division(command: argparse.ArgumentParser) -> None:
    group = command.add_mutually_exclusive_group()
    group.add_argument("--stages", type=int, metavar="N", help="how many shards")
    group.add_argument("--cuts", metavar="L,L", help="the layers to cut before: 10,20")


def _add_how(command: argparse.ArgumentParser) -> None:
    command.add_argument("--kind", choices=["paged", "stateful"], help="how stages run")
    command.add_argument("--exact", action="store_true", help="f32 everywhere: reference tokens")
    command.add_argument(
        "--link-precision",
        choices=get_args(LinkPrecision),
        help="of what goes from PC to PC; auto, where left out, is f32 with --exact and else f16; "
        "int8, for slow links, takes a quarter of the bytes of f32, and answers differ slightly",
    )


def _add_chain(command: argparse.ArgumentParser) -> None:
    _add_how(command)
    command.add_argument("--context", type=int, metavar="N", help=_CONTEXT)
    command.add_argument("--threads", type=int, metavar="N", help="of each stage")
    command.add_argument("--port", type=int, default=0, metavar="N", help="of the first node")
    command.add_argument("--draft", type=_text, metavar="MODEL", help=_DRAFT)


def _add_sampling(command: argparse.ArgumentParser) -> None:
    command.add_argument("--system", type=_text, metavar="TEXT", help="the system prompt")
    command.add_argument(
        "--max-tokens",
        type=int,
        metavar="N",
        help=f"of the answer; {DEFAULT_MAX_TOKENS} where left out",
    )
    command.add_argument("--stop", action="append", type=_text, default=[], metavar="TEXT")
    command.add_argument(
        "--no-speculation",
        action="store_true",
        help="do not guess ahead; with --exact, and on paged CPU stages, the answer is the same",
    )
    command.add_argument("--ignore-eos", action="store_true", help=argparse.SUPPRESS)
    for name, kind, text in _SAMPLING_OPTIONS:
        command.add_argument(f"--{name}", type=kind, metavar="X", help=text)


def sampling_fields(given: argparse.Namespace) -> dict[str, object]:
    """Return the sampling options a person gave, by their names in a request's body."""
    names = [name.replace("-", "_") for name, _, _ in _SAMPLING_OPTIONS]
    return {name: value for name in names if (value := getattr(given, name)) is not None}


def wants_own_chain(given: argparse.Namespace) -> bool:
    """Return whether something was given that only a chain of the command's own can follow.

    Args:
        given: Parsed options of ``ask`` or ``chat``.
    """
    chain = (given.model, given.stages, given.cuts, given.kind, given.context, given.threads)
    chosen = (*chain, given.draft, given.link_precision)
    return any(option is not None for option in chosen) or given.exact or given.port != 0


def load_request(given: argparse.Namespace) -> LoadModel:
    """Return what the pool is asked to run.

    Args:
        given: Parsed options of ``load``.

    Raises:
        UsageError: The context or the number of users makes no sense, exact mode is to send less
            than f32, or the model is a pattern.
    """
    if given.context is not None and given.context < 2:
        raise UsageError(f"--context is {given.context}; it must be 2 or more.")
    if given.users < 1:
        raise UsageError(f"--users is {given.users}; it must be 1 or more.")
    if given.users > MAX_SEQUENCES:
        raise UsageError(f"--users is {given.users}; it must be at most {MAX_SEQUENCES}.")
    mode, links = compute_choices(given)
    refuse_pattern(given.model)
    # The node may have been started anywhere.
    source = None if given.model is None else shown_path(Path(given.model).absolute())
    return LoadModel(
        source=source,
        context_tokens=given.context,
        max_sequences=given.users,
        kind=given.kind,
        mode=mode,
        is_private=given.private,
        link_precision=links,
        speculate=not given.no_speculation,
    )


def compute_choices(given: argparse.Namespace) -> tuple[ComputeMode, LinkPrecision]:
    """Return the mode of a model's stages, and what they send their hidden states in.

    Args:
        given: Parsed options.

    Raises:
        UsageError: The two do not go together.
    """
    mode: ComputeMode = "exact" if given.exact else "fast"
    links: LinkPrecision = given.link_precision or "auto"
    hidden_precision(mode, links)
    return mode, links


def refuse_pattern(source: str | None) -> None:
    """Return if a model's path is none that a shell left as it was because nothing matches it.

    Args:
        source: As a person named it; None for the embedded model.

    Raises:
        UsageError: It is a pattern.
    """
    if source is not None and any(c in source for c in "*?[") and not Path(source).exists():
        raise UsageError(
            f"{shown_path(source)} is a pattern, and nothing here matches it.",
            "Name one folder or file.",
        )


def data_dir(given: argparse.Namespace) -> Path:
    """Return Daisy's data folder, as given or the platform's."""
    return (given.data or data_folder()).absolute()
