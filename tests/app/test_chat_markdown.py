import random
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.chat.markdown.growing import LONG_TAIL, GrowingText
from app.chat.markdown.items import Code, Line, Marker, Rule, Run, Table
from app.chat.markdown.reading import Reader

READER = Reader()
DOCUMENT = """# Title

Para one *with* **bold** and `code` and [link](http://x.y).
second line

- a
- b
  - nested
  ```py
  x = 1
  ```
- c

1. one
2. two

```python
def f():
    return "```"

x
```
after
***
> quote
> more

| a | b |
|---|---|
| 1 | 2 |

text
---
~~gone~~ ![img](http://x/y.png) <b>html</b> <script>x</script>
   ```
   indented
     more
   ```
~~~~
```
~~~~
end
"""


def grown(pieces):
    """Return the items a text has that came in pieces, checking what each change says is kept."""
    text, items = GrowingText(READER), []
    for piece in pieces:
        before, change = list(items), text.feed(piece)
        items[change.kept :] = change.items
        assert items[: change.kept] == before[: change.kept]
        assert text.num_sealed <= len(items)
    change = text.finish()
    items[change.kept :] = change.items
    return items


def cut(text, seed):
    pieces, rng = [], random.Random(seed)  # noqa: S311 - where a text is cut is no secret
    while text:
        num = rng.randint(1, rng.choice([2, 8, 60]))
        pieces.append(text[:num])
        text = text[num:]
    return pieces


@pytest.mark.parametrize("seed", range(40))
def test_wherever_it_is_cut_a_text_ends_as_if_it_had_come_at_once(seed):
    assert grown(cut(DOCUMENT, seed)) == READER.items(DOCUMENT)


@given(
    st.lists(
        st.sampled_from([
            "# ",
            "- ",
            "1. ",
            "> ",
            "```",
            "\n",
            "\n\n",
            "a b",
            "*",
            "**",
            "`",
            "|",
            "|-|-|\n",
            "  ",
            "---",
            "===",
            "[x](y)",
            "\t",
            "<b>",
            "~~",
            "&amp;",
        ]),
        max_size=40,
    ),
    st.integers(0, 2**32),
)
@settings(max_examples=200, deadline=None)
def test_any_markdown_grows_to_what_it_is(parts, seed):
    document = "".join(parts) + "\n"  # blanks at the very end of open code are nobody's
    assert grown(cut(document, seed)) == READER.items(document)


def test_what_is_sealed_never_changes_again():
    text, items, sealed = GrowingText(READER), [], []
    for piece in cut(DOCUMENT * 5, 3):
        change = text.feed(piece)
        items[change.kept :] = change.items
        assert items[: len(sealed)] == sealed
        sealed = items[: text.num_sealed]


MAX_PIECE_S = 0.05


@pytest.mark.parametrize(
    "document",
    [
        "word " * 20_000,
        "x" * 100_000,
        "- item **bold** text\n" * 4000,
        "1. item\n" * 8000,
        "| a | b |\n|---|---|\n" + "| cell one | cell two |\n" * 3000,
        "> quoted line\n" * 5000,
        "```python\n" + "value = compute(1, 2)\n" * 4000,
        "a\n" * 40_000,
        "*" * 50_000,
        "[" * 50_000,
        "`" * 50_000,
        "# " + "t" * 60_000,
        "- " * 20_000,
        "> " * 20_000,
    ],
    ids=lambda text: text[:8],
)
def test_no_text_however_long_takes_long_for_one_piece(document):
    pieces = [document[begin : begin + 120] for begin in range(0, 12_000, 120)]
    text, costs_s = costs_of(pieces)
    if max(costs_s) >= MAX_PIECE_S:  # again: what a garbage collection costs is not the text's
        _, again_s = costs_of(pieces)
        costs_s = list(map(min, costs_s, again_s))
    assert max(costs_s) < MAX_PIECE_S
    assert len(text._tail) < 3 * LONG_TAIL


def costs_of(pieces):
    text, costs_s = GrowingText(READER), []
    for piece in pieces:
        began_s = time.thread_time()
        text.feed(piece)
        costs_s.append(time.thread_time() - began_s)
    return text, costs_s


def test_a_code_blocks_text_is_whole_whatever_its_length():
    code = "".join(f"line {n}\n" for n in range(5000))
    (item,) = grown(cut(f"```py\n{code}```\n", 1))
    assert item == Code(code.removesuffix("\n"), "py")


def test_a_code_block_that_grows_says_that_it_is_not_whole():
    text = GrowingText(READER)
    assert text.feed("```py\nx = 1\ny").items == (Code("x = 1\ny", "py", is_whole=False),)
    assert text.feed(" = 2\n``").items == (Code("x = 1\ny = 2", "py", is_whole=False),)


def test_nothing_is_lost_of_a_long_paragraph():
    document = " ".join(f"w{n}" for n in range(4000))
    words = [w for i in grown(cut(document, 2)) for r in i.runs for w in r.text.split()]
    assert words == document.split()


def test_lists_keep_their_numbers_where_they_are_sealed_in_parts():
    document = "".join(f"{n}. item number {n}\n" for n in range(1, 600))
    items = grown(cut(document, 4))
    assert [i.marker for i in items] == [Marker(n) for n in range(1, 600)]


def test_nothing_of_html_pictures_or_definitions_is_hidden():
    items = READER.items("<!-- hidden -->\n\n![p](http://a/b.png)\n\n[x]: http://c/d\n\n&lt;i&gt;")
    texts = ["".join(r.text for r in i.runs) for i in items]
    assert texts == ["<!-- hidden -->", "[p](http://a/b.png)", "[x]: http://c/d", "<i>"]


def test_line_ends_of_a_model_are_line_ends():
    assert READER.items("one\ntwo") == [
        Line((Run("one"),), ends=False),
        Line((Run("two"),)),
    ]


def test_every_row_of_a_table_has_as_many_cells():
    (table,) = READER.items("| a | b |\n|---|---|\n| 1 |\n| 1 | 2 | 3 |\n")
    assert isinstance(table, Table)
    assert {len(row) for row in table.rows} == {2}


def test_a_rule_and_nested_emphasis():
    rule, line = READER.items("***\n***both** one*")
    assert rule == Rule()
    assert line.runs[0] == Run("both", bold=True, italic=True)
