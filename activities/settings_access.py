"""Settings of the ways to a node: SSH, pods, Run Command."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field

from activities.settings import Section


class PodSettings(Section):
    """For access.kind = "agent" and burn_in.launcher = "kubernetes": how commands run as pods on their nodes."""

    lease_max_age_s: float = Field(
        25.0,
        gt=0,
        description="Age of a kubelet's lease from which the node counts as not answering, though Kubernetes calls it Ready for "
        'up to 50 s. Source: the kubelet renews every 10 s (Kubernetes, "Node heartbeats"); two renewals may be late',
    )
    look_s: float = Field(
        0.25, gt=0, description="Between looks at a run that is waited for. Hotspare default: short beside the start of a pod"
    )
    result_grace_s: float = Field(
        20.0, gt=0, description="From the end of a command to its result in the API. Hotspare default: a busy API server"
    )
    term_grace_s: float = Field(
        5.0, ge=0, description="From SIGTERM to SIGKILL of a command that is ended. Hotspare default: below the pod's own 20 s"
    )
    shown_every_s: float = Field(
        2.0, gt=0, description="Between looks at what a long run prints, to be seen meanwhile. Hotspare default: burn_in.poll_s"
    )
    shown_bytes: int = Field(
        65536, gt=0, description="Bytes of it that are seen meanwhile, of its end. Hotspare default: as access.output_limit"
    )
    ready_after_s: float = Field(
        1.0,
        ge=0,
        description="A server of a group run that has lived so long counts as ready. Hotspare default: sshd listens, or ends, "
        "within milliseconds",
    )
    write_for_s: float = Field(
        60.0,
        gt=0,
        description="How long a run tries to write its result. Hotspare default: an API server restarts within it",
    )
    backstop_s: int = Field(
        120,
        gt=0,
        description="Past its own deadline, Kubernetes ends a run that did not end itself. Hotspare default: its grace periods "
        "and its last write fit in",
    )
    keep_s: int = Field(
        86400,
        gt=0,
        description="How long an ended run stays known. Hotspare default: a worker that is away for a day starts nothing twice",
    )
    keep_once_s: int = Field(
        300,
        gt=0,
        description="The same for a command whose caller waits for it and deletes it, unless he dies. Hotspare default: long "
        "enough to read it by hand",
    )
    ssh_port: int = Field(
        2222, gt=0, lt=65536, description="Port of sshd in the pods of a group run, on the host's network. Hotspare default"
    )


class RunCommandSettings(Section):
    """For access.kind = "ssm": how commands reach nodes by Run Command of AWS Systems Manager."""

    document: str = Field(
        "hotspare-node", pattern=r"^[A-Za-z0-9_.-]{3,128}$", description="The document that may change a node: Terraform makes it"
    )
    look_document: str = Field(
        "hotspare-node-look", pattern=r"^[A-Za-z0-9_.-]{3,128}$", description="The one that only looks, which every role may send"
    )
    bucket: str = Field(
        "",
        description="S3 bucket for outputs of more than 24,000 characters, which is what Run Command carries; the nodes write "
        "there. Empty: a longer output is an error",
    )
    prefix: str = Field("hotspare/run-command", description="Begin of the keys in it, without a slash at the end")
    answer_s: float = Field(
        15.0,
        gt=0,
        description="What a command may take beside its own time before the node counts as not answering: on its way to the "
        "agent, and back. Hotspare default: the agent holds a connection, so some seconds are long",
    )
    poll_s: float = Field(
        0.5, gt=0, description="Between looks at a command. Hotspare default: few beside the service's limit on calls"
    )


class AccessSettings(Section):
    """How nodes are reached: over SSH, by Jobs of Kubernetes, or by Run Command of AWS Systems Manager."""

    ssh_config: Path = Field(
        Path("~/.ssh/config"), description="OpenSSH client configuration: host, port, user, key, known hosts"
    )
    connect_timeout_s: float = Field(
        10.0, description="TCP and SSH handshake. Hotspare default: a booted node answers in under 1 s"
    )
    probe_deadline_s: float = Field(
        30.0, description="One probe. Hotspare default: its goal is 0.3 s, and it ends what hangs inside"
    )
    tries: int = Field(2, description="Tries of one examination before the node counts as not answering. Hotspare default")
    retry_wait_s: float = Field(1.0, description="Seconds between these tries. Hotspare default")
    command_deadline_s: float = Field(60.0, description="Short commands. Hotspare default: the probe's goal is 0.3 s")
    output_limit: int = Field(
        65536, description="Characters kept of a command's output. Hotspare default: far below Temporal's 2 MiB"
    )
    cache_dir: str = Field(".cache/hotspare", description="Cache folder on the node, relative to the user's home")
    python: str = Field("python3", description="Python 3.9 or newer on the node")
    learn_host_keys: bool = Field(
        True,
        description="Learn an unknown host key over AWS: it is believed when the instance's console shows it. Needs "
        "the permission ec2:GetConsoleOutput",
    )
    sudo: bool = Field(False, description="Prefix commands that need root with sudo -n")
    kind: Literal["ssh", "agent", "ssm"] = Field(
        "ssh",
        description="How nodes are reached: ssh, agent (Jobs of Kubernetes pinned to the node: nothing logs in), or ssm (Run "
        "Command of AWS Systems Manager: commands by name alone, of what is installed on the node)",
    )
    agent_image: str = Field("", description="For agent: container image of the checks, with Python and NVIDIA's library mounted")
    agent_start_s: float = Field(
        60.0,
        gt=0,
        description="For agent: from a command to its pod running on the node; after it the node counts as not answering. "
        "Hotspare default: the first pull of an image takes tens of seconds",
    )
    agent_tools_image: str = Field("", description="For agent: image with all_reduce_perf, mpirun and sshd, for the burn-in")
    pods: PodSettings = PodSettings()
    ssm: RunCommandSettings = RunCommandSettings()
