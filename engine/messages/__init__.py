"""Everything that crosses a process boundary, as types and as bytes."""
