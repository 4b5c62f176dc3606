"""What a model writes loads nothing, runs nothing and hides nothing; every script has its way."""

import pytest
from PySide6.QtCore import Qt, QUrl
from PySide6.QtGui import QDesktopServices, QGuiApplication, QTextDocument, QTextFormat
from PySide6.QtWidgets import QMessageBox, QTextBrowser

from app.chat.link_question import ask_to_open, is_web_link, real_address
from app.chat.markdown.direction import direction_of, direction_of_plain
from app.chat.records import Message
from app.chat.view.code_view import CodeView
from app.chat.view.markdown_view import MarkdownView
from app.chat.view.message_view import AnswerView, Tools, UserView
from app.chat.view.plain_view import PlainView
from app.chat.view.prose_view import ProseView
from app.chat.view.slices import Slices
from app.chat.view.writing import QUOTED
from tests.app.rooms import surroundings

HOSTILE = [
    "![a](file:///etc/passwd)",
    "![a](http://evil.example/x.png)",
    "![a](//evil.example/share/x.png)",
    "![a](\\\\evil.example\\share\\x.png)",
    "![a](data:image/png;base64,iVBORw0KGgo=)",
    "![a](javascript:alert(1))",
    "<img src='file:///etc/passwd'>",
    "<img src=x onerror=alert(1)>",
    "<script>alert(1)</script>",
    "<style>* { color: white }</style>",
    "<font color='white'>hidden</font>",
    "<span style='display:none'>hidden</span>",
    "<a href='file:///etc/passwd'>click</a>",
    "[click](file:///etc/passwd)",
    "[click](javascript:alert(1))",
    "[click](smb://evil.example/x)",
    "[click](mailto:a@b.example)",
    "<file:///etc/passwd>",
    "[ref]: http://evil.example/track\n[ref]",
    "| ![a](file:///x) | <img src=//evil/x> |\n|---|---|\n| 1 | <b>2</b> |",
    "```html\n<img src='http://evil.example/x.png'>\n```",
    "&lt;img src=x&gt; &#60;script&#62;",
    "a\u202eb\u2066c\u200bd\u00ade\ufefff",
    "x" * 50_000,
    "\x1b[31mred\x1b[0m\x07\x08",
    "# \u202egpj.exe",
    "`\u202ecode\u202c`",
    "```\n\u202eif (admin)\u2066 {\n```",
    "- \u200fitem\n> \u2067quote",
    "~~\u202estruck~~ **\u2068bold**",
]


@pytest.fixture
def tools(tmp_path, owner):
    about = surroundings(tmp_path, owner)
    return Tools(look=about.look, wording=about.wording, slices=Slices(owner))


@pytest.fixture
def show(tools, qtbot):
    def show(text, width=700):
        view = MarkdownView(tools.look, tools.wording, tools.slices)
        qtbot.addWidget(view)
        for _ in view.feeding(text, is_whole=True):
            continue
        view.resize(width, view.fit(width))
        view.show()
        view.grab()
        return view

    return show


def documents(view):
    for piece in view.items:
        if isinstance(piece, ProseView):
            yield piece.browser.document()
        elif isinstance(piece, CodeView):
            yield piece.edit.document()


def texts(view):
    return "\n".join(document.toPlainText() for document in documents(view))


def blocks(view):
    for document in documents(view):
        block = document.begin()
        while block.isValid():
            yield block
            block = block.next()


def formats(view):
    for block in blocks(view):
        place = block.begin()
        while not place.atEnd():
            yield place.fragment().charFormat()
            place += 1


@pytest.mark.parametrize("text", HOSTILE, ids=lambda text: ascii(text[:24]))
def test_s23_hostile_text_loads_nothing_and_hides_nothing(show, monkeypatch, text):
    asked = []
    monkeypatch.setattr(QTextBrowser, "loadResource", lambda *args: asked.append(args))
    monkeypatch.setattr(QTextDocument, "loadResource", lambda *args: asked.append(args))
    monkeypatch.setattr(QDesktopServices, "openUrl", asked.append)

    view = show(text)

    assert asked == []
    for form in formats(view):
        assert not form.isImageFormat()
        assert form.anchorHref() == "" or form.anchorHref().startswith(("http://", "https://"))
    seen = texts(view)
    assert not set(seen) & set(
        "\u202a\u202b\u202d\u202e\u2067\u2068\u200b\u200f\ufeff\u00ad\x1b\x07"
    )
    if "<" in text and "](" not in text and "&" not in text:
        assert "<" in seen or "file:///etc/passwd" in seen


