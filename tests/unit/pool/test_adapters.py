"""Which adapters are used, in which order, and what is said of the others."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.pool.adapters import Interface, rank_adapters
from engine.pool.system_interfaces import system_interfaces

LOOPBACK = Interface("lo", ("127.0.0.1",), is_loopback=True)


def real(name: str, address: str = "192.168.1.20", **facts) -> Interface:
    return Interface(name, (address,), **facts)


def used(*interfaces: Interface, chosen: tuple[str, ...] = ()) -> list[str]:
    return [adapter.name for adapter in rank_adapters(interfaces, chosen).used]


def reason(interface: Interface, chosen: tuple[str, ...] = ()) -> str | None:
    ranked = rank_adapters((interface,), chosen)
    assert len(ranked.used) + len(ranked.ignored) == 1
    return ranked.ignored[0].reason if ranked.ignored else None


@pytest.mark.parametrize(
    "name",
    [
        "eth0", "enp3s0", "eno1", "enx00e04c680001", "wlan0", "wlp2s0", "bond0", "br0", "vlan7",
        "Ethernet", "Ethernet 2", "Wi-Fi", "WLAN", "以太网", "无线网络连接", "LAN-Verbindung",
        "Local Area Connection", "Thunderbolt", "tunnel-to-nowhere-else", "weird name 7",
    ],
)  # fmt: skip
def test_an_adapter_that_leads_to_other_pcs_is_used(name):
    assert reason(real(name)) is None


@pytest.mark.parametrize(
    ("name", "word"),
    [
        ("docker0", "containers"), ("br-0a1b2c3d4e5f", "containers"), ("veth12ab34c", "containers"),
        ("cni0", "containers"), ("podman1", "containers"), ("lxdbr0", "containers"),
        ("virbr0", "virtual machines"), ("vmnet8", "virtual machines"),
        ("vboxnet0", "virtual machines"), ("vEthernet (Default Switch)", "virtual machines"),
        ("VirtualBox Host-Only Network", "virtual machines"),
        ("VMware Network Adapter VMnet8", "virtual machines"),
        ("vEthernet (WSL)", "WSL"), ("vEthernet (WSL (Hyper-V firewall))", "WSL"),
        ("tun0", "VPN"), ("tap1", "VPN"), ("wg0", "VPN"), ("tailscale0", "VPN"),
        ("Tailscale", "VPN"),
        ("ztabcdef12", "VPN"), ("ZeroTier One [8056c2e21c000001]", "VPN"), ("utun3", "VPN"),
        ("OpenVPN TAP-Windows6", "VPN"), ("WireGuard Tunnel", "VPN"), ("ppp0", "VPN"),
        ("Bluetooth Network Connection", "Bluetooth"), ("wwan0", "mobile"), ("Cellular", "mobile"),
        ("Local Area Connection* 10", "not a network"), ("dummy0", "not a network"),
    ],
)  # fmt: skip
def test_an_adapter_that_leads_elsewhere_is_ignored_with_its_reason(name, word):
    assert word in reason(real(name))


def test_an_adapter_is_known_by_its_mac_where_its_name_says_nothing():
    assert "virtual machines" in reason(real("Ethernet 3", "192.168.56.1", mac="0a:00:27:00:00:05"))
    assert "VPN" in reason(real("Ethernet 4", "10.8.0.2", mac="00:ff:12:34:56:78"))
    assert reason(real("Ethernet", mac="3c:52:82:11:22:33")) is None


def test_a_point_to_point_link_of_any_name_is_ignored():
    assert reason(real("corp0", "10.1.1.1", is_point_to_point=True)) == "It is a VPN."


def test_what_gave_itself_an_address_is_ignored_and_never_announced():
    assert "169.254" in reason(real("eth0", "169.254.3.4"))
    both = Interface("eth0", ("169.254.3.4", "192.168.1.5"))
    assert rank_adapters((both,)).addresses == ("192.168.1.5",)


def test_without_a_link_or_an_address_it_cannot_be_used_even_if_chosen():
    down = real("eth0", is_up=False)
    assert reason(down) == reason(down, ("eth0",)) == "It has no link."
    assert reason(Interface("eth0")) == "It has no IPv4 address."
    assert reason(Interface("eth0"), ("eth0",)) == "It has no IPv4 address."


def test_cable_comes_before_the_unknown_before_the_air_and_fast_before_slow():
    assert used(
        real("wlan0", "10.0.0.1", speed_mbps=2400),
        real("mystery", "10.0.0.2"),
        real("eth1", "10.0.0.3", speed_mbps=1000),
        real("eth0", "10.0.0.4", speed_mbps=100),
        real("eth2", "10.0.0.5", speed_mbps=10000),
    ) == ["eth2", "eth1", "eth0", "mystery", "wlan0"]


def test_what_the_system_knows_of_the_air_is_believed_before_the_name():
    assert used(real("eth0", is_wireless=True), real("eth1", is_wireless=False)) == ["eth1", "eth0"]
    assert used(real("home", is_wireless=False), real("eth1", is_wireless=None)) == ["eth1", "home"]


def test_the_loopback_is_used_only_when_chosen():
    assert reason(LOOPBACK) == "It reaches this PC only."
    ranked = rank_adapters((LOOPBACK, real("eth0")), ("lo",))
    assert [(a.name, a.link) for a in ranked.used] == [("lo", "loopback")]
    assert ranked.ignored[0].reason == "Another one was chosen."
    windows = Interface("Loopback Pseudo-Interface 1", ("127.0.0.1",), is_loopback=True)
    assert reason(windows, ("127.0.0.1",)) is None


def test_a_choice_overrides_the_judgement_and_the_order():
    interfaces = (real("eth0", "10.0.0.1"), real("tailscale0", "100.64.0.2"), real("wlan0"))
    assert used(*interfaces, chosen=("TAILSCALE0", "eth0")) == ["tailscale0", "eth0"]
    assert reason(real("eth0", "169.254.1.1"), ("eth0",)) is None


def test_a_chosen_address_is_the_only_one_of_its_adapter():
    two = Interface("eth0", ("10.0.0.1", "10.0.0.2"))
    assert rank_adapters((two,), ("10.0.0.2",)).addresses == ("10.0.0.2",)
    assert rank_adapters((two,), ("eth0",)).addresses == ("10.0.0.1", "10.0.0.2")


def test_a_choice_that_matches_nothing_is_told_and_nothing_is_used_instead():
    ranked = rank_adapters((real("eth0"),), ("eth7",))
    assert ranked.missing == ("eth7",)
    assert ranked.used == ()


@given(
    st.lists(
        st.builds(
            Interface,
            name=st.text(max_size=30),
            addresses=st.lists(st.ip_addresses(v=4).map(str), max_size=3).map(tuple),
            mac=st.text(max_size=17),
            is_up=st.booleans(),
            is_loopback=st.booleans(),
            is_point_to_point=st.booleans(),
            is_wireless=st.none() | st.booleans(),
        ),
        max_size=6,
    ).map(tuple),
    st.lists(st.text(max_size=10) | st.sampled_from(["lo", "10.0.0.1"]), max_size=2).map(tuple),
)
def test_every_interface_is_used_or_ignored_with_a_sentence(interfaces, chosen):
    ranked = rank_adapters(interfaces, chosen)
    names = [adapter.name for adapter in (*ranked.used, *ranked.ignored)]
    assert sorted(names) == sorted(interface.name for interface in interfaces)
    assert all(adapter.addresses for adapter in ranked.used)
    assert all(adapter.reason.endswith(".") for adapter in ranked.ignored)


def test_the_system_is_asked_and_has_a_loopback():
    loopbacks = [interface for interface in system_interfaces() if interface.is_loopback]
    assert any("127.0.0.1" in interface.addresses for interface in loopbacks)
    assert all(interface.index > 0 for interface in loopbacks)
