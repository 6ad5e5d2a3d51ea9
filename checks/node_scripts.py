"""Scripts that gather evidence on a node: sent along over SSH, kept on the node where nothing but a name is sent."""

from __future__ import annotations

TAILS = """import glob, os, sys
root, limit = os.environ.get("HOTSPARE_HOST_ROOT", "").rstrip("/"), int(sys.argv[1])
files = {name for pattern in sys.argv[3:] for name in glob.glob(root + pattern) if os.path.isfile(name)}
def age(name):
    try:
        return -os.stat(name).st_mtime
    except OSError:
        return 0.0
newest = sorted(files, key=age)[:int(sys.argv[2])]
for name in newest:
    try:
        with open(name, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            share = limit // max(1, len(newest))
            file.seek(max(0, size - share))
            text = file.read(share).decode("utf-8", "replace")
    except OSError as error:
        text, size = "cannot be read: %s\\n" % error, 0
    print("==> %s, %d bytes%s <==" % (name[len(root):], size, ", the end of them" if size > len(text) else ""))
    print(text)
if not files:
    sys.exit("no such file: " + " ".join(sys.argv[3:]))
"""
"""Python for the node: the ends of the newest files that match."""

BUG_REPORT = """command -v nvidia-bug-report.sh > /dev/null 2>&1 || { echo "nvidia-bug-report.sh: not found" >&2; exit 127; }
d=$(mktemp -d) || exit 1
trap 'rm -rf "$d"' EXIT; trap 'exit 143' TERM INT HUP
cd "$d" && nvidia-bug-report.sh --safe-mode --output-file "$d/report.log" > "$d/said" 2>&1 < /dev/null &
wait $!
f=$(ls "$d"/report.log* 2> /dev/null | head -n 1)
[ -n "$f" ] && [ -s "$f" ] || { tail -c 300 "$d/said" >&2; exit 1; }
case "$f" in *.gz) ;; *) gzip "$f"; f="$f.gz" ;; esac
head -c "$1" "$f" | base64"""
"""Shell for the node: NVIDIA's report in a folder that does not stay; packed, because 50 MB of text take too long to copy."""

END_RUN = """import json, os, signal, sys, time
proc = os.environ.get("HOTSPARE_HOST_ROOT", "").rstrip("/") + "/proc"
mark = ("HOTSPARE_BURN_IN=" + sys.argv[1]).encode()
def left():
    found = []
    for name in os.listdir(proc):
        if not name.isdigit() or int(name) in (os.getpid(), os.getppid()):
            continue
        try:
            with open(os.path.join(proc, name, "environ"), "rb") as file:
                if mark in file.read().split(b"\\0"):
                    found.append(int(name))
        except OSError:
            pass
    return found
first = left()
for number in (signal.SIGTERM, signal.SIGKILL):
    for pid in left():
        try:
            os.kill(pid, number)
        except OSError:
            pass
    until = time.monotonic() + 5
    while left() and time.monotonic() < until:
        time.sleep(0.05)
print(json.dumps({"found": first, "left": left()}))
"""
"""Python for the node: end every process of one group run, which are known by their environment; nobody else's is touched."""
