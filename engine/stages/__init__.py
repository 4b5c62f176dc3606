"""A shard loaded on a device: the stage protocol, its two implementations, and its process."""
