"""Real processes, files and sockets."""
