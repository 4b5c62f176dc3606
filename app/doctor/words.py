"""What was found, in words: for the page, for the clipboard and for the bundle."""

from __future__ import annotations

import platform
from typing import TYPE_CHECKING

from PySide6.QtCore import qVersion

import engine
from app.bridge.problem import problem_of
from app.safe_text import one_line
from app.wording.node_words import in_words
from app.wording.problems import problem_words
from engine.messages.control import PROTOCOL_VERSION
from engine.pool.findings import findings_of, hearing_of, name_of

if TYPE_CHECKING:
    from app.wording.wording import Wording
    from engine.messages.deployment import Trouble
    from engine.messages.doctor_control import AdapterTried, DeviceTried
    from engine.messages.pool_status import AdapterStatus, PoolStatus
    from engine.pool.findings import Finding, Tried

_WHY = {  # the engine's sentences about adapters
    "It belongs to containers.": "why_containers",
    "It belongs to WSL.": "why_wsl",
    "It belongs to virtual machines.": "why_virtual",
    "It is a VPN.": "why_vpn",
    "It is a Bluetooth network.": "why_bluetooth",
    "It is a mobile network.": "why_mobile",
    "It is not a network of PCs.": "why_no_pcs",
    "Another one was chosen.": "why_other",
    "It has no link.": "why_no_link",
    "It has no IPv4 address.": "why_no_address",
    "It reaches this PC only.": "why_this_pc",
    "It gave itself an address (169.254.\u2026), because nobody on its network did.": "why_own",
}
_YES, _NO, _SELF = "\u2713", "\u2717", "\u00b7"  # tick, cross, dot


def cell_sign(hears: bool | None) -> str:
    """Return the sign of one cell of who hears whom.

    Args:
        hears: Whether; None for a PC and itself.
    """
    if hears is None:
        return _SELF
    return _YES if hears else _NO


