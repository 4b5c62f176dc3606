"""Stages: accounting, the two ways to run a shard, and the process around them."""
