"""Raw results to Markdown, with a plot beside each table that has one."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from svg_plot import svg
from tables import markdown, svg_name, table_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class NoTablesError(Exception):
    """A file holds no tables; says which."""


def report_of(kept: Mapping[str, object], results: Path) -> str:
    """Return one file's part of the report; writes its plots beside it.

    Args:
        kept: What a script kept.
        results: The file it lies in.

    Raises:
        NoTablesError: It has none.
    """
    tables = kept.get("tables")
    if not isinstance(tables, list):
        raise NoTablesError(f"{results.name} holds no tables; it is of a script without any.")
    parts = [_preface(kept)]
    for number, raw in enumerate(tables):
        table = table_of(raw)
        parts.append(markdown(table))
        if table.plot is not None:
            name = svg_name(results, number)
            results.with_name(name).write_text(svg(table), "utf-8")
            parts.append(f"![{table.title}]({name})")
    return "\n\n".join(parts)


def _preface(kept: Mapping[str, object]) -> str:
    machine = kept["machine"]
    command = kept["command"]
    if not isinstance(machine, dict) or not isinstance(command, list):
        raise NoTablesError("The file is none that a script of this folder has kept.")
    words = [Path(command[0]).name, *command[1:]]
    return (
        f"`python reproduction/{' '.join(words)}`, {kept['taken']}, "
        f"load {kept['load']:.1f} before; {machine['cpu']}, {machine['cores']} cores, "
        f"OpenVINO {machine['openvino_build']}"
    )


def main(arguments: Sequence[str]) -> int:
    """Print a report of the files named.

    Args:
        arguments: Of the command line.

    Returns:
        The exit status.
    """
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", type=Path, nargs="+", help="JSON that a script has written")
    given = parser.parse_args(arguments)
    try:
        parts = [report_of(json.loads(f.read_text("utf-8")), f) for f in given.files]
    except NoTablesError as error:
        print(error, file=sys.stderr)
        return 1
    print("\n\n".join(parts))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
