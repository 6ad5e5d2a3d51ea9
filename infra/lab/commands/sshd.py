"""sshd in a pod of the lab's tools image: checks its key files as sshd does, and lasts until it is ended. Nobody logs in.

All lab nodes share one address, so no port is opened; what mpirun must know of a server lies in a file of the node instead.
"""

import argparse
import hashlib
import json
import os
import signal
import sys
from pathlib import Path

FOLDER = "run/sshd"


def main() -> int:
    """Run in the foreground; the status is that of sshd where a file that it needs is missing."""
    parser = argparse.ArgumentParser(prog="sshd", add_help=False)
    parser.add_argument("-D", action="store_true")
    parser.add_argument("-e", action="store_true")
    parser.add_argument("-p", dest="port", type=int, default=22)
    parser.add_argument("-h", dest="host_key", default="")
    parser.add_argument("-o", dest="options", action="append", default=[])
    told = parser.parse_args()
    if not Path(told.host_key).is_file():
        print(f"Unable to load host key: {told.host_key}\nsshd: no hostkeys available -- exiting.", file=sys.stderr)
        return 1
    options = dict(option.split("=", 1) for option in told.options)
    keys = Path(options.get("AuthorizedKeysFile", ""))
    seen = {"pid": os.getpid(), "keys": digest_of(keys)}
    file = Path(os.environ["HOTSPARE_HOST_ROOT"], FOLDER, f"{told.port}.json")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(seen))
    print(f"Server listening on 0.0.0.0 port {told.port}.", file=sys.stderr, flush=True)
    signal.sigwait({signal.SIGTERM})
    return 0


def digest_of(keys: Path) -> str:
    """Tell one run's authorized keys from another's; empty where there are none."""
    return hashlib.sha256(keys.read_bytes()).hexdigest() if keys.is_file() else ""


if __name__ == "__main__":
    sys.exit(main())
