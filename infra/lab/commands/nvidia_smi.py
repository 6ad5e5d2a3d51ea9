"""nvidia-smi of a lab node: list, query and table from the node's GPU state, with the tool's own words for a lost GPU."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any, NoReturn

ROOT = os.environ["HOTSPARE_HOST_ROOT"]
LOST = 15
"""Exit status of nvidia-smi for a GPU that is lost: NVML's own code."""

RECOVERY_ACTIONS = ("None", "GPU Reset", "Node Reboot", "Drain P2P", "Drain and Reset")
GONE = "GPU is lost.  Reboot the system to recover this GPU"
Gpu = dict[str, Any]
State = dict[str, Any]

FIELDS: dict[str, Callable[[Gpu, State], str]] = {
    "index": lambda gpu, state: str(gpu["index"]),
    "name": lambda gpu, state: gpu["name"],
    "gpu_name": lambda gpu, state: gpu["name"],
    "uuid": lambda gpu, state: gpu["uuid"],
    "gpu_uuid": lambda gpu, state: gpu["uuid"],
    "serial": lambda gpu, state: gpu["serial"],
    "gpu_serial": lambda gpu, state: gpu["serial"],
    "pci.bus_id": lambda gpu, state: long_bus_id(gpu),
    "gpu_bus_id": lambda gpu, state: long_bus_id(gpu),
    "driver_version": lambda gpu, state: state["driver"],
    "count": lambda gpu, state: str(len(state["gpus"])),
    "memory.total": lambda gpu, state: f"{gpu['memory_mib']} MiB",
    "memory.used": lambda gpu, state: f"{used_mib(gpu, state)} MiB",
    "temperature.gpu": lambda gpu, state: str(gpu["temperature"]),
    "utilization.gpu": lambda gpu, state: "100 %" if alive(state) else "0 %",
    "persistence_mode": lambda gpu, state: "Enabled",
    "mig.mode.current": lambda gpu, state: "Disabled",
    "ecc.mode.current": lambda gpu, state: "Enabled",
    "ecc.errors.uncorrected.volatile.total": lambda gpu, state: str(gpu["ecc_volatile_uncorrected"]),
    "ecc.errors.corrected.volatile.total": lambda gpu, state: str(gpu["ecc_volatile_corrected"]),
    "clocks_event_reasons.active": lambda gpu, state: f"0x{gpu['clocks_event_reasons']:016x}",
    "clocks_throttle_reasons.active": lambda gpu, state: f"0x{gpu['clocks_event_reasons']:016x}",
}


def long_bus_id(gpu: Gpu) -> str:
    """The address as nvidia-smi prints it: eight digits of domain, capitals."""
    return f"0000{gpu['pci']}".upper()


def alive(state: State) -> list[Gpu]:
    """Processes on the GPUs that still run."""
    return [process for process in state["processes"] if os.path.exists(f"/proc/{process['pid']}")]


def used_mib(gpu: Gpu, state: State) -> int:
    """Memory in use."""
    return int(gpu["memory_mib"]) // 10 * 9 if alive(state) else 600


def refuse_unusable(gpus: list[Gpu]) -> None:
    """Stop with the tool's words at a GPU that the driver cannot talk to."""
    for gpu in gpus:
        if gpu["lost"]:
            print(f"Unable to determine the device handle for GPU{gpu['index']}: {long_bus_id(gpu)}: {GONE}")
            sys.exit(LOST)


def wait_if_hung(gpus: list[Gpu]) -> None:
    """A GPU whose firmware hangs keeps nvidia-smi waiting for ever."""
    if any(gpu["hung"] for gpu in gpus):
        subprocess.run(["sleep", "infinity"], check=False)


def list_gpus(state: State) -> None:
    """nvidia-smi -L"""
    for gpu in state["gpus"]:
        if gpu["lost"]:
            print(f"Unable to determine the device handle for gpu {long_bus_id(gpu)}: {GONE}")
        else:
            print(f"GPU {gpu['index']}: {gpu['name']} (UUID: {gpu['uuid']})")


def print_csv(names: list[str], rows: list[list[str]], form: list[str]) -> None:
    """Rows as nvidia-smi's CSV: comma and space between cells."""
    if "noheader" not in form:
        print(", ".join(names))
    for row in rows:
        print(", ".join(cell.split(" ")[0] if "nounits" in form and cell.endswith((" MiB", " %")) else cell for cell in row))


def query_gpus(state: State, fields: list[str], form: list[str]) -> None:
    """nvidia-smi --query-gpu=..."""
    for field in fields:
        if field not in FIELDS:
            print(f'Field "{field}" is not a valid field to query.\n')
            sys.exit(2)
    refuse_unusable(state["gpus"])
    print_csv(fields, [[FIELDS[field](gpu, state) for field in fields] for gpu in state["gpus"]], form)


def query_processes(state: State, fields: list[str], form: list[str]) -> None:
    """nvidia-smi --query-compute-apps=..."""
    refuse_unusable(state["gpus"])
    cells: dict[str, Callable[[Gpu, Gpu], str]] = {
        "pid": lambda gpu, process: str(process["pid"]),
        "process_name": lambda gpu, process: process["name"],
        "name": lambda gpu, process: process["name"],
        "gpu_uuid": lambda gpu, process: gpu["uuid"],
        "gpu_bus_id": lambda gpu, process: long_bus_id(gpu),
        "used_memory": lambda gpu, process: f"{gpu['memory_mib'] // 10 * 9} MiB",
        "used_gpu_memory": lambda gpu, process: f"{gpu['memory_mib'] // 10 * 9} MiB",
    }
    for field in fields:
        if field not in cells:
            print(f'Field "{field}" is not a valid field to query.\n')
            sys.exit(2)
    rows = [[cells[field](gpu, process) for field in fields] for process in alive(state) for gpu in state["gpus"]]
    print_csv(fields, rows, form)


