"""all_reduce_perf as srun starts it on a node of the lab: one process a rank, and rank 0 prints what the group prints."""

import json
import os
import socket
import sys

from infra.lab.commands.desk_client import OF_A_RUN


def main() -> int:
    """Return the status of the run. When Slurm ends this process, the lab ends its part."""
    env = os.environ
    if "SLURM_PROCID" not in env:
        print("all_reduce_perf: this node has no GPU", file=sys.stderr)
        return 2
    with open(sys.argv[1]) as file:
        desk = json.load(file)
    fields = {
        "run": f"{env['SLURM_JOB_ID']}.{env['SLURM_STEP_ID']}",
        "rank": int(env["SLURM_PROCID"]),
        "environment": {name: env[name] for name in OF_A_RUN if name in env},
        "world": int(env["SLURM_NTASKS"]),
        "program": ["all_reduce_perf", *sys.argv[2:]],
    }
    request = {"token": desk["token"], "node": env["SLURMD_NODENAME"], "operation": "srun-member", "fields": fields}
    with socket.create_connection(("127.0.0.1", desk["port"])) as connection:
        connection.sendall(json.dumps(request).encode() + b"\n")
        for line in connection.makefile("r", encoding="utf-8"):
            answer = json.loads(line)
            if "status" in answer:
                return int(answer["status"])
            print(answer["text"], end="", flush=True, file=sys.stderr if answer["stream"] == "err" else sys.stdout)
    print("the lab went away", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
