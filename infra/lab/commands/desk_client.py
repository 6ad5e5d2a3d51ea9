"""How a command asks the lab for what reaches beyond its node: one JSON line there, JSON lines back to the exit status."""

import json
import os
import socket
import sys

OF_A_RUN = ("HOTSPARE_BURN_IN", "NCCL_DEBUG")
"""Variables of a group run that its processes on the nodes have too, or that change what is printed."""


def ask(operation: str, **fields: object) -> int:
    """Send a request, print what comes back, and return the exit status."""
    with open(os.environ["HOTSPARE_HOST_ROOT"] + "/var/lib/lab/desk.json") as file:
        desk = json.load(file)
    request = {"token": desk["token"], "node": os.environ["LAB_NODE"], "operation": operation, "fields": fields}
    with socket.create_connection(("127.0.0.1", desk["port"])) as connection:
        connection.sendall(json.dumps(request).encode() + b"\n")
        for line in connection.makefile("r", encoding="utf-8"):
            answer = json.loads(line)
            if "status" in answer:
                return int(answer["status"])
            stream = sys.stderr if answer["stream"] == "err" else sys.stdout
            stream.write(answer["text"])
            stream.flush()
    print("the lab went away before it answered", file=sys.stderr)
    return 1
