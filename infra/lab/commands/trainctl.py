"""trainctl on the head node: finds, shows, holds and resumes the training job; every answer is one JSON document."""

import argparse
import sys

from infra.lab.commands import desk_client


def main() -> int:
    """Pass the request on and return its status."""
    parser = argparse.ArgumentParser(prog="trainctl", description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)
    find = verbs.add_parser("find", help="the job that has a node in its node set, or null")
    find.add_argument("--node", required=True)
    for verb, text in (("status", "how a job stands"), ("progress", "its counters"), ("hold", "stop a job and keep it stopped")):
        verbs.add_parser(verb, help=text).add_argument("job")
    resume = verbs.add_parser("resume", help="start a job from its last checkpoint, once per token")
    resume.add_argument("job")
    resume.add_argument("--nodes", required=True, help="node names, comma-separated")
    resume.add_argument("--token", required=True)
    return desk_client.ask("trainctl", **vars(parser.parse_args()))


if __name__ == "__main__":
    sys.exit(main())
