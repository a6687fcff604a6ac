"""Templates: errors are found at the declaration, and values are never interpreted."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import ConfigError
from holdfast.outbox.failure import InvalidDelivery
from holdfast.outbox.render import LONGEST_DATA, LONGEST_TEXT, render
from holdfast.outbox.template import Template, Templates, UnknownTemplate


def make(text: str = "Hello", *, subject: str = "Hello", html: str | None = None) -> Template:
    return Template.read("greeting", subject=subject, text=text, html=html)


def text_of(text: str, **data: Any) -> str:
    return render(make(text), data).text


def html_of(html: str, **data: Any) -> str:
    found = render(make(html=html), data).html
    assert found is not None
    return found


# -- rendering


def test_a_value_replaces_its_name() -> None:
    content = render(
        make("{{ person.name }} owes {{ amount }}.", subject="For {{person.name}}"),
        {"person": {"name": "Ada"}, "amount": 12},
    )

    assert (content.subject, content.text, content.html) == ("For Ada", "Ada owes 12.", None)


def test_a_section_is_said_for_each_item_and_its_opposite_for_none() -> None:
    source = "{{# items }}- {{ name }} of {{ list }}\n{{/ items }}{{^ items }}nothing{{/ items }}"

    assert text_of(source, list="food", items=[{"name": "tea"}, {"name": "rice"}]) == (
        "- tea of food\n- rice of food\n"
    )
    assert text_of(source, list="food", items=[]) == "nothing"


def test_an_item_that_is_a_value_is_a_dot() -> None:
    assert text_of("{{# names }}<{{ . }}>{{/ names }}", names=["a", "b"]) == "<a><b>"


def test_the_same_data_gives_the_same_words_in_any_order() -> None:
    source = "{{ a }}{{ b }}"

    assert (
        render(make(source), {"a": 1, "b": 2}).hash == render(make(source), {"b": 2, "a": 1}).hash
    )


# -- missing and invalid values


def test_a_missing_value_is_an_error_that_names_every_place() -> None:
    template = make("{{ person.name }} {{ amount }} {{# rows }}x{{/ rows }}")

    with pytest.raises(InvalidDelivery) as refused:
        render(template, {"person": {}})

    assert refused.value.fields == {
        "data.person.name": "is missing",
        "data.amount": "is missing",
        "data.rows": "is missing",
    }


@pytest.mark.parametrize("value", [None, True, [], {}, ["x"], {"a": 1}])
def test_only_text_and_numbers_are_said(value: object) -> None:
    with pytest.raises(InvalidDelivery, match="must be text or a number"):
        text_of("{{ value }}", value=value)


def test_an_error_does_not_repeat_the_value() -> None:
    with pytest.raises(InvalidDelivery) as refused:
        html_of('<a href="{{ url }}">x</a>', url="javascript:steal('hunter2')")

    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize("data", [None, [1], "text", {"x": float("nan")}, {"x": "\x00"}, {1: 2}])
def test_data_that_no_database_could_keep_is_refused(data: Any) -> None:
    with pytest.raises(InvalidDelivery):
        render(make("Hello"), data)


def test_too_much_data_is_refused() -> None:
    with pytest.raises(InvalidDelivery, match="pass a link instead"):
        text_of("Hello", x="x" * LONGEST_DATA)


def test_lists_in_lists_do_not_make_a_text_without_end() -> None:
    source = "{{# a }}{{# a }}{{# a }}{{# a }}some words{{/ a }}{{/ a }}{{/ a }}{{/ a }}"

    with pytest.raises(InvalidDelivery, match=str(LONGEST_TEXT)):
        text_of(source, a=list(range(1, 101)))


def test_sections_without_text_end_too() -> None:
    # 9,000 items, eight lists deep: without a limit it would never end.
    with pytest.raises(InvalidDelivery, match=str(LONGEST_TEXT)):
        text_of("{{# a }}" * 8 + "{{/ a }}" * 8, a=[1] * 9_000)


# -- values are never interpreted


def test_html_in_a_value_is_text() -> None:
    assert html_of("<p>{{ name }}</p>", name="<b onclick='x'>&\"") == (
        "<p>&lt;b onclick=&#x27;x&#x27;&gt;&amp;&quot;</p>"
    )


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00")))
def test_no_value_opens_a_tag_or_leaves_its_quotes(value: str) -> None:
    said = html_of('<p title="{{ v }}">{{ v }}</p>', v=value)

    inner = said.removeprefix('<p title="').removesuffix("</p>")
    assert inner.count('"') == 1
    assert "<" not in inner
    assert inner.count(">") == 1


def test_a_template_in_a_value_is_not_read() -> None:
    assert text_of("{{ a }}", a="{{ b }}", b="secret") == "{{ b }}"


@pytest.mark.parametrize(
    "link",
    [
        "javascript:alert(1)",
        " javascript:alert(1)",
        "java\nscript:alert(1)",
        "data:text/html,x",
        "//evil.example",
        "/relative",
        "https://a b",
        "",
    ],
)
def test_a_link_leads_only_where_a_link_may_lead(link: str) -> None:
    with pytest.raises(InvalidDelivery, match=r"data\.url"):
        html_of('<a href="{{ url }}">x</a>', url=link)


def test_a_good_link_is_escaped_like_any_value() -> None:
    said = html_of("<a href='{{ url }}'>x</a>", url="https://a.example/?b=1&c='2'")

    assert said == "<a href='https://a.example/?b=1&amp;c=&#x27;2&#x27;'>x</a>"


@pytest.mark.parametrize("value", ["Hi\r\nBcc: all@example.com", "Hi\nBcc: x", "Hi\u2028Bcc: x"])
def test_a_subject_stays_one_line_whatever_the_value_holds(value: str) -> None:
    subject = render(make(subject="{{ title }}"), {"title": value}).subject

    assert subject.startswith("Hi Bcc:")
    assert len(subject.splitlines()) == 1


@pytest.mark.parametrize("title", ["", "   ", "\n", "x" * 301])
def test_a_subject_that_would_be_empty_or_endless_is_refused(title: str) -> None:
    with pytest.raises(InvalidDelivery, match="subject"):
        render(make(subject="{{ title }}"), {"title": title})


# -- declaring


@pytest.mark.parametrize(
    "source",
    [
        "{{ name",
        "name }}",
        "{{ }}",
        "{{ a + b }}",
        "{{ a.__class__() }}",
        "{{ a[0] }}",
        "{{ a | safe }}",
        "{{{ a }}}",
        "{{% import os %}}",
        "{{# a }} never closed",
        "{{/ a }}",
        "{{# a }}{{/ b }}",
        "{{# a }}{{# b }}{{/ a }}{{/ b }}",
        "{{# a }}" * 9 + "{{/ a }}" * 9,
        "x" * 200_001,
    ],
)
def test_what_can_never_be_rendered_is_refused_when_it_is_declared(source: str) -> None:
    with pytest.raises(ConfigError, match="greeting"):
        make(source)


@pytest.mark.parametrize(
    "source",
    [
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ a.__init__.__globals__['os'].popen('id').read() }}",
        "{{ a|attr('__class__') }}",
        "{{ a|format(a) }}",
        "{{ a.format(a=b) }}",
        "{{ 'a' * 1000000000 }}",
        "{{ a.center(1000000000) }}",
        "{{ 9 ** 99999999 }}",
        "{{ range(1000000000) }}",
        "{{ self }}{{ cycler.__init__() }}",
        "{{ lipsum() }}",
        "{{ config['SECRET'] }}",
        "{{# range(9) }}x{{/ range(9) }}",
    ],
)
def test_nothing_is_called_or_computed(source: str) -> None:
    with pytest.raises(ConfigError, match="nothing is computed"):
        make(source)


@pytest.mark.parametrize("tag", ["{% for x in range(9) %}x{% endfor %}", "{# note #}", "${a}"])
def test_the_tags_of_other_template_languages_are_text(tag: str) -> None:
    assert text_of(tag, a=1) == tag


@pytest.mark.parametrize(
    "path", ["a.__class__", "a.__class__.__mro__", "a.keys", "s.upper", "l.__len__", "self"]
)
def test_a_path_reaches_keys_of_the_data_and_no_attribute(path: str) -> None:
    with pytest.raises(InvalidDelivery, match="is missing"):
        text_of(f"{{{{ {path} }}}}", a={"b": 1}, s="text", l=[1])


@pytest.mark.parametrize("subject", ["", "  ", "two\nlines"])
def test_a_subject_is_one_line(subject: str) -> None:
    with pytest.raises(ConfigError, match="subject"):
        make(subject=subject)


@pytest.mark.parametrize("name", ["", "Big", "with space", "x" * 101, "a\nb"])
def test_a_name_is_plain(name: str) -> None:
    with pytest.raises(ConfigError, match="name"):
        Template.read(name, subject="x", text="x")


def test_a_name_identifies_one_template() -> None:
    known = Templates()
    known.add(make("one"))
    known.add(make("one"))

    with pytest.raises(ConfigError, match="declared twice"):
        known.add(make("two"))
    assert known.get("greeting") == make("one")
    with pytest.raises(UnknownTemplate, match="farewell"):
        known.get("farewell")
