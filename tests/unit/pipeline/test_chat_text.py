"""Requests to ids and ids to text, with the files that lie beside the shards."""

import datetime
import shutil

import msgspec
import pytest

from engine.errors import ChatTemplateError, ModelFileError, TokenizerError, UsageError
from engine.messages.control import Generate
from engine.models.settings import read_settings
from engine.pipeline.chat_text import load_chat_text
from engine.pipeline.shard_folder import ShardFolder
from engine.splitter.manifest import decode_manifest
from tests.unit.splitter.splitting import split

pytestmark = pytest.mark.embedded

NOW = datetime.datetime(2026, 2, 3, tzinfo=datetime.UTC)
END = 2


@pytest.fixture(scope="module")
def manifest(tmp_path_factory):
    out = tmp_path_factory.mktemp("shards") / "out"
    split(out, has_golden=False)
    return decode_manifest((out / "manifest.json").read_bytes())


@pytest.fixture
def folder(tmp_path, manifest, embedded):
    """A folder of shards as far as text goes: the embedded model's text files."""
    for name, file in embedded.text_files:
        target = tmp_path / "text" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, target)
    ends = read_settings(embedded).eos_token_ids
    model = msgspec.structs.replace(manifest.model, name="m", eos_token_ids=ends)
    return ShardFolder(tmp_path, msgspec.structs.replace(manifest, model=model), "0" * 64)


def request(**fields):
    return Generate(request_id="r", **fields)


def user(text):
    return ({"role": "user", "content": text},)


def ids_of(text, **fields):
    return text.prompt_ids(request(**fields), NOW)


def test_a_chat_is_rendered_and_tokenized_with_no_second_beginning(folder):
    text = load_chat_text(folder)
    ids = ids_of(text, messages=user("What is the capital of France?"))
    assert len(ids) == 37
    assert text.tokenizer.decode(ids).count("capital of France") == 1
    assert text.stop_ids == frozenset({END})


def test_a_raw_prompt_is_not_dressed_up(folder):
    text = load_chat_text(folder)
    ids = ids_of(text, prompt="The capital of France is")
    assert text.tokenizer.decode(ids) == "The capital of France is"


@pytest.mark.parametrize(
    ("fields", "match"),
    [
        ({}, "either messages or a prompt"),
        ({"messages": user("x"), "prompt": "x"}, "either messages or a prompt"),
        ({"messages": ()}, "messages is empty"),
        ({"prompt": ""}, "The prompt is empty"),
    ],
)
def test_a_request_without_anything_to_answer_is_refused(folder, fields, match):
    with pytest.raises(UsageError, match=match):
        ids_of(load_chat_text(folder), **fields)


def test_a_reply_knows_the_requests_ends(folder):
    text = load_chat_text(folder)
    paris = text.tokenizer.encode(" Paris.", add_special_tokens=False)
    asked = request(messages=user("x"), stop=(".",))
    reply = text.new_reply(asked, [1], 100)
    reply.push(paris)
    assert (reply.take()[0], reply.finish_reason) == (" Paris", "stop")
    reply = text.new_reply(request(messages=user("x"), ignore_eos=True), [1], 100)
    reply.push([END, *paris])
    assert (reply.take()[0], reply.finish_reason) == (" Paris.", None)
    reply = text.new_reply(request(messages=user("x")), [1], 1)
    reply.push(paris)
    assert (reply.take()[0], reply.finish_reason) == (" Paris", "length")


def test_a_completion_keeps_the_space_it_begins_with(folder):
    text = load_chat_text(folder)
    asked = request(prompt="The capital of France is")
    reply = text.new_reply(asked, text.prompt_ids(asked, NOW), 100)
    reply.push(text.tokenizer.encode(" Paris", add_special_tokens=False))
    assert reply.take()[0] == " Paris"


def test_a_model_without_a_template_still_completes(folder):
    """And says so when it is asked to chat; no form is made up."""
    (folder.text_folder / "chat_template.jinja").unlink(missing_ok=True)
    config = folder.text_folder / "tokenizer_config.json"
    if config.exists():
        values = msgspec.json.decode(config.read_bytes())
        values.pop("chat_template", None)
        config.write_bytes(msgspec.json.encode(values))
    text = load_chat_text(folder)
    assert ids_of(text, prompt="hello")
    with pytest.raises(ChatTemplateError, match="no chat template"):
        ids_of(text, messages=user("hello"))


def test_a_template_that_fails_fails_chats_only(folder):
    (folder.text_folder / "chat_template.jinja").write_text(
        "{{ raise_exception('roles must alternate') }}"
    )
    text = load_chat_text(folder)
    assert ids_of(text, prompt="hello")
    with pytest.raises((ChatTemplateError, UsageError), match="roles must alternate"):
        ids_of(text, messages=user("hello"))


def test_a_template_that_cannot_be_read_fails_chats_only(folder):
    (folder.text_folder / "chat_template.jinja").write_text("{% if %}")
    text = load_chat_text(folder)
    assert ids_of(text, prompt="hello")
    with pytest.raises(ChatTemplateError):
        ids_of(text, messages=user("hello"))


def test_a_model_without_a_tokenizer_can_say_nothing(folder):
    for file in folder.text_folder.iterdir():
        file.unlink()
    with pytest.raises(TokenizerError):
        load_chat_text(folder)


def test_a_damaged_tokenizer_is_named(folder):
    (folder.text_folder / "tokenizer.json").write_text('{"version": "1.0"')
    with pytest.raises((TokenizerError, ModelFileError), match="tokenizer"):
        load_chat_text(folder)
