"""`hotspare lab up|down|status|faults|inject|cure`: a whole cluster on this machine, to play with and to test on."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from activities.errors import BadInput, CapabilityMissing, TransientError
from workers.cli.common import Answer, JsonOption, answering

if TYPE_CHECKING:
    from infra.lab.remote import RemoteLab

NEEDED = ("moto", "asyncssh")
"""What the extra `lab` brings; the `temporal` server comes with it too."""

FolderOption = Annotated[
    Path | None, typer.Option("--folder", help="The lab's folder; else ${XDG_STATE_HOME:-~/.local/state}/hotspare/lab.")
]

lab = typer.Typer(help="A whole cluster on this machine: EC2 endpoint, nodes, job, Temporal.", no_args_is_help=True)


class LabTrouble(TransientError):
    """No lab runs there, or it did not do what it was asked."""


def add_to(app: typer.Typer) -> None:
    """Add the group."""
    app.add_typer(lab, name="lab")


@lab.command()
def up(
    nodes: Annotated[int, typer.Option(min=1, max=200, help="Nodes that train.")] = 4,
    spares: Annotated[int, typer.Option(min=0, max=50, help="Spares.")] = 1,
    instance_type: Annotated[str, typer.Option(help="Instance type that the nodes play.")] = "p5.48xlarge",
    orchestrator: Annotated[str, typer.Option(help="What starts the job: command, kubernetes or slurm.")] = "command",
    job_kind: Annotated[str, typer.Option(help="On kubernetes: Job, JobSet, PyTorchJob or TrainJob.")] = "Job",
    access: Annotated[str, typer.Option(help="How Hotspare reaches nodes: ssh, ssm, or on kubernetes agent.")] = "ssh",
    kwok_nodes: Annotated[int, typer.Option(min=0, max=5000, help="On kubernetes: so many more Nodes without machines.")] = 0,
    memory: Annotated[
        str, typer.Option(help="Where Hotspare keeps host memory: sqlite, or dynamodb at the lab's endpoint.")
    ] = "sqlite",
    foreground: Annotated[
        bool, typer.Option("--foreground", help="Stay until interrupted, instead of a process of its own.")
    ] = False,
    folder: FolderOption = None,
    as_json: JsonOption = False,
) -> None:
    """Bring a lab up with its training job running."""
    with answering(as_json) as answer, _lab_errors():
        from infra.lab.options import LabOptions
        from infra.lab.remote import default_folder
        from infra.lab.runner import run_lab, start_detached

        options = LabOptions(
            folder=folder or default_folder(),
            nodes=nodes,
            spares=spares,
            instance_type=instance_type,
            orchestrator=orchestrator,
            job_kind=job_kind,
            access=access,
            kwok_nodes=kwok_nodes,
            memory=memory,
        )

        def tell(about: dict[str, Any]) -> None:
            answer.document(_without_secrets(about))
            _tell_up(answer, about, options.folder)

        if foreground:
            run_lab(options, tell)
        else:
            tell(start_detached(options))


@lab.command()
def down(folder: FolderOption = None, as_json: JsonOption = False) -> None:
    """Take the lab down."""
    with answering(as_json) as answer, _lab_errors():
        remote = _remote(folder)
        remote.down()
        answer.document({"down": str(remote.folder)})
        answer.say(f"the lab of {remote.folder} is down")


@lab.command()
def status(folder: FolderOption = None, as_json: JsonOption = False) -> None:
    """Show the lab's nodes, its job, and the calls that arrived at its EC2 endpoint."""
    with answering(as_json) as answer, _lab_errors():
        seen = _remote(folder).status()
        answer.document(seen)
        _tell_status(answer, seen)


@lab.command()
def faults(as_json: JsonOption = False) -> None:
    """List the faults that have a name: what breaks, where it shows, what ends it."""
    with answering(as_json) as answer, _lab_errors():
        from infra.lab.named_faults import table

        rows = {name: row.to_json() for name, row in table().items()}
        answer.document({"faults": rows})
        _tell_faults(answer, rows)


@lab.command()
def inject(
    node: Annotated[str, typer.Argument(metavar="NODE", help="The lab node: node-1, spare-1...")],
    named: Annotated[str, typer.Option("--fault", help="A fault by its name; `hotspare lab faults` lists them.")] = "",
    xid: Annotated[int | None, typer.Option(help="Print the line of this XID and put the GPU into its state.")] = None,
    sxid: Annotated[int | None, typer.Option(help="Print the line of this SXid.")] = None,
    text: Annotated[str, typer.Option(help="Text after the code, in place of the usual one.")] = "",
    line: Annotated[
        list[str] | None, typer.Option("--line", help="A kernel line of any kind; {pci} is the GPU's address. Repeat for more.")
    ] = None,
    repeat: Annotated[int, typer.Option(min=1, max=100_000, help="How often the lines are printed.")] = 1,
    gpu: Annotated[int | None, typer.Option(min=0, help="Index of the GPU; 3 if not given.")] = None,
    cure: Annotated[
        str, typer.Option(help="reboot, power_cycle, never, comes_back, no_boot or hang; else as the name says, or reboot.")
    ] = "",
    slow: Annotated[float | None, typer.Option(min=0, max=1, help="Share of the bandwidth that is left.")] = None,
    slow_kind: Annotated[str, typer.Option(help="intra: inside the node; inter: between nodes.")] = "inter",
    wrong: Annotated[int, typer.Option(min=0, help="Wrong elements in every all-reduce.")] = 0,
    lost: Annotated[bool, typer.Option("--lost", help="The GPU is gone without any line.")] = False,
    hang: Annotated[bool, typer.Option("--hang", help="Commands over SSH hang at once.")] = False,
    folder: FolderOption = None,
    as_json: JsonOption = False,
) -> None:
    """Break a lab node as a real fault would."""
    with answering(as_json) as answer, _lab_errors():
        from infra.lab.faults import Fault

        said: dict[str, Any] = {"xid": xid, "sxid": sxid, "text": text, "lines": line or []}
        said |= {"slow": slow, "wrong": wrong or None, "lost": lost, "hang": hang}
        given = {
            name: value for name, value in said.items() if value is not None and value is not False and value not in ("", [])
        }
        if named and given:
            raise BadInput("a fault by name says all that breaks; leave out --" + ", --".join(given))
        if not named and not given.keys() - {"text"}:
            raise BadInput("say what breaks: --fault NAME, --xid, --sxid, --line, --slow, --wrong, --lost or --hang")
        if named:
            fault = replace(Fault.named(named, gpu=gpu, cure=cure), repeat=repeat)
        else:
            place = 3 if gpu is None else gpu
            fault = Fault(**given, gpu=place, cure=cure or "reboot", slow_kind=slow_kind, repeat=repeat)
        lines = _remote(folder).inject(node, fault)
        answer.document({"node": node, "fault": fault.to_json(), "lines": lines})
        answer.say(Text("\n".join(lines) or f"{node}: broken without a line in its kernel log"))
        answer.say(f"next: hotspare why {node}")


