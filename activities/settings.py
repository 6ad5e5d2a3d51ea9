"""Settings of the activities: how nodes are reached, how the job is driven, how a burn-in is launched, where things are kept.

Every number names its unit in the field, and its source in the description. `workers/settings.py` reads them from TOML.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from checks.judges.learned import LearnedRules


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


class JobSettings(Section):
    """The job adapter. For `command`, each entry is an argument list run on the head node; {job}, {nodes}, {token}, {node} and
    {reason} stand for one argument each and are never seen by a shell."""

    adapter: Literal["command", "kubernetes", "slurm", "none"] = Field(
        "none", description="Job system; none: nodes are healed, no job is resumed"
    )
    head: str = Field("", description="Alias of the head node on which the commands run")
    find: list[str] = Field([], description="Prints the JSON status of the job that has {node} in its node set, or null")
    status: list[str] = Field([], description="Prints the JSON status of {job}")
    hold: list[str] = Field([], description="Stops {job} and keeps it stopped")
    resume: list[str] = Field(
        [], description="Starts {job} on {nodes} (comma-separated) from its last checkpoint, once per {token}"
    )
    progress: list[str] = Field(
        [],
        description='For kubernetes and slurm: run on the head node, prints {"step", "checkpoint_step", "seconds_per_step"} of '
        "{job} as JSON; empty: only the annotations of pods and job are read",
    )
    poll_s: float = Field(2.0, description="Seconds between looks at a resumed job. Hotspare default")
    command_deadline_s: float = Field(120.0, description="One job command. Hotspare default: a hold waits for ranks to end")
    progress_deadline_s: float = Field(
        1800.0,
        description="From resume to the first step past the checkpoint. Hotspare default: load of a 405B checkpoint is 130 s "
        "(ByteCheckpoint, table 8), framework start-up up to 1,047 s (arXiv:2402.15627)",
    )
    controller_deadline_s: float = Field(
        2400.0,
        description="A job that its controller restarts: from a proven node to the first step past the checkpoint; after it "
        "Hotspare takes over. Hotspare default: progress_deadline_s and 10 minutes for the controller's back-off",
    )
    restarts_warning: int = Field(
        2, description="A job whose controller has this many restarts left, or fewer, is told to people. Hotspare default"
    )


class KubernetesSettings(Section):
    """The cluster's Kubernetes, where it has one: nodes are cordoned and drained there. Credentials never stand in this file."""

    source: Literal["none", "kubeconfig", "in-cluster", "eks"] = Field(
        "none",
        description="How the API is reached: a kubeconfig, the pod's own service account, or EKS by name, with AWS credentials",
    )
    kubeconfig: Path = Field(Path("~/.kube/config"), description="For kubeconfig: the file")
    context: str = Field("", description="For kubeconfig: the context; empty: the current one")
    eks_cluster: str = Field("", description="For eks: the cluster's name; its address and certificate come from DescribeCluster")
    namespace: str = Field("hotspare", description="Namespace of what Hotspare creates: Jobs that check nodes, their results")
    timeout_s: float = Field(20.0, description="One request. Hotspare default")
    drain_mode: Literal["immediate", "allow_completion", "delete_after_timeout"] = Field(
        "immediate",
        description="How pods leave a node before it is disrupted. immediate: evict now, as disruption budgets allow; "
        "allow_completion: wait until they end by themselves, never evict; delete_after_timeout: evict, and delete at the "
        "deadline what a budget still holds. The modes of NVSentinel's node-drainer",
    )
    drain_deadline_s: float = Field(
        1800.0, description="From the first eviction to a node without pods; then a person is asked. Hotspare default"
    )
    drain_poll_s: float = Field(
        5.0, description="Seconds between tries of an eviction that a budget refused. Source: kubectl drain"
    )
    gpu_resource: str = Field("nvidia.com/gpu", description="Resource whose allocatable count must be back")


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


