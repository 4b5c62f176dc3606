"""A model's Markdown: read into plain data, a growing text a little at a time, then drawn."""
