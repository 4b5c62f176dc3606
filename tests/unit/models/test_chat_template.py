"""A chat is rendered as transformers renders it, and nothing is made up."""

import json
import locale
import shutil
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest
import tokenizers
import transformers
from transformers.utils.chat_template_utils import render_jinja_template

from engine.errors import ChatTemplateError, UsageError
from engine.models import chat_template
from engine.models.chat_messages import ContentForms, prepared
from engine.models.chat_template import ChatTemplate
from engine.models.clock_text import strftime_english
from engine.models.files import open_folder
from engine.models.template_files import load_chat_template
from engine.models.tokenizer import load_tokenizer

TESTS = Path(__file__).parents[2]
CASES = TESTS / "vectors" / "cases"
FIXTURE = TESTS / "fixtures" / "models" / "llama"
NOW = datetime(2026, 11, 29, 23, 59, 30, tzinfo=timezone(timedelta(hours=1)))
HI = [{"role": "user", "content": "hi"}]
TOOL = {"type": "function", "function": {"name": "f", "parameters": {}}}


def _case(name):
    return json.loads((CASES / name).read_text(encoding="utf-8"))


def _text(name):
    return (CASES / name).read_text(encoding="utf-8")


def _template(text, **special_tokens):
    return ChatTemplate({"default": text}, special_tokens)


@pytest.fixture
def own(tmp_path):
    """Makes a model's folder with the given files, and loads its templates."""

    def make(**files):
        folder = Path(shutil.copytree(FIXTURE, tmp_path / "own"))
        for name, text in files.items():
            path = folder / name.replace("__", "/").replace("_jinja", ".jinja").replace(
                "_json", ".json"
            )
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
        return load_chat_template(open_folder(folder))

    return make


# ---- dates, loops, tags (K02) ---------------------------------------------------------------

K02 = next(iter(_case("K02.expected.json")["values"].values()))


def test_dates_breaks_and_generation_tags_render_as_transformers_does():
    assert _template(_text("K02.jinja")).render(_case("K02.json"), now=NOW) == K02


def test_after_midnight_the_first_line_is_another():
    template = _template(_text("K02.jinja"))
    template.render(_case("K02.json"), now=NOW)
    later = template.render(_case("K02.json"), now=NOW + timedelta(minutes=1))
    assert later == K02.replace("29 November", "30 November")


def _installed_locales():
    found = []
    before = locale.setlocale(locale.LC_TIME)
    for name in ("zh_CN.UTF-8", "de_DE.UTF-8", "fr_FR.UTF-8", "C"):
        try:
            locale.setlocale(locale.LC_TIME, name)
        except locale.Error:
            continue
        found.append(name)
    locale.setlocale(locale.LC_TIME, before)
    return found


@pytest.mark.parametrize("name", _installed_locales())
def test_months_are_english_whatever_the_locale(name):
    before = locale.setlocale(locale.LC_TIME)
    locale.setlocale(locale.LC_TIME, name)
    try:
        assert _template(_text("K02.jinja")).render(_case("K02.json"), now=NOW) == K02
    finally:
        locale.setlocale(locale.LC_TIME, before)


@pytest.mark.parametrize(
    ("layout", "text"),
    [
        ("%A %a %B %b %h", "Sunday Sun November Nov Nov"),
        ("%Y-%m-%d %H:%M:%S", "2026-11-29 23:59:30"),
        ("%I:%M %p", "11:59 PM"),
        ("%c", "Sun Nov 29 23:59:30 2026"),
        ("%x %X %D %F %R %T", "11/29/26 23:59:30 11/29/26 2026-11-29 23:59 23:59:30"),
        ("%r", "11:59:30 PM"),
        ("%%B", "%B"),
        ("%Y年%m月%d日 · %B", "2026年11月29日 · November"),
        ("%e|%-e", "29|29"),
        ("100%", "100%"),
    ],
)
def test_dates_are_written_as_in_the_c_locale(layout, text):
    assert strftime_english(NOW, layout) == text


def test_days_and_months_of_one_digit_can_lose_their_zero():
    day = datetime(2027, 3, 4, 0, 5, tzinfo=UTC)
    assert strftime_english(day, "%-d.%-m. %d.%m. %e %-e %-H %p") == "4.3. 04.03.  4 4 0 AM"


# ---- roles and parts (K03, K05) -------------------------------------------------------------


