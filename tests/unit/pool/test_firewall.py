"""What is seen of a firewall without being its administrator."""

from __future__ import annotations

import pytest

from engine.pool.firewall import _is_public, seen_firewall


@pytest.mark.parametrize(("word", "is_on"), [("yes", True), ("YES", True)])
def test_ufw_that_is_switched_on_is_seen(tmp_path, word, is_on):
    (tmp_path / "ufw.conf").write_text(f"# a comment\nENABLED={word}\nLOGLEVEL=low\n")
    seen = seen_firewall(tmp_path / "ufw.conf")

    assert (seen.kind, seen.is_on) == ("ufw", is_on)


def test_ufw_that_is_switched_off_is_said_to_be(tmp_path):
    (tmp_path / "ufw.conf").write_text("ENABLED=no\n")
    seen = seen_firewall(tmp_path / "ufw.conf")

    assert seen.kind in {"ufw", "firewalld"}  # a PC may have both
    assert seen.is_on is (seen.kind == "firewalld")


def test_where_nothing_is_seen_nothing_is_claimed(tmp_path):
    seen = seen_firewall(tmp_path / "none.conf")

    assert seen.kind in {"unknown", "firewalld"}
    assert seen.is_public is None


@pytest.mark.parametrize(
    ("told", "is_public"),
    [
        ("Public\r\n", True),
        ("Private\nPublic\n", True),
        ("DomainAuthenticated\n", False),
        ("", None),
    ],
)
def test_windows_is_asked_how_it_counts_its_networks(told, is_public):
    assert _is_public(told) is is_public
