"""Which colour each word of a program has: pygments' kinds, a little at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pygments.lexers import get_lexer_by_name
from pygments.token import Token
from pygments.util import ClassNotFound

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pygments.lexer import Lexer

    from app.look.tokens import Theme

MAX_CHARACTERS = 200_000  # of a block; what is longer stays plain
MAX_LINE = 2000  # of a line: patterns that go back and forth take long on longer ones
# Known to take a time that grows with the text, not faster; others stay plain.
LANGUAGES = frozenset({
    "bash", "bat", "c", "c++", "cmake", "console", "cpp", "csharp", "c#", "css", "dart", "diff",
    "docker", "dockerfile", "go", "golang", "haskell", "html", "ini", "java", "javascript", "js",
    "json", "jsx", "julia", "kotlin", "lua", "make", "makefile", "nginx", "objective-c", "ocaml",
    "perl", "php", "powershell", "ps1", "py", "python", "python3", "r", "rb", "ruby", "rs",
    "rust", "scala", "sh", "shell", "sql", "swift", "toml", "ts", "tsx", "typescript", "vb",
    "xml", "yaml", "yml", "zig", "zsh",
})  # fmt: skip
_COLOURS = {
    # kind of pygments: light, dark; each 4.5 to 1 or more against what is behind code
    Token.Keyword: ("#8A3B8F", "#D6A0DC"),
    Token.Operator.Word: ("#8A3B8F", "#D6A0DC"),
    Token.Name.Builtin: ("#2C5FA8", "#86B2F2"),
    Token.Name.Function: ("#2C5FA8", "#86B2F2"),
    Token.Name.Class: ("#2C5FA8", "#86B2F2"),
    Token.Name.Decorator: ("#7A5B00", "#E3BE6A"),
    Token.Name.Tag: ("#8A3B8F", "#D6A0DC"),
    Token.Name.Attribute: ("#2C5FA8", "#86B2F2"),
    Token.Literal.String: ("#2A7046", "#7BC89A"),
    Token.Literal.Number: ("#A4501A", "#E8A273"),
    Token.Comment: ("#656B75", "#9AA1AD"),
    Token.Generic.Deleted: ("#B3402E", "#E5806E"),
    Token.Generic.Inserted: ("#2A7046", "#7BC89A"),
    Token.Generic.Heading: ("#2C5FA8", "#86B2F2"),
}


def lexer_for(language: str) -> Lexer | None:
    """Return what reads a language; None where it stays plain.

    Args:
        language: As a model named it.
    """
    name = language.lower().removeprefix("language-").strip("{}.")
    if name not in LANGUAGES:
        return None
    try:
        return get_lexer_by_name(name, stripnl=False, ensurenl=False)
    except ClassNotFound:
        return None


def spans(lexer: Lexer, text: str) -> Iterator[tuple[int, int, str, str]]:
    """Yield what is not plain: where it begins, its length, its colour light and dark.

    Args:
        lexer: Of its language.
        text: Without carriage returns.
    """
    for begin, kind, value in lexer.get_tokens_unprocessed(text):
        colours = _colours_of(kind)
        if colours is not None and value:
            yield begin, len(value), *colours


def _colours_of(kind: object) -> tuple[str, str] | None:
    while kind is not None and kind not in _COLOURS:
        kind = getattr(kind, "parent", None)
    return None if kind is None else _COLOURS[kind]


def is_short_enough(text: str) -> bool:
    """Return whether a text can be read in good time.

    Args:
        text: Of a block of code.
    """
    return len(text) <= MAX_CHARACTERS and all(len(line) <= MAX_LINE for line in text.split("\n"))


def window_of(text: str, size: int) -> int:
    """Return where the end of a growing program may be read from by itself.

    Args:
        text: So far.
        size: About how many characters of its end are wanted.
    """
    if len(text) <= size:
        return 0
    place = text.rfind("\n\n", 0, len(text) - size)
    while place > 0 and text[place + 2 : place + 3] in {" ", "\t", "\n", "}", ""}:
        place = text.rfind("\n\n", 0, place)
    if place < len(text) - 3 * size:
        place = text.rfind("\n", 0, len(text) - size)
    return place + 1 if place >= 0 else len(text) - size


def colour_in(theme: Theme, light: str, dark: str) -> str:
    """Return the colour of a theme.

    Args:
        theme: Which.
        light: Its colour on light.
        dark: Its colour on dark.
    """
    return dark if theme.is_dark else light
