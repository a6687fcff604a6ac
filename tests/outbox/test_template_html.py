"""Values in HTML: allowed places, forbidden places, and allowed addresses."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.errors import ConfigError
from holdfast.outbox.failure import InvalidDelivery
from holdfast.outbox.render import render
from holdfast.outbox.template import Template

SCRIPT = "javascript:alert(1)"


def declare(html: str) -> Template:
    return Template.read("greeting", subject="Hello", text="Hello", html=html)


def html_of(html: str, **data: Any) -> str:
    found = render(declare(html), data).html
    assert found is not None
    return found


REFUSED = {
    # outside of quotes
    "<{{ v }}>": "inside a tag",
    "</{{ v }}>": "inside a tag",
    "<p{{ v }}>": "inside a tag",
    "<p {{ v }}>": "inside a tag",
    '<p class="a"{{ v }}>': "inside a tag",
    "<p {{ v }}=x>": "inside a tag",
    "<p title={{ v }}>": "inside a tag",
    "<p title=a{{ v }}>": "inside a tag",
    "<a href={{ v }}>x</a>": "inside a tag",
    "<a href=https://a.example/{{ v }}>x</a>": "inside a tag",
    "<br/{{ v }}>": "inside a tag",
    # a character that ends nothing in its position
    '<a title=">" {{ v }}>': "inside a tag",
    "<a title='>' {{ v }}>": "inside a tag",
    '<img title=">" onerror="{{ v }}">': "attribute",
    """<img title='"' onerror="{{ v }}">""": "attribute",
    '<p title=a"b {{ v }}>': "inside a tag",
    '<p title ="a" {{ v }}>': "inside a tag",
    '<p a="b"c="{{ v }}">': "attribute",
    "<p = {{ v }}>": "inside a tag",
    '<p ="{{ v }}">': "inside a tag",
    # attributes that run code, set styles or load other resources
    '<p onclick="{{ v }}">': "attribute",
    "<P ONCLICK='{{ v }}'>": "attribute",
    '<p\nonclick\n=\n"{{ v }}">': "attribute",
    '<p/onclick="{{ v }}">': "attribute",
    '<p style="color: {{ v }}">': "attribute",
    '<iframe srcdoc="{{ v }}">': "attribute",
    '<iframe src="{{ v }}"></iframe>': "attribute",
    '<img srcset="{{ v }} 2x">': "attribute",
    '<img srcset="https://a.example/{{ v }} 2x">': "attribute",
    '<img lowsrc="{{ v }}">': "attribute",
    '<a ping="{{ v }}">x</a>': "attribute",
    '<a xlink:href="{{ v }}">x</a>': "attribute",
    '<a hrefx="{{ v }}">x</a>': "attribute",
    '<a data-href="{{ v }}">x</a>': "attribute",
    '<a id="{{ v }}" name="{{ v }}">x</a>': "attribute",
    '<p href="{{ v }}">': "attribute",
    '<form action="{{ v }}">': "attribute",
    '<button formaction="{{ v }}">': "attribute",
    '<input type="{{ v }}">': "attribute",
    '<base href="{{ v }}">': "attribute",
    '<base href="https://a.example/{{ v }}">': "attribute",
    '<link rel="stylesheet" href="{{ v }}">': "attribute",
    '<script src="{{ v }}"></script>': "attribute",
    '<object data="{{ v }}"></object>': "attribute",
    '<embed src="{{ v }}">': "attribute",
    '<param name="movie" value="{{ v }}">': "attribute",
    '<meta http-equiv="refresh" content="0;url={{ v }}">': "attribute",
    '<image src="{{ v }}">': "attribute",
    '</a href="{{ v }}">': "attribute",
    # addresses that begin with fixed text, and still without a fixed host
    '<a href="javascript:{{ v }}">x</a>': "without a fixed host",
    '<a href="JaVaScRiPt:go({{ v }})">x</a>': "without a fixed host",
    '<a href="java\tscript:{{ v }}">x</a>': "without a fixed host",
    '<a href="\x01javascript:{{ v }}">x</a>': "without a fixed host",
    '<a href="java{{ v }}">x</a>': "without a fixed host",
    '<a href="j&#97;vascript:{{ v }}">x</a>': "without a fixed host",
    '<a href="javascript&colon;{{ v }}">x</a>': "without a fixed host",
    '<a href="&#32;{{ v }}">x</a>': "without a fixed host",
    '<a href="&Tab;{{ v }}">x</a>': "without a fixed host",
    '<a href="&{{ v }}">x</a>': "without a fixed host",
    '<a href="vbscript:{{ v }}">x</a>': "without a fixed host",
    '<a href="data:text/html,{{ v }}">x</a>': "without a fixed host",
    '<img src="data:{{ v }}">': "without a fixed host",
    '<a href="https:{{ v }}">x</a>': "without a fixed host",
    '<a href="//{{ v }}">x</a>': "without a fixed host",
    '<a href="https://{{ v }}.example.com/">x</a>': "without a fixed host",
    '<a href="https://example.com{{ v }}">x</a>': "without a fixed host",
    '<a href="https://example.com:{{ v }}/">x</a>': "without a fixed host",
    '<a href="https://example.com\\{{ v }}">x</a>': "without a fixed host",
    '<a href="/{{ v }}">x</a>': "without a fixed host",
    '<a href="/\t/{{ v }}">x</a>': "without a fixed host",
    '<a href="/\\{{ v }}">x</a>': "without a fixed host",
    '<a href="page{{ v }}">x</a>': "without a fixed host",
    '<a href="{{ v }}{{ w }}">x</a>': "follows another value",
    '<a href="{{ v }}:{{ w }}">x</a>': "without a fixed host",
    '<a href="{{ v }}@{{ w }}">x</a>': "without a fixed host",
    # comments and declarations
    "<!-- {{ v }} -->": "comment",
    "<!-- <b> {{ v }} -->": "comment",
    "<!-- --{{ v }}> -->": "comment",
    "<!--[if mso]><p>{{ v }}</p><![endif]-->": "comment",
    "<!DOCTYPE {{ v }}>": "comment",
    "<![CDATA[ {{ v }} ]]>": "comment",
    "<?php {{ v }} ?>": "comment",
    "</ {{ v }}>": "comment",
    '<!--> <a onclick="--> {{ v }}">': "attribute",
    "<!-- --!> <a {{ v }}>": "inside a tag",
    # elements with parsing rules of their own
    "<script>var x = '{{ v }}'</script>": "<script>",
    "<ScRiPt>{{ v }}</sCrIpT>": "<script>",
    "<script/>{{ v }}": "<script>",
    "<script\n>{{ v }}": "<script>",
    "<script><!-- <script> </script> {{ v }}": "<script>",
    "<style>p { color: {{ v }} }</style>": "<style>",
    "<STYLE>p { color: {{ v }} }</STYLE>": "<style>",
    '<style media="a>b">{{ v }}</style>': "<style>",
    "<style></styles>{{ v }}</style>": "<style>",
    "<style></style{{ v }}></style>": "<style>",
    "<title></{{ v }}></title>": "<title>",
    "<title></title/ {{ v }}": "inside a tag",
    '<textarea><a title="</textarea><p {{ v }}>': "inside a tag",
    '<svg><a href="{{ v }}">x</a></svg>': "<svg>",
    '<svg><title><a href="{{ v }}">x</a></title></svg>': "<svg>",
    "<svg><![CDATA[ > </svg> ]]>{{ v }}": "<svg>",
    '<math href="{{ v }}">': "attribute",
    "<math><style>{{ v }}": "<math>",
    "<noscript>{{ v }}</noscript>": "<noscript>",
    "<iframe>{{ v }}</iframe>": "<iframe>",
    "<xmp>{{ v }}</xmp>": "<xmp>",
    "<plaintext>{{ v }}": "<plaintext>",
    "<select><title>{{ v }}": "<select>",
    # sections that begin in one context and end in another
    "{{# a }}<script>{{/ a }}</script>{{ v }}": "<script>",
    "<script>{{# a }}</script>{{/ a }}{{ v }}": "<script>",
    "{{# a }}<style>{{/ a }}{{ v }}</style>": "<style>",
    "<style>{{^ a }}</style>{{/ a }}{{ v }}</style>": "<style>",
    "<p {{# a }}title='{{/ a }}{{ v }}'>": "inside a tag",
    '<a {{# a }}title="{{/ a }}href="{{ v }}">x</a>': "inside a tag",
    "<p title='{{# a }}'{{/ a }}{{ v }}'>": "inside a tag",
    "<{{# a }}p>{{/ a }}{{ v }}>": "inside a tag",
    "<scr{{# a }}x{{/ a }}ipt>{{ v }}": "<script>",
    '<p {{# a }}on{{/ a }}title="{{ v }}">': "attribute",
    '<a {{# a }}x{{/ a }}href="{{ v }}">x</a>': "attribute",
    "<!-- {{# a }}-->{{/ a }}{{ v }}": "comment",
    "{{# a }}<!--{{/ a }}{{ v }}": "comment",
    "<!-{{# a }}-{{/ a }}{{ v }}": "comment",
    '<a href="{{# a }}java{{/ a }}script:{{ v }}">x</a>': "incomplete",
    '<a href="{{^ a }}java{{/ a }}script:{{ v }}">x</a>': "without a fixed host",
    '<a href="{{^ a }}https:{{/ a }}{{ v }}">x</a>': "without a fixed host",
    '<a href="{{^ a }}/{{/ a }}/{{# b }}{{ v }}{{/ b }}">x</a>': "without a fixed host",
    '{{# a }}{{# b }}<a href="{{/ b }}{{/ a }}{{ v }}">x</a>': "inside a tag",
    '<p title="{{# a }}{{# b }}"{{/ b }} {{/ a }}{{ v }}">': "inside a tag",
    '<a href="{{# a }}x{{/ a }}">x</a>': "incomplete",
    # contexts that are left open at the end
    '<a href="{{ v }}"': "ends inside",
    '<a href="{{ v }}>x</a>': "ends inside",
    "{{ v }}<!-- never closed": "ends inside",
    "{{ v }}<style>": "ends inside",
    # no value is inserted unescaped, from a partial or by other delimiters
    "{{{ v }}}": "nothing is computed",
    "{{& v }}": "nothing is computed",
    "{{> partial }}": "nothing is computed",
    "{{! comment }}": "nothing is computed",
    "{{=<% %>=}}": "nothing is computed",
}


@pytest.mark.parametrize(("source", "says"), REFUSED.items(), ids=REFUSED)
def test_a_value_has_no_place_where_escaping_does_not_help(source: str, says: str) -> None:
    with pytest.raises(ConfigError, match="greeting") as refused:
        declare(source)

    assert says in str(refused.value)


# A browser chooses one of two readings by the data, so the value must be safe in both.
LINKS = [
    '<a href="{{ u }}">x</a>',
    "<A\nHREF\n=\n'{{ u }}'>x</A>",
    '<a href=" \t\n{{ u }}">x</a>',
    '<a href="\x01\x1f{{ u }}">x</a>',
    '<a title="a > b" href="{{ u }}">x</a>',
    '<a title=\'"\' href="{{ u }}">x</a>',
    '<a title=a"b href="{{ u }}">x</a>',
    '<a title="a"href="{{ u }}">x</a>',
    '<a/href="{{ u }}">x</a>',
    '<p title="<!--"><a href="{{ u }}">x</a>',
    '<!--> <a href="{{ u }}">x</a>',
    '<a href="{{# off }}https://a.example/{{/ off }}{{ u }}">x</a>',
    '<a href="{{^ on }}https://a.example/{{/ on }}{{ u }}">x</a>',
    '<a href="{{# off }}{{ u }}{{/ off }}{{ u }}">x</a>',
    '<a href="{{# off }}{{# on }}https://a.example/{{/ on }}{{/ off }}{{ u }}">x</a>',
    '<a {{# off }}title="a" {{/ off }}href="{{ u }}">x</a>',
    '{{# on }}<a href="{{ u }}">x</a>{{/ on }}',
    '<img src="{{ u }}">',
    '<table background="{{ u }}"></table>',
    '<video poster="{{ u }}"></video>',
    '<blockquote cite="{{ u }}">x</blockquote>',
]
LEADING = [
    SCRIPT,
    "JAVASCRIPT:alert(1)",
    "java\tscript:alert(1)",
    "java\nscript:alert(1)",
    " javascript:alert(1)",
    "\x01javascript:alert(1)",
    "vbscript:x",
    "data:text/html,x",
    "//evil.example",
    "/\\evil.example",
    "/relative",
    "https:evil.example",
    "https://a b",
    "",
]


@pytest.mark.parametrize("source", LINKS)
def test_a_value_that_begins_an_address_is_a_whole_one(source: str) -> None:
    template = declare(source)

    assert render(template, {"u": "https://a.example/", "on": True, "off": False}).html
    for value in LEADING:
        with pytest.raises(InvalidDelivery, match=r"data\.u"):
            render(template, {"u": value, "on": True, "off": False})


ALLOWED = [
    "<p>{{ v }}</p>",
    "{{ v }} is < 5 and > 3 <3 & so on",
    '<p title="{{ v }}" class="state-{{ v }}" lang="{{ v }}">{{ v }}</p>',
    "<p title='{{ v }}'>{{ v }}</p>",
    '<td width="{{ v }}" bgcolor="{{ v }}" align="{{ v }}" colspan="{{ v }}">x</td>',
    '<p aria-label="{{ v }} of {{ w }}" role="note">x</p>',
    '<input value="{{ v }}" placeholder="{{ v }}"> <progress value="{{ v }}" max="{{ w }}">',
    '<a href="{{ u }}" target="_blank" rel="noopener" style="color:red">{{ v }}</a>',
    '<a href="https://example.com/orders/{{ v }}?from={{ w }}#{{ v }}">x</a>',
    '<a href="HTTPS://example.com:8443/{{ v }}">x</a>',
    '<a href="https://bücher.example/{{ v }}">x</a>',
    '<a href="https://example.com?id={{ v }}&amp;b={{ w }}">x</a>',
    '<a href="//cdn.example.com/{{ v }}">x</a>',
    '<a href="/orders/{{ v }}">x</a> <a href="orders/{{ v }}">x</a> <a href="#{{ v }}">x</a>',
    '<a href="mailto:{{ v }}?subject={{ w }}">x</a> <a href="tel:{{ v }}">x</a>',
    '<a href="{{ u }}/orders/{{ v }}">x</a>',
    '<a href="{{ u }}?id={{ v }}">x</a>',
    '<a href="{{# u }}{{ u }}{{/ u }}{{^ u }}https://example.com/{{/ u }}">x</a>',
    '<a href="{{# l }}https://a.example{{/ l }}{{^ l }}https://b.example{{/ l }}">{{ v }}</a>',
    '<a href="https://example.com{{# v }}/{{ v }}{{/ v }}">x</a>',
    '<a href="https://example.com/?{{# l }}id={{ . }}&amp;{{/ l }}">x</a>',
    '<img src="{{ u }}" alt="{{ v }}" width="20"/>',
    '<img src="https://example.com/{{ v }}.png" alt="">',
    "<ul>{{# l }}<li>{{ . }}</li>{{/ l }}{{^ l }}<li>none</li>{{/ l }}</ul>",
    "{{# v }}<div><b>{{/ v }}{{ w }}{{# v }}</b></div>{{/ v }}",
    '<tr{{# v }} class="odd"{{/ v }}><td>{{ w }}</td></tr>',
    "<option {{# v }}selected{{/ v }}>{{ w }}</option>",
    '<p {{# v }}class="a" {{/ v }}{{^ v }}class="b" {{/ v }}title="{{ w }}">x</p>',
    '<p class="a{{# v }} b-{{ v }}{{/ v }}">{{ w }}</p>',
    "<html><head><title>{{ v }}</title><style>p > a { color: red }</style></head>{{ w }}</html>",
    '<!DOCTYPE html PUBLIC "-//W3C//DTD XHTML 1.0//EN" "http://www.w3.org/x.dtd">{{ v }}',
    "<!-- greeting --><p>{{ v }}</p><!----><!-- {{# v }}-{{/ v }} -->{{ w }}",
    "<!--[if mso]><table><tr><td><![endif]-->{{ v }}<!--[if mso]></td></tr></table><![endif]-->",
    "<![if !mso]><p>{{ v }}</p><![endif]>",
    "<textarea>{{ v }}</textarea>{{ w }}",
    "<p>{{ v }}<br/>{{ w }}<hr /></p>",
    '<form action="https://example.com/"><button value="{{ v }}">x</button></form>',
    '{{ v }}<script src="https://example.com/a.js"></script>',
    '<p onclick="go()" style="color:red">{{ v }}</p>',
    '<x-card title="{{ v }}">{{ w }}</x-card>',
    "no markup at all, {{ v }}",
    "<p>nor a value</p><svg><path d='M0 0'/></svg>",
]


@pytest.mark.parametrize("source", ALLOWED)
def test_ordinary_markup_is_said_with_its_values(source: str) -> None:
    data = {"v": "7", "w": "8", "u": "https://a.example", "l": ["a", "b"]}

    said = html_of(source, **data)
    assert "{{" not in said
    assert ("7" in said) == ("{{ v }}" in source)


def test_behind_a_style_values_are_values_again() -> None:
    assert html_of("<style>p {}</style><p>{{ v }}</p>", v="<") == "<style>p {}</style><p>&lt;</p>"


def test_a_value_behind_a_fixed_beginning_is_free_and_escaped() -> None:
    said = html_of('<a href="https://a.example/{{ v }}">x</a>', v=f'{SCRIPT}"><b>')

    assert said == '<a href="https://a.example/javascript:alert(1)&quot;&gt;&lt;b&gt;">x</a>'
