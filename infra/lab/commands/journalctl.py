"""The kernel log of a lab node as journald tells it: wall-clock time, text or JSON, this boot or the one before."""

import argparse
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator

ROOT = os.environ["HOTSPARE_HOST_ROOT"]
LOG = ROOT + "/var/log/lab/kernel.log"
_LINE = re.compile(r"\[ *(\d+\.\d+)\] (.*)")


def read(path: str) -> str:
    """Return the text of a file of the node."""
    with open(path) as file:
        return file.read()


def entry_of(line: str, booted_at: float, output: str, host: str, boot_id: str) -> str | None:
    """Turn a kernel log line into a line of the journal, or None for one that is none."""
    match = _LINE.match(line)
    if not match:
        return None
    monotonic, message = float(match.group(1)), match.group(2)
    if output == "cat":
        return message
    at = booted_at + monotonic
    if output == "json":
        return json.dumps(
            {
                "__REALTIME_TIMESTAMP": str(int(at * 1e6)),
                "__MONOTONIC_TIMESTAMP": str(int(monotonic * 1e6)),
                "_SOURCE_MONOTONIC_TIMESTAMP": str(int(monotonic * 1e6)),
                "_BOOT_ID": boot_id.replace("-", ""),
                "_HOSTNAME": host,
                "_TRANSPORT": "kernel",
                "SYSLOG_IDENTIFIER": "kernel",
                "PRIORITY": "3",
                "MESSAGE": message,
            }
        )
    if output == "short-monotonic":
        return f"[{monotonic:12.6f}] {host} kernel: {message}"
    if output == "short-iso":
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime(at))
    elif output == "short-iso-precise":
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(at)) + f".{int(at % 1 * 1e6):06d}+00:00"
    else:
        stamp = time.strftime("%b %d %H:%M:%S", time.gmtime(at))
    return f"{stamp} {host} kernel: {message}"


class Boot:
    """One boot of the node: its lines, its id, and when it began. `suffix` is ".1" for the boot before."""

    def __init__(self, suffix: str) -> None:
        self.log = LOG + suffix
        self.id = read(f"{ROOT}/var/lib/lab/boot_id{suffix}").strip()
        self.began = float(read(f"{ROOT}/var/lib/lab/booted_at{suffix}"))


def lines_of(boot: Boot, options: argparse.Namespace) -> Iterator[str]:
    """Yield the raw kernel lines of a boot that the options ask for."""
    if options.follow:
        start = "+1" if options.lines in (None, "all") else options.lines
        with subprocess.Popen(["tail", "-n", start, "-f", boot.log], stdout=subprocess.PIPE, text=True) as tail:
            assert tail.stdout is not None
            yield from tail.stdout
        return
    lines = read(boot.log).splitlines()
    for line in lines if options.lines in (None, "all") else lines[max(0, len(lines) - int(options.lines)) :]:
        match = _LINE.match(line)
        if match and boot.began + float(match.group(1)) >= options.since:
            yield line


def boots_of(options: argparse.Namespace) -> list[Boot]:
    """Return the boots that the options ask for: one, or without a word on it all, which for -k is this one."""
    has_earlier = os.path.exists(LOG + ".1")
    if options.boot == "-1" and not has_earlier:
        sys.exit("Data from the specified boot (-1) is not available: No such boot ID in journal")
    if options.boot == "-1":
        return [Boot(".1")]
    everything = options.boot is None and not options.dmesg and not options.follow
    return [*([Boot(".1")] if everything and has_earlier else []), Boot("")]


def unix_time(text: str) -> float:
    """Read "@seconds"; other forms are not known here."""
    return float(text.removeprefix("@"))


def main() -> None:
    """Print the journal."""
    parser = argparse.ArgumentParser(prog="journalctl", allow_abbrev=False)
    parser.add_argument("matches", nargs="*", choices=[[], "_TRANSPORT=kernel"])
    parser.add_argument("-k", "--dmesg", action="store_true")
    parser.add_argument("-b", "--boot", nargs="?", const="0", choices=["0", "-0", "-1"])
    parser.add_argument("-f", "--follow", action="store_true")
    parser.add_argument("-n", "--lines")
    parser.add_argument("-S", "--since", type=unix_time, default=0.0)
    parser.add_argument("-q", "--quiet", action="store_true")
    parser.add_argument("--no-pager", action="store_true")
    parser.add_argument("--utc", action="store_true")
    parser.add_argument(
        "-o", "--output", default="short", choices=["short", "short-iso", "short-iso-precise", "short-monotonic", "json", "cat"]
    )
    parser.add_argument("-u", "--unit", action="append")
    options = parser.parse_args(["-b=-1" if word == "-b-1" else word for word in sys.argv[1:]])
    if options.unit:
        print("-- No entries --")  # the lab's services write nothing
        return
    host = read(ROOT + "/etc/hostname").strip()
    for boot in boots_of(options):
        for line in lines_of(boot, options):
            entry = entry_of(line.rstrip("\n"), boot.began, options.output, host, boot.id)
            if entry is not None:
                print(entry, flush=options.follow)


if __name__ == "__main__":
    try:
        main()
    except BrokenPipeError:
        os._exit(1)
