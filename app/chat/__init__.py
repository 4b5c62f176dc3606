"""Chats: kept, shown, and continued."""
