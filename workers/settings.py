"""Joins the settings of all layers and reads them from one TOML file; errors name the file, the key and the nearest right one."""

from __future__ import annotations

import difflib
import json
import os
import re
import tomllib
import types
from pathlib import Path
from typing import Any, Union, get_args, get_origin

from pydantic import BaseModel, Field, ValidationError, field_validator

from activities.errors import BadInput
from activities.settings import (
    AwsSettings,
    EffectSettings,
    EvidenceSettings,
    HealerSettings,
    InventorySettings,
    NotifySettings,
    ParitySettings,
    ProvisionSettings,
    Section,
    StoreSettings,
)
from activities.settings_access import AccessSettings
from activities.settings_burn_in import BurnInSettings
from activities.settings_jobs import JobSettings, KubernetesSettings, SlurmSettings
from activities.spare_work import PreemptibleSettings
from checks.catalog import BadOverride, read_overrides
from checks.parity import FACTS
from checks.thresholds import BadThreshold, read_thresholds
from workers.sections import (
    ChecksSettings,
    CodecSettings,
    IntakeSettings,
    NameSettings,
    SpoolSettings,
    TemporalSettings,
    WatcherSettings,
    WorkerSettings,
)
from workflows.decisions.burn_in_settings import BurnInLimits
from workflows.decisions.settings import DEFAULT_LADDERS, ClusterSettings, PolicySettings, SweepSettings
from workflows.decisions.spares_settings import SpareSettings

CONFIG_VARIABLE = "HOTSPARE_CONFIG"
CONFIG_NAME = "hotspare.toml"
SYSTEM_CONFIG = Path("/etc/hotspare") / CONFIG_NAME

_CODE_KEY = re.compile(r"^(xid|sxid):\d+$")
_FLOOR_KEY = re.compile(r"^[a-z0-9.-]+/[1-9]\d*$")


class SettingsError(BadInput):
    """The settings file is missing, unreadable or wrong; the message says where."""


class Settings(Section):
    """The whole settings file. Every table may be left out."""

    cluster: NameSettings = NameSettings()
    policy: PolicySettings = PolicySettings()
    limits: ClusterSettings = ClusterSettings()
    sweep: SweepSettings = SweepSettings()
    spares: SpareSettings = SpareSettings()
    preemptible: PreemptibleSettings = PreemptibleSettings()
    aws: AwsSettings = AwsSettings()
    inventory: InventorySettings = InventorySettings()
    access: AccessSettings = AccessSettings()
    job: JobSettings = JobSettings()
    kubernetes: KubernetesSettings = KubernetesSettings()
    slurm: SlurmSettings = SlurmSettings()
    healers: HealerSettings = HealerSettings()
    burn_in: BurnInSettings = BurnInSettings()
    isolation: BurnInLimits = BurnInLimits()
    parity: ParitySettings = ParitySettings()
    notify: NotifySettings = NotifySettings()
    store: StoreSettings = StoreSettings()
    evidence: EvidenceSettings = EvidenceSettings()
    provision: ProvisionSettings = ProvisionSettings()
    effects: EffectSettings = EffectSettings()
    intake: IntakeSettings = IntakeSettings()
    watcher: WatcherSettings = WatcherSettings()
    spool: SpoolSettings = SpoolSettings()
    worker: WorkerSettings = WorkerSettings()
    temporal: TemporalSettings = TemporalSettings()
    codec: CodecSettings = CodecSettings()
    checks: ChecksSettings = ChecksSettings()
    file: Path = Field(Path(CONFIG_NAME), exclude=True)

    @field_validator("policy", mode="before")
    @classmethod
    def _keep_default_ladders(cls, policy: Any) -> Any:
        """A ladder in the file replaces the default of its fault class alone, not all of them."""
        if isinstance(policy, dict) and isinstance(policy.get("ladders"), dict):
            return {**policy, "ladders": {**DEFAULT_LADDERS, **policy["ladders"]}}
        return policy

    @property
    def name(self) -> str:
        """The cluster's name."""
        return self.cluster.name


