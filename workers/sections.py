"""Settings of the processes themselves: cluster name, worker threads, watcher, intake, checks, links to the Temporal UI.

The other sections of the settings file belong to the layers that read them; `workers.settings` joins all.
"""

from __future__ import annotations

from pathlib import Path

from pydantic import Field, field_validator

from activities.settings import Section


class NameSettings(Section):
    """Which cluster this file is about."""

    name: str = Field(
        "lab",
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$",
        description="Name of the cluster: value of the EC2 tag hotspare:cluster, and part of every workflow id",
    )


class TemporalSettings(Section):
    """What the connection does not tell. Address, namespace and keys come from TEMPORAL_* variables or `temporal.toml` alone."""

    ui_url: str = Field("", description="Address of the Temporal UI, for links in pages and answers; empty: no links")
    database_host: str = Field(
        "", description="Host of Temporal's database: `hotspare doctor` says when that is a node that may be restarted"
    )


class CodecSettings(Section):
    """Encryption of what Temporal keeps: inputs, results, messages, summaries, errors. Ids and search attributes stay plain."""

    enabled: bool = Field(False, description="Encrypt; every process and command of the cluster needs the same keys")
    keys_file: Path = Field(
        Path("codec.keys"), description="File of the AES-256 keys, mode 0600; `hotspare codec-key` adds one, the last encrypts"
    )
    host: str = Field("127.0.0.1", description="Address on which `hotspare codec-server` listens; elsewhere put TLS before it")
    port: int = Field(9098, ge=0, le=65535, description="Its port; 0: a free one, which is printed")
    token_file: Path = Field(Path("codec.token"), description="File with the token that its users must show")
    ui_origins: list[str] = Field(
        ["http://localhost:8233", "http://127.0.0.1:8233"],
        description="Where the Temporal UI is, as the browser sees it. Source: 8233 is the development server's UI",
    )


class ChecksSettings(Section):
    """Thresholds of the node checks, and what fault codes mean here."""

    thresholds: dict[str, float] = Field(
        {}, description="Own thresholds of the probe, by name, over the shipped ones (checks/README.md)"
    )
    overrides: dict[str, dict[str, str]] = Field(
        {},
        description='Own word on single codes over the shipped catalog, by "xid:79", "sxid:20034" or "host:lockup": `action` '
        "and, if wished, `fault_class`, `escalation`, `interrupts_job`, `why` (hotspare explain 79 shows what holds)",
    )


class WorkerSettings(Section):
    """Threads and waiting times of the worker process. One thread is held by each activity that runs."""

    aws_threads: int = Field(
        16, ge=1, description="Threads of queue hotspare-aws. Hotspare default: below EC2's bucket of mutating calls"
    )
    k8s_threads: int = Field(16, ge=1, description="Threads of queue hotspare-k8s: most drains at once. Hotspare default")
    ssh_threads: int = Field(
        32, ge=1, description="Threads of queue hotspare-ssh. Hotspare default: most incidents worked on at once"
    )
    ssh_slow_threads: int = Field(32, ge=1, description="Threads of queue hotspare-ssh-slow. Hotspare default")
    notify_threads: int = Field(4, ge=1, description="Threads of queue hotspare-notify. Hotspare default")
    control_threads: int = Field(8, ge=1, description="Threads for the activities of queue hotspare. Hotspare default")
    shutdown_grace_s: float = Field(
        20.0,
        ge=0,
        description="Seconds that running activities get to end when the process is told to stop. Measured: with 20 s of grace "
        "an interrupted 8-s activity ended in place instead of beginning again",
    )
    wedged_attempts: int = Field(
        3,
        ge=2,
        description="Tries of one workflow task after which its workflow counts as stuck on its own code and people are paged. "
        "Hotspare default: one more than a worker that is restarted in mid-task causes",
    )
    wedged_look_s: float = Field(30.0, gt=0, description="Seconds between looks for stuck workflows. Hotspare default")
    metrics_address: str = Field(
        "", description="host:port on which Temporal's own metrics are served for Prometheus; empty: not served"
    )


class WatcherSettings(Section):
    """The process that follows every node's kernel log."""

    cursors: Path = Field(Path("cursors.json"), description="File of how far each node's log has been read and reported")
    first_connect_max_age_s: float = Field(
        600.0,
        ge=0,
        description="On the first connection to a node, older lines are history and not reported. Hotspare default: 10 min",
    )
    repeat_s: float = Field(
        30.0,
        ge=0,
        description="The same class of fault on the same node is reported at most once in so many seconds, with a count. "
        "Hotspare default: a burst is one event; NVSentinel folds over 180 s",
    )
    reconnect_min_s: float = Field(0.5, gt=0, description="First wait before connecting again. Hotspare default")
    reconnect_max_s: float = Field(
        30.0, gt=0, description="Longest wait before connecting again. Hotspare default: a reboot takes minutes"
    )
    refresh_s: float = Field(30.0, gt=0, description="Between looks at the inventory for new and gone nodes. Hotspare default")
    confirm_timeout_s: float = Field(
        10.0, gt=0, description="How long one report may wait for the server's word before it is sent again"
    )


