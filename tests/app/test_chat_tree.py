from app.chat.export import file_name
from app.chat.records import Message
from app.chat.tree import MessageTree


def message(name, parent=None):
    return Message(message_id=name, chat_id="c", parent_id=parent, role="user", text=name)


def names(tree):
    return [m.message_id for m in tree.path()]


def test_branches_stand_side_by_side_and_the_newest_end_is_shown():
    tree = MessageTree([message("a"), message("b", "a"), message("c", "b"), message("d", "a")])
    assert names(tree) == ["a", "d"]
    assert tree.siblings("b") == ["b", "d"]
    tree.choose("b")
    assert names(tree) == ["a", "b", "c"]
    tree.add(message("e", "b"))
    assert names(tree) == ["a", "b", "e"]


def test_a_first_message_can_have_versions_too():
    tree = MessageTree([message("a"), message("b", "a")], "b")
    tree.add(message("x"))
    assert tree.siblings("a") == ["a", "x"]
    assert names(tree) == ["x"]


def test_a_leaf_that_is_not_there_shows_the_newest_branch():
    assert names(MessageTree([message("a"), message("b", "a")], "gone")) == ["a", "b"]


def test_a_file_somebody_tampered_with_is_no_endless_loop():
    tree = MessageTree([message("a", "b"), message("b", "a")], "a")
    assert len(tree.path()) <= 3
    tree.choose("a")


def test_taking_back_a_message_shows_what_was_shown_before():
    tree = MessageTree([message("a")], "a")
    tree.add(message("b", "a"))
    tree.take_back("b", "a")
    assert names(tree) == ["a"]
    assert tree.get("b") is None


def test_a_file_name_suits_every_system():
    assert file_name('a/b\\c:d*?"<>|\x00..', "md") == "a b c d.md"
    assert file_name("你好 world", "json") == "你好 world.json"
    assert file_name("///", "md") == "Daisy.md"
    assert len(file_name("x" * 500, "md")) == 63
