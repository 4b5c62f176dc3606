"""The parsers of files that describe a model, and of requests: what peers and the world bring."""

from __future__ import annotations

import atexit
import json
import os
import struct
import tempfile
from functools import cache
from pathlib import Path

from engine.errors import ModelFileError, ShardCorruptError, UnsupportedModelError, UsageError
from engine.messages.request_body import parse_request
from engine.models.gguf_header import read_gguf_header
from engine.pool.model_listing import ModelListing, check_listing, decode_listing
from engine.splitter.manifest import FileEntry
from tests.fuzz.target import Target
from tests.unit.pool.models import model

HASH = "a" * 64
NAMES = ("openvino_model.xml", "openvino_model.bin", "config.json", "templates/rag.jinja")


def listings():
    files = tuple(FileEntry(name, 10 + len(name), HASH) for name in NAMES)
    told = ModelListing(format=1, model=model(2), files=files, paged_refusal=None)
    return [told.encoded(), told.encoded().replace(b"null", b'"2 of 3 layers"')]


def run_listing(data):
    listing = decode_listing(data)
    check_listing(listing)
    assert decode_listing(listing.encoded()) == listing
    for entry in listing.files:
        assert ".." not in entry.path
        assert not entry.path.startswith("/")


# ---- GGUF --------------------------------------------------------------------------------------


@cache
def gguf_file():
    """A file that is written anew for each input, in memory where the system can."""
    memory = Path("/dev/shm")  # noqa: S108 - a folder of its own in it
    place = tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None)
    atexit.register(place.cleanup)
    return Path(place.name) / "model.gguf"


def text(value):
    data = value.encode()
    return struct.pack("<Q", len(data)) + data


def gguf_headers():
    pairs = [
        text("general.architecture") + struct.pack("<I", 8) + text("llama"),
        text("general.alignment") + struct.pack("<II", 4, 32),
        text("llama.rope.freq_base") + struct.pack("<If", 6, 1e4),
        text("tokenizer.ggml.add_bos_token") + struct.pack("<I?", 7, True),
        text("tokenizer.ggml.tokens") + struct.pack("<IIQ", 9, 8, 2) + text("a") + text("Ġ"),
        text("tokenizer.ggml.scores") + struct.pack("<IIQff", 9, 6, 2, 0.5, -1.0),
    ]
    tensors = [
        text("output_norm.weight") + struct.pack("<IQIQ", 1, 8, 0, 0),
        text("blk.0.ffn_down.weight") + struct.pack("<IQQIQ", 2, 32, 2, 8, 32),
    ]
    head = struct.pack("<4sIQQ", b"GGUF", 3, len(tensors), len(pairs))
    whole = b"".join([head, *pairs, *tensors])
    whole += bytes(-len(whole) % 32 + 32 + 68)
    empty = struct.pack("<4sIQQ", b"GGUF", 2, 0, 0)
    return [whole, whole.replace(b"GGUF\x03", b"GGUF\x01", 1), empty + bytes(32)]


def run_gguf_header(data):
    file = gguf_file()
    file.write_bytes(data)
    header = read_gguf_header(file)
    assert header.file_bytes == len(data)
    for tensor in header.tensors:
        assert tensor.num_bytes is None or tensor.offset + tensor.num_bytes <= len(data)


# ---- requests ----------------------------------------------------------------------------------


def requests():
    message = {"role": "user", "content": "Why?"}
    chat = {"messages": [message], "temperature": 0.7, "seed": 3, "stop": ["\n"], "stream": True}
    return [
        json.dumps(chat).encode(),
        json.dumps({"prompt": "Why?", "max_tokens": 4, "top_p": 0.9, "n": 1}).encode(),
    ]


def run_request(data):
    request = parse_request(data, "r")
    assert (request.messages is None) != (request.prompt is None)


MODEL_FILES = (
    Target("listing", run_listing, (ShardCorruptError,), listings, "json"),
    Target("gguf_header", run_gguf_header, (ModelFileError, UnsupportedModelError), gguf_headers),
    Target("request_body", run_request, (UsageError,), requests, "json"),
)