def test_s23_our_browser_gives_nothing_for_whatever_is_asked(show):
    view = show("text")
    browser = view.items[0].browser
    for name in ("file:///etc/passwd", "http://evil.example/x", "//evil/x", "qrc:/x", "x.png"):
        assert (
            browser.loadResource(QTextDocument.ResourceType.ImageResource.value, QUrl(name)) is None
        )
        assert not browser.openLinks()


def test_where_a_link_leads_is_seen_where_it_can_not_be_followed(show):
    assert "click (file:///etc/passwd)" in texts(show("[click](file:///etc/passwd)")) or (
        "[click](file:///etc/passwd)" in texts(show("[click](file:///etc/passwd)"))
    )


def test_a_link_is_opened_only_after_a_question_that_shows_where_it_leads(
    show, tools, qtbot, monkeypatch
):
    opened = []
    monkeypatch.setattr(QDesktopServices, "openUrl", lambda url: opened.append(url.toString()))
    view = show("[the bank](https://evil.example/login)")
    with qtbot.waitSignal(view.link_asked) as asked:
        view.items[0].browser.anchorClicked.emit(QUrl("https://evil.example/login"))
    assert opened == []

    ask_to_open(asked.args[0], tools.wording, view)
    box = view.findChild(QMessageBox)
    assert box.informativeText() == "https://evil.example/login"
    assert box.textFormat() == Qt.TextFormat.PlainText
    assert box.defaultButton().text() == "Cancel"
    opening = next(b for b in box.buttons() if b.text() == "Open")
    opening.click()
    assert opened == ["https://evil.example/login"]


@pytest.mark.parametrize(
    ("link", "is_fine"),
    [
        ("https://example.org/a?b=c#d", True),
        ("HTTP://example.org", True),
        ("file:///etc/passwd", False),
        ("javascript:alert(1)", False),
        ("//evil/share", False),
        ("\\\\evil\\share", False),
        ("ftp://example.org", False),
        ("https:// two.example", False),
        ("https://" + "a" * 5000, False),
        ("", False),
    ],
)
def test_only_the_web_can_be_opened(link, is_fine):
    assert is_web_link(link) is is_fine


def test_letters_that_look_like_others_are_spelled_out():
    assert "xn--" in real_address("https://\u0430pple.com/")
    assert "%E2%80%AE" in real_address("https://example.org/\u202egpj")


def test_what_is_copied_is_what_is_seen(show):
    view = show("before `\u202ecode` שלום `x`")
    browser = view.items[0].browser
    browser.selectAll()
    copied = browser.createMimeDataFromSelection()
    assert not copied.hasHtml()
    assert not set(copied.text()) & set("\u202e\u2066\u2069")
    assert "code" in copied.text()

    view = show("```py\nif x:\u202e # \u2066\n    pass\n```")
    code = view.items[0]
    code.copy()
    assert QGuiApplication.clipboard().text() == "if x: # \n    pass"
    assert "\u27e6U+202E\u27e7" in code.edit.toPlainText()


# ---- K47: every script has its own direction ---------------------------------------------------

RIGHT, LEFT = Qt.LayoutDirection.RightToLeft, Qt.LayoutDirection.LeftToRight
WANTED = {  # by the first letters of each line of the case
    "בדוק": RIGHT,
    "هذا": RIGHT,
    "./run.sh": RIGHT,
    "The word": LEFT,
    "123": RIGHT,
    "פריט": RIGHT,
    "second": LEFT,
    "ls -l": LEFT,
}


def directions(view):
    found = {}
    for block in blocks(view):
        text = block.text().lstrip("\u2066`- ")
        for start in WANTED:
            if text.startswith(start):
                found[start] = block.textDirection()
    return found


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("language", ["en", "zh"])
def test_each_line_of_a_reply_has_the_direction_of_its_first_letter(
    show, tools, cases, theme, language
):
    tools.look.choose(theme, 1.0)
    tools.wording.choose(language)
    view = show((cases / "K47.txt").read_text(encoding="utf-8"))
    assert directions(view) == WANTED
    for piece in view.items:
        if isinstance(piece, CodeView):
            assert piece.edit.layoutDirection() == LEFT


def test_each_line_of_a_question_has_its_direction_too(tools, qtbot, cases):
    view = PlainView(tools.look, tools.wording, tools.slices)
    qtbot.addWidget(view)
    view.set_text((cases / "K47.txt").read_text(encoding="utf-8"))
    found = directions(view)
    assert {start: found[start] for start in WANTED} == WANTED


