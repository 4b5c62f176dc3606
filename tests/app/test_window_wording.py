"""Every word stands in the wording files, and both languages have every one of them."""

import ast
import re
from pathlib import Path

import pytest

from app.bridge.problem import Problem
from app.places import WORDING
from app.wording.catalogue import LANGUAGES, PLURAL_FORMS, fields_of, filled, read_language
from app.wording.problems import problem_words
from app.wording.qt_words import QtWords
from app.wording.wording import Wording
from engine.errors import DaisyError, _subclasses

APP = Path(__file__).parents[2] / "app"
# What is shown by these methods must come from the wording files.
SHOWING = frozenset({
    "setText", "setWindowTitle", "setToolTip", "setPlaceholderText", "setAccessibleName",
    "setAccessibleDescription", "setInformativeText", "setStatusTip", "setWhatsThis", "setTitle",
    "addAction", "addButton", "addItem", "addTab", "addRow", "setSpecialValueText", "setSuffix",
    "setPrefix", "setLabelText", "setHeaderLabels", "setHorizontalHeaderLabels", "drawText",
    "showMessage", "setFormat", "say",
})  # fmt: skip
WORD = re.compile(r"[^\W\d_]{2,}")


@pytest.fixture(scope="module")
def sentences():
    return {language: read_language(WORDING / language) for language in LANGUAGES}


def test_both_languages_have_the_same_keys(sentences):
    assert set(sentences["en"]) == set(sentences["zh"])


def test_a_sentence_has_the_same_fields_in_both(sentences):
    for key, sentence in sentences["en"].items():
        english = fields_of(sentence) - {"n"}
        assert english == fields_of(sentences["zh"][key]) - {"n"}, key


def test_sentences_with_numbers_have_every_plural_form(sentences):
    for language, known in sentences.items():
        for key, sentence in known.items():
            if isinstance(sentence, dict):
                assert tuple(sentence) == PLURAL_FORMS[language], key


# The same in every language.
NAMES = re.compile(
    r"\{\w+\}|Daisy|Wi-Fi|Python|OpenVINO|PySide6|Qt|Top-p|GiB|MiB|KB|ms|English|简体中文"
)


def texts_of(sentence):
    return sentence.values() if isinstance(sentence, dict) else (sentence,)


def test_nothing_is_left_untranslated(sentences):
    chinese = re.compile("[\u4e00-\u9fff]")
    for key, sentence in sentences["zh"].items():
        for text in texts_of(sentence):
            assert chinese.search(text) or not WORD.search(NAMES.sub("", text)), f"{key}: {text}"
    for key, sentence in sentences["en"].items():
        for text in texts_of(sentence):
            assert not chinese.search(NAMES.sub("", text)), f"{key}: {text}"


# What stands in calls of these is a key, the name of a token, or a sign between words.
NAMING = frozenset({"text", "strftime", "join", "getattr", "icon", "get", "font", "colour"})


def literals(node):
    """Yield the texts in an expression, those in calls that name things left out."""
    named = {
        inner
        for child in ast.walk(node)
        if isinstance(child, ast.Call)
        and getattr(child.func, "attr", getattr(child.func, "id", "")) in NAMING
        for inner in ast.walk(child)
    }
    for child in ast.walk(node):
        if isinstance(child, ast.Constant) and isinstance(child.value, str) and child not in named:
            yield child.value


@pytest.mark.parametrize("file", sorted(APP.rglob("*.py")), ids=lambda f: str(f.relative_to(APP)))
def test_no_word_that_is_shown_stands_in_the_code(file):
    found = []
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.Call):
            continue
        name = getattr(node.func, "attr", "")
        if name in SHOWING:
            for argument in (*node.args, *(k.value for k in node.keywords)):
                found += [t for t in literals(argument) if _is_shown(t)]
    assert found == []


def _is_shown(text):
    """Tell words from keys of the wording files, names of tokens, and signs."""
    is_key = re.fullmatch(r"[a-z_0-9]+(\.[a-zA-Z_0-9]+)*\.?", text)
    is_keys_name = re.fullmatch(r"[ (]*(Ctrl|Shift|Alt|F\d+|[+,A-Z]| )+\)?", text)
    return bool(WORD.search(text)) and not is_key and not is_keys_name


def keys_in(file):
    """Yield what the code asks the wording for by a whole key."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def test_every_key_the_code_names_is_there_and_every_key_there_is_named(sentences):
    places = {key.partition(".")[0] for key in sentences["en"]}
    named, beginnings = set(), set()
    for file in APP.rglob("*.py"):
        for text in keys_in(file):
            place, dot, rest = text.partition(".")
            is_file = rest in {"json", "lock", "sqlite", "svg"}
            if (
                dot
                and not is_file
                and place in places
                and re.fullmatch(r"[a-z_0-9]*(\.\w+)*", rest)
            ):
                (named if rest and not rest.endswith("_") else beginnings).add(text)
    missing = {
        k
        for k in named
        if k not in sentences["en"] and not any(other.startswith(k) for other in sentences["en"])
    }
    assert missing == set()


def test_every_error_of_the_engine_has_words(sentences):
    for cls in _subclasses(DaisyError):
        assert f"errors.{cls.code}" in sentences["en"], cls.code
        assert f"errors.{cls.code}.advice" in sentences["en"], cls.code


def test_the_language_is_switched_live_and_plurals_are_right(owner):
    wording = Wording(WORDING, "en", owner)
    told = []
    wording.changed.connect(lambda: told.append(wording.language))
    assert wording.text("chat.tokens", n=1, num="1") == "1 token"
    assert wording.text("chat.tokens", n=2, num="2") == "2 tokens"
    wording.choose("zh")
    wording.choose("zh")
    assert told == ["zh"]
    assert wording.text("chat.tokens", n=1, num="1") == "1 个词元"


def test_qts_own_words_follow(qapp, owner):
    wording = Wording(WORDING, "zh", owner)
    words = QtWords(qapp, wording)
    assert qapp.translate("QWidgetTextControl", "&Copy") != "&Copy"
    wording.choose("en")
    assert qapp.translate("QWidgetTextControl", "&Copy") == "&Copy"
    words.deleteLater()


def test_a_problem_nobody_has_words_for_is_still_said(owner):
    wording = Wording(WORDING, "en", owner)
    words = problem_words(Problem("of_the_future", "X\u202e broke.", "Do Y."), wording)
    assert words.what == "Something went wrong inside Daisy."
    assert words.details == "X\u27e6U+202E\u27e7 broke. Do Y."


def test_a_prompt_too_long_without_numbers_keeps_the_sentence(owner):
    wording = Wording(WORDING, "en", owner)
    words = problem_words(Problem("context_length_exceeded", "Too long.", ""), wording)
    assert words.what == "Too long."


def test_fields_are_filled_and_braces_without_values_stay():
    assert filled("{a} of {b}", "en", {"a": 1, "b": "x"}) == "1 of x"
    assert filled("{not a field}", "en", {}) == "{not a field}"
