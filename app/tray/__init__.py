"""The tray: one icon that tells the state, and the menu."""
