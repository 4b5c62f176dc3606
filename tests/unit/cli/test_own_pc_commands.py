"""``daisy lend``, ``models`` and ``drop``, with a node that does as told."""

from __future__ import annotations

import asyncio
import json

import pytest

from engine.cli import own_pc_commands
from engine.cli.arguments import build_parser
from engine.cli.output import Output
from engine.errors import ModelNotFoundError, UsageError
from engine.messages.own_pc_control import (
    AskLending,
    DropModel,
    LendingReport,
    ListModels,
    ModelLine,
    ModelsListed,
    SetLending,
)
from tests.unit.cli.fake_node import running

LENT = LendingReport(rule="now", is_lending=True, paused_for_s=None, is_alone=False)
SMALL = ModelLine(
    model_sha256="ab" * 32, name="Small", num_layers=4, num_bytes=98_000_000, is_in_use=True
)
OTHER = ModelLine(
    model_sha256="abcd" * 16, name="Lar\x1bge", num_layers=40, num_bytes=8 * 10**9, is_in_use=False
)
ANSWERS = {
    AskLending: LENT,
    SetLending: LENT,
    ListModels: ModelsListed(models=(SMALL, OTHER)),
    DropModel: ModelsListed(models=(OTHER,), freed_bytes=98_000_000),
}


def run(data, *words, answers=None, as_json=False):
    """Run a command; return what the node heard."""

    async def script(message, send):
        await send((ANSWERS | (answers or {}))[type(message)])

    async def work():
        given = build_parser().parse_args([*words, "--data", str(data)])
        command = getattr(own_pc_commands, f"{words[0]}_command")
        async with running(data, script) as node:
            await command(given, Output(as_json=as_json))
            return node.heard

    return asyncio.run(work())


def test_what_holds_is_told_and_nothing_changed_by_asking(tmp_path, capfd):
    assert run(tmp_path, "lend") == [AskLending()]
    assert capfd.readouterr().out == "This PC lends itself.\n"


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (("never",), SetLending(rule="never")),
        (("--pause", "60"), SetLending(pause_s=3600.0)),
        (("now", "--pause", "0"), SetLending(rule="now", pause_s=0.0)),
        (("--on-battery", "no"), SetLending(mains_only=True)),
        (("--on-battery", "yes"), SetLending(mains_only=False)),
    ],
)
def test_a_rule_and_a_pause_are_told_to_the_node(tmp_path, words, wanted):
    assert run(tmp_path, "lend", *words) == [wanted]


@pytest.mark.parametrize(
    ("report", "lines"),
    [
        (
            LendingReport(rule="now", is_lending=False, paused_for_s=1800.0, is_alone=False),
            ["This PC lends itself.", "Paused for 30 min 0 s."],
        ),
        (
            LendingReport(
                rule="now",
                is_lending=False,
                paused_for_s=None,
                is_alone=False,
                mains_only=True,
                on_battery=True,
            ),
            ["This PC lends itself.", "Not while it runs on its battery. It is now."],
        ),
        (
            LendingReport(rule="never", is_lending=True, paused_for_s=None, is_alone=True),
            [
                "This PC does not lend itself.",
                "It is alone in its pool, so it lends to nobody, and nothing is held back.",
            ],
        ),
        (
            LendingReport(rule="idle", is_lending=True, paused_for_s=None, is_alone=False),
            [
                "This PC lends itself while nobody uses it, as Daisy's window sees it.",
                "It is lent now.",
            ],
        ),
        (
            LendingReport(rule="idle", is_lending=False, paused_for_s=None, is_alone=False),
            [
                "This PC lends itself while nobody uses it, as Daisy's window sees it.",
                "It is not lent now.",
            ],
        ),
    ],
)
def test_a_report_is_sentences(tmp_path, capfd, report, lines):
    run(tmp_path, "lend", answers={AskLending: report})
    assert capfd.readouterr().out.splitlines() == lines


def test_a_pause_of_less_than_nothing_is_refused(tmp_path):
    with pytest.raises(UsageError, match="shorter than nothing"):
        run(tmp_path, "lend", "--pause", "-1")


def test_models_are_a_table_harmless_to_the_terminal(tmp_path, capfd):
    run(tmp_path, "models")
    first, second = capfd.readouterr().out.splitlines()
    assert first.split() == ["abababababab", "Small", "98.0", "MB", "loaded"]
    assert second.startswith("abcdabcdabcd")
    assert "\x1b" not in second
    run(tmp_path, "models", answers={ListModels: ModelsListed(models=())})
    assert capfd.readouterr().out == "This PC keeps no model.\n"


def test_a_model_is_dropped_by_its_name_or_the_beginning_of_its_hash(tmp_path, capfd):
    heard = run(tmp_path, "drop", "Small")
    assert heard == [ListModels(), DropModel(model_sha256=SMALL.model_sha256)]
    assert "98.0 MB are free" in capfd.readouterr().err
    heard = run(tmp_path, "drop", "abcd", "--everywhere", as_json=True)
    assert heard[1] == DropModel(model_sha256=OTHER.model_sha256, is_everywhere=True)
    told = json.loads(capfd.readouterr().out.splitlines()[-1])
    assert (told["event"], told["freed_bytes"]) == ("models", 98_000_000)


def test_which_model_is_meant_must_be_clear(tmp_path):
    with pytest.raises(ModelNotFoundError, match="keeps no model Tiny"):
        run(tmp_path, "drop", "Tiny")
    with pytest.raises(UsageError, match="2 models are called so"):
        run(tmp_path, "drop", "ab")