def test_a_right_to_left_line_stands_on_the_right(show):
    view = show("בדוק למה זה נכשל", width=700)
    block = next(blocks(view))
    line = block.layout().lineAt(0)
    assert line.naturalTextRect().right() > 600


def test_code_in_a_right_to_left_sentence_is_kept_apart_and_copied_unchanged(show, cases):
    text = (cases / "K47.txt").read_text(encoding="utf-8")
    view = show(text)
    prose = view.items[0].browser
    assert "\u2066npm test\u2069" in prose.document().toPlainText()
    prose.selectAll()
    copied = prose.createMimeDataFromSelection().text()
    assert copied.splitlines()[0] == text.splitlines()[0].replace("`", "")


def test_a_reply_is_copied_as_the_model_wrote_it(room, start_node, cases):
    text = (cases / "K47.txt").read_text(encoding="utf-8")
    start_node(text=text)
    talk = room()
    talk.ask_and_wait("x")
    talk.press_under(talk.last.message_id, "copy")
    assert QGuiApplication.clipboard().text() == text


@pytest.mark.parametrize(
    ("line", "direction"),
    [
        ("", "left-to-right"),
        ("123 456", "left-to-right"),
        ("(שלום)", "right-to-left"),
        ("1. عربي", "right-to-left"),
        ("a שלום", "left-to-right"),
        ("😀 שלום", "right-to-left"),
    ],
)
def test_numbers_and_signs_say_nothing_of_direction(line, direction):
    assert direction_of(line) == direction


def test_what_stands_in_backticks_says_nothing_of_direction():
    assert direction_of_plain("`ls` שלום") == "right-to-left"
    assert direction_of_plain("`ls שלום") == "left-to-right"


# ---- how it is drawn ---------------------------------------------------------------------------


def test_a_screen_reader_gets_each_message_by_itself(tools, qtbot):
    asked = Message(message_id="a", chat_id="c", parent_id=None, role="user", text="Why?\n\u202ex")
    told = Message(message_id="b", chat_id="c", parent_id="a", role="assistant", text="So.")
    for kind, message, words in (
        (UserView, asked, "You: Why? \u27e6U+202E\u27e7x"),
        (AnswerView, told, "Answer: So."),
    ):
        view = kind(message, tools)
        qtbot.addWidget(view)
        view.build()
        assert view.accessibleName() == words


def test_words_of_a_program_have_colours_of_both_themes(show, tools, qtbot):
    source = "```python\n" + "def f(x):\n    return 'text' + str(12)  # why\n" * 60 + "```"
    seen = {}
    for theme in ("light", "dark"):
        tools.look.choose(theme, 1.0)
        view = show(source)
        qtbot.waitUntil(lambda: tools.slices.is_idle)
        document = view.items[0].edit.document()
        first, last = document.begin(), document.lastBlock()
        seen[theme] = [form.format.foreground().color().name() for form in first.layout().formats()]
        assert last.layout().formats()
    assert len(set(seen["light"])) >= 2
    assert seen["light"] != seen["dark"]


def test_a_language_nobody_knows_stays_plain_and_its_name_is_safe(show):
    view = show("```\u202eevil<b>\ncode\n```")
    label = view.items[0]._language.text()
    assert "\u202e" not in label
    assert view.items[0].edit.document().begin().layout().formats() == []


def test_a_growing_text_is_drawn_as_it_would_be_at_once(show, tools, qtbot):
    text = "# T\n\npara *a*\n\n- x\n- y\n  1. z\n\n***\n\n> q\n\n```py\nx = 1\n```\n\n"
    text += "| a |\n|---|\n| 1 |\n\n3. three\n4. four\n\nend"
    whole = show(text)
    grown = MarkdownView(tools.look, tools.wording, tools.slices)
    qtbot.addWidget(grown)
    for char in text:
        grown.feed(char)
    grown.finish()
    assert [d.toPlainText() for d in documents(grown)] == [
        d.toPlainText() for d in documents(whole)
    ]
    assert list(map(drawn, blocks(grown))) == list(map(drawn, blocks(whole)))
    assert grown.fit(700) == whole.fit(700)


def drawn(block):
    """Return all that decides how a block is drawn."""
    form, of_list = block.blockFormat(), block.textList()
    return (
        form.topMargin(),
        form.leftMargin(),
        form.indent(),
        form.layoutDirection(),
        form.property(QUOTED),
        form.hasProperty(QTextFormat.Property.BlockTrailingHorizontalRulerWidth),
        None if of_list is None else (of_list.itemText(block), of_list.format().indent()),
    )
