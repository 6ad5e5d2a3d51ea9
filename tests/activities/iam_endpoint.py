"""An EC2 endpoint on loopback that enforces IAM: moto checks signature and actions, this layer resources and conditions.

moto 5 looks at the Action of a statement alone, and takes every Condition for unmet; so it gets the policy without them, and
what EC2's reference says of resources and condition keys is checked here first.
"""

from __future__ import annotations

import fnmatch
import io
import json
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import Any

import boto3
from moto import backends
from moto import settings as moto_settings
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import WSGIRequestHandler, make_server

from activities import names
from infra.iam.policies import CLUSTER
from infra.lab.ec2_calls import Answer, AwsCall, console_output, error, read_call
from infra.lab.moto_instances import forget_everything, groups, identity_of
from infra.lab.options import REGION
from infra.lab.reservations import Reservations
from infra.lab.run_command import OPERATIONS, RunCommand
from tests.activities.eks_groups import named, tags_at

ACCOUNT = "123456789012"
TRUST = {
    "Version": "2012-10-17",
    "Statement": [{"Effect": "Allow", "Principal": {"AWS": "*"}, "Action": "sts:AssumeRole"}],
}
ASSUME = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "sts:AssumeRole", "Resource": "*"}]}
EVERYTHING = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "*", "Resource": "*"}]}
SERVICES = ("ec2", "autoscaling", "eks", "sqs", "ssm")
GROUP_ARN = f"arn:aws:autoscaling:{REGION}:{ACCOUNT}:autoScalingGroup:1:autoScalingGroupName"
CONSOLE = (
    "-----BEGIN SSH HOST KEY KEYS-----\n"
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIIHPYbh3ppwwMiB5vaIhRDLdHu1RgLJqlOu1gQVzYvFz root@node\n"
    "-----END SSH HOST KEY KEYS-----\n"
)


