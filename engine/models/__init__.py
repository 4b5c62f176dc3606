"""A model's files, its description, its tokenizer and its text: from a folder or a GGUF."""
