"""A tokenizer built from a GGUF's metadata has the ids the model was trained with."""

import json
import random
from pathlib import Path

import openvino_genai
import pytest
import tokenizers

from engine.errors import TokenizerError
from engine.models.gguf_header import GgufHeader, read_gguf_header
from engine.models.gguf_tokenizer import build_tokenizer
from engine.models.tokenizer import load_tokenizer

CHECKOUT = Path(__file__).parents[3]
CASES = CHECKOUT / "tests" / "vectors" / "cases"
TEXTS = [
    "Hello, world! It's 3.14159 o'clock; don't you'll we've I'm.",
    "  two  spaces\n\n\nlines\t\ttabs   \r\n\r\n and ends ",
    "1234567890 1,000,000 ½ Ⅷ ٣٤٥ ²³",
    "你好，世界。今天天气怎么样？日本語のテスト 한국어",
    "🦙🙂👩‍👩‍👧‍👦🏳️‍🌈 🇯🇵",
    "def f(x):\n    return x ** 2  # square\n\n\nclass A:\n\tpass\n",
    "Ünïcödé ñ ß a\u0301 \u00a0nbsp x\u3000y",
    "<|im_start|>user\nhi<|im_end|>\n<|endoftext|>",
    "<|im_start|<|im_end|>>",
    "\x00\x01\x7f",
    " x",
    "x" * 3000,
]


def _corpus():
    texts = list(TEXTS)
    sources = [*(CHECKOUT / "engine").rglob("*.py"), *CHECKOUT.glob("*.md")]
    texts += [path.read_text(encoding="utf-8")[:3000] for path in sorted(sources)[:30]]
    generator = random.Random(5)  # noqa: S311 - the same texts every time
    blocks = [(32, 126), (0xA0, 0x2FFF), (0x4E00, 0x9FFF), (0x1F300, 0x1F9FF), (9, 13), (32, 32)]
    for _ in range(200):
        picked = (generator.choice(blocks) for _ in range(40))
        texts.append("".join(chr(generator.randint(*block)) for block in picked))
    return texts


@pytest.mark.embedded
def test_ids_of_the_embedded_model_are_those_of_openvinos_own_tokenizer(embedded):
    reference = openvino_genai.Tokenizer(embedded.folder)
    tokenizer = load_tokenizer(embedded)
    for text in _corpus():
        expected = reference.encode(text, add_special_tokens=False).input_ids.data[0].tolist()
        ids = tokenizer.encode(text, add_special_tokens=False)
        assert ids == expected, repr(text[:60])
        assert tokenizer.decode(ids) == reference.decode(ids, skip_special_tokens=True)


@pytest.mark.embedded
def test_the_embedded_model_decodes_what_it_encoded(embedded):
    tokenizer = load_tokenizer(embedded)
    for text in _corpus():
        if "<|" not in text:
            ids = tokenizer.encode(text, add_special_tokens=False)
            assert tokenizer.decode(ids) == text


def _built(tiny_gguf, **changes):
    return build_tokenizer(read_gguf_header(tiny_gguf.write(**changes)))


@pytest.mark.parametrize(
    ("pre", "pieces"),
    [
        ("smollm", ["Ġ", "1", "2", "3", "4", "'s", "Ġ", "Ġx"]),
        ("gpt-2", ["Ġ1234", "'s", "Ġ", "Ġx"]),
        ("default", ["Ġ1234", "'s", "Ġ", "Ġx"]),
        ("qwen2", ["Ġ", "1", "2", "3", "4", "'s", "Ġ", "Ġx"]),
        ("deepseek-r1-qwen", ["Ġ", "1", "2", "3", "4", "'s", "Ġ", "Ġx"]),
        ("llama-bpe", ["Ġ", "123", "4", "'s", "Ġ", "Ġx"]),
    ],
)
def test_text_is_split_by_the_named_rules(pre, pieces, tiny_gguf):
    tokenizer = _built(tiny_gguf, pre=pre)
    split = [piece for piece, _ in tokenizer.pre_tokenizer.pre_tokenize_str(" 1234's  x")]
    assert split == pieces


def test_rules_that_are_not_known_are_named(tiny_gguf):
    with pytest.raises(TokenizerError, match="'jais'"):
        _built(tiny_gguf, pre="jais")


def test_rules_that_are_not_said_are_not_guessed(tiny_gguf):
    with pytest.raises(TokenizerError, match=r"tokenizer\.ggml\.pre"):
        _built(tiny_gguf, pre=None)
    assert _built(tiny_gguf, pre=None, architecture="qwen2").encode("hello").ids == [261]


