"""Choosing the next token from logits: parameters, distribution, and the seeded draw."""
