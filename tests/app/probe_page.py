"""Pages that say what they are told."""

from app.page import Page


class ProbePage(Page):
    icon_name = "chat"

    def __init__(self, surroundings, parent=None):
        super().__init__(surroundings, parent)
        self.told = []

    def shown(self):
        self.told.append("shown")

    def hidden(self):
        self.told.append("hidden")

    def new_chat(self):
        self.told.append("new_chat")

    def search(self):
        self.told.append("search")


class ChatProbe(ProbePage):
    title_key = "chat.title"


class PoolProbe(ProbePage):
    title_key = "chat.chats"


class SettingsProbe(ProbePage):
    title_key = "chat.settings"


class HiddenProbe(ProbePage):
    title_key = "chat.more"
