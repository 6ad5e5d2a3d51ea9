"""What `doctor` looks at on AWS: who each worker role is there, each of its permissions, and whether the clocks agree."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from activities import names
from activities.errors import HotspareError
from activities.inventory import Node
from activities.names import ROLE_HEAD
from activities.owners import Owner
from activities.permissions import Identity, Permissions, Permitted, Tried
from checks.model import Verdict
from infra.iam import provisioning, run_command
from infra.iam.table import HYPERPOD, TAGS_WRITTEN, actions_of
from workers.cli.health import Line
from workers.credentials import ROLE_OF_QUEUE, credentials_in_use, credentials_of, observes
from workers.settings import Settings
from workers.wiring import Wiring

CLOCK_WARNS_S = 60.0
"""Difference from AWS' clock, or Temporal's, that is worth a line. Hotspare default: the checks believe a node's clock so far."""

CLOCK_BREAKS_S = 300.0
"""Difference from which AWS refuses signed calls. Source: AWS General Reference, "Signature Version 4": 5 minutes."""

WHYS_SHOWN = 3
"""Reasons why permissions cannot be told of, each whole. Hotspare default: most share one."""

WORKER_ROLES = (*ROLE_OF_QUEUE.values(), "watcher", "intake")

EKS_GROUPS = (Owner.NODE_GROUP.value,)

BUNDLES = ("s3:GetObject", "s3:PutObject")
"""What keeping evidence bundles in S3 asks of the role that gathers them (docs/evidence.md)."""

SHOWN = 6
"""Actions that one line names. Hotspare default: a line of a terminal; --json has all."""


@dataclass(frozen=True)
class Wanted:
    """An action that somebody needs: which worker roles, and the tag that it writes where it writes one."""

    action: str
    roles: tuple[str, ...]
    tag: str = ""


async def check_aws(settings: Settings, wiring: Wiring, nodes: Sequence[Node]) -> list[Line]:
    """Look with all credentials that are used, side by side."""
    looks = (asyncio.to_thread(_look, settings, wiring, credentials, nodes) for credentials in credentials_in_use(settings))
    found = await asyncio.gather(*looks)
    lines = [line for lines, _ in found for line in lines]
    return [*lines, *_clock([identity for _, identity in found if identity is not None])]


def _look(settings: Settings, wiring: Wiring, credentials: str, nodes: Sequence[Node]) -> tuple[list[Line], Identity | None]:
    part = f"AWS as {credentials}" if credentials else "AWS"
    try:
        permissions = wiring.permissions(credentials)
        who = permissions.identity()
    except HotspareError as error:
        how = "give the process credentials: an instance role, AWS_PROFILE or AWS_* variables"
        if credentials:
            how = f"mend aws.roles.{credentials} in the settings, or the trust policy of that role (docs/security.md)"
        return [Line(part, Verdict.CRITICAL, str(error), how)], None
    tried = [_try(settings, permissions, who, wanted, nodes) for wanted in wanted_by(settings, credentials, nodes)]
    return [Line(part, Verdict.OK, f"{who.arn} in {who.region}"), *permission_lines(part, tried)], who


def wanted_by(settings: Settings, credentials: str, nodes: Sequence[Node]) -> list[Wanted]:
    """Every action that these credentials need with these settings and nodes, with the roles that need it.

    While the cluster is only observed nothing that writes is wanted: credentials that cannot write are what is recommended.
    """
    roles = (
        ["observe"]
        if observes(settings.policy)
        else [one for one in WORKER_ROLES if credentials_of(settings, one) == credentials]
    )
    found: dict[str, list[str]] = {}
    for role in dict.fromkeys(roles):
        if settings.aws.provider == "hyperpod":
            actions: Iterable[str] = [f"sagemaker:{one}" for one in HYPERPOD.get(role, ())]
        else:
            actions = [*actions_of(role), *(_launching(settings) if role == "aws" else ())]
        if settings.access.kind == "ssm":
            actions = [*actions, *run_command.PERMISSIONS.get(role, ((), ()))[0]]
        if role == "ssh" and settings.evidence.bucket:
            actions = [*actions, *BUNDLES]
        for action in actions:
            if _used(action, settings, nodes):
                found.setdefault(action, []).append(role)
    return [Wanted(action, tuple(held), _tag(held)) for action, held in sorted(found.items())]


def permission_lines(part: str, tried: Sequence[Tried]) -> list[Line]:
    """Say what is refused, and what cannot be told: that is never taken for a permission."""
    if not tried:
        return []
    name = part.replace("AWS", "AWS permissions", 1)
    refused = [one for one in tried if one.permitted is Permitted.NO]
    unknown = [one for one in tried if one.permitted is Permitted.UNKNOWN]
    lines = []
    if refused:
        how = "attach the policy of the role: hotspare manifests DIR writes it to DIR/iam; docs/security.md says whose is which"
        lines.append(Line(name, Verdict.CRITICAL, f"refused: {_named(refused)}", how))
    if unknown:
        whys = "; ".join(list(dict.fromkeys(one.said for one in unknown))[:WHYS_SHOWN])
        how = "allow who runs doctor iam:SimulatePrincipalPolicy, or try it in the IAM policy simulator of the console"
        lines.append(Line(name, Verdict.UNKNOWN, f"cannot tell of {_named(unknown)} ({whys})", how, can_tell=False))
    if not refused:
        count = len(tried) - len(unknown)
        lines.insert(0, Line(name, Verdict.OK, f"{count} of {len(tried)} actions tried and permitted"))
    return lines


