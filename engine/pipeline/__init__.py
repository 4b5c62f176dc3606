"""One reply's way: the head that owns it, and the stage server that passes it on."""
