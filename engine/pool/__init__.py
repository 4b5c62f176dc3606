"""How PCs become a pool: who is there, who decides, and who holds what."""