class DoctorWords:
    """Sentences of the doctor."""

    def __init__(self, wording: Wording) -> None:
        """Begin.

        Args:
            wording: In the language that is chosen, whichever that is at each call.
        """
        self._wording = wording

    def text(self, key: str, /, **values: object) -> str:
        """Return a sentence of the doctor's own file.

        Args:
            key: Of it.
            values: Of its fields.
        """
        return self._wording.text(f"doctor.{key}", **values)

    def finding(self, found: Finding, port: int | None = None) -> tuple[str, str]:
        """Return what was found and what to do about it.

        Args:
            found: Which.
            port: Where this PC's node listens; None where that isn't known.
        """
        fields = {name: one_line(value, 40) for name, value in found.fields.items()}
        sentences = [self.text(found.code, **fields)]
        if found.note:
            note = in_words(self._wording, one_line(found.note, 400))
            sentences.append(self._as_sentence(note))
        if found.trouble is not None:
            sentences.append(self.trouble(found.trouble))
        advice = [self.text(f"{found.code}_advice", **fields)]
        if found.firewall is not None and port is not None:
            advice.append(self.text(f"firewall_{found.firewall}", port=port))
        return self._joined(sentences), self._joined(advice)

    def trouble(self, trouble: Trouble) -> str:
        """Return what went wrong in one sentence, with the engine's own where it says more.

        Args:
            trouble: As the node told it.
        """
        words = problem_words(problem_of(trouble), self._wording)
        return one_line(words.what, 400)

    def _joined(self, sentences: list[str]) -> str:
        gap = "" if self._wording.language == "zh" else " "
        return gap.join(filter(None, sentences))

    def _as_sentence(self, note: str) -> str:
        stop = self.text("full_stop")
        note = note[:1].upper() + note[1:]
        return note if note.endswith((".", "\u3002", "!", "?")) else f"{note}{stop}"

    def adapter(
        self, adapter: AdapterStatus, tried: Tried | None = None
    ) -> tuple[str, str, str, str, str]:
        """Return a network adapter's name, state, addresses, what was tried, and why not.

        Args:
            adapter: Which.
            tried: What was tried.
        """
        state = self.text("adapter_used" if adapter.is_used else "adapter_ignored")
        if adapter.is_used and adapter.link in {"wired", "wireless", "loopback"}:
            state = self.text("adapter_state", state=state, link=self.text(f"link_{adapter.link}"))
        reason = one_line(adapter.reason)
        if adapter.reason in _WHY and self._wording.language != "en":
            reason = self.text(_WHY[adapter.reason])
        addresses = ", ".join(adapter.addresses)
        return one_line(adapter.name, 40), state, addresses, self._heard(adapter, tried), reason

    def _heard(self, adapter: AdapterStatus, tried: Tried | None) -> str:
        if not adapter.is_used:
            return ""
        network = None if tried is None else tried.network
        lines = () if network is None else network.adapters
        found = [self._heard_on(one) for one in lines if one.address in adapter.addresses]
        return ", ".join(found) if found else self.text("untried")

    def _heard_on(self, one: AdapterTried) -> str:
        if one.problem:
            return self.text("heard_failed")
        if one.heard_ms is None:
            return self.text("heard_not")
        return self.text("heard", ms=f"{one.heard_ms:.0f}")

    def tried_devices(self, tried: Tried | None) -> list[tuple[str, str, str]]:
        """Return each device of this PC: its name, what it is, and how it did.

        Args:
            tried: What was tried.
        """
        devices = () if tried is None or tried.devices is None else tried.devices.devices
        return [(one_line(d.name, 40), one_line(d.full_name, 60), self._ran(d)) for d in devices]

    def device_details(self, tried: Tried | None) -> list[tuple[str, str]]:
        """Return each device of this PC, and the engine's own words where it failed.

        Args:
            tried: What was tried.
        """
        devices = () if tried is None or tried.devices is None else tried.devices.devices
        troubles = [(one_line(d.name, 40), d.trouble) for d in devices]
        return [(name, "" if t is None else one_line(t.what, 400)) for name, t in troubles]

    def _ran(self, device: DeviceTried) -> str:
        if device.token_ms is None or device.load_s is None:
            trouble = device.trouble
            reason = self.text("untried") if trouble is None else self.trouble(trouble)
            return self.text("token_failed", reason=reason)
        ms, seconds = f"{device.token_ms:.1f}", f"{device.load_s:.1f}"
        return self.text("token_ran", ms=ms, seconds=seconds)

    def firewall(self, tried: Tried | None) -> str:
        """Return which firewall was seen on this PC; empty before that was looked for.

        Args:
            tried: What was tried.
        """
        if tried is None or tried.network is None:
            return ""
        seen = tried.network.firewall
        name = self.text(f"firewall_name_{seen.kind}")
        if seen.is_on is None:
            return name
        return self.text("firewall_is_on" if seen.is_on else "firewall_is_off", name=name)

    def versions(self, tried: Tried | None = None) -> list[tuple[str, str]]:
        """Return what runs here, by name.

        Args:
            tried: What was tried.
        """
        firewall = self.firewall(tried)
        return [
            *([(self.text("firewall_seen_heading"), firewall)] if firewall else []),
            (self.text("version_app"), f"Daisy {engine.__version__}"),
            (self.text("version_protocol"), str(PROTOCOL_VERSION)),
            (self.text("version_python"), platform.python_version()),
            (self.text("version_qt"), qVersion()),
            (self.text("version_system"), f"{platform.system()} {platform.release()}"),
        ]

    def devices(self, status: PoolStatus) -> list[tuple[str, str, str]]:
        """Return each PC's devices, and what was measured of them.

        Args:
            status: As this PC's node told it.
        """
        rows = []
        for node in status.nodes:
            report = node.report
            if report is None:
                continue
            names = ", ".join(one_line(device, 40) for device in report.devices)
            measured = self.text("not_measured")
            if report.layer_ms is not None:
                measured = self.text("measured", ms=f"{report.layer_ms:.2f}")
            rows.append((one_line(name_of(node), 40), names, measured))
        return rows

    def report(self, status: PoolStatus | None, tried: Tried | None = None) -> str:
        """Return all of it as plain text.

        Args:
            status: As this PC's node told it; None where no node answers.
            tried: What was tried.
        """
        port = None if tried is None or tried.network is None else tried.network.port
        lines = [self.text("heading"), "", self.text("findings_heading")]
        for found in findings_of(status, tried):
            what, advice = self.finding(found, port)
            severity = self.text(f"severity_{found.severity}")
            lines.append(f"- {severity}: {self._joined([what, advice])}")
        if status is not None:
            lines += ["", self.text("hearing_heading"), *self._hearing_lines(status)]
            lines += ["", self.text("adapters_heading")]
            lines += ["  ".join(filter(None, self.adapter(a, tried))) for a in status.adapters]
            lines += ["", self.text("devices_heading")]
            lines += ["  ".join(row) for row in self.devices(status)]
        if tried is not None and tried.devices is not None:
            lines += ["", self.text("tried_heading")]
            lines += ["  ".join(row) for row in self.tried_devices(tried)]
            lines += [f"{name}: {told}" for name, told in self.device_details(tried) if told]
        lines += ["", self.text("versions_heading")]
        lines += [f"{name}: {value}" for name, value in self.versions(tried)]
        return "\n".join(lines) + "\n"

    def _hearing_lines(self, status: PoolStatus) -> list[str]:
        hearing = hearing_of(status)
        return [
            f"{one_line(name, 40)}: "
            + ", ".join(
                f"{cell_sign(cell)} {one_line(other, 40)}"
                for other, cell in zip(hearing.names, row, strict=True)
                if cell is not None
            )
            for name, row in zip(hearing.names, hearing.cells, strict=True)
        ]
