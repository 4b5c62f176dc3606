"""What is said of PCs, links and figures, in the language that is chosen."""

from __future__ import annotations

from typing import TYPE_CHECKING

from app.safe_text import one_line
from app.wording.node_words import in_words

if TYPE_CHECKING:
    from collections.abc import Sequence

    from app.pool.memory_parts import MemoryParts
    from app.pool.ring import LinkFacts, PcFacts, Ring
    from app.wording.wording import Wording
    from engine.domain import LayerRange

_GIB = 1 << 30
_MIB = 1 << 20
_DASH = "\u2013"


def memory_text(num_bytes: int) -> str:
    """Return an amount of memory: ``6.0 GiB``, ``430 MiB``.

    Args:
        num_bytes: 0 or more.
    """
    return f"{num_bytes / _GIB:.1f} GiB" if num_bytes >= _GIB else f"{num_bytes / _MIB:.0f} MiB"


def layers_text(layers: Sequence[LayerRange]) -> str:
    """Return layers as they are counted by people who look them up: 12 to 21.

    Args:
        layers: One range or more.
    """
    return ", ".join(
        f"{part.start}{_DASH}{part.stop - 1}" if len(part) > 1 else str(part.start)
        for part in layers
    )


def number_text(value: float) -> str:
    """Return a measured number with as many digits as are true: ``0.84``, ``9.6``, ``43``.

    Args:
        value: 0 or more.
    """
    for limit, digits in ((0.995, 2), (99.5, 1)):
        if value < limit:
            return f"{value:.{digits}f}"
    return f"{value:.0f}"


class PoolWords:
    """Sentences about the pool."""

    def __init__(self, wording: Wording) -> None:
        """Begin.

        Args:
            wording: In the language that is chosen, whichever that is at each call.
        """
        self._wording = wording

    def text(self, name: str, /, **values: object) -> str:
        """Return a sentence of the pool's own file.

        Args:
            name: Of it.
            values: Of its fields.
        """
        return self._wording.text(f"pool.{name}", **values)

    # ---- one PC -------------------------------------------------------------------------------

    def name(self, pc: PcFacts) -> str:
        """Return a PC's name on one line.

        Args:
            pc: Which.
        """
        return one_line(pc.name, 80)

    def device_and_layers(self, pc: PcFacts) -> str:
        """Return what a PC computes with, and its layers.

        Args:
            pc: Which.
        """
        parts = [one_line(pc.devices[0], 24)] if pc.devices else []
        if pc.layers:
            parts.append(self.text("layers_short", layers=layers_text(pc.layers)))
        return " · ".join(parts)

    def stage_time(self, pc: PcFacts) -> str:
        """Return how long one token takes in a PC; empty before it was measured.

        Args:
            pc: Which.
        """
        if pc.stage_ms is None:
            return ""
        return self.text("ms_per_token", ms=number_text(pc.stage_ms))

    def memory_short(self, memory: MemoryParts) -> str:
        """Return what Daisy holds of what it may have.

        Args:
            memory: Of one PC.
        """
        used, lent = (f"{num / _GIB:.1f}" for num in (memory.used, memory.lent))
        return self.text("memory_short", used=used, lent=lent)

    def memory_sentence(self, memory: MemoryParts) -> str:
        """Return all parts of a PC's memory.

        Args:
            memory: Of one PC.
        """
        return self.text(
            "memory_sentence",
            total=memory_text(memory.total),
            system=memory_text(memory.system),
            used=memory_text(memory.used),
            lent=memory_text(memory.lent),
            free=memory_text(memory.free),
        )

    def role(self, pc: PcFacts) -> str:
        """Return what a PC does in the pool, in a word or two.

        Args:
            pc: Which.
        """
        if pc.state in {"offline", "gone"}:
            return self.text(f"state_{pc.state}")
        if pc.state == "silent":
            return self.text("state_silent")
        if pc.role == "stage":
            return self.text("role_ready" if pc.is_loaded else "role_planned")
        return self.text("role_" + pc.role.replace(" ", "_"))

    def reason(self, pc: PcFacts) -> str:
        """Return why a PC has its part, and what would help.

        Args:
            pc: Which.
        """
        if pc.role == "offline" and not pc.reason:
            return self.text("offline_reason")
        parts = (in_words(self._wording, part) for part in (pc.reason, pc.remedy) if part)
        gap = "" if self._wording.language == "zh" else " "
        return gap.join(parts)

    def notes(self, pc: PcFacts) -> list[str]:
        """Return what this PC's node says is wrong with a PC.

        Args:
            pc: Which.
        """
        return [in_words(self._wording, note) for note in pc.notes]

    def marks(self, pc: PcFacts) -> list[str]:
        """Return what else is true of a PC, each in a few words.

        Args:
            pc: Which.
        """
        told = (
            ("mark_here", pc.is_here),
            ("mark_coordinator", pc.is_coordinator),
            ("mark_takes_questions", pc.takes_questions),
            ("mark_pace", pc.sets_the_pace),
            ("mark_battery", pc.on_battery),
            ("mark_deaf", not pc.hears_us and pc.state == "online"),
        )
        return [self.text(name) for name, is_so in told if is_so]

    def sentence(self, pc: PcFacts) -> str:
        """Return everything the picture shows of a PC, to be read out.

        Args:
            pc: Which.
        """
        parts = [self.name(pc), self.role(pc), *self.marks(pc)]
        if pc.devices:
            parts.append(", ".join(one_line(device, 40) for device in pc.devices))
        if pc.layers:
            parts.append(self.text("layers_long", layers=layers_text(pc.layers)))
        if pc.stage_ms is not None:
            parts.append(self.stage_time(pc))
        if pc.memory is not None:
            parts.append(self.memory_sentence(pc.memory))
        reason = self.reason(pc)
        if reason:
            parts.append(reason)
        return self.text("list_comma").join(part.rstrip(".。") for part in parts)

    # ---- links and the whole ------------------------------------------------------------------

    def link(self, link: LinkFacts) -> str:
        """Return what is known of a link; empty where that is nothing.

        Args:
            link: Which.
        """
        parts = [] if link.kind is None else [self.text(f"link_{link.kind}")]
        if link.round_trip_ms is not None:
            parts.append(f"{number_text(link.round_trip_ms)} ms")
        return " · ".join(parts)

    def headline(self, ring: Ring) -> str:
        """Return in one sentence what the pool runs, and how far it is.

        Args:
            ring: The pool.
        """
        here = sum(pc.state in {"online", "silent"} for pc in ring.pcs)
        if not ring.model_name:
            return self.text("headline_none", n=here)
        return self.text(f"headline_{ring.phase}", model=one_line(ring.model_name, 60))

    def plan(self, ring: Ring, measured: float | None) -> str:
        """Return why the placement is as it is, and the forecast beside what was measured.

        Args:
            ring: The pool.
            measured: Tokens a second of the newest answer; None before one.
        """
        parts = [in_words(self._wording, ring.reason)] if ring.reason else []
        if ring.has_int8_links:
            parts.append(self.text("int8_links"))
        if ring.forecast is not None:
            rate = number_text(ring.forecast)
            if measured is None:
                parts.append(self.text("forecast", rate=rate))
            else:
                percent = round(100 * (ring.forecast - measured) / measured)
                parts.append(
                    self.text(
                        "forecast_and_measured",
                        rate=rate,
                        measured=number_text(measured),
                        percent=f"{percent:+d}",
                    )
                )
        gap = "" if self._wording.language == "zh" else " "
        return gap.join(parts)
