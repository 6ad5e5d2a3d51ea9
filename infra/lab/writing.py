"""The files that a lab writes for those who use it: SSH configuration, settings of Hotspare, environment, Temporal profile."""

from __future__ import annotations

import json
import secrets
import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path

from infra.lab.dynamodb import TABLE
from infra.lab.managed import ANSWER_S, BUCKET, POLL_S
from infra.lab.node import LabNode
from infra.lab.node_root import write_atomically
from infra.lab.options import REGION, LabOptions

USER = "hotspare"
INTAKE_TOKEN = "intake.token"


def write_ssh(folder: Path, nodes: Iterable[LabNode], *, learn: bool) -> None:
    """Write `ssh_config`, and `known_hosts` when `learn`: keys of instances launched later are to be learned over AWS."""
    known: list[str] = []
    hosts: list[str] = []
    for node in nodes:
        hosts.append(f"Host {node.name} {node.instance_id} {node.ip} {node.dns}\n  HostName 127.0.0.1\n  Port {node.ssh_port}\n")
        known.append(f"[127.0.0.1]:{node.ssh_port} {node.server.public_key}\n")
    everyone = (
        f"Host *\n  User {USER}\n  IdentityFile {folder / 'id_ed25519'}\n  IdentitiesOnly yes\n"
        f"  UserKnownHostsFile {folder / 'known_hosts'}\n  StrictHostKeyChecking yes\n"
    )
    write_atomically(folder / "ssh_config", "\n".join([*hosts, everyone]))
    if learn:
        write_atomically(folder / "known_hosts", "".join(known))


def write_settings(
    folder: Path,
    options: LabOptions,
    ui_url: str,
    more: Mapping[str, Mapping[str, object]] | None = None,
    intake_port: int = 0,
) -> Path:
    """Write `hotspare.toml`; returns its path. The times are the lab's: a lab node boots in seconds. `more` replaces keys,
    None takes one away."""
    path = folder / "hotspare.toml"
    trainctl = {
        "find": ["trainctl", "find", "--node", "{node}"],
        "status": ["trainctl", "status", "{job}"],
        "hold": ["trainctl", "hold", "{job}"],
        "resume": ["trainctl", "resume", "{job}", "--nodes", "{nodes}", "--token", "{token}"],
    }
    tables: dict[str, dict[str, object]] = {
        "cluster": {"name": options.cluster},
        "policy": {
            "mode": "act",
            "boot_deadline_s": 60.0,
            "settling_s": 1.0,
            "look_again_s": 1.0,
            "evidence_deadline_s": 20.0,
            "retest_deadline_s": 120.0,
            "replace_deadline_s": 120.0,
            "job_deadline_s": 300.0,
            "capacity_try_s": 2.0,
        },
        "limits": {"max_nodes_out": 3, "max_percent_out": 50.0, "recovery_deadline_s": 5.0},
        "sweep": {"interval_s": 30.0},
        "aws": {"region": REGION},
        "inventory": {"source": "ec2-tag", "cache_s": 1.0},
        "access": {"ssh_config": str(folder / "ssh" / "ssh_config"), "connect_timeout_s": 5.0, "command_deadline_s": 30.0},
        "job": {"adapter": "command", "head": "head", **trainctl, "command_deadline_s": 30.0, "progress_deadline_s": 60.0},
        "burn_in": {"launch_host": "head", "deadline_s": 60.0, "poll_s": 0.3},
        "notify": {"log": str(folder / "pages.jsonl")},
        "store": {"host_memory": str(folder / "host-memory.sqlite3"), "evidence_dir": str(folder / "evidence")},
        "effects": {"settle_s": 10.0, "boot_poll_s": 0.3, "stop_deadline_s": 30.0},
        "intake": {"port": intake_port, "token_file": str(folder / INTAKE_TOKEN)},
        "watcher": {
            "cursors": str(folder / "cursors.json"),
            "repeat_s": 5.0,
            "reconnect_min_s": 0.2,
            "reconnect_max_s": 2.0,
            "refresh_s": 2.0,
        },
    }
    if options.memory == "dynamodb":
        tables["store"] |= {"memory": "dynamodb", "table": TABLE}
    if options.access == "ssm":
        tables["access"] |= {"kind": "ssm"}
        tables["access.ssm"] = {"bucket": BUCKET, "answer_s": ANSWER_S, "poll_s": POLL_S}
    if ui_url:
        tables["temporal"] = {"ui_url": ui_url}
    for name, values in (more or {}).items():
        tables[name] = {**tables.get(name, {}), **values}
    lines = ["# Settings of a lab. The times are lab values: here a node boots in seconds, a real one takes minutes.\n"]
    for name, values in tables.items():
        lines.append(f"\n[{name}]\n")
        # A JSON string, number or list of strings is TOML too.
        lines += [f"{key} = {json.dumps(value)}\n" for key, value in values.items() if value is not None]
    write_atomically(path, "".join(lines))
    token = folder / INTAKE_TOKEN
    if not token.exists():
        token.touch(0o600)
        token.write_text(secrets.token_urlsafe(24) + "\n")
    return path


def write_temporal_profile(folder: Path, address: str, namespace: str) -> Path:
    """Write the profile that Temporal's own tools and SDKs read; returns its path."""
    path = folder / "temporal.toml"
    write_atomically(path, f'[profile.default]\naddress = "{address}"\nnamespace = "{namespace}"\n')
    return path


def write_environment(folder: Path, environment: Mapping[str, str]) -> None:
    """Write `env`, to be sourced by a shell."""
    lines = [f"export {name}={shlex.quote(value)}\n" for name, value in environment.items()]
    write_atomically(folder / "env", "".join(lines))
