"""A model described without being cut says what its shards' manifest says."""

import asyncio

import pytest

from engine.errors import ModelFileError, UnsupportedModelError
from engine.splitter.orders import DescribeOrder
from engine.splitter.process import describe_in_process
from tests.unit.splitter.cutting import MODELS, xml_of
from tests.unit.splitter.splitting import opened, split

pytestmark = pytest.mark.processes


def described(name="llama", **changes):
    fields = {
        "xml": str(xml_of(name)),
        "name": name,
        "architecture": "llama",
        "context_length": 512,
        "eos_token_ids": (2,),
    }
    told = []
    order = DescribeOrder(**(fields | changes))
    return asyncio.run(describe_in_process(order, told.append)), told


@pytest.mark.parametrize("name", ["llama", "llama-tied", "mistral-window", "gpt-oss"])
def test_a_description_is_that_of_the_manifest(tmp_path, name):
    found, told = described(name)
    split(tmp_path / "out", name, cuts=(1,), has_golden=False)
    manifest = opened(tmp_path / "out")
    assert found.model == manifest.model
    assert found.can_be_paged == all(shard.can_be_paged for shard in manifest.shards)
    assert (told[0].done, told[-1].done, told[-1].total) == (0, 2, 2)


def test_a_refusal_keeps_its_class_and_both_sentences():
    with pytest.raises(UnsupportedModelError, match="share their KV cache") as caught:
        described("shared-kv-gemma3n")
    assert caught.value.advice


def test_a_damaged_model_is_an_error_and_not_the_end(tmp_path):
    for file in (MODELS / "llama").iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes()[:50_000])
    with pytest.raises(ModelFileError):
        described(xml=str(tmp_path / "openvino_model.xml"))
