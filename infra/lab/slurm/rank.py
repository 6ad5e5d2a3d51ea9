"""What srun starts on a node of the lab: asks the lab to run this rank as that node's work, and lives as long as it does."""

import json
import os
import socket
import sys


def main() -> int:
    """Return the exit status of the rank. When Slurm ends this process, the lab ends the rank."""
    with open(sys.argv[1]) as file:
        desk = json.load(file)
    env = os.environ
    fields = {
        "job": env["SLURM_JOB_ID"],
        "restart": int(env.get("SLURM_RESTART_COUNT", "0")),
        "rank": int(env["SLURM_PROCID"]),
        "world": int(env["SLURM_NTASKS"]),
    }
    request = {"token": desk["token"], "node": env["SLURMD_NODENAME"], "operation": "slurm-rank", "fields": fields}
    with socket.create_connection(("127.0.0.1", desk["port"])) as connection:
        connection.sendall(json.dumps(request).encode() + b"\n")
        for line in connection.makefile("r", encoding="utf-8"):
            answer = json.loads(line)
            if "status" in answer:
                return int(answer["status"])
            print(answer["text"], end="", flush=True)
    print("the lab went away", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
