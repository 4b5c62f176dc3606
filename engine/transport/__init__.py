"""Connections between nodes: the session's rules, and the websocket that carries it."""
