"""Which sequences form the next micro-batch; pure."""
