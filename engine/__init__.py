"""The engine of Daisy: everything but the window.

Start reading at ``ARCHITECTURE.md``; the packages are layered, and ``pyproject.toml`` holds the
contract that keeps them so.
"""

__version__ = "0.1.0"
