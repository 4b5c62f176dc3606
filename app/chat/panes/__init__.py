"""What stands around a conversation: the list of chats, its head, its settings, notices."""