class SlurmSettings(Section):
    """Slurm, where it runs the jobs; its commands run on the head node `job.head`."""

    flavour: Literal["plain", "parallelcluster", "pcs", "hyperpod"] = Field(
        "plain", description="Whose Slurm it is: on ParallelCluster a drained idle node is terminated within about a minute"
    )
    bin_dir: str = Field("", description="Folder of scontrol and squeue on the head node; empty: its PATH")
    sudo: bool = Field(False, description="Prefix scontrol and scancel with sudo -n: nodes and others' jobs are for root")
    hold_deadline_s: float = Field(
        120.0, description="From requeue to no rank left. Hotspare default: KillWait is 30 s, and an epilog runs after it"
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


class LearnedSettings(Section):
    """When the bandwidth of earlier clean runs becomes a floor of its own, above the fixed one."""

    least_runs: int = Field(
        10, ge=3, description="Clean runs before they count. Hotspare default: one odd run of ten moves no median"
    )
    fail_share: float = Field(
        0.90, gt=0, lt=1, description="A run fails below this share of the median. Hotspare default, as for the shipped floors"
    )
    warn_share: float = Field(
        0.95, gt=0, lt=1, description="And warns below this one. Hotspare default, as for the shipped floors"
    )
    fail_spreads: float = Field(
        5.0,
        gt=0,
        description="And only so many median absolute deviations (MAD) below it. Hotspare default: 3.4 standard deviations of a "
        "normal spread",
    )
    warn_spreads: float = Field(3.0, gt=0, description="The same for a warning. Hotspare default: 2 standard deviations")

    @property
    def rules(self) -> LearnedRules:
        """The same, as the judge takes it."""
        return LearnedRules(**self.model_dump())


_ALL_REDUCE = ["all_reduce_perf", "-b", "1G", "-e", "16G", "-f", "4"]


class BurnInSettings(Section):
    """The all-reduce burn-in."""

    launcher: Literal["auto", "mpirun", "srun", "kubernetes", "mpijob", "torchrun"] = Field(
        "auto",
        description="mpirun: on the launch host; srun: a step of Slurm, told on the launch host; kubernetes: mpirun in pods on "
        "the nodes, with access.agent_tools_image; mpijob: the same as an MPIJob of Kubeflow; torchrun: PyTorch on each node, "
        "where nccl-tests is absent. auto: kubernetes where access.kind is agent, srun where job.adapter is slurm, else mpirun",
    )
    launch_host: str = Field("", description="Alias of the host that runs mpirun or srun; empty: the job's head node")
    command: list[str] = Field(
        ["mpirun", "-np", "{ranks}", "--host", "{hosts}", "{environment}", *_ALL_REDUCE, "-g", "1", "-n", "20"],
        description="For mpirun, kubernetes and mpijob: argument list of a group run; {ranks}, {hosts} (name:slots, "
        "comma-separated), {names}, {nodes} and {gpus} are filled in; {environment} becomes -x NAME=VALUE for each variable",
    )
    srun_command: list[str] = Field(
        [
            "srun",
            "--nodes={nodes}",
            "--nodelist={names}",
            "--ntasks-per-node={gpus}",
            "--gpus-per-node={gpus}",
            "--exclusive",
            "--immediate={start_s}",
            "--mpi=pmix",
            "--kill-on-bad-exit=1",
            *_ALL_REDUCE,
            "-g",
            "1",
            "-n",
            "20",
        ],
        description="For srun: argument list of a group run, with the same words, and {start_s} for slurm_start_s. Job name, "
        "reservation and time limit are told by variables of srun; --mpi is what all_reduce_perf was built for",
    )
    torch_command: list[str] = Field(
        [
            "torchrun",
            "--nnodes={nodes}",
            "--nproc-per-node={gpus}",
            "--node-rank={rank}",
            "--master-addr={master}",
            "--master-port={port}",
            "{program}",
            "-b",
            "1G",
            "-e",
            "16G",
            "-f",
            "4",
            "-n",
            "20",
        ],
        description="For torchrun: argument list on each node; {rank} is the node's number, {master} and {port} are where rank 0 "
        "listens, {program} is Hotspare's own test, which is copied to the node",
    )
    torch_port: int = Field(
        29500,
        gt=1023,
        description="For torchrun: first port of rank 0; a run takes one of 1,000 from here on, by its id. Source: torchrun",
    )
    environment: dict[str, dict[str, str]] = Field(
        {},
        description='Variables of a group run by pattern of instance types, ["p5.*"] NCCL_BUFFSIZE = "4194304", over the shipped '
        "ones (checks/catalog/nccl_environment.csv); an empty value leaves one out",
    )
    python: str = Field("python3", description="Python 3.9 or newer on the launch host, and for torchrun on the nodes")
    log_alike: int = Field(
        2, ge=1, description="Lines of NCCL's log kept that differ in numbers alone. Hotspare default: 16,384 ranks print 1 GB"
    )
    log_lines: int = Field(4000, description="Lines of NCCL's log kept of one run. Hotspare default: two for each of 2,000 nodes")
    output_limit: int = Field(
        4_000_000, description="Characters kept of a group run. Hotspare default: 2,048 nodes of 8 GPUs are listed in 1,300,000"
    )
    slurm_start_s: float = Field(
        60.0,
        gt=0,
        description="For srun: until Slurm has started the step, else it is given up. Hotspare default: a prolog takes seconds",
    )
    node_command: list[str] = Field(
        ["all_reduce_perf", "-b", "1G", "-e", "16G", "-f", "4", "-g", "{gpus}", "-n", "20"],
        description="Argument list of the one-node run of the deep re-test; {gpus} is the GPU count",
    )
    gpus_per_node: int = Field(8, description="Ranks a node. Source: 8 GPUs on every p4, p5 and p6 instance type")
    deadline_s: float = Field(
        600.0,
        description="One run, where who asks for it names no other time. Source: gang limit of NVSentinel's preflight NCCL "
        "check, 600 s",
    )
    poll_s: float = Field(2.0, description="Seconds between looks at a run. Hotspare default")
    floors_gbs: dict[str, float] = Field({}, description='Own bus-bandwidth floors, "type/nodes" = GB/s, over the shipped ones')
    learned: LearnedSettings = LearnedSettings()


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
