"""Where the process begins: Ctrl-C is answered from the first moment, before anything is loaded."""

import sys


def main() -> int:
    """Run ``daisy``.

    Returns:
        The exit status.
    """
    try:
        from engine.cli.main import main as run  # noqa: PLC0415 - takes a second

        return run()
    except KeyboardInterrupt:
        sys.stderr.write("Stopped.\n")
        return 130


if __name__ == "__main__":
    sys.exit(main())