class IamEndpoint:
    """Serves EC2, STS and IAM. `made` are the calls that were let through, `denied` those that were not, by operation."""

    def __init__(self) -> None:
        forget_everything()
        self._app = DomainDispatcherApplication(create_backend_app)
        self._server = make_server("127.0.0.1", 0, self._serve, threaded=True, request_handler=_Quiet)
        self._server.daemon_threads = True  # type: ignore[attr-defined]
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        self._thread.start()
        self._policy: dict[str, Any] = EVERYTHING
        self.reservations = Reservations()
        self.made: list[str] = []
        self.denied: list[str] = []
        self.iam = self.client("iam", "admin", "admin")
        self.ec2 = self.client("ec2", "admin", "admin")
        self.groups = self.client("autoscaling", "admin", "admin")
        self.eks = self.client("eks", "admin", "admin")
        self.instances: dict[str, str] = {}
        self.run_command: RunCommand | None = None

    @property
    def url(self) -> str:
        """Address for AWS_ENDPOINT_URL."""
        return f"http://127.0.0.1:{self._server.server_port}"

    def client(self, service: str, key: str, secret: str) -> Any:
        """A client with given credentials."""
        return boto3.client(
            service,  # type: ignore[call-overload]
            endpoint_url=self.url,
            region_name=REGION,
            aws_access_key_id=key,
            aws_secret_access_key=secret,
        )

    def launch(self, name: str, role: str, cluster: str) -> str:
        """Launch an instance of a cluster."""
        tags = [
            {"Key": "Name", "Value": name},
            {"Key": names.TAG_CLUSTER, "Value": cluster},
            {"Key": names.TAG_ROLE, "Value": role},
        ]
        answer = self.ec2.run_instances(
            ImageId="ami-12c6146b",
            InstanceType="p5.48xlarge",
            MinCount=1,
            MaxCount=1,
            TagSpecifications=[{"ResourceType": "instance", "Tags": tags}],
        )
        self.instances[name] = str(answer["Instances"][0]["InstanceId"])
        return self.instances[name]

    def group(self, name: str, members: list[str], cluster: str, *, standby: str) -> None:
        """Make an Auto Scaling group of instances; the one that is named is in Standby."""
        ids = [self.instances[one] for one in members]
        tags = [{"Key": names.TAG_CLUSTER, "Value": cluster, "PropagateAtLaunch": True}]
        self.groups.create_launch_configuration(LaunchConfigurationName=name, ImageId="ami-12c6146b", InstanceType="p5.48xlarge")
        self.groups.create_auto_scaling_group(
            AutoScalingGroupName=name,
            LaunchConfigurationName=name,
            AvailabilityZones=[f"{REGION}a"],
            MinSize=0,
            MaxSize=3,
            DesiredCapacity=0,
            Tags=tags,
        )
        self.groups.attach_instances(AutoScalingGroupName=name, InstanceIds=ids)
        if standby:
            self.groups.enter_standby(
                AutoScalingGroupName=name, InstanceIds=[self.instances[standby]], ShouldDecrementDesiredCapacity=True
            )

    def queue(self, cluster: str, message: str) -> str:
        """Make the queue of a cluster's events, with one message in it; returns its address."""
        sqs = self.client("sqs", "admin", "admin")
        url = str(sqs.create_queue(QueueName="events", tags={names.TAG_CLUSTER: cluster})["QueueUrl"])
        sqs.send_message(QueueUrl=url, MessageBody=message)
        return url

    def forget_instances(self) -> None:
        """Take every instance, group and queue away."""
        for service in ("ec2", "autoscaling", "sqs", "eks"):
            backend: Any = backends.get_backend(service)
            backend[ACCOUNT].reset()
        self.instances.clear()

    def person(self, name: str) -> tuple[str, str]:
        """Make a user who may assume roles and nothing else; returns key id and secret key."""
        self.iam.create_user(UserName=name)
        self.iam.put_user_policy(UserName=name, PolicyName="assume", PolicyDocument=json.dumps(ASSUME))
        key = self.iam.create_access_key(UserName=name)["AccessKey"]
        return str(key["AccessKeyId"]), str(key["SecretAccessKey"])

    def role(self, name: str) -> str:
        """Make a role that anybody may assume, without any permission; returns its ARN."""
        return str(self.iam.create_role(RoleName=name, AssumeRolePolicyDocument=json.dumps(TRUST))["Role"]["Arn"])

    def permit(self, role: str, policy: dict[str, Any]) -> None:
        """Let a role do what the policy says, and nothing else."""
        self._policy = policy
        with unenforced():
            self.iam.put_role_policy(RoleName=role, PolicyName="hotspare", PolicyDocument=json.dumps(_for_moto(policy)))
        self.made.clear()
        self.denied.clear()

    def stop(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def _serve(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        call = _sent(named(read_call(environ), environ), environ)
        if call.service in SERVICES and not _unlimited(environ) and not permits(self._policy, call):
            self.denied.append(call.operation)
            refusal = denial(call)
            start_response("403 Forbidden", list(refusal.headers))
            return [refusal.body]
        if self.run_command is not None and call.service == "ssm" and call.operation in OPERATIONS:
            self.made.append(call.operation)
            answer = self.run_command.answer(call.operation, environ)
            start_response(f"{answer.status} {'OK' if answer.status < 300 else 'Error'}", list(answer.headers))
            return [answer.body]
        if call.operation == "DescribeCapacityReservations":
            self.made.append(call.operation)
            told = self.reservations.describe(call)
            start_response("200 OK", list(told.headers))
            return [told.body]
        head: list[Any] = []
        # moto takes the signatures of EKS's REST calls for wrong, so their policy is enforced above alone.
        with unenforced() if call.service == "eks" else nullcontext():
            body = b"".join(self._app(environ, lambda status, headers, exc_info=None: head.extend([status, headers])))
        status, headers = head[0], head[1]
        # An unmet condition of DynamoDB is an answer, and no denial.
        heard = status.startswith("2") or (call.service == "dynamodb" and not status.startswith("403"))
        (self.made if heard else self.denied).append(call.operation)
        if call.operation == "GetConsoleOutput" and status.startswith("2"):
            shown = console_output(call.instance_ids[0], CONSOLE)
            headers, body = list(shown.headers), shown.body
        if call.operation == "DescribeInstances" and status.startswith("2"):
            seen = self.reservations.shown(Answer(200, body, tuple(headers)))
            headers, body = list(seen.headers), seen.body
        start_response(status, headers)
        return [body]


def denial(call: AwsCall) -> Answer:
    """A refusal as the service words it: EKS and SQS in JSON, the others in XML."""
    message = f"You are not authorized to perform this operation: {call.operation}"
    if call.service not in ("eks", "sqs", "ssm"):
        return error(403, "UnauthorizedOperation", message)
    headers = (("Content-Type", "application/json"), ("x-amzn-ErrorType", "AccessDeniedException"))
    return Answer(403, json.dumps({"__type": "AccessDeniedException", "message": message}).encode(), headers)


@contextmanager
def enforced() -> Iterator[None]:
    """Let moto enforce IAM. It is a switch of the process."""
    before = moto_settings.INITIAL_NO_AUTH_ACTION_COUNT
    moto_settings.INITIAL_NO_AUTH_ACTION_COUNT = 0
    try:
        yield
    finally:
        moto_settings.INITIAL_NO_AUTH_ACTION_COUNT = before


@contextmanager
def unenforced() -> Iterator[None]:
    """Let everybody do everything for a moment."""
    before = moto_settings.INITIAL_NO_AUTH_ACTION_COUNT
    moto_settings.INITIAL_NO_AUTH_ACTION_COUNT = float("inf")
    try:
        yield
    finally:
        moto_settings.INITIAL_NO_AUTH_ACTION_COUNT = before


def of_cluster(policy: dict[str, Any], cluster: str) -> dict[str, Any]:
    """A policy with the cluster's name put in."""
    changed: dict[str, Any] = json.loads(json.dumps(policy).replace(f'"{CLUSTER}"', json.dumps(cluster)))
    return changed


def without(policy: dict[str, Any], action: str) -> dict[str, Any]:
    """A policy that lacks an action."""
    statements = [{**one, "Action": [kept for kept in one["Action"] if kept != action]} for one in policy["Statement"]]
    return {**policy, "Statement": [one for one in statements if one["Action"]]}


def permits(policy: dict[str, Any], call: AwsCall) -> bool:
    """Whether a policy allows a call: IAM's rules, for the elements and condition keys that our policies use."""
    if call.service not in SERVICES:
        return True
    action = f"{call.service}:{call.operation}"
    arns = [f"arn:aws:ec2:{REGION}:{ACCOUNT}:instance/{one}" for one in call.instance_ids]
    if call.service == "autoscaling":
        arns = [f"{GROUP_ARN}/{name}" for name in _groups_of(call)]
    if call.operation == "RunInstances":
        arns = [f"arn:aws:ec2:{REGION}:{ACCOUNT}:instance/*"]
    if call.service == "eks":
        arns = [call.parameters["arn"]]
    if call.service == "sqs":  # there is one queue, and the call's own parameters are not read
        arns = [queue.queue_arn for queue in _queues().values()]
    without_resource = call.operation.startswith("Describe") and call.service != "eks"
    if call.service == "ssm":
        without_resource = call.operation != "SendCommand"
        arns = [f"arn:aws:ssm:{REGION}:{ACCOUNT}:document/{call.parameters.get('DocumentName', '')}", *arns]
        arns += [f"arn:aws:s3:::{call.parameters['OutputS3BucketName']}"] if "OutputS3BucketName" in call.parameters else []
    for arn in arns if not without_resource else ["*"]:
        verdicts = [one["Effect"] for one in policy["Statement"] if _concerns(one, action, arn, call)]
        if "Allow" not in verdicts or "Deny" in verdicts:
            return False
    return bool(arns) or without_resource


def _tags_of(arn: str) -> dict[str, str]:
    if arn.startswith("arn:aws:eks:"):
        return tags_at(arn, ACCOUNT, REGION)
    if arn.startswith("arn:aws:sqs:"):
        return dict(_queues()[arn.rsplit(":", 1)[1]].tags)
    if ":document/" in arn or arn.startswith("arn:aws:s3"):
        return {}
    name = arn.rsplit("/", 1)[1]
    if not arn.startswith(GROUP_ARN):
        return identity_of(name).tags
    groups: Any = backends.get_backend("autoscaling")[ACCOUNT][REGION]
    return {tag["Key"]: tag["Value"] for tag in groups.autoscaling_groups[name].tags}


def _groups_of(call: AwsCall) -> list[str]:
    """The group that a call names, or has as a member what it names."""
    if named := call.parameters.get("AutoScalingGroupName"):
        return [named]
    return [group.name for group in groups() if set(call.instance_ids) & set(group.members)]


def _queues() -> dict[str, Any]:
    """The queues of SQS by their names."""
    backend: Any = backends.get_backend("sqs")[ACCOUNT][REGION]
    return dict(backend.queues)


def _concerns(statement: dict[str, Any], action: str, arn: str, call: AwsCall) -> bool:
    actions = statement["Action"] if isinstance(statement["Action"], list) else [statement["Action"]]
    return (
        any(fnmatch.fnmatchcase(action, pattern) for pattern in actions)
        and any(fnmatch.fnmatchcase(arn, one) for one in _as_list(statement["Resource"]))
        and all(_met(operator, keys, arn, call) for operator, keys in statement.get("Condition", {}).items())
    )


def _sent(call: AwsCall, environ: dict[str, Any]) -> AwsCall:
    """A call of Systems Manager with the parameters and instances that its JSON names; any other as it is."""
    if call.service != "ssm":
        return call
    body = environ["wsgi.input"].read()
    environ["wsgi.input"] = io.BytesIO(body)
    asked = json.loads(body or b"{}")
    parameters = {key: value for key, value in asked.items() if isinstance(value, str)}
    return replace(call, parameters=parameters, instance_ids=tuple(asked.get("InstanceIds", ())))


def _as_list(one: Any) -> list[Any]:
    return one if isinstance(one, list) else [one]


def _value_of(key: str, arn: str, call: AwsCall) -> str | None:
    if key.startswith("aws:RequestTag/"):
        asked = call.parameters
        named = {asked[one]: asked[f"{one[:-3]}Value"] for one in asked if one.startswith("TagSpec") and one.endswith(".Key")}
        return named.get(key.removeprefix("aws:RequestTag/"))
    return _tags_of(arn).get(key.removeprefix("aws:ResourceTag/").removeprefix("ssm:resourceTag/"))


def _met(operator: str, keys: dict[str, Any], arn: str, call: AwsCall) -> bool:
    tag_keys = [value for key, value in sorted(call.parameters.items()) if key.startswith("Tag.") and key.endswith(".Key")]
    if operator == "StringEquals":
        return all(_value_of(key, arn, call) == str(value) for key, value in keys.items())
    if operator == "ForAllValues:StringEquals":
        return set(tag_keys) <= set(keys["aws:TagKeys"])
    if operator == "ForAllValues:StringLike":
        return all(any(fnmatch.fnmatchcase(key, like) for like in keys["aws:TagKeys"]) for key in tag_keys)
    if operator == "Null":
        return bool(tag_keys) is (keys["aws:TagKeys"] == "false")
    raise AssertionError(f"no policy of ours uses {operator}")


def _for_moto(policy: dict[str, Any]) -> dict[str, Any]:
    plain = [
        {key: "*" if key == "Resource" else value for key, value in one.items() if key != "Condition"}
        for one in policy["Statement"]
    ]
    return {**policy, "Statement": plain or [{"Effect": "Deny", "Action": "*", "Resource": "*"}]}


def _unlimited(environ: dict[str, Any]) -> bool:
    return "Credential=admin/" in environ.get("HTTP_AUTHORIZATION", "")


class _Quiet(WSGIRequestHandler):
    """Logs nothing."""

    def log(self, type: str, message: str, *args: Any) -> None:
        """Say nothing."""
