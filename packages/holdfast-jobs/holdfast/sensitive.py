"""Finds secrets and personal data in text. Pure; every search takes time linear in the text.

:mod:`holdfast.secret` rejects documents, so it must be certain. Matches of this module are only
redacted, so its patterns are wider: a false positive is better than a leaked key. A pattern either
fails after a few characters or never backtracks, which keeps it linear.

Public IP addresses are personal data and are redacted. Private and local ones identify the
deployment's own machines and are kept. So are numbers without a sign of being a telephone, card or
account number.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from ipaddress import ip_address

from holdfast.secret import NAMES
from holdfast.secret_keys import find_known
from holdfast.secret_scan import Span as Span

Finder = Callable[[str], Iterator[Span]]

# -- secrets by shape

# Forty characters of three kinds, like an AWS secret key and unlike a commit id.
_FORTY = re.compile(
    r"(?<![A-Za-z0-9/+_-])(?=[A-Za-z0-9/+]{40}(?![A-Za-z0-9/+_-]))"
    r"(?=[^A-Z]{0,39}[A-Z])(?=[^a-z]{0,39}[a-z])(?=[^0-9]{0,39}[0-9]).{40}"
)


def _find_forty(text: str) -> Iterator[Span]:
    for found in _FORTY.finditer(text):
        yield *found.span(), "secret"


_PEM = re.compile(
    r"-----BEGIN [A-Z0-9 ]{0,60}+(?:[^-]++|-(?!----END))*+(?:-----END [A-Z0-9 ]{0,60}+-{0,5}+)?"
)
_PUTTY = re.compile(
    r"Private-Lines:[ ]?\d{1,4}[\r\0]*+\n((?:^[A-Za-z0-9+/=]{1,80}+[\r\0]*+$\n?)++)", re.M
)


def _find_pem(text: str) -> Iterator[Span]:
    if "-----BEGIN " in text:
        for found in _PEM.finditer(text):
            yield *found.span(), "key"
    for found in _PUTTY.finditer(text):
        yield found.start(1), found.start(1) + len(found[1].rstrip()), "key"


_AUTHORITY = re.compile(r"://([^\s\"'<>/?#]*+)")
_NO_PORT = re.compile(r"[^\[\s]*:\D")
_LATER_AT = re.compile(r"[^\s\"'<>@]{0,200}+@(?:[^\s\"'<>@/?#]{0,200}+@)*+")


def _find_logins(text: str) -> Iterator[Span]:
    """The login before the @ of a URL, whether or not its password is escaped."""
    for found in _AUTHORITY.finditer(text):
        start, end = found.span(1)
        at = text.rfind("@", start, end)
        if at >= 0:
            later = _LATER_AT.match(text, end) if ":" in text[start:at] else None
            yield start, later.end() - 1 if later else at, "secret"
        elif _NO_PORT.match(found[1]) and (later := _LATER_AT.match(text, end)):
            # A password that contains a slash, a question mark or a hash.
            yield start, later.end() - 1, "secret"


# -- secrets by name

_SQUASHED = frozenset(name.replace("_", "") for name in NAMES) | {
    "pw", "pwd", "pass", "passcode", "pin", "otp", "cvv", "cvc", "ssn", "auth", "bearer", "jwt",
    "dsn", "sid", "session", "sig", "signature",
}  # fmt: skip
_PARTS = ("password", "passwd", "passphrase", "secret", "authorization", "credential", "cookie")
_ENDS = (
    "token", "sessionid", "signature", "apikey", "accesskey", "privatekey", "secretkey",
    "signingkey", "encryptionkey", "authkey", "accountkey", "sshkey", "masterkey", "servicekey",
    "pwd",
)  # fmt: skip
# dbPass, SMTP_PASS and mysqlpass are passwords; compass and first pass are not.
_LAST_WORDS = ("pass", "pw", "cred", "creds", "psk")
_LAST_WORD = re.compile(r"(?:[A-Z]?[a-z]+|[A-Z]+)$")
_OTHER_PASSES = frozenset(
    {"bypass", "compass", "encompass", "overpass", "surpass", "trespass", "underpass"}
)
_TURNS = (
    "firstpass", "secondpass", "thirdpass", "nextpass", "lastpass", "onepass", "twopass",
    "singlepass", "multipass", "renderpass",
)  # fmt: skip
# A lease token is a fencing number, not a secret.
_HARMLESS_NAMES = frozenset({"leasetoken"})
_SEPARATORS = re.compile(r"[^A-Za-z0-9]+")
_DIGITS = "0123456789"


def is_secret_name(name: str) -> bool:
    """Whether a field called *name* holds a secret, whatever its value looks like."""
    # The end of a long name decides, because the rest may be any text.
    tail = name[-80:]
    squashed = _SEPARATORS.sub("", tail).lower()
    # A numbered name, such as password2, counts too.
    ending = squashed.rstrip(_DIGITS)
    return squashed not in _HARMLESS_NAMES and (
        squashed in _SQUASHED
        or ending.endswith(_ENDS)
        or any(part in squashed for part in _PARTS)
        or (
            ending.endswith(_LAST_WORDS)
            and not ending.endswith(_TURNS)
            and _is_last_word(tail.rstrip(_DIGITS + "_.-"))
        )
    )


def _is_last_word(name: str) -> bool:
    found = _LAST_WORD.search(name)
    last = found[0].lower() if found else ""
    return last in _LAST_WORDS or (last.endswith("pass") and last not in _OTHER_PASSES)


_NAMED = re.compile(
    r"""(?<![A-Za-z0-9_.-])
        ((?:(?:api|access|private|secret|auth|refresh|bearer|client|connection)[ ])?
         [A-Za-z0-9_.-]++)
        ([\0\\]*+["']?)                                      # the name may be quoted
        (?: (\s{0,4}(?:=>|:=|->|[:=>])\s{0,4})
          | \s{0,4},\s{0,4}(?=b?[\0\\]*+["'])               # ('name', 'value')
        )
        (?:b(?=[\0\\]*+["']))?([\0\\]*+)(["']?)""",
    re.VERBOSE | re.I,
)
_NOTHING = re.compile(r"(?:null|none|true|false|undefined)(?![A-Za-z0-9])", re.I)
_BLANK, _COMMA = re.compile(r"[^\s&\"'<>]*+"), re.compile(r"[^,}\]\n]*+")
_TAG, _LINE = re.compile(r"[^<\n]*+"), re.compile(r"[^\n]*+")
_LONGEST_QUOTE = 20_000
_HOPS = 64


class _Ends:
    """The ends of values. Nested values of the same kind share an end, so none is read twice."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.last = dict.fromkeys((_BLANK, _COMMA, _TAG, _LINE), -1)

    def last_match(self, pattern: re.Pattern[str], start: int) -> int:
        if start > self.last[pattern] and (found := pattern.match(self.text, start)):
            self.last[pattern] = found.end()
        return self.last[pattern]


def _find_named(text: str) -> Iterator[Span]:
    """The values of secret names in JSON, headers, queries, options and reprs."""
    ends = _Ends(text)
    for found in _NAMED.finditer(text):
        if not is_secret_name(found[1]):
            continue
        start = found.end()
        if found[5]:
            end = _closing(text, start, found[5], len(found[4]), ends)
        elif found[3] is None or _NOTHING.match(text, start):
            continue
        elif ">" in found[3]:
            end = ends.last_match(_TAG, start)
        elif found[2].strip("\0\\"):
            end = ends.last_match(_COMMA, start)
        elif found[3] == "=" and not _is_header(found[1]):
            end = ends.last_match(_BLANK, start)
        else:
            end = ends.last_match(_LINE, start)
        if end > start:
            yield start, end, "secret"


def _is_header(name: str) -> bool:
    small = name.lower()
    return "authorization" in small or "cookie" in small


def _closing(text: str, start: int, quote: str, depth: int, ends: _Ends) -> int:
    """The end of a quoted value: a quote that is escaped no deeper than the opening one."""
    end = start
    for _ in range(_HOPS):
        end = text.find(quote, end, start + _LONGEST_QUOTE)
        if end < 0:
            return ends.last_match(_LINE, start)
        back = end
        while back > start and text[back - 1] in "\0\\":
            back -= 1
        if end - back <= depth:
            return end
        end += 1
    return max(end, ends.last_match(_LINE, start))


# -- personal data

_AT = re.compile(r"@(\[?[\w.:-]++)")
_BEFORE_LOCAL = re.compile(r".*[\s<>()\[\]\"',:;=/\\]", re.S)


def _find_emails(text: str) -> Iterator[Span]:
    done = 0
    hosts = {end for _, end, _ in _find_logins(text)}
    for found in _AT.finditer(text):
        at, end = found.span()
        before = _BEFORE_LOCAL.match(text, done, at)
        start = before.end() if before else done
        done = at + 1
        # left-pad@1.3.0 is a version.
        if start == at or not (found[1].startswith("[") or any(map(str.isalpha, found[1]))):
            continue
        # The host of a URL is operational data.
        done = at if at in hosts else end
        yield start, done, "email"


# Tried at every position, also within a failed match, with and without adjacent digits, because
# numbers appear in sequences.
_CARD = re.compile(
    r"(?<![A-Za-z0-9])(?<!\d\.)(?=[2-6]("
    r"\d{12,18}|\d{3}([ \xa0.-])\d{4}\2\d{4}\2\d{4}|\d{3}([ \xa0.-])\d{6}\3\d{4,5}"
    r")(?![A-Za-z0-9])(\2\d{1,3}(?![A-Za-z0-9]))?)"
)


def _find_cards(text: str) -> Iterator[Span]:
    for found in _CARD.finditer(text):
        for end in {found.end(1), max(found.end(1), found.end(4))}:
            if _is_card([int(char) for char in text[found.start() : end] if char.isdigit()]):
                yield found.start(), end, "card"


def _is_card(digits: list[int]) -> bool:
    if digits[0] == 2 and not 2 <= digits[1] <= 7:
        return False
    doubled = [digit * 2 - 9 * (digit > 4) for digit in digits[-2::-2]]
    return (sum(digits[-1::-2]) + sum(doubled)) % 10 == 0


# A digit group within an id or a date does not start one.
_PHONE = re.compile(
    r"""(?:
        (?<!\d)\+[ ]?\(?\d(?:[ \xa0./()-]{0,2}\d){6,14}             # +49 30 1234567
      | (?<![A-Za-z0-9])(?<![A-Za-z0-9]-)(?<!\d[.:/+])(?:
            00[1-9](?:[ \xa0./()-]{0,2}\d){8,13}                    # 0049 30 1234567
          | (?:\(\d{3}\)[ ]?|\d{3}[.-])\d{3}[ .-]\d{4}             # 555-123-4567
          | \(?0[1-9]\d{1,4}\)?[ ]?[ /-][ ]?\d{3,8}(?:[ -]\d{2,8}){0,4}   # 030 1234567
          | 0[1-9]\d{8,10}                                         # 01711234567
          | \d{3}-\d{2}-\d{4}                                      # a social security number
        )
    )(?![A-Za-z0-9])""",
    re.VERBOSE,
)
_SHORTEST_PHONE = 9


def _find_phones(text: str) -> Iterator[Span]:
    for found in _PHONE.finditer(text):
        digits = sum(char.isdigit() for char in found[0])
        if digits >= (7 if found[0].startswith("+") else _SHORTEST_PHONE):
            yield *found.span(), "phone"


_ALNUM = re.compile(r"[A-Za-z0-9]")
_IBAN = re.compile(r"(?<![A-Za-z0-9])[A-Za-z]{2}\d{2}(?=[ \xa0-]?[A-Za-z0-9])")
_IBAN_LENGTHS = {
    country: int(length)
    for length, countries in (
        line.split(":")
        for line in (
            "15:NO", "16:BE", "18:DK FI FO GL NL SD", "19:MK SI SK", "20:AT BA EE KZ LT LU XK",
            "20:MN", "21:CH HR LI LV", "22:BG BH CR DE GB GE IE ME RS VA", "23:AE GI IL IQ OM SO",
            "23:TL", "24:AD CZ DZ ES MD PK RO SA SE TN VG", "25:AO CV GW LY MZ PT ST",
            "26:IR IS TR", "27:BF BI CF CG CM DJ FR GA GR IT KM MC MR MG SM SN", "28:AL AZ BJ BY",
            "28:CI CY DO GT HN HU LB ML NE NI PL SV TD TG", "29:BR EG PS QA UA", "30:JO KW MU YE",
            "31:MT SC", "32:LC", "33:RU",
        )
    )
    for country in countries.split()
}  # fmt: skip


def _find_ibans(text: str) -> Iterator[Span]:
    for found in _IBAN.finditer(text):
        length = _IBAN_LENGTHS.get(found[0][:2].upper(), 0)
        start, end = found.start(), found.start() + length
        account = text[start:end]
        between = text[found.end()]
        if not between.isalnum():
            # In groups of four or unspaced; the groups of an id are neither.
            end += (length - 1) // 4
            groups = text[start:end].split(between)
            account = "".join(groups) if {len(group) for group in groups[:-1]} == {4} else ""
        if len(account) != length or _ALNUM.match(text, end):
            continue
        if account.isascii() and account.isalnum():
            turned = "".join(str(int(char, 36)) for char in account[4:] + account[:4])
            if int(turned) % 97 == 1:
                yield start, end, "iban"


_IPV4 = re.compile(r"(?<![A-Za-z0-9.])\d{1,3}(?:\.\d{1,3}){3}(?![A-Za-z0-9]|\.\d)", re.ASCII)
_IPV6 = re.compile(
    r"(?<![A-Za-z0-9:.])(?=[0-9A-Fa-f]{0,4}:[0-9A-Fa-f]{0,4}:)[0-9A-Fa-f:.]++(?![A-Za-z0-9])"
)


def _find_ips(text: str) -> Iterator[Span]:
    for pattern in (_IPV4, _IPV6):
        for found in pattern.finditer(text):
            address = found[0].rstrip(".") if found[0].endswith(".") else found[0]
            if len(address) > 45:
                continue
            try:
                is_public = ip_address(address).is_global
            except ValueError:
                continue
            if is_public:
                yield found.start(), found.start() + len(address), "ip"


# -- literals of stack traces

_RAISED = re.compile(
    r"(?:Error|Exception|Warning|Failure|Timeout|Exit|Interrupt|Group)(?![A-Za-z0-9_])"
)
_FRAME = re.compile(r'File "[^"\n]{1,500}", line \d')
_OPENS = re.compile(r"(?:(?<![A-Za-z0-9_])|(?<![A-Za-z0-9_])[bBrRfFuU]{1,2})[\"'`]")


def _find_literals(text: str) -> Iterator[Span]:
    """Quoted text next to an exception, and all quoted text in a stack trace."""
    in_trace = _FRAME.search(text) is not None
    if not in_trace and not _RAISED.search(text):
        return
    start = 0
    for line in text.splitlines(keepends=True):
        named = None if in_trace else _RAISED.search(line)
        begin = named.end() if named else 0 if in_trace else len(line)
        # The quoted file name of a frame is kept.
        for frame in _FRAME.finditer(line):
            yield from _quoted(line, begin, frame.start(), start)
            begin = frame.end()
        yield from _quoted(line, begin, len(line.rstrip("\r\n")), start)
        start += len(line)


def _quoted(line: str, begin: int, end: int, offset: int) -> Iterator[Span]:
    """From the first quote to the last: text between two literals may be a third."""
    if opens := _OPENS.search(line, begin, end):
        last = max(line.rfind(quote, opens.end(), end) for quote in "\"'`")
        yield offset + opens.start(), offset + (last + 1 if last >= 0 else end), "literal"


SHAPES: tuple[Finder, ...] = (
    find_known,
    _find_forty,
    _find_pem,
    _find_logins,
)
"""Finders of secrets by shape. In source code, names and quotes are everywhere."""

FINDERS: tuple[Finder, ...] = (
    *SHAPES,
    _find_named,
    _find_emails,
    _find_cards,
    _find_phones,
    _find_ibans,
    _find_ips,
    _find_literals,
)
"""One finder for each kind of data. None hides what another would find."""