def test_whole_words_of_llama_3_need_no_merges(tiny_gguf):
    assert _built(tiny_gguf, pre="llama-bpe", merges=["h e"]).encode("hello").ids == [261]
    assert len(_built(tiny_gguf, pre="gpt-2", merges=["h e"]).encode("hello").ids) == 4


def test_accents_are_composed_only_where_the_model_was_trained_so(tiny_gguf):
    composed = _built(tiny_gguf, pre="qwen2").encode("e\u0301").ids
    assert composed == _built(tiny_gguf, pre="qwen2").encode("\u00e9").ids
    assert _built(tiny_gguf, pre="smollm").encode("e\u0301").ids != composed


def test_the_beginning_of_a_text_is_added_only_if_the_gguf_says_so(tiny_gguf):
    assert _built(tiny_gguf, add_bos=True).encode("hello").ids == [1, 261]
    assert _built(tiny_gguf, add_bos=False).encode("hello").ids == [261]
    tokenizer = _built(tiny_gguf, add_bos=True)
    assert tokenizer.encode("hello", add_special_tokens=False).ids == [261]


def test_control_tokens_are_no_text_and_added_ones_are(tiny_gguf):
    tokenizer = _built(tiny_gguf, token_types=[3, 3, *[1] * 260, 4])  # the last one: "Ġw"
    (letter,) = tokenizer.encode("a").ids
    ids = tokenizer.encode("<|start|>aĠwa").ids  # as it is written: not split into Ġ and w
    assert ids == [1, letter, 262, letter]
    assert tokenizer.decode(ids) == "a wa"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"tokenizer_model": "bert"}, "'bert'"),
        ({"token_types": [1, 2]}, "2 token types"),
        ({"merges": ["nospace"]}, "unusable merge: 'nospace'"),
        ({"merges": ["zz yy"]}, "unusable vocabulary"),
        ({"tokens": ["a", "a"], "token_types": [1, 1]}, "lists a token twice"),
        ({"tokenizer_model": "llama"}, "0 scores"),
    ],
)
def test_lists_that_contradict_each_other_are_named(changes, words, tiny_gguf):
    with pytest.raises(TokenizerError, match=words):
        _built(tiny_gguf, **changes)


# ---- SentencePiece --------------------------------------------------------------------------


def _sentencepiece_header(**changes):
    """K13's tokenizer, written down as a GGUF would."""
    content = json.loads((CASES / "K13.tokenizer.json").read_text(encoding="utf-8"))["model"]
    tokens = sorted(content["vocab"], key=content["vocab"].get)
    merged = ["".join(pair) for pair in content["merges"]]
    scores = [-float(merged.index(token)) - 1 if token in merged else -1e9 for token in tokens]
    kinds = [2, 3, 3, *[6] * 256, *[1] * (len(tokens) - 259)]
    metadata = {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.scores": scores,
        "tokenizer.ggml.token_type": kinds,
        "tokenizer.ggml.unknown_token_id": 0,
        "tokenizer.ggml.bos_token_id": 1,
        **changes,
    }
    return GgufHeader("k13.gguf", 0, 3, metadata, ())


def test_a_sentencepiece_tokenizer_is_rebuilt_from_its_scores():
    reference = tokenizers.Tokenizer.from_file(str(CASES / "K13.tokenizer.json"))
    built = build_tokenizer(_sentencepiece_header())
    for text in ("Hello world", "Hello 🦙 world", "  Hello", "a-b  c", "日本 a", "", "</s>a"):
        ids = reference.encode(text).ids
        assert built.encode(text, add_special_tokens=False).ids == ids
        assert built.decode(ids) == reference.decode(ids)
    assert built.encode("Hello").ids == [1, 333]  # begins every text, unless the GGUF says no


def test_a_sentencepiece_tokenizer_without_the_leading_space():
    built = build_tokenizer(
        _sentencepiece_header(**{
            "tokenizer.ggml.add_space_prefix": False,
            "tokenizer.ggml.add_bos_token": False,
        })
    )
    assert built.encode("Hello world").ids == [332, 338]
    assert built.decode([332, 338]) == "Hello world"
    assert built.decode([338]) == " world"


def test_a_beginning_that_is_no_token_is_named():
    with pytest.raises(TokenizerError, match="begins texts with 999"):
        build_tokenizer(_sentencepiece_header(**{"tokenizer.ggml.bos_token_id": 999}))
