"""S12, S13: the program never does what would run code of somebody else's, anywhere in its source.

A linter says some of this too, and can be told to be quiet on a line; this can't.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = sorted(
    file for folder in ("app", "engine", "installer") for file in (ROOT / folder).rglob("*.py")
)
# Where the other side is proved by the code of a pairing, which is bound to both certificates.
MAY_SKIP_CERTIFICATES = {"engine/transport/tls.py"}

UNPICKLING = {"pickle", "cPickle", "dill", "cloudpickle", "marshal", "shelve", "joblib", "yaml"}
RUNNING = {"eval", "exec", "compile", "__import__"}  # as builtins; re.compile is none
CALLED = {
    ("torch", "load"),
    ("os", "system"),
    ("os", "popen"),
    ("subprocess", "getoutput"),
    ("ssl", "_create_unverified_context"),
}
# A compiled blob is code for a device's compiler and driver; OpenVINO checks little of it.
BLOBS = {"import_model", "export_model"}
NAMED = {"shell": True, "verify": False, "trust_remote_code": True}


def found_in(tree):
    """Return what is wrong with a file, as line and words."""
    return [(node.lineno, what) for node in ast.walk(tree) for what in wrong_with(node)]


def wrong_with(node):
    yield from imported_by(node)
    match node:
        case ast.Call(func=ast.Name(id=name)) if name in RUNNING:
            yield name
        case ast.Attribute(value=ast.Name(id=owner), attr=name) if (owner, name) in CALLED:
            yield f"{owner}.{name}"
        case ast.Attribute(attr=name) if name in BLOBS | {"CERT_NONE"}:
            yield name
        case ast.Constant(value=str(text)) if "trust_remote_code" in text and len(text) < 40:
            yield text
    if isinstance(node, ast.Call):
        for word in node.keywords:
            is_constant = isinstance(word.value, ast.Constant)
            if word.arg in NAMED and not (is_constant and word.value.value is not NAMED[word.arg]):
                yield f"{word.arg}="


def imported_by(node):
    match node:
        case ast.Import(names=names):
            yield from (a.name for a in names if a.name.split(".")[0] in UNPICKLING)
        case ast.ImportFrom(module=str(module)) if module.split(".")[0] in UNPICKLING:
            yield module


@pytest.mark.parametrize("file", SOURCES, ids=[str(f.relative_to(ROOT)) for f in SOURCES])
def test_s12_s13_nothing_is_unpickled_evaluated_or_taken_ready_compiled(file):
    name = file.relative_to(ROOT).as_posix()
    found = found_in(ast.parse(file.read_bytes()))
    if name in MAY_SKIP_CERTIFICATES:
        found = [one for one in found if one[1] != "CERT_NONE"]
    assert not found, f"{name}: {found}"


@pytest.mark.parametrize(
    "line",
    [
        "import pickle",
        "import os, marshal",
        "from pickle import loads",
        "import yaml.loader",
        "eval(text)",
        "exec(text)",
        "compile(text, '', 'exec')",
        "torch.load(path)",
        "run = os.system",
        "subprocess.run(line, shell=True)",
        "subprocess.run(line, shell=chosen)",
        "get(url, verify=False)",
        "AutoTokenizer.from_pretrained(p, trust_remote_code=True)",
        "AutoTokenizer.from_pretrained(p, trust_remote_code=given)",
        "options = {'trust_remote_code': True}",
        "context.verify_mode = ssl.CERT_NONE",
        "core.import_model(blob, 'GPU')",
    ],
)
def test_s13_the_scan_finds_what_it_looks_for(line):
    assert found_in(ast.parse(line))


@pytest.mark.parametrize(
    "line",
    [
        "re.compile('x')",
        "core.compile_model(model)",
        "subprocess.run(line, shell=False)",
        "AutoTokenizer.from_pretrained(p, trust_remote_code=False)",
    ],
)
def test_s13_the_scan_finds_nothing_where_nothing_is(line):
    assert not found_in(ast.parse(line))
