"""What nodes say is recognised again, with its code and its fields."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from engine.errors import InsufficientMemoryError
from engine.pool import sentences
from engine.pool.sentences import SENTENCES, Said, fields_of, recognised, sentence

VALUES = {"pc": "书房 PC (abcdef)", "problem": "No route to host.", "reason": "It is paused."}


def filled(code: str) -> tuple[str, dict[str, str]]:
    fields = {name: VALUES.get(name, f"{name} 1.5") for name in fields_of(code)}
    return sentence(code, **fields), fields


@pytest.mark.parametrize("code", SENTENCES)
def test_each_is_recognised_by_its_code_with_its_fields(code: str) -> None:
    text, fields = filled(code)

    assert recognised(text) == (Said(code, fields),)


@pytest.mark.parametrize("second", ["restart_remedy", "programs_remedy", "lost"])
def test_several_after_each_other_are_told_apart(second: str) -> None:
    first_text, first = filled("small")
    second_text, fields = filled(second)

    assert recognised(f"{first_text} {second_text}") == (Said("small", first), Said(second, fields))


@pytest.mark.parametrize(
    "text", ["A new sentence.", "It has room for these layers. And a new one.", "x" * 1001]
)
def test_what_no_node_of_this_version_says_is_not_recognised(text: str) -> None:
    assert recognised(text) is None


def test_nothing_is_made_of_no_sentences() -> None:
    assert recognised("") == ()


def test_a_sentence_needs_all_of_its_fields() -> None:
    with pytest.raises(KeyError):
        sentence("small", usable="1 GiB")


@pytest.mark.parametrize(
    ("part", "code"),
    [
        ("", "no_place"),
        ("1.0 GiB of it for a context of 8192 tokens for 4 users at once", "no_place_context"),
    ],
)
def test_the_error_of_too_little_memory_says_the_same(part: str, code: str) -> None:
    error = InsufficientMemoryError(5 << 30, 3 << 30, part)
    (said,) = recognised(error.what) or ()

    assert said.code == code
    assert said.fields["required"] == "5.00 GiB"
    assert said.fields["missing"] == "2.00 GiB"


@pytest.mark.parametrize(
    "module", ["status", "node_folder", "own_port", "plan", "placement", "deployment_troubles"]
)
def test_what_is_noted_of_a_pool_is_made_of_these_sentences(module: str) -> None:
    """A sentence that is written where it is noted can't be said in another language."""
    source = Path(sentences.__file__).with_name(f"{module}.py").read_text(encoding="utf-8")
    written = [
        ast.unparse(call)
        for call in ast.walk(ast.parse(source))
        if isinstance(call, ast.Call)
        and ast.unparse(call.func).rpartition(".")[2] in {"append", "Exclusion", "Replan"}
        and any(_is_written_out(argument) for argument in _told_by(call))
    ]

    assert written == []


def _told_by(call: ast.Call) -> list[ast.expr]:
    is_note = "notes" in ast.unparse(call.func)
    is_reason = not ast.unparse(call.func).endswith("append")
    named = [keyword.value for keyword in call.keywords if keyword.arg == "reason"]
    return [*call.args, *named] if is_note or is_reason else []


def _is_written_out(told: ast.expr) -> bool:
    texts = [part for part in ast.walk(told) if isinstance(part, ast.Constant)]
    calls = [part for part in ast.walk(told) if isinstance(part, ast.Call)]
    within = {id(part) for call in calls for part in ast.walk(call)}
    return any(
        isinstance(text.value, str) and " " in text.value.strip() and id(text) not in within
        for text in texts
    )
