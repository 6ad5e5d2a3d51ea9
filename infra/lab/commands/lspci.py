"""lspci of a lab node: the GPUs and EFA devices on its bus, as /sys shows them; a GPU that fell off the bus reads as all ones."""

import argparse
import json
import os

ROOT = os.environ["HOTSPARE_HOST_ROOT"]
DEVICES = ROOT + "/sys/bus/pci/devices"
CLASSES = {"0x030200": ("3D controller", "0302"), "0x020000": ("Ethernet controller", "0200")}
VENDORS = {"0x10de": "NVIDIA Corporation Device", "0x1d0f": "Amazon.com, Inc. Elastic Fabric Adapter (EFA)"}


def line_of(address: str, lost: bool, numbers: bool) -> str:
    """Describe one device."""

    def read(name: str) -> str:
        with open(f"{DEVICES}/{address}/{name}") as file:
            return file.read().strip()

    kind, code = CLASSES.get(read("class"), ("Device", read("class")[2:6]))
    revision = "ff" if lost else "a1"
    ids = f" [{read('vendor')[2:]}:{read('device')[2:]}]" if numbers else ""
    return f"{address[5:]} {kind}{f' [{code}]' if numbers else ''}: {VENDORS.get(read('vendor'), 'Device')}{ids} (rev {revision})"


def main() -> None:
    """List the devices that the options ask for."""
    parser = argparse.ArgumentParser(prog="lspci", allow_abbrev=False)
    parser.add_argument("-n", action="count", default=0)
    parser.add_argument("-d", default="")
    options = parser.parse_args()
    vendor = options.d.lower().partition(":")[0]
    with open(ROOT + "/var/lib/lab/gpus.json") as file:
        lost = {gpu["pci"] for gpu in json.load(file)["gpus"] if gpu["lost"]}
    for address in sorted(os.listdir(DEVICES)):
        with open(f"{DEVICES}/{address}/vendor") as file:
            if vendor and file.read().strip()[2:] != vendor:
                continue
        print(line_of(address, address in lost, options.n > 1))


if __name__ == "__main__":
    main()
