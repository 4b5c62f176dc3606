"""Which pages the window has, from the top of the rail."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from app.page import Page


@dataclass(frozen=True, slots=True)
class PageEntry:
    """Where a page is; imported when the window is built.

    Attributes:
        name: What others call it: ``navigation.go(name)``.
        place: ``module:class``.
        in_rail: Whether the rail shows it; others are reached from pages and from the tray.
    """

    name: str
    place: str
    in_rail: bool = True

    def page_class(self) -> type[Page]:
        """Import and return the page's class."""
        module, _, name = self.place.partition(":")
        found: type[Page] = getattr(importlib.import_module(module), name)
        return found


PAGES: tuple[PageEntry, ...] = (
    PageEntry("chat", "app.chat.page:ChatPage"),
    PageEntry("pool", "app.pool.page:PoolPage"),
    PageEntry("models", "app.models.page:ModelsPage"),
    PageEntry("settings", "app.settings.page:SettingsPage"),
    PageEntry("devices", "app.devices.page:DevicesPage", in_rail=False),
    PageEntry("doctor", "app.doctor.page:DoctorPage", in_rail=False),
)
