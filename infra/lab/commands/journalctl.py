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


def lines_of(options: argparse.Namespace) -> Iterator[str]:
    """Yield the raw kernel lines that the options ask for."""
    log = LOG + ".1" if options.boot == "-1" else LOG
    if options.boot == "-1" and not os.path.exists(log):
        sys.exit("Data from the specified boot (-1) is not available: No such boot ID in journal")
    if options.follow:
        start = "+1" if options.lines is None else str(options.lines)
        with subprocess.Popen(["tail", "-n", start, "-f", log], stdout=subprocess.PIPE, text=True) as tail:
            assert tail.stdout is not None
            yield from tail.stdout
        return
    lines = read(log).splitlines()
    yield from lines if options.lines is None else lines[len(lines) - options.lines :]


def main() -> None:
    """Print the journal."""
    parser = argparse.ArgumentParser(prog="journalctl", allow_abbrev=False)
    parser.add_argument("-k", "--dmesg", action="store_true")
    parser.add_argument("-b", "--boot", nargs="?", const="0", default="0", choices=["0", "-0", "-1"])
    parser.add_argument("-f", "--follow", action="store_true")
    parser.add_argument("-n", "--lines", type=int)
    parser.add_argument("-q", "--quiet", action="store_true")
    parser.add_argument("--no-pager", action="store_true")
    parser.add_argument("--utc", action="store_true")
    parser.add_argument(
        "-o", "--output", default="short", choices=["short", "short-iso", "short-iso-precise", "short-monotonic", "json", "cat"]
    )
    parser.add_argument("-u", "--unit", action="append")
    options = parser.parse_args(["-b=-1" if word == "-b-1" else word for word in sys.argv[1:]])
    if options.unit:
        print("-- No entries --")  # the lab has no services
        return
    host = read(ROOT + "/etc/hostname").strip()
    booted_at = float(read(ROOT + "/var/lib/lab/booted_at"))
    boot_id = read(ROOT + "/proc/sys/kernel/random/boot_id").strip()
    for line in lines_of(options):
        entry = entry_of(line.rstrip("\n"), booted_at, options.output, host, boot_id)
        if entry is not None:
            print(entry, flush=options.follow)


if __name__ == "__main__":
    try:
        main()
    except BrokenPipeError:
        os._exit(1)
