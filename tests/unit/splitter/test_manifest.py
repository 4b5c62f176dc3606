"""A manifest may come from anywhere: it is whole and plain, or it is refused, and nothing else."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.domain import LayerRange, ModelDescription
from engine.errors import ShardCorruptError
from engine.splitter.manifest import (
    MAX_MANIFEST_BYTES,
    FileEntry,
    GoldenBoundary,
    GoldenVectors,
    Manifest,
    ShardEntry,
    decode_manifest,
    is_plain_path,
    sha256_of,
)

HASH = "0123456789abcdef" * 4
NUM_LAYERS = 4


def entry(path, num_bytes=1, sha256=HASH):
    return FileEntry(path, num_bytes, sha256)


def shard(start, stop):
    folder = f"layers-{start:03}-{stop:03}"
    return ShardEntry(
        layers=LayerRange(start, stop),
        xml=entry(f"{folder}/openvino_model.xml"),
        weights=entry(f"{folder}/openvino_model.bin"),
        injected_reorders=0,
        can_be_paged=True,
        paged_refusal=None,
        sliding_window=None,
    )


def whole(**changes):
    golden = GoldenVectors(
        token_ids=(1, 2),
        boundaries=(GoldenBoundary(1, entry("golden/after-001.f32")),),
        logits=entry("golden/after-004.f32"),
    )
    fields = {
        "format": 1,
        "made_by": "daisy 0.1",
        "model": ModelDescription(
            name="模型 <b>",
            architecture="llama",
            num_layers=NUM_LAYERS,
            hidden_size=64,
            num_kv_heads=(2,) * NUM_LAYERS,
            head_size=(16,) * NUM_LAYERS,
            value_head_size=(16,) * NUM_LAYERS,
            vocab_size=512,
            context_length=None,
            weight_precision="f16",
            layer_bytes=(10,) * NUM_LAYERS,
            embedding_bytes=3,
            head_bytes=4,
            eos_token_ids=(2,),
        ),
        "shards": (shard(0, 1), shard(1, 4)),
        "text_files": (entry("text/tokenizer.json"),),
        "golden": golden,
    }
    return Manifest(**(fields | changes))


def as_json(**changes):
    return json.loads(whole(**changes).encoded())


def refused(document, match):
    with pytest.raises(ShardCorruptError, match=match):
        decode_manifest(json.dumps(document).encode())


def test_what_is_encoded_is_read_back_the_same():
    manifest = whole()
    assert decode_manifest(manifest.encoded()) == manifest
    assert decode_manifest(whole(golden=None).encoded()).golden is None


def test_the_same_content_is_the_same_bytes_and_name():
    """A SHA-256 over anything that may vary would name nothing."""
    data = whole().encoded()
    assert whole().encoded() == data
    assert decode_manifest(data).encoded() == data
    assert sha256_of(data) == sha256_of(whole().encoded())
    assert sha256_of(data) != sha256_of(whole(made_by="daisy 0.2").encoded())
    assert sha256_of(b"") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


def test_every_file_is_listed_once():
    paths = [file.path for file in whole().files]
    assert len(paths) == len(set(paths)) == 7
    assert len(whole(golden=None).files) == 5


def test_golden_vectors_are_found_by_the_layer_behind_them():
    golden = whole().golden
    assert golden.before(1) == entry("golden/after-001.f32")
    assert golden.before(2) is None


@pytest.mark.parametrize(
    "path",
    [
        "manifest.json",
        "text/tokenizer.json",
        "text/additional_chat_templates/tool_use.jinja",
        "a-b_c.d",
    ],
)
def test_plain_names_are_taken(path):
    assert is_plain_path(path)
    assert decode_manifest(whole(text_files=(entry(path),)).encoded()).text_files[0].path == path


@pytest.mark.parametrize(
    "path",
    [
        "..",
        "../x",
        "a/../x",
        "a/../../x",
        "./x",
        "/etc/passwd",
        "//host/share",
        "c:/x",
        "c:x",
        "a\\b",
        "..\\x",
        "a//b",
        "a/",
        "",
        ".",
        ".hidden",
        "a/.hidden",
        "x.",
        "a..b",
        "a b",
        "A",
        "naïve",
        "x\n",
        "x\0",
        "a/b/c/d",
        "%2e%2e/x",
        "~",
        "-" + "\u202e",
    ],
)
@pytest.mark.parametrize("where", ["text", "shard", "golden"])
def test_s14_a_name_that_could_lead_elsewhere_is_refused(path, where):
    document = as_json()
    place = {
        "text": document["text_files"][0],
        "shard": document["shards"][1]["weights"],
        "golden": document["golden"]["boundaries"][0]["file"],
    }[where]
    place["path"] = path
    refused(document, "names a file it may not")


@pytest.mark.parametrize(
    ("xml", "weights"),
    [
        ("layers-001-004/openvino_model.blob", "layers-001-004/openvino_model.bin"),
        ("layers-001-004/openvino_model.onnx", "layers-001-004/openvino_model.bin"),
        ("layers-001-004/model.pdmodel", "layers-001-004/model.pdiparams"),
        ("layers-001-004/openvino_model", "layers-001-004/openvino_model.bin"),
        ("layers-001-004/openvino_model.xml", "layers-001-004/openvino_model.blob"),
        ("layers-001-004/openvino_model.xml", "layers-001-004/other.bin"),
        ("layers-001-004/openvino_model.xml", "text/openvino_model.bin"),
    ],
)
def test_s12_a_shard_is_an_ir_and_never_a_compiled_blob_or_another_format(xml, weights):
    """What OpenVINO reads a file as goes by its name and content; a peer may choose neither."""
    document = as_json()
    document["shards"][1]["xml"]["path"] = xml
    document["shards"][1]["weights"]["path"] = weights
    refused(document, "is no IR")


@pytest.mark.parametrize(
    "sha256", ["", "0" * 63, "0" * 65, "0" * 63 + "G", HASH.upper(), HASH + "\n"]
)
def test_what_is_no_hash_is_refused(sha256):
    refused(as_json(text_files=(entry("a", sha256=sha256),)), "names a file it may not: 'a'")


def test_a_size_below_nothing_is_refused():
    refused(as_json(text_files=(entry("a", num_bytes=-1),)), "a size below 0")


@pytest.mark.parametrize(
    ("ranges", "match"),
    [
        ([], "hold 0 of 4 layers"),
        ([(0, 3)], "hold 3 of 4 layers"),
        ([(0, 5)], "hold 5 of 4 layers"),
        ([(0, 2), (3, 4)], "at layer 2"),
        ([(0, 2), (1, 4)], "at layer 2"),
        ([(0, 4), (0, 4)], "at layer 4"),
        ([(2, 4), (0, 2)], "at layer 0"),
        ([(0, 0), (0, 4)], "at layer 0"),
        ([(0, 2), (2, 1), (1, 4)], "at layer 2"),
        ([(-1, 4)], "at layer 0"),
    ],
)
def test_layers_that_are_missing_or_there_twice_are_refused(ranges, match):
    refused(as_json(shards=tuple(shard(a, b) for a, b in ranges)), match)


def test_a_model_without_layers_is_refused():
    document = as_json(shards=())
    document["model"]["num_layers"] = 0
    refused(document, "hold 0 of 0 layers")


@pytest.mark.parametrize("version", [0, 2, -1, 2**63])
def test_another_format_is_named_with_the_one_that_is_read(version):
    refused(as_json() | {"format": version}, f"format {version}; this version reads 1")


@pytest.mark.parametrize("field", ["num_kv_heads", "head_size", "value_head_size", "layer_bytes"])
def test_facts_by_layer_that_are_too_few_are_refused(field):
    """They are looked up by layer: one too few would end whoever plans with them."""
    document = as_json()
    document["model"][field].pop()
    refused(document, f"{field} of 3 layers, and the model has 4")


@pytest.mark.parametrize(
    ("field", "value"),
    [("hidden_size", 0), ("vocab_size", -5), ("context_length", 0), ("layer_bytes", [1, 1, 1, -1])],
)
def test_a_number_that_no_model_has_is_refused(field, value):
    document = as_json()
    document["model"][field] = value
    refused(document, field)


@pytest.mark.parametrize("ids", [[], [-1], [512]])
def test_golden_tokens_outside_the_vocabulary_are_refused(ids):
    document = as_json()
    document["golden"]["token_ids"] = ids
    refused(document, "golden tokens")


def test_a_size_no_manifest_has_is_refused_before_it_is_read():
    with pytest.raises(ShardCorruptError, match="16777217 bytes long"):
        decode_manifest(b" " * (MAX_MANIFEST_BYTES + 1))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"null",
        b"[]",
        b"{}",
        b"{",
        b"\xff\xfe",
        b'{"format":1,"format":1}',
        b"[" * 100_000,
        b'{"a":' * 5000,
        b"9" * 5000,
        b"1e999",
        b"NaN",
    ],
)
def test_what_is_no_manifest_is_refused(data):
    with pytest.raises(ShardCorruptError, match="can't be read"):
        decode_manifest(data)


@pytest.mark.parametrize("value", [True, 1.5, "1", None, [], {}])
def test_a_field_of_another_type_is_refused_by_its_place(value):
    refused(as_json() | {"format": value}, r"can't be read.*\$\.format")


def test_a_field_nobody_knows_is_refused():
    refused(as_json() | {"command": "x"}, "command")


def _paths(value, path=()):
    yield path
    if isinstance(value, dict | list):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _paths(inner, (*path, key))


PLACES = list(_paths(as_json()))[1:]
JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=6,
)


@settings(max_examples=300, deadline=None)
@given(data=st.binary(max_size=200))
def test_any_bytes_are_a_manifest_or_refused(data):
    with pytest.raises(ShardCorruptError):
        decode_manifest(data)


@settings(max_examples=500, deadline=None)
@given(place=st.sampled_from(PLACES), junk=JUNK, is_removed=st.booleans())
def test_a_manifest_changed_anywhere_is_refused_or_keeps_its_promises(place, junk, is_removed):
    document = as_json()
    inner = document
    for key in place[:-1]:
        inner = inner[key]
    if is_removed:
        del inner[place[-1]]
    else:
        inner[place[-1]] = junk
    try:
        manifest = decode_manifest(json.dumps(document).encode())
    except ShardCorruptError:
        return
    _check_promises(manifest)


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_a_manifest_with_bytes_changed_is_refused_or_keeps_its_promises(data):
    good = whole().encoded()
    at = data.draw(st.integers(0, len(good) - 1))
    length = data.draw(st.integers(0, 8))
    changed = good[:at] + data.draw(st.binary(max_size=8)) + good[at + length :]
    try:
        manifest = decode_manifest(changed)
    except ShardCorruptError:
        return
    _check_promises(manifest)


def _check_promises(manifest):
    covered = [layer for s in manifest.shards for layer in range(s.layers.start, s.layers.stop)]
    assert covered == list(range(manifest.model.num_layers))
    for file in manifest.files:
        assert is_plain_path(file.path)
        assert file.num_bytes >= 0
    manifest.model.kv_bytes_per_token(2, LayerRange(0, manifest.model.num_layers))
    assert decode_manifest(manifest.encoded()) == manifest
