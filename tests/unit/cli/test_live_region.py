"""Lines that are drawn over: what a terminal shows of them in the end."""

import io
import os

import pytest

from engine.cli.live_region import LiveRegion


class Screen(io.StringIO):
    """Shows what a terminal would: understands going up and erasing, and nothing else."""

    encoding = "utf-8"

    def shown(self):
        lines, row = [""], 0
        rest = self.getvalue()
        while rest:
            if rest.startswith("\x1b["):
                end = next(i for i, c in enumerate(rest) if c.isalpha())
                number, order, rest = rest[2:end], rest[end], rest[end + 1 :]
                if order == "F":
                    row -= int(number)
                    assert row >= 0
                else:
                    assert (order, number) == ("J", "")
                    lines = [*lines[:row], ""]
            elif rest[0] == "\n":
                row, rest = row + 1, rest[1:]
                lines += [""] * (row + 1 - len(lines))
            else:
                lines[row], rest = lines[row] + rest[0], rest[1:]
        return lines


@pytest.fixture
def screen(monkeypatch):
    monkeypatch.setattr("shutil.get_terminal_size", lambda: os.terminal_size((20, 10)))
    return Screen()


def test_lines_are_drawn_over_whether_they_become_more_or_fewer(screen):
    region = LiveRegion(screen)
    screen.write("before\n")
    region.draw(["one", "two"])
    region.draw(["1", "2", "3"])
    assert screen.shown() == ["before", "1", "2", "3", ""]
    region.draw(["only"])
    assert screen.shown() == ["before", "only", ""]


def test_text_takes_the_place_of_lines_that_were_cleared(screen):
    region = LiveRegion(screen)
    region.draw(["one", "two"])
    region.clear()
    screen.write("said\n")
    region.clear()
    region.draw(["three"])
    assert screen.shown() == ["said", "three", ""]


def test_lines_that_are_left_stay(screen):
    region = LiveRegion(screen)
    region.draw(["one"])
    region.leave()
    region.draw(["two"])
    assert screen.shown() == ["one", "two", ""]


def test_no_line_is_wider_than_the_terminal_and_no_more_than_it_has(screen):
    region = LiveRegion(screen)
    region.draw(["x" * 50, *map(str, range(30))])
    shown = screen.shown()
    assert shown[0] == "x" * 18 + "~"
    assert len(shown) <= 10
    assert shown[-2] == "..."
    region.draw(["done"])
    assert screen.shown() == ["done", ""]
