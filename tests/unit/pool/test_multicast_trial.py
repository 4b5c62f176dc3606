"""A PC hears its own multicast, or it is said of which adapter it does not."""

from __future__ import annotations

import asyncio
import secrets
import socket

import pytest

from engine.errors import TransportError
from engine.pool.multicast_trial import GROUP, PORT, hear_own

pytestmark = pytest.mark.usefixtures("alone_on_mdns_port")

LOOPBACK = "127.0.0.1"
NAME = b"\x10" + secrets.token_bytes(16)  # of this run: the loopback is everybody's
QUICK_S = 0.3


def announcing(content: bytes):
    """Return what sends by multicast from the loopback, as zeroconf does from an adapter."""

    def announce() -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            sender.bind((LOOPBACK, 0))
            here = socket.inet_aton(LOOPBACK)
            sender.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, here)
            sender.sendto(content, (GROUP, PORT))

    return announce


def heard(addresses, announce, within_s=QUICK_S):
    return asyncio.run(hear_own(addresses, NAME, announce, within_s))


def test_its_own_announcement_is_heard_on_the_adapter_it_went_through():
    result = heard((LOOPBACK,), announcing(b"before " + NAME + b" after"), within_s=30)

    assert result[LOOPBACK].after_ms is not None
    assert result[LOOPBACK].problem == ""


@pytest.mark.parametrize("content", [b"another name", b""])
def test_what_others_announce_is_not_taken_for_it(content):
    result = heard((LOOPBACK,), announcing(content))

    assert result[LOOPBACK].after_ms is None


def test_an_address_this_pc_does_not_have_is_told_with_the_systems_reason():
    result = heard(("203.0.113.9", LOOPBACK), announcing(NAME), within_s=30)

    assert result["203.0.113.9"].problem
    assert result[LOOPBACK].after_ms is not None


def test_without_adapters_nothing_is_announced():
    assert heard((), lambda: pytest.fail("it announced")) == {}


def test_what_can_not_be_announced_is_raised_and_nothing_stays_open():
    def fails() -> None:
        raise TransportError("mDNS does not work: it is gone.")

    with pytest.raises(TransportError):
        heard((LOOPBACK,), fails)