def load_settings(config: Path | None = None) -> Settings:
    """Read the settings from `config` or the first place that has a file; see `find_config`. Raises SettingsError."""
    file = find_config(config)
    try:
        table = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingsError(f"{file}: cannot be read ({error.strerror}); check the path and the permissions") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"{file}: is not valid TOML: {error}") from error
    return parse_settings(table, file)


def find_config(config: Path | None = None) -> Path:
    """Return the file: given, $HOTSPARE_CONFIG, ./hotspare.toml, /etc/hotspare/hotspare.toml. Raises SettingsError."""
    named = named_config(config)
    if named is not None:
        if named.is_file():
            return named.resolve()
        source = "--config" if config else CONFIG_VARIABLE
        if named.exists():
            raise SettingsError(f"{named}: is no file (named by {source}); name the settings file itself")
        raise SettingsError(f"{named}: no such file (named by {source}); `hotspare init --config {named}` writes one")
    for place in (Path(CONFIG_NAME), SYSTEM_CONFIG):
        if place.is_file():
            return place.resolve()
    raise SettingsError(
        f"no settings file: looked for ${CONFIG_VARIABLE}, ./{CONFIG_NAME} and {SYSTEM_CONFIG}; `hotspare init` writes one here"
    )


def named_config(config: Path | None = None) -> Path | None:
    """The file that --config or $HOTSPARE_CONFIG names, there or not; None when neither names one."""
    return config or (Path(os.environ[CONFIG_VARIABLE]) if os.environ.get(CONFIG_VARIABLE) else None)


def parse_settings(table: dict[str, Any], file: Path) -> Settings:
    """Check a TOML table; paths in it are relative to the file's folder. Raises SettingsError listing every mistake."""
    try:
        if "file" in table:
            raise SettingsError(f"{file}: file: unknown key; top-level tables are {_names(Settings)}")
        settings = Settings.model_validate({**table, "file": file})
    except ValidationError as error:
        raise SettingsError("\n".join(f"{file}: {line}" for line in _explain(error))) from None
    mistakes = _check_names(settings)
    if mistakes:
        raise SettingsError("\n".join(f"{file}: {line}" for line in mistakes))
    return _with_absolute_paths(settings, file.parent)


def _check_names(settings: Settings) -> list[str]:
    """Look at the keys of free tables, which pydantic takes as they come."""
    mistakes = [
        f"policy.ladders.{name}: unknown fault class; {_nearest(name, list(DEFAULT_LADDERS))}"
        for name in settings.policy.ladders
        if name not in DEFAULT_LADDERS
    ]
    mistakes += [
        f'policy.ladders_by_code."{key}": not a code; write "xid:79" or "sxid:12028"'
        for key in settings.policy.ladders_by_code
        if not _CODE_KEY.match(key)
    ]
    mistakes += [
        f'burn_in.floors_gbs."{key}": not a floor; write "p5.48xlarge/2" (instance type, slash, number of nodes)'
        for key in settings.burn_in.floors_gbs
        if not _FLOOR_KEY.match(key)
    ]
    parity = settings.parity
    pinned = [(f'parity.golden."{kind}".{name}', name) for kind, facts in parity.golden.items() for name in facts]
    mistakes += [
        f"{place}: nothing of this name is compared; {_nearest(name, list(FACTS))}"
        for place, name in [*pinned, *(("parity.ignored", name) for name in parity.ignored)]
        if name not in FACTS
    ]
    if settings.job.adapter == "command":
        needed = ("head", "find", "status", "hold", "resume")
        mistakes += [f'job.{key}: needed for job.adapter = "command"' for key in needed if not getattr(settings.job, key)]
    if settings.job.adapter == "slurm" and not settings.job.head:
        mistakes.append('job.head: needed for job.adapter = "slurm": scontrol and squeue run there')
    if settings.burn_in.launcher == "srun" and settings.job.adapter != "slurm":
        mistakes.append('job.adapter: must be "slurm" for burn_in.launcher = "srun"')
    if settings.preemptible.evict and not settings.job.head:
        mistakes.append("job.head: needed for preemptible.evict: its command runs there")
    mistakes += _needs_kubernetes(settings)
    try:
        read_thresholds(json.dumps(settings.checks.thresholds))
    except BadThreshold as error:
        mistakes.append(f"checks.thresholds: {error}")
    try:
        read_overrides(settings.checks.overrides)
    except BadOverride as error:
        mistakes.append(f"checks.overrides: {error}")
    if (settings.intake.tls_cert is None) is not (settings.intake.tls_key is None):
        mistakes.append("intake.tls_cert, intake.tls_key: HTTPS needs both")
    if settings.watcher.reconnect_max_s < settings.watcher.reconnect_min_s:
        mistakes.append("watcher.reconnect_max_s: below watcher.reconnect_min_s")
    if settings.access.kind == "ssm" and settings.aws.provider == "hyperpod":
        mistakes.append('access.kind: "ssm" reaches instances of EC2, and HyperPod shows its own under other names; ssh or agent')
    return mistakes


