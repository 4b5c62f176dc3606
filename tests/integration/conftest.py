"""Models the command line can talk to in a second."""

from __future__ import annotations

import shutil
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path


def make_talking(fixture: Path, cases: Path, folder: Path) -> Path:
    """Copy a small random model and give it a tokenizer and a template of 263 tokens."""
    shutil.copytree(fixture, folder)
    shutil.copyfile(cases / "K09.tokenizer.json", folder / "tokenizer.json")
    shutil.copyfile(cases / "K09.jinja", folder / "chat_template.jinja")
    names = '{"bos_token": "<s>", "eos_token": "</s>"}'
    (folder / "tokenizer_config.json").write_text(names, encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def talking(fixture_models, cases, tmp_path_factory):
    """A random model of four layers with a tokenizer of its own."""
    folder = tmp_path_factory.mktemp("model") / "tiny"
    return make_talking(fixture_models / "llama", cases, folder)


@pytest.fixture(scope="module")
def own_data(tmp_path_factory):
    """A data folder of the module's own, empty at first."""
    return tmp_path_factory.mktemp("data")


@pytest.fixture
def report_figure(capsys):
    """Print a figure that was seen, whatever is done with the other output."""

    def report(what: str, value: float, unit: str) -> None:
        with capsys.disabled():
            sys.stdout.write(f"\n  {what}: {value:.2f} {unit}\n")

    return report