def test_the_role_developer_counts_as_system():
    case = _case("K03.expected.json")["values"]
    text = _template(_text("K03.jinja")).render(_case("K03.json")["messages"], now=NOW)
    assert text == case["own_template_system"] != case["own_template_developer"]


@pytest.mark.embedded
def test_instructions_of_a_developer_reach_the_embedded_model(embedded):
    case = _case("K03.expected.json")["values"]
    tokenizer = load_tokenizer(embedded)
    messages = _case("K03.json")["messages"]
    text = load_chat_template(embedded, tokenizer.special_tokens).render(messages, now=NOW)
    assert text == case["embedded_template_right"]
    ids = tokenizer.encode(text, add_special_tokens=False)
    assert ids == case["embedded_template_ids"]
    own = _template(_text("K03.jinja")).render(messages, now=NOW)
    assert len(tokenizer.encode(own, add_special_tokens=False)) == 34


@pytest.mark.embedded
def test_all_parts_of_a_message_reach_the_embedded_model(embedded):
    case = _case("K05.expected.json")["values"]
    tokenizer = load_tokenizer(embedded)
    template = load_chat_template(embedded, tokenizer.special_tokens)
    text = template.render(_case("K05.json")["messages"], now=NOW)
    assert text == case["right_text"]
    assert tokenizer.encode(text, add_special_tokens=False) == case["right_ids"]


@pytest.mark.embedded
def test_token_counts_of_the_cases_are_the_embedded_tokenizers(embedded):
    tokenizer = load_tokenizer(embedded)
    dated = _template(_text("K02.jinja")).render(_case("K02.json"), now=NOW)
    assert len(tokenizer.encode(dated, add_special_tokens=False)) == 59
    tools = _template(_text("K07.jinja")).render(HI, now=NOW, tools=_case("K07.tools.json"))
    expected = _case("K07.expected.json")["values"]["prompt_tokens"]
    assert len(tokenizer.encode(tools, add_special_tokens=False)) == expected


PARTS = [
    {"role": "system", "content": [{"type": "text", "text": "A"}, {"type": "text", "text": "B"}]},
    {"role": "user", "content": "C"},
]
JOINING = "{% for m in messages %}{{ m.role + ':' + m.content + ';' }}{% endfor %}"
WALKING = (
    "{% for m in messages %}{{ m.role }}:{% for p in m.content %}[{{ p.text }}]{% endfor %};"
    "{% endfor %}"
)
EITHER = (
    "{% for m in messages %}{{ m.role }}:{% if m.content is string %}{{ m.content }}"
    "{% else %}{% for p in m.content %}[{{ p['text'] }}]{% endfor %}{% endif %};{% endfor %}"
)
FIRST_ONLY = (
    "{% for m in messages %}{{ m.role }}:{% if m.content is string %}{{ m.content }}"
    "{% else %}{{ m.content[0].text }}{% endif %};{% endfor %}"
)
WRITING_OUT = "{% for m in messages %}{{ m.role }}:{{ m.content }};{% endfor %}"
AS_JSON = "{% for m in messages %}{{ m.role }}:{{ m.content | tojson }};{% endfor %}"


@pytest.mark.parametrize(
    ("text", "rendered"),
    [
        (JOINING, "system:AB;user:C;"),
        (WALKING, "system:[A][B];user:[C];"),
        (EITHER, "system:[A][B];user:C;"),
        (FIRST_ONLY, "system:AB;user:C;"),
        (WRITING_OUT, "system:AB;user:C;"),
        (AS_JSON, 'system:"AB";user:"C";'),
    ],
    ids=["joins", "walks over parts", "either", "first part only", "writes out", "as JSON"],
)
def test_parts_reach_every_kind_of_template(text, rendered):
    assert _template(text).render(PARTS, now=NOW) == rendered


def test_the_callers_messages_are_not_changed():
    before = json.dumps(PARTS)
    _template(JOINING).render(PARTS, now=NOW)
    assert json.dumps(PARTS) == before


@pytest.mark.parametrize(
    ("message", "words"),
    [
        ({"content": "x"}, "Message 1 has no role"),
        ({"role": "user", "content": 3}, "neither text nor a list"),
        ({"role": "user", "content": [{"type": "image_url"}]}, "'image_url'"),
        ({"role": "user", "content": [7]}, "only text"),
        ({"role": "user", "content": [{"type": "text"}]}, "only text"),
    ],
)
def test_messages_that_are_none_are_refused(message, words):
    with pytest.raises(UsageError, match=words):
        _template(JOINING).render([message], now=NOW)


