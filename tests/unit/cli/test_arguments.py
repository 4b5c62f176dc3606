"""The command line's options: what they become, and what is said where they make no sense."""

from pathlib import Path

import msgspec
import pytest

from engine.cli.arguments import (
    build_parser,
    data_dir,
    load_request,
    sampling_fields,
    wants_own_chain,
)
from engine.cli.chain_options import division, draft_word, pool_options
from engine.cli.preparation import Division
from engine.config import DEFAULT_CONTEXT_TOKENS, MAX_DEFAULT_CONTEXT_TOKENS
from engine.errors import UsageError
from engine.pipeline.shard_folder import open_shard_folder
from tests.unit.splitter.splitting import split


def parse(*words):
    return build_parser().parse_args(words)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two shards of a model with a context of 512 tokens."""
    out = tmp_path_factory.mktemp("shards") / "out"
    split(out, cuts=(2,), has_golden=False)
    return open_shard_folder(out)


def with_context(folder, context_length):
    model = msgspec.structs.replace(folder.manifest.model, context_length=context_length)
    manifest = msgspec.structs.replace(folder.manifest, model=model)
    return type(folder)(folder.path, manifest, folder.manifest_sha256)


# ---- words ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "match"),
    [
        ([], "COMMAND"),
        (["sing"], "sing"),
        (["ask", "--temperature", "warm"], r"temperature.*warm"),
        (["ask", "--seed", "1.5"], "seed"),
        (["ask", "--kind", "fast"], "kind"),
        (["ask", "--no-such-option"], "no-such-option"),
        (["ask", "one", "two"], "two"),
        (["split", "m"], "--out"),
        (["split", "--out", "x"], "MODEL"),
        (["split", "m", "--out", "x", "--stages", "2", "--cuts", "1"], "not allowed with"),
        (["chat", "--max-tokens"], "max-tokens"),
    ],
)
def test_a_wrong_word_is_named_and_the_program_does_not_just_exit(words, match):
    with pytest.raises(UsageError, match=match) as caught:
        parse(*words)
    assert caught.value.exit_code == 2
    assert caught.value.what[0].isupper()
    assert "--help" in caught.value.advice


def test_every_command_has_its_options():
    given = parse("ask", "Why?", "--model", "m", "--stages", "3", "--exact", "--json", "--raw")
    assert (given.command, given.question, given.model) == ("ask", "Why?", "m")
    assert (given.stages, given.exact, given.json, given.raw) == (3, True, True, True)
    assert parse("demo").question == "Why is the sky blue?"
    assert parse("demo").max_tokens == 64
    assert parse("chat").max_tokens is None
    assert parse("split", "m", "--out", "x").out == Path("x")


def test_stop_may_be_given_again_and_again():
    assert parse("ask", "x", "--stop", "a", "--stop", "b").stop == ["a", "b"]
    assert parse("ask", "x").stop == []
    assert parse("ask", "x").stop == [], "and one call does not show in the next"


@pytest.mark.parametrize("word", ["模型", "тест №1 🙂", "a b", "q'uote"])
def test_any_text_arrives_as_it_was_written(word):
    given = parse("ask", word, "--system", word, "--model", word)
    assert (given.question, given.system, given.model) == (word, word, word)


def test_text_of_another_locale_is_read_as_utf8():
    """Under the C locale Python hands over bytes as surrogates, which nobody can encode."""
    word = "é".encode().decode("ascii", "surrogateescape")
    assert parse("ask", word).question == "é"
    parse("ask", "\udcff").question.encode()


# ---- sampling ---------------------------------------------------------------------------------


def test_only_what_was_given_is_passed_on():
    assert sampling_fields(parse("ask", "x")) == {}
    given = parse("ask", "x", "--temperature", "0", "--top-k", "0", "--seed", "0", "--min-p", "0.1")
    assert sampling_fields(given) == {"temperature": 0.0, "top_k": 0, "seed": 0, "min_p": 0.1}


def test_every_sampling_option_has_a_field_of_a_request():
    words = []
    for name in (
        "temperature",
        "top-k",
        "top-p",
        "min-p",
        "repetition-penalty",
        "presence-penalty",
        "frequency-penalty",
        "seed",
    ):
        words += [f"--{name}", "1"]
    fields = sampling_fields(parse("chat", *words))
    assert len(fields) == 8
    assert all(value == 1 for value in fields.values())


# ---- division ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([], Division(num_stages=1, is_asked=False)),
        (["--stages", "3"], Division(num_stages=3)),
        (["--cuts", "10,20"], Division(cuts=(10, 20))),
        (["--cuts", " 1, 2 "], Division(cuts=(1, 2))),
    ],
)
def test_a_division_is_stages_or_cuts(words, expected):
    assert division(parse("ask", "x", *words)) == expected


@pytest.mark.parametrize("cuts", ["", "a", "1,,2", "1;2", "1.5", "1,"])
def test_cuts_that_are_no_list_are_shown_with_how_to_write_one(cuts):
    with pytest.raises(UsageError, match="no list of layers") as caught:
        division(parse("ask", "x", "--cuts", cuts))
    assert "--cuts 10,20" in caught.value.advice


@pytest.mark.parametrize("stages", ["0", "-1"])
def test_no_stage_at_all_is_refused(stages):
    with pytest.raises(UsageError, match=f"--stages is {stages}"):
        division(parse("ask", "x", "--stages", stages))


# ---- how stages run ---------------------------------------------------------------------------


def test_without_options_the_model_decides_the_context(folder):
    options = pool_options(parse("ask", "x"), folder)
    assert (options.context_tokens, options.mode, options.kind) == (512, "fast", None)
    assert (options.num_threads, options.base_port) == (None, 0)
    unknown = pool_options(parse("ask", "x"), with_context(folder, None))
    assert unknown.context_tokens == DEFAULT_CONTEXT_TOKENS
    vast = pool_options(parse("ask", "x"), with_context(folder, 1_000_000))
    assert vast.context_tokens == MAX_DEFAULT_CONTEXT_TOKENS


def test_options_are_obeyed(folder):
    words = ["--context", "256", "--threads", "2", "--port", "4000", "--exact"]
    options = pool_options(parse("ask", "x", "--kind", "stateful", *words), folder)
    assert (options.context_tokens, options.mode, options.kind) == (256, "exact", "stateful")
    assert (options.num_threads, options.base_port) == (2, 4000)
    assert options.link_precision == "auto"
    narrow = pool_options(parse("ask", "x", "--link-precision", "int8"), folder)
    assert (narrow.mode, narrow.link_precision) == ("fast", "int8")


@pytest.mark.parametrize("narrow", ["f16", "int8"])
def test_exact_mode_with_hidden_states_that_are_not_is_refused(folder, narrow):
    """Equal tokens are what it is for; the pool and a chain of the command's own say the same."""
    words = ["--exact", "--link-precision", narrow]
    with pytest.raises(UsageError, match=f"{narrow} was asked for"):
        pool_options(parse("ask", "x", *words), folder)
    with pytest.raises(UsageError, match=f"{narrow} was asked for"):
        load_request(parse("load", "m", *words))
    assert pool_options(parse("ask", "x", "--exact", "--link-precision", "f32"), folder)


