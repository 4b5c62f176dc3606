"""What was found, in words: for the page, for the clipboard and for the bundle."""

from __future__ import annotations

import platform
from typing import TYPE_CHECKING

from PySide6.QtCore import qVersion

import engine
from app.doctor.findings import findings_of, hearing_of, name_of
from app.safe_text import one_line
from engine.messages.control import PROTOCOL_VERSION

if TYPE_CHECKING:
    from app.doctor.findings import Finding
    from app.wording.wording import Wording
    from engine.messages.pool_status import AdapterStatus, PoolStatus

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

    def finding(self, found: Finding) -> tuple[str, str]:
        """Return what was found and what to do about it.

        Args:
            found: Which.
        """
        values = {
            name: one_line(value, 40) if isinstance(value, str) else value
            for name, value in found.values.items()
        }
        say = self._wording.text
        what = say(found.key, **values)
        if found.detail:
            detail = one_line(found.detail, 400)
            detail = detail[:1].upper() + detail[1:]
            what = f"{what} {detail}" if detail.endswith(".") else f"{what} {detail}."
        advice = f"{found.key}_advice"
        # A sentence without fields is not formatted; one with fields has them.
        return what, say(advice, **values)

    def adapter(self, adapter: AdapterStatus) -> tuple[str, str, str, str]:
        """Return a network adapter's name, state, addresses, and why it is left alone.

        Args:
            adapter: Which.
        """
        state = self.text("adapter_used" if adapter.is_used else "adapter_ignored")
        if adapter.is_used and adapter.link in {"wired", "wireless", "loopback"}:
            state = f"{state} ({self.text(f'link_{adapter.link}')})"
        reason = one_line(adapter.reason)
        if adapter.reason in _WHY and self._wording.language != "en":
            reason = self.text(_WHY[adapter.reason])
        return one_line(adapter.name, 40), state, ", ".join(adapter.addresses), reason

    def versions(self) -> list[tuple[str, str]]:
        """Return what runs here, by name."""
        return [
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

    def report(self, status: PoolStatus | None) -> str:
        """Return all of it as plain text.

        Args:
            status: As this PC's node told it; None where no node answers.
        """
        lines = [self.text("heading"), "", self.text("findings_heading")]
        for found in findings_of(status):
            what, advice = self.finding(found)
            lines.append(f"- {self.text(f'severity_{found.severity}')}: {what} {advice}".rstrip())
        if status is not None:
            lines += ["", self.text("hearing_heading"), *self._hearing_lines(status)]
            lines += ["", self.text("adapters_heading")]
            lines += ["  ".join(filter(None, self.adapter(one))) for one in status.adapters]
            lines += ["", self.text("devices_heading")]
            lines += ["  ".join(row) for row in self.devices(status)]
        lines += ["", self.text("versions_heading")]
        lines += [f"{name}: {value}" for name, value in self.versions()]
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