# ---- which template (K04) -------------------------------------------------------------------

K04 = {(row["folder"], row["tools"]): row["text"] for row in _case("K04.expected.json")["rows"]}
LIST = "K04.list.tokenizer_config.json"


def test_a_list_of_named_templates_is_understood(own):
    template = own(tokenizer_config_json=_text(LIST))
    expected = K04["tokenizer_config.json with the list", "absent"]
    assert template.render(HI, now=NOW) == expected
    assert template.render(HI, now=NOW, tools=[TOOL]) == K04["same", "one tool"]
    assert template.render(HI, now=NOW, tools=[]) == K04["same", "[]"] == expected


def test_a_template_file_counts_before_the_list(own):
    template = own(tokenizer_config_json=_text(LIST), chat_template_jinja=_text("K04.file.jinja"))
    expected = K04["list + chat_template.jinja (K04.file.jinja)", "absent or one tool"]
    assert template.render(HI, now=NOW) == expected
    assert template.render(HI, now=NOW, tools=[TOOL]) == expected


def test_a_template_file_counts_before_a_single_template(own):
    config = json.dumps({"chat_template": "S"})
    template = own(tokenizer_config_json=config, chat_template_jinja=_text("K04.file.jinja"))
    row = ("string in tokenizer_config.json + chat_template.jinja", "absent")
    assert template.render(HI, now=NOW) == K04[row]


def test_a_single_template_in_the_settings_is_used(own):
    assert own(tokenizer_config_json='{"chat_template": "S"}').render(HI, now=NOW) == "S"


def test_additional_template_files_are_used_by_name(own):
    template = own(
        chat_template_jinja=_text("K04.file.jinja"),
        additional_chat_templates__tool_use_jinja="A:{{ tools|length }}",
    )
    assert template.render(HI, now=NOW, tools=[TOOL]) == "A:1"
    assert template.render(HI, now=NOW) == "F:user=hi;F:assistant="


def test_a_list_without_a_default_says_so(own):
    config = _case(LIST)
    config["chat_template"] = config["chat_template"][1:]
    template = own(tokenizer_config_json=json.dumps(config))
    with pytest.raises(ChatTemplateError, match="no default chat template, only tool_use"):
        template.render(HI, now=NOW)
    assert template.render(HI, now=NOW, tools=[TOOL]) == K04["same", "one tool"]


def test_no_template_at_all_says_so_and_none_is_made_up(own):
    with pytest.raises(ChatTemplateError, match="This model has no chat template") as caught:
        own().render(HI, now=NOW)
    assert "raw completion" in caught.value.advice


@pytest.mark.parametrize("value", ["3", "[{}]", '{"default": 3}', '[{"name": "default"}]'])
def test_something_else_in_the_templates_place_is_said(value, own):
    with pytest.raises(ChatTemplateError, match="neither a text nor a list"):
        own(tokenizer_config_json=f'{{"chat_template": {value}}}')


# ---- exactness (K07 and transformers as the reference) --------------------------------------


def test_tools_are_written_as_transformers_writes_them():
    text = _template(_text("K07.jinja")).render(HI, now=NOW, tools=_case("K07.tools.json"))
    assert text == _case("K07.expected.json")["values"]["right_text"]


def test_a_template_file_is_read_byte_for_byte(own):
    template = own(chat_template_jinja="ü日本🗾\n{{ messages[0].content }}\n")
    assert template.render(HI, now=NOW) == "ü日本🗾\nhi"


CHATS = [
    HI,
    _case("K02.json"),
    [{"role": "system", "content": ""}, {"role": "user", "content": "<&> 'q' \"d\" ü 🦙\n\n "}],
    [*HI, {"role": "assistant", "content": None, "tool_calls": [{"function": TOOL["function"]}]}],
    [*HI, {"role": "assistant", "content": "b", "reasoning": "because"}],
]
TEMPLATES = [
    _text("K03.jinja"),
    "{{ bos_token }}{% for m in messages %}\n  {% if m.content %}{{ m.content | trim }}"
    "{% endif %}\n{% endfor %}",
    "{{ messages | tojson }}|{{ messages | tojson(indent=2) }}|{{ tools }}|{{ documents }}",
    "{%- macro show(m) -%}[{{ m.role | upper }}]{%- endmacro -%}"
    "{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{{ show(m) }}"
    "{{ ns.n }}{{ m.reasoning_content }}{{ m.thinking }}{% endfor %}{{ add_generation_prompt }}"
    "{{ eos_token }}{{ undefined_thing }}",
]