def _needs_kubernetes(settings: Settings) -> list[str]:
    users = {
        'job.adapter = "kubernetes"': settings.job.adapter == "kubernetes",
        'access.kind = "agent"': settings.access.kind == "agent",
        f'burn_in.launcher = "{settings.burn_in.launcher}"': settings.burn_in.launcher in ("kubernetes", "mpijob"),
    }
    without = settings.kubernetes.source == "none"
    mistakes = [f"kubernetes.source: needed for {user}" for user, used in users.items() if used and without]
    if settings.kubernetes.source == "eks" and not settings.kubernetes.eks_cluster:
        mistakes.append('kubernetes.eks_cluster: needed for kubernetes.source = "eks"')
    return mistakes


def _explain(error: ValidationError) -> list[str]:
    """One line for each mistake: key path, what is wrong, and the nearest right name of an unknown key."""
    lines = []
    for item in error.errors(include_url=False):
        place = ".".join(str(part) for part in item["loc"])
        if item["type"] == "extra_forbidden":
            key = str(item["loc"][-1])
            lines.append(f"{place}: unknown key; {_nearest(key, _names_at(item['loc'][:-1]))}")
        else:
            # A webhook's address is often its secret.
            got = "" if place.startswith("notify.urls") else f" (got {_short(item['input'])})"
            lines.append(f"{place}: {item['msg'][0].lower()}{item['msg'][1:]}{got}")
    return lines


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _nearest(name: str, known: list[str]) -> str:
    near = difflib.get_close_matches(name, known, n=3, cutoff=0.6)
    if near:
        return "did you mean " + " or ".join(near) + "?"
    return "known are " + ", ".join(sorted(known))


def _names(model: type[BaseModel]) -> list[str]:
    return [name for name, field in model.model_fields.items() if not field.exclude]


def _names_at(place: tuple[int | str, ...]) -> list[str]:
    """The keys that are right at a place in the file."""
    model: type[BaseModel] = Settings
    for part in place:
        if isinstance(part, str) and part in model.model_fields:
            model = _model_in(model.model_fields[part].annotation) or model
    return _names(model)


def _model_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    if get_origin(annotation) in (list, dict, Union, types.UnionType):
        return next((model for arg in get_args(annotation) if (model := _model_in(arg))), None)
    return None


def _with_absolute_paths(settings: Settings, folder: Path) -> Settings:
    changed: dict[str, Section] = {}
    for name in _names(Settings):
        section = getattr(settings, name)
        paths = {key: _absolute(value, folder) for key, value in section if isinstance(value, Path)}
        if paths:
            changed[name] = section.model_copy(update=paths)
    return settings.model_copy(update=changed)


def _absolute(path: Path, folder: Path) -> Path:
    return folder / path.expanduser()