def test_what_goes_between_pcs_is_for_a_chain_of_its_own_to_follow():
    assert wants_own_chain(parse("ask", "x", "--link-precision", "int8"))
    assert not wants_own_chain(parse("ask", "x"))


@pytest.mark.parametrize(
    ("words", "match"),
    [
        (["--context", "513"], "--context is 513; this model takes from 2 to 512"),
        (["--context", "1"], "--context is 1;"),
        (["--context", "-5"], "--context is -5;"),
        (["--threads", "0"], "--threads is 0"),
        (["--port", "-1"], "--port is -1"),
        (["--port", "65536"], "--port is 65536; it must be from 0 to 65534"),
        (["--port", "65535"], "--port is 65535; it must be from 0 to 65534"),
    ],
)
def test_a_number_that_makes_no_sense_is_named_with_its_range(folder, words, match):
    """The second node takes the port after the first one's."""
    with pytest.raises(UsageError, match=match):
        pool_options(parse("ask", "x", *words), folder)


def test_the_highest_port_that_leaves_room_is_taken(folder):
    assert pool_options(parse("ask", "x", "--port", "65534"), folder).base_port == 65534


def test_a_model_that_does_not_say_its_context_takes_what_is_asked(folder):
    unknown = with_context(folder, None)
    assert pool_options(parse("ask", "x", "--context", "9000"), unknown).context_tokens == 9000


def test_the_data_folder_is_the_one_given(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert data_dir(parse("ask", "x", "--data", "here")) == tmp_path / "here"
    monkeypatch.setenv("DAISY_DATA", str(tmp_path / "there"))
    assert data_dir(parse("ask", "x")) == tmp_path / "there"


def test_a_pattern_that_matches_nothing_is_said_to_be_one(tmp_path):
    pattern = str(tmp_path / "*.gguf")
    with pytest.raises(UsageError, match="is a pattern, and nothing here matches it") as caught:
        load_request(build_parser().parse_args(["load", pattern]))
    assert caught.value.advice == "Name one folder or file."
    odd = tmp_path / "model[1].gguf"  # a name may hold such characters
    odd.touch()
    assert load_request(build_parser().parse_args(["load", str(odd)])).source == str(odd)


@pytest.mark.parametrize(("words", "speculates"), [([], True), (["--no-speculation"], False)])
def test_a_model_may_be_loaded_without_guessing_for_anybody(words, speculates):
    """Else every head guesses where it pays."""
    assert load_request(parse("load", *words)).speculate is speculates


@pytest.mark.parametrize(("words", "draft"), [([], "auto"), (["--draft", "none"], "none")])
def test_a_draft_model_is_daisys_own_unless_another_or_none_is_named(folder, words, draft):
    """A folder is told whole, for the node may be started anywhere."""
    assert pool_options(parse("ask", "x", *words), folder).draft == draft
    assert draft_word(parse("node", *words)) == draft


def test_a_draft_models_folder_is_told_whole():
    """From wherever the command was given."""
    assert Path(draft_word(parse("node", "--draft", "d"))) == Path("d").absolute()
