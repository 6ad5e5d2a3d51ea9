"""The files of the lab's Slurm: slurm.conf, gres.conf, the batch script, and the commands on the head node."""

from __future__ import annotations

import getpass
import os
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path

from infra.lab.node import LabNode
from infra.lab.node_root import TREE
from infra.lab.options import LabOptions
from infra.lab.slurm.daemons import program

GPUS = 8
PARTITION = "train"
HEAD_COMMANDS = ("scontrol", "squeue", "sinfo", "sbatch", "srun", "scancel")
SILENCE_S = 8
"""Seconds without a sign of slurmd until its node is DOWN (SlurmdTimeout); 300 is Slurm's default."""


def write_conf(
    conf: Path, run: Path, socket: Path, controller_port: int, nodes: Mapping[str, LabNode], ports: Mapping[str, int]
) -> None:
    """Write slurm.conf and its companions. The GPUs are empty files: slurmd only looks whether they are there."""
    folder, user = conf.parent, getpass.getuser()
    devices = folder / "dev"
    devices.mkdir(exist_ok=True)
    for number in range(GPUS):
        (devices / f"nvidia{number}").touch()
    # No lab node has more than the CPUs that all share, so config_overrides lets each say that it has as many as it likes.
    settings = {
        "ClusterName": "lab",
        "SlurmctldHost": "localhost(127.0.0.1)",
        "SlurmctldPort": controller_port,
        "SlurmUser": user,
        "SlurmdUser": user,
        "AuthType": "auth/munge",
        "AuthInfo": f"socket={socket}",
        "CredType": "cred/munge",
        "StateSaveLocation": run / "state",
        "SlurmdSpoolDir": run / "spool" / "%n",
        "SlurmctldPidFile": run / "slurmctld.pid",
        "SlurmdPidFile": run / "slurmd.%n.pid",
        "SlurmctldLogFile": folder / "log" / "slurmctld",
        "SlurmdLogFile": folder / "log" / "slurmd.%n",
        "ProctrackType": "proctrack/linuxproc",
        "TaskPlugin": "task/none",
        "JobAcctGatherType": "jobacct_gather/none",
        "SwitchType": "switch/none",
        "MpiDefault": "none",
        "SelectType": "select/cons_tres",
        "SelectTypeParameters": "CR_Core",
        "GresTypes": "gpu",
        "SlurmdParameters": "config_overrides",
        "SchedulerParameters": "bf_interval=1,sched_interval=1,sched_min_interval=0",
        "JobRequeue": 1,
        "ReturnToService": 1,
        "SlurmdTimeout": SILENCE_S,
        "SlurmctldTimeout": 10,
        "MessageTimeout": 5,
        "KillWait": 1,
        "InactiveLimit": 0,
        "MinJobAge": 3600,
    }
    lines = [f"{name}={value}" for name, value in settings.items()]
    for name, node in nodes.items():
        weight = 1 if node.role == "worker" else 1000
        lines.append(
            f"NodeName={name} NodeHostname={node.dns.split('.')[0]} NodeAddr=127.0.0.1 Port={ports[name]} CPUs={GPUS} "
            f"RealMemory=1000 Gres=gpu:{GPUS} Weight={weight} State=UNKNOWN"
        )
    lines.append(f"PartitionName={PARTITION} Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=EXCLUSIVE")
    conf.write_text("\n".join(lines) + "\n")
    (folder / "gres.conf").write_text(f"NodeName={','.join(nodes)} Name=gpu File={devices}/nvidia[0-{GPUS - 1}]\n")
    (folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")


def write_batch_script(path: Path, desk_file: Path, output: Path, options: LabOptions) -> None:
    """Write the job: whole nodes, one task each, requeued when a node dies."""
    rank = [os.path.realpath(sys.executable), "-E", "-s", "-m", "infra.lab.slurm.rank", str(desk_file)]
    path.write_text(
        "#!/bin/sh\n"
        f"#SBATCH --job-name=train\n#SBATCH --nodes={options.nodes}\n#SBATCH --ntasks-per-node=1\n"
        f"#SBATCH --gpus-per-node={GPUS}\n#SBATCH --requeue\n#SBATCH --open-mode=append\n#SBATCH --output={output}\n"
        f"cd {shlex.quote(str(TREE))}\n"
        f"exec srun --kill-on-bad-exit=1 {shlex.join(rank)}\n"
    )


def write_head_commands(folder: Path, conf: Path, desk_file: Path) -> None:
    """Put Slurm's commands on the head node's PATH, and the test that srun starts on other nodes from there."""
    for name in HEAD_COMMANDS:
        path = folder / name
        path.write_text(f'#!/bin/sh\nSLURM_CONF={shlex.quote(str(conf))} exec {program(name)} "$@"\n')
        path.chmod(0o755)
    test = folder / "all_reduce_perf"
    words = shlex.join([os.path.realpath(sys.executable), "-P", "-S", "-m", "infra.lab.slurm.all_reduce", str(desk_file)])
    test.write_text(f'#!/bin/sh\nPYTHONPATH={shlex.quote(str(TREE))} exec {words} "$@"\n')
    test.chmod(0o755)
