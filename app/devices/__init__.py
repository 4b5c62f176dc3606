"""Letting PCs in, and joining a pool."""
