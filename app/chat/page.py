"""The page people talk on."""

from __future__ import annotations

from app.page import Page


class ChatPage(Page):
    """Chats on the left, the chosen one beside them."""

    title_key = "chat.title"
    icon_name = "chat"