class SpoolSettings(Section):
    """Reports that watcher and intake keep on disk while Temporal does not answer."""

    folder: Path = Field(Path("spool"), description="Folder of the reports that wait; made with mode 0700, its files with 0600")
    max_reports: int = Field(
        10_000, ge=1, description="Most reports kept by each process. Hotspare default: every class of fault on 500 nodes"
    )
    max_bytes: int = Field(
        50_000_000, ge=10_000, description="Most bytes kept by each process. Hotspare default: a report is below 5 KB"
    )
    max_age_s: float = Field(
        86_400.0,
        gt=0,
        description="A report that was last said longer ago is dropped and logged: sweeps have looked at the node by then. "
        "Hotspare default: Temporal away for a night loses nothing",
    )
    retry_max_s: float = Field(10.0, gt=0, description="Longest wait before delivery is tried again. Hotspare default")


DEFAULT_NODE_LABELS = ["instance_id", "node", "Hostname", "hostname", "instance"]
"""Labels that may name the node, first match wins. Source: labels of dcgm-exporter, node exporter and kube-prometheus."""


class IntakeMapping(Section):
    """Which label (or, where there is no such label, annotation) of an alert says what; the first that is present counts."""

    node: list[str] = Field(DEFAULT_NODE_LABELS, min_length=1, description="The node's alias")
    xid: list[str] = Field(
        ["xid", "err_code"], description="XID code. Source: err_code is dcgm-exporter's label of DCGM_FI_DEV_XID_ERRORS"
    )
    gpu_index: list[str] = Field(["gpu"], description="GPU index as DCGM counts")
    gpu_uuid: list[str] = Field(["UUID", "uuid", "gpu_uuid"], description="GPU UUID")
    gpu_pci: list[str] = Field(["pci_bus_id"], description="PCI bus id")
    what: list[str] = Field(["summary", "description", "err_msg", "alertname"], description="Words for people")


class IntakeSettings(Section):
    """The HTTP door for alerts."""

    host: str = Field("127.0.0.1", description="Address to listen on")
    port: int = Field(9099, ge=0, le=65535, description="Port to listen on; 0: a free one, which is printed")
    url: str = Field(
        "",
        description="Address under which senders reach the intake, such as https://hotspare-intake.hotspare:9099: there "
        "`hotspare doctor` tries the way of an alert; empty: host and port",
    )
    tls_cert: Path | None = Field(
        None,
        description="PEM file of the certificate and what signed it: HTTPS; a renewed one is read again. Empty: HTTP",
    )
    tls_key: Path | None = Field(None, description="PEM file of the certificate's key")
    event_queue: str = Field(
        "", description="Address of the SQS queue in which AWS tells about instances (docs/deploy.md); empty: none is read"
    )
    token_file: Path = Field(Path("intake.token"), description="File with the token that senders show, or sign with")
    answers_own_token: bool = Field(
        False,
        description="People's answers are proved with the token in answers.token beside `token_file`, not with that of alerts",
    )
    require_signature: bool = Field(False, description="Take only messages that are signed with the token (docs/security.md)")
    signature_window_s: float = Field(
        300.0, gt=0, description="How far a signature's time may be from ours. Source: Stripe's and Slack's webhooks, 5 minutes"
    )
    max_body_bytes: int = Field(
        1_000_000, gt=0, description="Larger requests are refused with 413. Hotspare default: 1 MB is over 1,000 alerts"
    )
    confirm_timeout_s: float = Field(
        5.0,
        gt=0,
        description="How long one alert may wait for Temporal's word before the answer is 503. Hotspare default: below the "
        "10 s that Alertmanager gives a webhook at least",
    )
    repeat_s: float = Field(
        60.0, ge=0, description="The same alert of the same node is handed on at most once in so many seconds. Hotspare default"
    )
    unknown_page_again_s: float = Field(
        3600.0, ge=0, description="An alert that names no known node pages a person at most once in so many seconds, per name"
    )
    mapping: IntakeMapping = IntakeMapping()

    @field_validator("tls_cert", "tls_key", mode="before")
    @classmethod
    def _empty_is_none(cls, value: object) -> object:
        return None if value == "" else value
