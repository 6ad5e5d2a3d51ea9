"""Settings of the activities: AWS, inventory, healers, parity, pages, what is kept where, evidence, launches, effects.

The ways to nodes, job systems and group runs have theirs in `settings_access.py`, `settings_jobs.py` and `settings_burn_in.py`.
Every number names its unit in the field, and its source in the description. `workers/settings.py` reads them from TOML.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class Section(BaseModel):
    """A section of the settings file: unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class AwsRole(Section):
    """Whom one worker role is on AWS. Keys never stand here: a profile names them, or a role is assumed."""

    profile: str = Field("", description="Profile of the AWS configuration files; empty: the process's own credentials")
    role_arn: str = Field(
        "", pattern=r"^(arn:[a-z-]+:iam::\d{12}:role/.+)?$", description="IAM role to assume with these credentials"
    )
    external_id: str = Field("", description="External id that the role's trust policy asks for")


CredentialRole = Literal["control", "aws", "k8s", "ssh", "notify", "watcher", "intake", "observe"]


class AwsSettings(Section):
    """Where EC2 is, and who each worker role is there. Keys come from the usual AWS variables and files, never from here."""

    region: str = Field("", description="AWS region; empty: from the environment or the AWS configuration file")
    endpoint_url: str = Field("", description="Endpoint for closed networks; empty: the AWS default")
    provider: Literal["ec2", "hyperpod"] = Field(
        "ec2", description="Whose instances the nodes are: EC2's of this account, or those of a SageMaker HyperPod cluster"
    )
    hyperpod_cluster: str = Field("", description="For hyperpod: name or ARN of the cluster")
    hyperpod_groups: dict[str, Literal["worker", "spare", "head"]] = Field(
        {}, description='For hyperpod: role of the nodes of an instance group, such as {controller = "head"}; others are workers'
    )
    roles: dict[CredentialRole, AwsRole] = Field(
        {},
        description='Own credentials of single roles, such as ssh = {role_arn = "arn:aws:iam::111122223333:role/hotspare-ssh"}. '
        "Those of `observe` are used by all roles while nothing may be done to nodes (docs/security.md)",
    )


class ListedNode(Section):
    """A node named in the settings file instead of found by its tag."""

    instance_id: str
    name: str
    host: str = ""
    role: Literal["worker", "spare", "head"] = "worker"


class InventorySettings(Section):
    """Where nodes are found."""

    source: Literal["ec2-tag", "list"] = Field("ec2-tag", description="ec2-tag: instances with the tag hotspare:cluster")
    nodes: list[ListedNode] = Field([], description="The nodes, for source = list")
    cache_s: float = Field(10.0, description="Seconds an inventory answer may be reused. Hotspare default: shorter than any step")


class HealerSettings(Section):
    """Others who repair the same nodes, as far as the cluster itself does not tell how they are to be dealt with."""

    karpenter: Literal["detect", "obeys", "no-repair"] = Field(
        "detect",
        description="Whether Karpenter leaves a node with karpenter.sh/do-not-repair alone. detect: by version and feature gate "
        "of its Deployment, and no restart where they cannot be read; obeys: it is 1.15 or newer; no-repair: its gate NodeRepair "
        "is off, as by default",
    )
    pause_node_group_repair: bool = Field(
        False,
        description="Switch EKS node auto repair off for a whole managed node group while Hotspare repairs a node of it: it has "
        "no switch for one node. Otherwise nodes of such groups are not restarted",
    )


class ParitySettings(Section):
    """How nodes are compared with each other: versions, modes, devices, mounts (`checks.parity.FACTS` names all)."""

    golden: dict[str, dict[str, str]] = Field(
        {},
        description='Pinned values, by instance type or "*": ["p5.48xlarge"] driver = "580.95.*". Patterns are those of file '
        "names. What is not pinned is compared with the majority of the peers",
    )
    ignored: list[str] = Field([], description="Names of what may differ from node to node, such as kernel")
    max_age_s: float = Field(
        900.0, description="What was seen of a node longer ago is read anew. Hotspare default: three sweeps of 5 minutes"
    )


