"""mpirun on the head node, or in a pod: starts all_reduce_perf on the nodes named by --host and prints what the group prints."""

import itertools
import os
import sys
from pathlib import Path

from infra.lab.commands import desk_client
from infra.lab.commands.sshd import digest_of

_WITH_VALUE = {"-x": 1, "--mca": 2, "-mca": 2, "--bind-to": 1, "--map-by": 1, "-N": 1, "--npernode": 1}
_ALONE = {"--allow-run-as-root", "--oversubscribe", "-q", "--quiet"}


RSH_ARGS = "OMPI_MCA_plm_rsh_args"
"""Variable by which Open MPI is told how to call ssh."""


RSH_AGENT = "OMPI_MCA_plm_rsh_agent"
"""Variable by which it is told what to call in place of ssh: in an MPIJob a script around kubectl exec."""


def read(words: list[str]) -> tuple[int, str, list[str]]:
    """Split the words into ranks, hosts and the program with its arguments."""
    ranks, hosts, number = 0, "", 0
    while number < len(words):
        word = words[number]
        if word in ("-np", "-n", "--np"):
            ranks, number = int(words[number + 1]), number + 2
        elif word in ("--host", "-host", "-H"):
            hosts, number = words[number + 1], number + 2
        elif word in _WITH_VALUE:
            number += 1 + _WITH_VALUE[word]
        elif word in _ALONE:
            number += 1
        elif word.startswith("-"):
            sys.exit(f"mpirun: Error: unknown option \"{word}\"\nType 'mpirun --help' for usage.")
        else:
            break
    return ranks, hosts, words[number:]


def door() -> dict[str, object]:
    """How it reaches the other nodes where it is told: the port of their sshd, and whose keys it has."""
    words = os.environ.get(RSH_ARGS, "").split()
    told = dict(itertools.pairwise(words))
    if "-p" not in told:
        return {}
    return {"port": int(told["-p"]), "keys": digest_of(Path(told.get("-i", "")).with_name("authorized_keys"))}


def main() -> int:
    """Pass the call on and return its status."""
    try:
        ranks, hosts, program = read(sys.argv[1:])
    except (IndexError, ValueError):
        sys.exit("mpirun: Error: an option lacks its value\nType 'mpirun --help' for usage.")
    named: list[list[str | int]] = []
    for host in filter(None, hosts.split(",")):
        name, _, slots = host.partition(":")
        named.append([name, int(slots or 1)])
    given = dict(word.partition("=")[::2] for word in sys.argv[1:] if "=" in word)
    environment = {name: given[name] for name in desk_client.OF_A_RUN if name in given}
    by_pods = os.environ.get(RSH_AGENT, "").endswith("/kubexec.sh")
    operation = "mpirun-in-pods" if by_pods else "mpirun"
    return desk_client.ask(operation, ranks=ranks, hosts=named, program=program, door=door(), environment=environment)


if __name__ == "__main__":
    sys.exit(main())
