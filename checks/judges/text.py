"""Makes captured output plain: no colours, no carriage returns, no launcher's prefixes; and finds JSON among log lines."""

from __future__ import annotations

import json
import re
from typing import Any

_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b\n]*(?:\x07|\x1b\\)?|[@-Z\\^_])")

_STREAM = r"<std(?:out|err)>"
_LABEL = re.compile(
    rf"^(?:\[(?P<tag>(?:[\w.-]{{1,80}}@)?\d{{1,9}},\d{{1,9}})\]{_STREAM}:? ?"  # mpirun --tag-output
    rf"|\w{{3}} \w{{3}} [ \d]\d [\d:]{{8}} \d{{4}}{_STREAM}: ?"  # mpirun --timestamp-output
    r"|(?P<task>[ ]{0,6}\d{1,6}):(?: |$)"  # srun --label
    r"|\[(?P<pod>pod/[\w./-]{1,300})\] "  # kubectl logs --prefix
    r"|\d{4}-\d\d-\d\d[T ][\d:.,]{1,30}(?:Z|[+-]\d\d:?\d\d)? (?:std(?:out|err) [FP] )?"  # container and timestamped logs
    r"|\[\d{4}-\d\d-\d\d[T ][\d:.,]{1,30}(?:Z|[+-]\d\d:?\d\d)?\](?: |$)"
    r"|\d\d:\d\d:\d\d(?:[.,]\d{1,9})? "
    r"|\w{3} [ \d]\d \d\d:\d\d:\d\d (?P<host>[\w.-]{1,64}) [\w./-]{1,64}(?:\[\d{1,10}\])?:(?: |$))"  # syslog, journalctl
)
_SPEAKERS = r"(?i:ssh|srun|slurmstepd|salloc|mpirun|mpiexec|orted|prterun|prted|bash|sh|sudo|timeout|error|warning|info|note)"
"""Who is no host, although a colon follows."""

_EVERY_LINE = (
    re.compile(rf"^(?!{_SPEAKERS}:)(?P<host>[A-Za-z][\w.-]{{0,62}}): ?"),  # pdsh, clush
    re.compile(r"^\[(?P<host>[\w.:-]{1,64})\]:? ?"),  # mpiexec -prepend-rank, parallel-ssh, torchrun
    re.compile(r"^\((?P<host>[\w.:=, -]{1,80})\) "),  # Ray
    re.compile(r"^(?:- )?(?:[\w.-]{1,64} - )?\[?(?:DEBUG|INFO|NOTICE|WARN(?:ING)?|ERROR)\]?(?: -|:[\w.]{0,64}:?|:)?(?: |$)?"),
    re.compile(r"^[>|] ?"),  # quoted in a message
    re.compile(r"^(?:\t| {4})"),  # indented in a message
    re.compile(r"^(?P<host>[\w.-]{1,64}) +\| "),  # docker compose
)
_BEGINNING = re.compile(r"# nThreads? \d|# nccl-tests version |Burning for \d|nvbandwidth Version|\{\s*$|-{60,}\s*$")
"""How lines of the tools begin: a prefix that no pattern knows is what stands before them."""
_LONGEST_PREFIX = 300
_MOST_LINES = 0.8
"""Characters of a line in which a beginning is looked for, and the share of lines that must bear a prefix. Hotspare defaults."""
_MOST_LAUNCHERS = 4
"""Prefixes before one another. Hotspare default: a container's log of a launcher of a launcher has three."""
_MOST_LABELS = 4096
_MOST_SHARED = 100
"""Tasks of one launch, and its own lines that each of them is given. Hotspare defaults: they keep odd text from costing time."""
_MOST_ATTEMPTS = 64
"""Places where JSON is tried to begin. Hotspare default: far more than outputs that one file holds."""


_DOCKER = re.compile(r'\{\s?"log":\s?"')
_CRI = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]{8,18}(?:Z|[+-]\d\d:\d\d) (stdout|stderr) ([PF]) ")


class CutJson(ValueError):
    """A JSON document begins in the text and does not end."""


def clean(text: str) -> str:
    """Take off byte order mark, NUL bytes and terminal codes, and end every line with a newline alone."""
    return _ANSI.sub("", text.lstrip("\ufeff").replace("\0", "")).replace("\r\n", "\n")


def unwrapped(text: str) -> str:
    """Take the output out of a container engine's log: one JSON object a piece of output, or records that go on in the next."""
    if _DOCKER.match(text):
        return "".join(_logged(line) for line in text.split("\n"))
    return "\n".join(_joined(text)) if _CRI.match(text) and " P " in text else text


def _joined(text: str) -> list[str]:
    """Join the records of one line; those of the other stream may stand between them."""
    lines, begun = list[str](), dict[str, list[str]]()
    for line in text.split("\n"):
        record = _CRI.match(line)
        if not record:
            lines.append(line)
            continue
        stream, mark = record.groups()
        begun.setdefault(stream, []).append(line[record.end() :] if stream in begun else line)
        if mark == "F":
            lines.append("".join(begun.pop(stream)))
    return lines + ["".join(pieces) for pieces in begun.values()]


