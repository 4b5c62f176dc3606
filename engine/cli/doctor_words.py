"""What the doctor finds, in the words of the command line; pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.cli.shown_text import printable, table
from engine.pool.findings import findings_of, hearing_of, name_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from engine.messages.doctor_control import AdapterTried, DeviceTried
    from engine.messages.pool_status import AdapterStatus, PoolStatus
    from engine.pool.findings import Finding, Tried

# What was found, and what to do about it.
FINDINGS: dict[str, tuple[str, str]] = {
    "no_node": ("No node of Daisy runs on this PC.", "Start it: daisy node."),
    "all_well": ("All {n} PCs hear each other. Nothing wrong was found.", ""),
    "this_pc_well": ("This PC is well. Nothing wrong was found.", ""),
    "not_tried": ("Something could not be tried.", "Run daisy doctor again."),
    "one_way": (
        "{hearer} hears {deaf}, but {deaf} does not hear {hearer}.",
        "Allow Daisy in the firewall of {deaf}.",
    ),
    "no_link": (
        "{one} and {other} do not hear each other.",
        "Put both on the same network; a guest Wi-Fi often keeps PCs apart.",
    ),
    "node_note": ("{pc} is not as it should be.", "Where versions differ, update the older one."),
    "silent": ("{pc} was not heard for a few seconds.", "Wait a moment; its Wi-Fi may be weak."),
    "offline": ("{pc} is offline.", "Switch it on or wake it; it comes back by itself."),
    "on_battery": ("{pc} runs on its battery.", "Plug it in: most PCs compute slower on battery."),
    "wireless": ("{pc} is on Wi-Fi.", "A cable makes every token faster."),
    "no_device": ("{pc} has no device that can hold a stage.", "Update its drivers."),
    "pool_note": ("The node tells of the network:", ""),
    "no_adapter": (
        "This PC is on no network that Daisy may use.",
        "Connect a cable or Wi-Fi, or name an adapter: daisy node --interface NAME.",
    ),
    "alone": (
        "No other PC of the pool is seen.",
        "Start Daisy on another PC, and let it in: daisy invite.",
    ),
    "alone_but_heard": (
        "This PC hears itself on the network, but no other PC of the pool.",
        "Start Daisy there. If it runs, a guest Wi-Fi may keep the PCs apart: use a cable or the "
        "main Wi-Fi, or name the other PC: daisy node --peer HOST:PORT.",
    ),
    "no_coordinator": ("The pool has no coordinator yet.", "It takes a few seconds after a start."),
    "adapter_failed": (
        "{adapter} ({address}) could not be tried.",
        "PCs can still be named: daisy node --peer HOST:PORT.",
    ),
    "not_heard": (
        "On {adapter} ({address}) this PC does not hear its own announcements.",
        "Something on this PC stops multicast there, most often its firewall.",
    ),
    "public_network": (
        "Windows counts this network as a public one and lets nobody in.",
        "Make it a private one in the network's properties.",
    ),
    "device_failed": ("{device} did not compute a token.", "Daisy works without it."),
}
FIREWALLS = {
    "windows": "In Windows Security, let Daisy through for private networks "
    "(TCP {port}, UDP 5353).",
    "ufw": "sudo ufw allow {port}/tcp && sudo ufw allow 5353/udp",
    "firewalld": "sudo firewall-cmd --permanent --add-service=mdns --add-port={port}/tcp "
    "&& sudo firewall-cmd --reload",
    "unknown": "If this PC has a firewall, let in TCP {port} and UDP 5353.",
}
_MARKS = {"wrong": "!", "hint": "-", "good": "+"}
_YES, _NO, _SELF = "yes", "NO", "."


def finding_words(found: Finding, port: int | None) -> tuple[str, str]:
    """Return what was found and what to do about it.

    Args:
        found: Which.
        port: Where this PC's node listens; None where that isn't known.
    """
    fields = {name: printable(value) for name, value in found.fields.items()}
    what, advice = (text.format(**fields) for text in FINDINGS[found.code])
    if found.note:
        what = f"{what} {printable(found.note)}"
    if found.trouble is not None:
        what = f"{what} {printable(found.trouble.what)}"
        advice = f"{advice} {printable(found.trouble.advice)}"
    if found.firewall is not None and port is not None:
        advice = f"{advice} {FIREWALLS[found.firewall].format(port=port)}"
    return what.strip(), advice.strip()


def doctor_lines(
    status: PoolStatus | None, tried: Tried, versions: dict[str, str]
) -> Iterator[str]:
    """Yield the lines a person is shown.

    Args:
        status: As this PC's node told it; None where none runs.
        tried: What was tried.
        versions: Of what runs here, by name.
    """
    port = None if tried.network is None else tried.network.port
    for found in findings_of(status, tried):
        what, advice = finding_words(found, port)
        yield f"{_MARKS[found.severity]} {what}"
        if advice:
            yield f"  {advice}"
    if status is not None:
        yield from _section("Who hears whom (each row hears the columns)", _hearing(status))
        yield from _section("Network adapters of this PC", _adapters(status, tried))
        yield from _section("Devices of the pool", _pool_devices(status))
    if tried.devices is not None:
        rows = [_device(device) for device in tried.devices.devices]
        yield from _section("One token on each device of this PC", rows)
    yield from _section("Versions", list(versions.items()))


def _section(heading: str, rows: list[tuple[str, ...]]) -> Iterator[str]:
    yield ""
    yield f"{heading}:"
    yield from (f"  {line}" for line in table(rows))


def _hearing(status: PoolStatus) -> list[tuple[str, ...]]:
    hearing = hearing_of(status)
    names = [printable(name) for name in hearing.names]
    signs = {True: _YES, False: _NO, None: _SELF}
    rows = (tuple(signs[cell] for cell in cells) for cells in hearing.cells)
    return [("", *names), *((name, *row) for name, row in zip(names, rows, strict=True))]


def _adapters(status: PoolStatus, tried: Tried) -> list[tuple[str, ...]]:
    network = () if tried.network is None else tried.network.adapters
    heard = {one.address: _heard(one) for one in network}
    return [_adapter(adapter, heard) for adapter in status.adapters]


def _adapter(adapter: AdapterStatus, heard: dict[str, str]) -> tuple[str, ...]:
    addresses = printable(", ".join(adapter.addresses))
    if not adapter.is_used:
        return printable(adapter.name), "left alone", addresses, printable(adapter.reason)
    results = [heard[address] for address in adapter.addresses if address in heard]
    return printable(adapter.name), "used", addresses, ", ".join(results)


def _heard(one: AdapterTried) -> str:
    if one.problem:
        return f"not tried: {printable(one.problem)}"
    return "does not hear itself" if one.heard_ms is None else "hears itself"


def _pool_devices(status: PoolStatus) -> list[tuple[str, ...]]:
    return [
        (
            printable(name_of(node)),
            printable(", ".join(node.report.devices)),
            "" if node.report.layer_ms is None else f"{node.report.layer_ms:.2f} ms a layer",
        )
        for node in status.nodes
        if node.report is not None
    ]


def _device(device: DeviceTried) -> tuple[str, ...]:
    name, full_name = printable(device.name), printable(device.full_name)
    if device.trouble is not None or device.token_ms is None or device.load_s is None:
        return name, full_name, "failed"
    how = f"a token in {device.token_ms:.1f} ms, ready after {device.load_s:.1f} s"
    return name, full_name, how