def print_table(state: State) -> None:
    """nvidia-smi without arguments."""
    refuse_unusable(state["gpus"])
    cuda = f"{state['cuda'] // 1000}.{state['cuda'] % 1000 // 10}"
    line = "+" + "-" * 89 + "+"
    head = f"NVIDIA-SMI {state['driver']:<22} Driver Version: {state['driver']:<14} CUDA Version: {cuda}"
    print(line)
    print(f"| {head:<87} |")
    print("|" + "-" * 89 + "|")
    for gpu in state["gpus"]:
        row = f"{gpu['index']:>3}  {gpu['name']:<28} On  |   {long_bus_id(gpu)} Off | {gpu['ecc_volatile_uncorrected']:>20}"
        print(f"| {row:<87} |")
        row = f"N/A  {gpu['temperature']:>3}C  {used_mib(gpu, state):>8}MiB / {gpu['memory_mib']}MiB"
        print(f"| {row:<87} |")
    print(line)
    print(f"| {'Processes:':<87} |")
    rows = [
        f"{gpu['index']:>4}   N/A  N/A {process['pid']:>12}      C   {process['name']}"
        for gpu in state["gpus"]
        for process in alive(state)
    ]
    for row in rows or ["No running processes found"]:
        print(f"| {row:<87} |")
    print(line)


def print_all(state: State) -> None:
    """nvidia-smi -q: the attributes that the state knows, in the tool's layout."""
    refuse_unusable(state["gpus"])
    cuda = f"{state['cuda'] // 1000}.{state['cuda'] % 1000 // 10}"
    print("\n==============NVSMI LOG==============\n")
    for name, value in (("Driver Version", state["driver"]), ("CUDA Version", cuda), ("Attached GPUs", len(state["gpus"]))):
        print(f"{name:<43}: {value}")
    for gpu in state["gpus"]:
        print(f"GPU {long_bus_id(gpu)}")
        yes = {0: "No", 1: "Yes"}
        for name, value in (
            ("Product Name", gpu["name"]),
            ("Serial Number", gpu["serial"]),
            ("GPU UUID", gpu["uuid"]),
            ("GPU Recovery Action", RECOVERY_ACTIONS[gpu["recovery_action"]]),
            ("GPU Current Temp", f"{gpu['temperature']} C"),
            ("Volatile Uncorrectable ECC", gpu["ecc_volatile_uncorrected"]),
            ("Remapped Rows Pending", yes[gpu["remap_pending"]]),
            ("Remapping Failure Occurred", yes[gpu["remap_failure"]]),
        ):
            print(f"    {name:<39}: {value}")


def print_topology(state: State) -> None:
    """nvidia-smi topo -m: how many NVLinks join each pair of GPUs."""
    refuse_unusable(state["gpus"])
    names = [f"GPU{gpu['index']}" for gpu in state["gpus"]]
    print("\t".join(["", *names, "CPU Affinity"]))
    for gpu, name in zip(state["gpus"], names, strict=True):
        links = gpu["nvlinks"] - len(gpu["nvlinks_down"])
        others = [" X " if other == name else f"NV{links}" for other in names]
        half = "0-47,96-143" if gpu["index"] < len(names) / 2 else "48-95,144-191"
        print("\t".join([name, *others, half]))
    print("\nLegend:\n\n  X    = Self\n  NV#  = Connection traversing a bonded set of # NVLinks")


def reset(state: State) -> NoReturn:
    """nvidia-smi --gpu-reset, as on an instance whose hypervisor keeps it from the guest."""
    for gpu in state["gpus"][:1]:
        print(f"Resetting GPU {long_bus_id(gpu)} is not supported.")
    sys.exit(3)


def main() -> None:
    """Answer one call."""
    with open(ROOT + "/var/lib/lab/gpus.json") as file:
        state = json.load(file)
    wait_if_hung(state["gpus"])
    words = sys.argv[1:]
    form = next((word.partition("=")[2] for word in words if word.startswith("--format=")), "csv")
    queries = {"--query-gpu": query_gpus, "--query-compute-apps": query_processes}
    wanted = [(name, fields) for name, _, fields in (word.partition("=") for word in words) if name in queries and fields]
    if not words:
        print_table(state)
    elif words[0] in ("-L", "--list-gpus"):
        list_gpus(state)
    elif words[0] in ("-q", "--query"):
        print_all(state)
    elif words[:2] == ["topo", "-m"]:
        print_topology(state)
    elif words[0] in ("-r", "--gpu-reset"):
        reset(state)
    elif wanted:
        name, fields = wanted[0]
        queries[name](state, [field.strip() for field in fields.split(",")], form.split(","))
    else:
        print(f"Invalid combination of input arguments: {' '.join(words)}. Please run 'nvidia-smi -h' for help.\n")
        sys.exit(2)


if __name__ == "__main__":
    main()
