"""``daisy`` whose heads guess from recordings: whatever they decode has guesses behind it."""

import sys

from measured_node import let_heads_guess

from engine.cli.main import main

if __name__ == "__main__":
    let_heads_guess()
    sys.exit(main())
