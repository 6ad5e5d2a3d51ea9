"""Takes out the value of whatever is called password, secret, token, API key or the like, in settings, JSON and command lines."""

from __future__ import annotations

import re
from collections.abc import Iterator

REDACTED = "[redacted]"

LABEL_WORDS = (
    *("passw", "passphrase", "secret", "token", "credential", "x-amz-signature", "sig="),
    *(f"{what}{joint}key" for what in ("api", "access", "private", "auth") for joint in ("", "_", "-")),
)
"""How a telling name begins, in lower case. Plain search finds it first: most lines hold none, and a report has a million."""

_LABEL = (
    r"(?:passw(?:or)?d|passphrase|secret|token(?<!run_token)(?!s\b|iz)|credential|x-amz-signature|sig(?<=[?&]sig)(?==)"
    r"|(?:api|access|private|auth)[_-]?key)"
)
_QUOTE = r"\\{0,6}[\"']"
"""A quotation mark, escaped perhaps: a line of a log may be told within JSON within JSON."""

QUOTE_OR_NOT = rf"(?:{_QUOTE})?"
NOT_YET = rf"(?!{QUOTE_OR_NOT}\[redacted\])"
"""What was taken out before is no value."""

_BARE = r"(?:[^\s\"'\\]|\\\\|\\(?![\"'nrt]))+"
_BARE_IN_JSON = r"[^\s\"',}\]\\]+"
_QUOTED = rf"(?P<quote>{_QUOTE})(?:(?!(?<!\\)(?P=quote)).)+(?:(?P=quote))?"

_SETTING = re.compile(
    rf"(?i)(?P<label>{_LABEL}[\w-]{{0,40}}(?P<key>{_QUOTE})?[ \t]{{0,8}}+(?>=>|:=|[=:]{{1,2}})[ \t]{{0,8}}+)"
    rf"{NOT_YET}(?:{_QUOTED}|(?P<bare>(?(key){_BARE_IN_JSON}|{_BARE})))"
)
_OPTION = re.compile(rf"(?i)(?P<label>{_LABEL}[\w-]{{0,40}}[ \t]++)(?!-){NOT_YET}(?:{_QUOTED}|(?P<bare>{_BARE}))")
_SHORT_NUMBER = re.compile(r"\d{1,7}\Z")

_NAME_LIMIT = 60
"""Characters of an option's name that are looked at. Hotspare default: names are shorter."""


def without_named(line: str) -> str:
    """Return the line without the values that their names give away. Quotes stay, so that JSON stays JSON."""
    pieces, done = [], 0
    for place in sorted(set(_places(line))):
        if place < done:
            continue
        found = _SETTING.match(line, place) or (_OPTION.match(line, place) if _in_option(line, place) else None)
        if found is not None:
            pieces += [line[done:place], _instead(found)]
            done = found.end()
    return "".join([*pieces, line[done:]])


def _places(line: str) -> Iterator[int]:
    """Where a telling name may begin."""
    lowered = line.lower()
    if len(lowered) != len(line):  # a letter whose small form has two: places would not be those of the line
        lowered = "".join(letter.lower() if letter.isascii() else letter for letter in line)
    for word in LABEL_WORDS:
        place = lowered.find(word)
        while place >= 0:
            yield place
            place = lowered.find(word, place + 1)


def _in_option(line: str, place: int) -> bool:
    """Whether the name at a place is that of an option such as `--hf-token`, whose value follows after a blank."""
    before = line[max(0, place - _NAME_LIMIT) : place]
    start = len(before)
    while start and (before[start - 1].isalnum() or before[start - 1] in "-_"):
        start -= 1
    return before.startswith("-", start)


def _instead(found: re.Match[str]) -> str:
    """A counter of tokens is no secret, a password of digits is."""
    label, quote, bare = found["label"], found["quote"] or "", found["bare"]
    if bare and "token" in label.lower() and _SHORT_NUMBER.match(bare.rstrip(",;)")):
        return found.group(0)
    return f"{label}{quote}{REDACTED}{quote}"
