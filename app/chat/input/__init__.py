"""Where people write."""
