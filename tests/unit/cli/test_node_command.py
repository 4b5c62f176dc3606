"""Amounts of memory as people write them."""

import pytest

from engine.cli.node_command import parse_size
from engine.errors import UsageError


@pytest.mark.parametrize(
    ("text", "num_bytes"),
    [
        ("6GiB", 6 << 30),
        ("6 gib", 6 << 30),
        ("6G", 6 << 30),
        ("1.5GiB", 3 << 29),
        ("512MiB", 512 << 20),
        ("6GB", 6_000_000_000),
        ("800 MB", 800_000_000),
        ("1TiB", 1 << 40),
        ("1000", 1000),
        ("1000 B", 1000),
    ],
)
def test_a_size_is_read_as_it_is_written(text, num_bytes):
    assert parse_size(text) == num_bytes


@pytest.mark.parametrize(
    "text",
    ["", "lots", "0", "0.4", "-1GiB", "6 giraffes", "6GiBs", "GiB", "1e9", "9" * 20, "六G"],
)
def test_what_is_no_size_is_shown_with_how_to_write_one(text):
    with pytest.raises(UsageError, match="is no amount of memory") as caught:
        parse_size(text)
    assert caught.value.advice == "Write it like 6GiB."