def _logged(line: str) -> str:
    try:
        logged = json.loads(line)["log"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return f"{line}\n"
    return logged if isinstance(logged, str) else f"{line}\n"


def plain_lines(text: str) -> list[str]:
    """Return the lines of a clean text without launcher's prefixes."""
    return [line for _, line in _labelled(text)]


def streams(text: str) -> list[tuple[str, str]]:
    """Part the output of several tasks or hosts by the launcher's label: (label, text) each; one without label if there is none.

    Lines without a label, such as errors of the launcher, are in every part, up to a number of them.
    """
    lines = _labelled(text)
    parts: dict[str, list[tuple[int, str]]] = {}
    shared: list[tuple[int, str]] = []
    for number, (label, line) in enumerate(lines):
        if label:
            parts.setdefault(label, []).append((number, line))
        elif line.strip():
            shared.append((number, line))
    labelled = sum(map(len, parts.values()))
    if not 2 <= len(parts) <= _MOST_LABELS or labelled < len(shared):
        return [("", "\n".join(line for _, line in lines))]
    return [(name, "\n".join(line for _, line in sorted(own + shared[:_MOST_SHARED]))) for name, own in parts.items()]


def _labelled(text: str) -> list[tuple[str, str]]:
    """Return each line with its label. Progress reports after a carriage return belong to the line, and to its label."""
    lines = [("", line) for line in clean(unwrapped(clean(text))).split("\n")]
    for _ in range(_MOST_LAUNCHERS):
        before, lines = lines, _one_prefix_less(lines)
        if lines == before:
            break
    lines = _without_unknown_prefix(lines)
    return [(label, report) for label, line in lines for report in line.split("\r")]


def _one_prefix_less(lines: list[tuple[str, str]]) -> list[tuple[str, str]]:
    filled = [line for _, line in lines if line.strip()]
    every = (pattern for pattern in _EVERY_LINE if len(filled) > 1 and all(map(pattern.match, filled)))
    pattern = next(every, _LABEL)
    return [_parted(pattern, label, line) for label, line in lines]


def _without_unknown_prefix(lines: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Take off what stands before a line that every tool prints at a line's beginning, if it stands before most lines.

    Numbers in it may differ from line to line.
    """
    filled = [line for _, line in lines if line.strip()]
    if any(map(_BEGINNING.match, filled)):
        return lines
    found = next((match for match in (_BEGINNING.search(line[:_LONGEST_PREFIX]) for line in filled) if match), None)
    if not found:
        return lines
    words = re.findall(r"\d+|\D+", found.string[: found.start()])
    prefix = re.compile("".join(r"\d{1,20}" if word[0].isdecimal() else re.escape(word) for word in words))
    if sum(bool(prefix.match(line)) for line in filled) < _MOST_LINES * len(filled):
        return lines
    return [_parted(prefix, label, line) for label, line in lines]


def _parted(pattern: re.Pattern[str], label: str, line: str) -> tuple[str, str]:
    match = pattern.match(line)
    if not match or not match.group():
        return label, line
    words = [f"{'task' if name in ('task', 'tag') else name} {word.strip()}" for name, word in match.groupdict().items() if word]
    return ", ".join([label] * bool(label) + words), line[match.end() :]


def json_documents(text: str) -> list[dict[str, Any]]:
    """Return the JSON objects that stand in a plain text, among other lines or not. Raises CutJson if one is not whole."""
    decoder, found, at, cut = json.JSONDecoder(), list[dict[str, Any]](), 0, ""
    for _ in range(_MOST_ATTEMPTS):
        begin = _next_object(text, at)
        if begin < 0:
            break
        try:
            value, at = decoder.raw_decode(text, begin)
            found.append(value)
        except (ValueError, RecursionError) as error:
            cut, at = cut or (str(error) if _BEGINS.match(text, begin) else ""), begin + 1
    if cut:
        raise CutJson(cut)
    return found


def _next_object(text: str, at: int) -> int:
    """Find the next brace that opens a line; in a text where none does, any brace."""
    match = _OBJECT_LINE.search(text, at)
    if match:
        return match.end() - 1
    return -1 if _OBJECT_LINE.search(text) else text.find("{", at)


_OBJECT_LINE = re.compile(r"^\{", re.MULTILINE)
_BEGINS = re.compile(r'\{\s*(?:["}]|\Z)')


def first_line(pattern: re.Pattern[str], lines: list[str] | tuple[str, ...]) -> str:
    """Return the first line that has the pattern, cut to 400 characters; empty if none has."""
    return next((line[:400] for line in lines if pattern.search(line[:2000])), "")


def last_line(lines: list[str] | tuple[str, ...]) -> str:
    """Return the last line that says something, cut to 400 characters."""
    return next((line.strip()[:400] for line in reversed(lines) if line.strip(" -\t")), "")
