"""``python -m app``: the window."""

import sys

from app.start import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