@lab.command()
def cure(
    node: Annotated[str, typer.Argument(metavar="NODE", help="The lab node.")],
    folder: FolderOption = None,
    as_json: JsonOption = False,
) -> None:
    """Take every fault from a lab node, as new hardware or a person would; its kernel log keeps its lines."""
    with answering(as_json) as answer, _lab_errors():
        _remote(folder).cure(node)
        answer.document({"node": node, "faults": []})
        answer.say(f"{node} has no fault any more")


def _remote(folder: Path | None) -> RemoteLab:
    from infra.lab.remote import RemoteLab

    return RemoteLab(folder)


def check_extra() -> None:
    """Raise CapabilityMissing with the line to type when the lab's packages are not installed."""
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise CapabilityMissing(f"the lab needs {', '.join(missing)}, not installed here; type: pip install 'hotspare[lab]'")


@contextmanager
def _lab_errors() -> Iterator[None]:
    """Say what the lab says in our words; without the extra, say what to type."""
    check_extra()
    from infra.lab.remote import LabRefused, NoLab
    from infra.lab.runner import LabRuns

    try:
        yield
    except ValueError as error:
        raise BadInput(str(error)) from error
    except FileNotFoundError as error:
        raise CapabilityMissing(str(error)) from error
    except (LabRefused, LabRuns, NoLab, RuntimeError) as error:
        raise LabTrouble(str(error)) from error


def _without_secrets(about: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in about.items() if key != "environment"}


def _tell_up(answer: Answer, about: dict[str, Any], folder: Path) -> None:
    _tell_status(answer, about)
    env = folder.absolute() / "env"
    answer.say(Text("\nnext:", style="bold"))
    for command, what in (
        (f". {env}", "point this shell at the lab"),
        ("hotspare init --yes && hotspare run", "heal it (in a shell of its own, after the line above)"),
        ("hotspare lab inject node-2 --xid 79", "break a GPU; --cure never for one that a reboot does not mend"),
        ("hotspare status", "what goes on"),
        ("hotspare why node-2", "the story of the incident"),
        ("hotspare lab down", "end it"),
    ):
        answer.say(Text(f"  {command:40}", style="cyan") + Text(what))


def _tell_status(answer: Answer, seen: dict[str, Any]) -> None:
    table = Table(box=None, padding=(0, 1), title_justify="left")
    for heading in ("node", "instance", "role", "state", "faults"):
        table.add_column(heading)
    for node in seen["nodes"]:
        faults = ", ".join(_fault(fault) for fault in node.get("faults", []))
        table.add_row(node["name"], node["instance_id"], node["role"], str(node["state"]), faults)
    answer.say(table)
    under = seen.get("orchestrator") or {}
    if under.get("kubeconfig"):
        answer.say(f"Kubernetes: {under['url']}, KUBECONFIG={under['kubeconfig']}")
    job = seen.get("job") or {}
    if job:
        answer.say(f"job {job['job']}: {job['state']}, step {job['step']}, on {', '.join(job['nodes'])}")
    if seen.get("ui_url"):
        answer.say(f"Temporal UI: {seen['ui_url']}")


def _tell_faults(answer: Answer, rows: dict[str, dict[str, Any]]) -> None:
    table = Table(box=None, padding=(0, 1), title_justify="left")
    for heading in ("fault", "what breaks", "shows in", "class, action", "cure"):
        table.add_column(heading, overflow="fold", no_wrap=heading in ("fault", "class, action"))
    for name, row in sorted(rows.items(), key=lambda one: one[1]["fault_class"]):
        words = (row["what"], row["signal"], f"{row['fault_class']}\n{row['action']}", row["cure"])
        table.add_row(Text(name, style="cyan"), *(Text(word) for word in words))
    answer.say(table)
    answer.say(Text("next: hotspare lab inject node-2 --fault fell_off_bus"))


def _fault(fault: dict[str, Any]) -> str:
    if fault.get("name"):
        return f"{fault['name']} (cure: {fault['cure']})"
    for key, name in (("xid", "XID"), ("sxid", "SXid"), ("slow", "slow")):
        if fault.get(key) is not None:
            return f"{name} {fault[key]} (cure: {fault.get('cure', '?')})"
    return ", ".join(key for key in ("wrong", "lost", "hang") if fault.get(key)) or "kernel lines"
