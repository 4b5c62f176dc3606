"""Any model name becomes a folder name that every file system takes."""

import json
import re
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.models.names import MAX_NAME_BYTES, safe_folder_name

CASES = Path(__file__).parents[2] / "vectors" / "cases"
K28 = json.loads((CASES / "K28.json").read_text(encoding="utf-8"))
NAMES = K28["model_names_that_become_files"] + K28["folders"]
RESERVED = re.compile(
    r"(con|prn|aux|nul|com\d|lpt\d|conin\$|conout\$|clock\$)(\..*)?", re.IGNORECASE
)


def _is_safe(name):
    return (
        re.fullmatch(r"[a-z0-9._-]+", name) is not None
        and len(name) <= MAX_NAME_BYTES
        and name[0] not in ".-"
        and name[-1] not in ". "
        and RESERVED.fullmatch(name) is None
        and Path("store", name).name == name
    )


@pytest.mark.parametrize("name", NAMES)
def test_names_of_others_become_safe_folder_names(name):
    assert _is_safe(safe_folder_name(name))


def test_names_of_others_stay_apart():
    folders = [safe_folder_name(name) for name in dict.fromkeys(NAMES)]
    assert len({folder.casefold() for folder in folders}) == len(folders)


def test_a_plain_name_stays_as_it_is():
    for name in ("tiny", "smollm2-135m-instruct", "qwen3-8b.q4_k", "a"):
        assert safe_folder_name(name) == name


def test_upper_and_lower_case_give_two_folders():
    assert safe_folder_name("tiny") == "tiny"
    assert safe_folder_name("Tiny").startswith("tiny-")
    assert safe_folder_name("Tiny") != safe_folder_name("TINY")


def test_two_spellings_of_an_accent_give_two_folders():
    composed, apart = (unicodedata.normalize(form, "café") for form in ("NFC", "NFD"))
    assert safe_folder_name(composed) != safe_folder_name(apart)


def test_a_name_that_looks_like_one_of_ours_gets_a_hash_of_its_own():
    ours = safe_folder_name("Tiny")
    assert safe_folder_name(ours) != ours


@pytest.mark.parametrize(
    "name", ["", "..", ".", "~", "/", "\\", "\0", "名", "-", "CON.txt", "nul.", "x" * 5000]
)
def test_names_with_nothing_usable_in_them_still_get_a_folder(name):
    assert _is_safe(safe_folder_name(name))


@settings(max_examples=500)
@given(st.lists(st.text(max_size=120), unique=True, min_size=2, max_size=6))
def test_any_two_names_give_two_safe_folders(names):
    folders = [safe_folder_name(name) for name in names]
    assert all(_is_safe(folder) for folder in folders)
    assert len(set(folders)) == len(names)


def test_a_name_with_half_a_character_is_no_exception():
    assert _is_safe(safe_folder_name("a\udc80"))
