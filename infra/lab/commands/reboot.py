"""reboot on a lab node: the node goes down and boots again."""

import sys

from infra.lab.commands import desk_client

if __name__ == "__main__":
    sys.exit(desk_client.ask("reboot"))