class NotifySettings(Section):
    """Where pages go."""

    urls: list[str] = Field([], description="Each page is posted as JSON to each of these")
    log: Path = Field(Path("pages.jsonl"), description="Each page is also appended to this file")
    timeout_s: float = Field(10.0, description="One post. Hotspare default")


class StoreSettings(Section):
    """Where host memory and evidence are kept. Relative paths are relative to the settings file."""

    memory: Literal["sqlite", "dynamodb"] = Field(
        "sqlite", description="Host memory: a file, for workers on one machine, or a DynamoDB table, for workers anywhere"
    )
    host_memory: Path = Field(Path("host-memory.sqlite3"), description="For sqlite: the file")
    table: str = Field(
        "hotspare-host-memory",
        pattern=r"^[a-zA-Z0-9_.-]{3,255}$",
        description="For dynamodb: the table. Clusters may share one: then a banned GPU is banned in all of them",
    )
    region: str = Field("", description="For dynamodb: the table's region; empty: that of `aws`")
    endpoint_url: str = Field("", description="For dynamodb: endpoint for closed networks; empty: that of `aws`")
    evidence_dir: Path = Field(Path("evidence"), description="Folder of evidence bundles")
    evidence_limit_bytes: int = Field(
        20_000_000, description="Size limit of one bundle. Hotspare default: a bug report is about 5 MB"
    )


class EvidenceSettings(Section):
    """What goes into the evidence bundle of an incident, and where it is kept: in S3, else in store.evidence_dir."""

    bucket: str = Field("", description="S3 bucket for bundles; empty: the folder store.evidence_dir")
    prefix: str = Field("hotspare/evidence/", description="Begin of the bundles' keys in the bucket")
    kms_key: str = Field("", description="KMS key that encrypts bundles in S3; empty: S3's own encryption (AES256)")
    nccl_logs: list[str] = Field(
        [],
        description='Log files of NCCL and the training program on the node, e.g. ["/var/log/nccl/{job}.*.log"]; {node} and '
        "{job} are filled in, * and ? match, the newest are taken",
    )
    nccl_logs_on_head: list[str] = Field([], description="The same on the job's head node, for logs on a shared file system")
    dcgm: bool = Field(True, description="Ask DCGM's host engine for its health watches and counters; no test is started")
    bug_report: bool = Field(True, description="Run nvidia-bug-report.sh --safe-mode where the node has it")
    part_deadline_s: float = Field(
        10.0,
        description="One part of the bundle. Hotspare default: nvidia-smi -q on 8 GPUs takes 2 to 5 s, and hangs on a broken one",
    )
    bug_report_deadline_s: float = Field(
        45.0, description="The bug report, within what policy.evidence_deadline_s leaves. Hotspare default"
    )
    part_limit: int = Field(
        4_000_000,
        description="Characters kept of one part, of its end. Hotspare default: a kernel ring buffer has 1 to 16 MB",
    )
    journal_days: float = Field(
        7.0, description="How far back the kernel's journal is read where no earlier incident ended since. Hotspare default"
    )
    serial_key: Path = Field(
        Path("evidence-serial.key"),
        description="File with the key by which serial numbers of boards become marks; made when first needed. Keep it: with "
        "another key the same board has another mark",
    )


class ProvisionSettings(Section):
    """Instances that Hotspare launches for the pool. Without a template it launches none."""

    templates: dict[str, str] = Field(
        {},
        description='Launch template (name or id) by instance type, or by type and zone: {"p5.48xlarge/us-east-1a" = "gpu-a"}. '
        "It has image, subnet, placement group, EFA interfaces and instance profile",
    )
    version: str = Field("$Default", description="Version of the launch templates. Source: EC2's own default")


class EffectSettings(Section):
    """Times around effects on the outside world."""

    settle_s: float = Field(
        240.0,
        description="How long an effect that may have been made is watched before it is made again. Source: EC2 ends a "
        "reboot that the guest ignores after about four minutes (EC2 User Guide, 'Reboot your instance')",
    )
    boot_poll_s: float = Field(2.0, description="Seconds between looks for a new boot. Hotspare default")
    stop_deadline_s: float = Field(
        600.0, description="From stop to stopped. Hotspare default: EC2 gives no bound; GPU hosts take minutes"
    )
