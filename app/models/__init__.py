"""Which models there are, which of them fit, and how far a loading one is."""
