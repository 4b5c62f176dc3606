"""The command line: ``daisy …``."""