@pytest.mark.parametrize("chat", range(len(CHATS)))
@pytest.mark.parametrize("text", range(len(TEMPLATES)))
@pytest.mark.parametrize("tools", [None, [TOOL]])
def test_any_chat_is_rendered_as_transformers_renders_it(chat, text, tools):
    messages, special_tokens = CHATS[chat], {"bos_token": "<s>", "eos_token": "</s>"}
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizers.Tokenizer(tokenizers.models.BPE()), **special_tokens
    )
    options = {"add_generation_prompt": True, "tools": tools, "tokenize": False}
    try:
        expected = tokenizer.apply_chat_template(messages, chat_template=TEMPLATES[text], **options)
    except Exception:  # noqa: BLE001 - whatever it fails with, ours fails with ChatTemplateError
        with pytest.raises(ChatTemplateError):
            _template(TEMPLATES[text], **special_tokens).render(messages, now=NOW, tools=tools)
        return
    ours = _template(TEMPLATES[text], **special_tokens)
    assert ours.render(messages, now=NOW, tools=tools) == expected


def test_an_empty_list_of_tools_is_none_to_the_template():
    assert _template("{{ tools is none }}").render(HI, now=NOW, tools=[]) == "True"


def test_variables_of_the_caller_reach_the_template():
    template = _template("{{ enable_thinking }}{{ add_generation_prompt }}")
    text = template.render(
        HI, now=NOW, variables={"enable_thinking": False}, add_generation_prompt=False
    )
    assert text == "FalseFalse"


def test_the_reference_is_the_public_function_of_transformers():
    rendered, _ = render_jinja_template([HI], chat_template=JOINING)
    assert rendered == [_template(JOINING).render(HI, now=NOW)]


# ---- broken and hostile templates -----------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a\n{% if %}", "error in line 2"),
        ("{% for %}", "error in line 1"),
        ("a\n\n{{ 1 / 0 }}", "line 3: ZeroDivisionError"),
        ("{{ messages[9].content + 'x' }}", "line 1: UndefinedError"),
        ("\n{{ raise_exception('roles must alternate') }}", "in line 2: roles must alternate"),
        ("{{ ''.__class__.__mro__ }}", "SecurityError"),
        ("{{ cycler.__init__.__globals__ }}", "SecurityError"),
        ("{% for i in range(10**9) %}{% endfor %}", "OverflowError"),
        ("{{ messages.append(1) }}", "SecurityError"),
        ("{{ strftime_now(3) }}", "TypeError"),
        ("{% include 'x' %}", "line 1"),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "RecursionError"),
        ("{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}", "chat template"),
    ],
)
def test_a_template_that_fails_is_named_with_its_line(text, words):
    with pytest.raises(ChatTemplateError, match=words):
        _template(text).render(HI, now=NOW)


def test_a_template_that_writes_without_end_is_stopped(monkeypatch):
    monkeypatch.setattr(chat_template, "MAX_CHARACTERS", 1000)
    loop = "{% for a in range(9999) %}{% for b in range(9999) %}x{% endfor %}{% endfor %}"
    with pytest.raises(ChatTemplateError, match="more than 1000 characters"):
        _template(loop).render(HI, now=NOW)


def test_a_template_that_runs_without_end_is_stopped(monkeypatch):
    monkeypatch.setattr(chat_template, "MAX_RENDER_S", 0.05)
    loop = "{% for a in range(9999) %}{% for b in range(9999) %}{{ '' }}{% endfor %}{% endfor %}"
    with pytest.raises(ChatTemplateError, match=r"longer than 0.05 s"):
        _template(loop).render(HI, now=NOW)


def test_a_broken_template_does_no_harm_until_it_is_used(own):
    template = own(chat_template_jinja="{% if %}")
    with pytest.raises(ChatTemplateError):
        template.render(HI, now=NOW)


@pytest.mark.parametrize("kind", [[], {}, 1, None, True, ["text"]])
def test_a_part_whose_kind_is_no_text_is_refused_not_looked_up(kind):
    message = {"role": "user", "content": [{"type": kind, "text": "a"}]}
    with pytest.raises(UsageError, match="Message 1 has a part of the type"):
        prepared([message], ContentForms(takes_text=True, takes_parts=False))
