"""The only crossing from the window to the engine: the node's control port."""