def _try(settings: Settings, permissions: Permissions, who: Identity, wanted: Wanted, nodes: Sequence[Node]) -> Tried:
    action = wanted.action
    if action.startswith("ec2:"):
        node = next((one.instance_id for one in nodes if one.role != ROLE_HEAD), "")
        if not node:
            return Tried(action, Permitted.UNKNOWN, "there is no instance to try it on")
        template = next(iter(settings.provision.templates.values()), "")
        tried = permissions.try_dry(action, node, wanted.tag, template)
    else:
        tried = permissions.read(action, settings.kubernetes.eks_cluster)
    if tried.permitted is not Permitted.UNKNOWN:
        return tried
    resource = resource_of(action, who, settings, nodes)
    if not resource:
        return tried
    simulated = permissions.simulate(action, resource, _context(settings, wanted))
    return simulated if simulated.permitted is not Permitted.UNKNOWN else Tried(action, Permitted.UNKNOWN, simulated.said)


def resource_of(action: str, who: Identity, settings: Settings, nodes: Sequence[Node]) -> str:
    """The ARN on which IAM is asked about an action, empty where there is nothing of the kind."""
    parts = who.arn.split(":")
    if len(parts) < 5:
        return ""
    partition, account = parts[1], parts[4]
    service, _, call = action.partition(":")
    place = f"arn:{partition}:{service}:{who.region}:{account}"
    group = next((node.group for node in nodes if node.group), "")
    cluster = settings.kubernetes.eks_cluster
    named = {
        "ec2": f"{place}:instance/{nodes[0].instance_id}" if nodes else "",
        "autoscaling": f"{place}:autoScalingGroup:*:autoScalingGroupName/{group}" if group else "",
        "eks": f"{place}:{'cluster' if call == 'DescribeCluster' else 'nodegroup'}/{cluster}" if cluster else "",
        "sqs": f"{place}:{settings.intake.event_queue.rpartition('/')[2]}" if settings.intake.event_queue else "",
        "ssm": f"{place}:document/{settings.access.ssm.look_document}" if action == run_command.SEND else "*",
        "s3": f"arn:{partition}:s3:::{settings.evidence.bucket}/{settings.evidence.prefix}doctor",
        "sagemaker": f"{place}:cluster/{settings.aws.hyperpod_cluster.rpartition('/')[2]}",
    }
    found = named.get(service, "")
    return f"{found}/*/*" if found and ":nodegroup/" in found else found


def _context(settings: Settings, wanted: Wanted) -> Mapping[str, str]:
    """What the policies' conditions ask for: a resource of this cluster, and the tag that is written."""
    ours = {f"aws:ResourceTag/{names.TAG_CLUSTER}": settings.name}
    return {**ours, "aws:TagKeys": wanted.tag} if wanted.tag else ours


def _launching(settings: Settings) -> tuple[str, ...]:
    return (provisioning.RUN, provisioning.TERMINATE) if settings.provision.templates else ()


def _used(action: str, settings: Settings, nodes: Sequence[Node]) -> bool:
    """Whether this cluster has what the action is about."""
    service = action.partition(":")[0]
    if service == "autoscaling":
        return any(node.group for node in nodes)
    if service == "sqs":
        return bool(settings.intake.event_queue)
    if action == "eks:DescribeCluster":
        return settings.kubernetes.source == "eks"
    return service != "eks" or any(node.owner in EKS_GROUPS for node in nodes)


def _tag(roles: Sequence[str]) -> str:
    return next((TAGS_WRITTEN[role][0] for role in roles if role in TAGS_WRITTEN), "")


def _named(tried: Sequence[Tried]) -> str:
    named = [one.action for one in tried]
    more = f" and {len(named) - SHOWN} more" if len(named) > SHOWN else ""
    return ", ".join(named[:SHOWN]) + more


def _clock(identities: Sequence[Identity]) -> list[Line]:
    """AWS' clock is the one that ours has to agree with: it refuses calls that are signed at another time."""
    skews = [one.skew_s for one in identities if one.skew_s is not None]
    if not skews:
        how = "the call that says who we are has to come through first"
        return [Line("clock", Verdict.UNKNOWN, "AWS does not say its time", how, can_tell=False)]
    return [clock_line("AWS", max(skews, key=abs))]


def clock_line(whose: str, skew_s: float) -> Line:
    """Judge by how much this machine's clock is ahead of another."""
    if abs(skew_s) < CLOCK_WARNS_S:
        return Line("clock", Verdict.OK, f"this machine and {whose} agree within {max(1.0, abs(skew_s)):.0f} s")
    text = f"this machine's clock is {abs(skew_s):.0f} s {'ahead of' if skew_s > 0 else 'behind'} {whose}'s"
    breaks = abs(skew_s) >= CLOCK_BREAKS_S
    return Line("clock", Verdict.CRITICAL if breaks else Verdict.WARN, text, "start its time service: systemctl restart chronyd")
