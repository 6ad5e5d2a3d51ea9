"""Takes secrets out of evidence and puts a stable mark in place of each board's serial number, before anything is stored.

Works line by line and only where a telling word occurs, so that a report of tens of megabytes does not hold up its process.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import secrets
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from activities.evidence_labels import LABEL_WORDS, NOT_YET, QUOTE_OR_NOT, REDACTED, without_named

SERIAL_LENGTH = 8
"""Fewest characters of a board's serial number. Hotspare default: NVIDIA's have 13 digits, and "Serial: 8250" is a UART."""

CHUNK = 1 << 18
"""Characters looked at in one go. Hotspare default: some milliseconds, after which other threads get their turn."""


@dataclass(frozen=True)
class Rule:
    """What to look for in a line that holds one of `words` (lower case), and what stands there instead."""

    words: tuple[str, ...]
    pattern: re.Pattern[str]
    instead: str


_AWS_KEY_IDS = ("akia", "asia", "abia", "acca")

RULES = (
    Rule(
        _AWS_KEY_IDS,  # a secret access key beside its id, as in a list of both
        re.compile(
            r"(\b(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}\b.{0,40}?)(?<![A-Za-z0-9/+=_.-])[A-Za-z0-9/+]{40}(?![A-Za-z0-9/+=_.-])"
        ),
        rf"\1{REDACTED}",
    ),
    Rule(_AWS_KEY_IDS, re.compile(r"\b(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}\b"), REDACTED),
    Rule(
        ("authorization", "cookie"),
        re.compile(
            rf"(?i)((?:authorization|cookie){QUOTE_OR_NOT}[ \t]{{0,8}}+[=:][ \t]{{0,8}}+{QUOTE_OR_NOT}){NOT_YET}[^\"'\r\n\\]+"
        ),
        rf"\1{REDACTED}",
    ),
    Rule(("bearer",), re.compile(r"(?i)\b(bearer[ \t]+)[A-Za-z0-9._~+/=-]{8,}"), rf"\1{REDACTED}"),
    Rule(("eyj",), re.compile(r"\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{4,}(?:\.[A-Za-z0-9_-]*)?"), REDACTED),
    Rule(("iqoj", "fwog"), re.compile(r"\b(?:IQoJb3|FwoGZX)[A-Za-z0-9/+=]{40,}"), REDACTED),
    Rule(
        ("gh", "glpat-", "xox", "hf_", "nvapi-", "sk-", "dckr_pat_", "aiza", "pypi-"),
        re.compile(
            r"(?<![A-Za-z0-9_])(?:gh[pousr]_[A-Za-z0-9]{20,}|github_pat_\w{20,}|glpat-[\w-]{16,}|xox[a-z]-[A-Za-z0-9-]{10,}"
            r"|hf_[A-Za-z0-9]{20,}|nvapi-[\w-]{20,}|sk-[\w-]{20,}|dckr_pat_[\w-]{16,}|AIza[\w-]{30,}|pypi-[\w-]{40,})"
        ),
        REDACTED,
    ),
    Rule(
        ("hooks.slack.com", "/api/webhooks/", "webhook.office.com", "pagerduty.com/integration/"),
        re.compile(
            r"((?:hooks\.slack\.com/|/api/webhooks/|webhook\.office\.com/|pagerduty\.com/integration/))(?!\[redacted\])[^\s\"'<>]+"
        ),
        rf"\1{REDACTED}",
    ),
    Rule(("://",), re.compile(r"(\w+://[^/\s:@\"']*:)(?!\[redacted\]@)[^@\s\"'/]+@"), rf"\1{REDACTED}@"),
    Rule(("sshpass",), re.compile(r"(\bsshpass\b.{0,80}?\s-p[ \t]*)(?!\[redacted\])\S+"), rf"\1{REDACTED}"),
    Rule(
        ("curl", "wget"), re.compile(r"(\b(?:curl|wget)\b.*?\s(?:-u|--user)[ =]?)(?!\[redacted\])[^\s:]+:\S+"), rf"\1{REDACTED}"
    ),
    Rule(("mysql",), re.compile(r"(\bmysql\w*\b.*?\s-p)(?!\[redacted\])\S+"), rf"\1{REDACTED}"),
    Rule(("docker", "podman"), re.compile(r"(\blogin\b.*?\s-p[ \t]+)(?!\[redacted\])\S+"), rf"\1{REDACTED}"),
    Rule(("login",), re.compile(r"(?i)(\blogin[ \t]+\S+[ \t]+password[ \t]+)(?!\[redacted\])\S+"), rf"\1{REDACTED}"),
)
"""In their order: whole headers before single labels, an AWS secret before the key id that gives it away."""

_WORDS = tuple(dict.fromkeys([*LABEL_WORDS, *(word for rule in RULES for word in rule.words)]))

_KEY_NAME = r"[A-Z0-9 ]{0,30}PRIVATE KEY(?: BLOCK)?-----"
_KEY = re.compile(rf"-----BEGIN {_KEY_NAME}(?:.{{0,16384}}?-----END {_KEY_NAME}|.{{0,4096}})", re.DOTALL)
"""A private key, or what follows the first line of one whose end is not there: one of 4096 bits takes 3,300 characters."""

_KEY_END = re.compile(rf"-----END {_KEY_NAME}")
_KEY_LETTERS = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/= \t\r\n")

_VALUE = rf"[A-Za-z0-9][A-Za-z0-9._-]{{{SERIAL_LENGTH - 1},63}}"
_SERIALS = (
    re.compile(rf"(?i)(?<![a-z])serial(?:[ _-]?(?:number|num|no\.?))?[\"']?[ \t]*[:=][ \t]*[\"']?({_VALUE})"),
    re.compile(rf"(?i)<\w{{0,30}}serial\w{{0,30}}>\s*({_VALUE})\s*<"),
    re.compile(r"Device Serial Number ([0-9a-f]{2}(?:-[0-9a-f]{2}){7})"),
)
_SERIAL_LIST = re.compile(r"(?i)serials[\"']?\s{0,8}[:=]\s{0,8}\[([^\]]{0,4000})\]")
_LISTED = re.compile(rf"[\"']({_VALUE})[\"']")


@dataclass(frozen=True)
class Cleaned:
    """Text that may be kept, and how often something was taken out of it."""

    text: str
    secrets: int = 0
    serials: int = 0


class Redactor:
    """Cleans the parts of one bundle. A serial that one part names is found in all of them.

    `key` makes the marks: with the same key, the same board has the same mark in every bundle, and without it nobody can try out
    the few billion possible serial numbers.
    """

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._serials: set[str] = set()

    def board(self, serial: str) -> str:
        """The mark that stands for a serial number."""
        return f"[board {hmac.new(self._key, serial.encode(), hashlib.sha256).hexdigest()[:12]}]"

    def know(self, serials: Iterable[str]) -> None:
        """Remember serial numbers that are known from elsewhere."""
        self._serials |= {serial for serial in serials if _is_serial(serial)}

    def learn(self, text: str) -> None:
        """Remember the serial numbers that a text gives as such."""
        for chunk in _chunks(text):
            if "serial" in chunk.lower():
                self._serials |= {found for found in _named_serials(chunk) if _is_serial(found)}

    def mark(self, text: str) -> Cleaned:
        """Put marks in place of the serial numbers known by now, in a text that was clean before they were."""
        counts: Counter[str] = Counter()
        return Cleaned("".join(self._without_serials(chunk, counts) for chunk in _chunks(text)), 0, counts["serial"])

    def clean(self, text: str) -> Cleaned:
        """Take secrets and serial numbers out of a text. What is clean stays as it is."""
        self.learn(text)
        counts: Counter[str] = Counter()
        whole = _without_private_keys(text, counts)
        pieces = [self._without_serials(_without_secrets(chunk, counts), counts) for chunk in _chunks(whole)]
        return Cleaned("".join(pieces), counts["secret"], counts["serial"])

    def _without_serials(self, chunk: str, counts: Counter[str]) -> str:
        for serial in sorted(self._serials, key=len, reverse=True):
            if serial in chunk:
                pattern = re.compile(rf"(?<![A-Za-z0-9]){re.escape(serial)}(?![A-Za-z0-9])")
                chunk, number = pattern.subn(self.board(serial), chunk)
                counts["serial"] += number
        return chunk


def _without_secrets(chunk: str, counts: Counter[str]) -> str:
    if not any(map(chunk.lower().__contains__, _WORDS)):
        return chunk
    return "".join(_clean_line(line, counts) for line in chunk.splitlines(keepends=True))


def _clean_line(line: str, counts: Counter[str]) -> str:
    lowered = line.lower()
    if not any(map(lowered.__contains__, _WORDS)):
        return line
    before = line.count(REDACTED)
    for rule in RULES:
        if any(map(lowered.__contains__, rule.words)):
            line = rule.pattern.sub(rule.instead, line)
    if any(map(lowered.__contains__, LABEL_WORDS)):
        line = without_named(line)
    counts["secret"] += max(0, line.count(REDACTED) - before)
    return line


def _without_private_keys(text: str, counts: Counter[str]) -> str:
    """Take out private keys, those too whose beginning or end was cut off."""
    if "PRIVATE KEY" not in text:
        return text
    text, number = _KEY.subn(REDACTED, text)
    while (end := _KEY_END.search(text)) is not None:
        start = end.start()
        while start and text[start - 1] in _KEY_LETTERS:
            start -= 1
        text, number = f"{text[:start]}{REDACTED}{text[end.end() :]}", number + 1
    counts["secret"] += number
    return text


def _named_serials(text: str) -> Iterator[str]:
    for pattern in _SERIALS:
        yield from pattern.findall(text)
    for listed in _SERIAL_LIST.findall(text):
        yield from _LISTED.findall(listed)


def _is_serial(value: str) -> bool:
    return len(value) >= SERIAL_LENGTH and any(letter.isdigit() for letter in value)


def _chunks(text: str) -> Iterator[str]:
    """Cut a text at line ends; a line that is longer than a chunk stays whole."""
    start = 0
    while start < len(text):
        end = text.find("\n", start + CHUNK)
        end = len(text) if end < 0 else end + 1
        yield text[start:end]
        start = end


def serial_key(file: Path) -> tuple[bytes, str]:
    """Return the key of the boards' marks, made when there is none, and a remark where it will not be the same next time."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        try:
            handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            pass
        else:
            with os.fdopen(handle, "w") as opened:
                opened.write(secrets.token_hex(32) + "\n")
        key = file.read_bytes().strip()
    except OSError as error:
        return secrets.token_bytes(32), f"marks of boards hold for this bundle alone: {file}: {error.strerror}"
    return (key, "") if key else (secrets.token_bytes(32), f"marks of boards hold for this bundle alone: {file} is empty")
