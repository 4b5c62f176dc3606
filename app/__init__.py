"""The tray and the chat window: they reach the engine through its local protocol only."""
