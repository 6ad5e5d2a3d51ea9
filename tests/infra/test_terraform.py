"""The Terraform module, run by the real Terraform against an AWS endpoint on loopback: what it makes, and that it all goes."""

from __future__ import annotations

import json
import subprocess
import tomllib
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from moto import backends

from activities import memory_table, names
from infra.iam import host_memory, hyperpod, provisioning, run_command
from infra.iam.policies import policy_of
from infra.iam.table import HYPERPOD, PERMISSIONS
from infra.lab.options import REGION
from infra.ssm import documents
from tests.activities.iam_endpoint import ACCOUNT, IamEndpoint, of_cluster, unenforced
from tests.infra.policy_lint import findings
from tests.infra.terraform import TREE, Terraform, TerraformFailed, needs_terraform
from workers.settings import parse_settings

pytestmark = [needs_terraform, pytest.mark.timeout(1200)]

CLUSTER = "blue.1"
HYPERPOD_ARN = f"arn:aws:sagemaker:{REGION}:{ACCOUNT}:cluster/abc"
MEANT = {"become-worker-roles": ["CREDENTIALS_EXPOSURE"], "launched": ["PERMISSIONS_MANAGEMENT_ACTIONS"]}
"""What the linter warns of is what these policies are for."""
NODE_ROLE = f"arn:aws:iam::{ACCOUNT}:role/gpu-node"
EVENTS = "hotspare-blue-1-events"


class Aws:
    """An AWS account on loopback, with a VPC, a group of nodes and a launch template that were there before."""

    def __init__(self) -> None:
        for service in ("dynamodb", "events", "iam", "ssm"):  # moto's state belongs to the process, and others made tables too
            backend: Any = backends.get_backend(service)
            backend[ACCOUNT].reset()
        self.endpoint = IamEndpoint()
        ec2 = self.client("ec2")
        self.vpc = ec2.describe_vpcs()["Vpcs"][0]["VpcId"]
        self.subnet = ec2.describe_subnets()["Subnets"][0]["SubnetId"]
        self.nodes = ec2.create_security_group(GroupName="nodes", Description="nodes", VpcId=self.vpc)["GroupId"]
        template = ec2.create_launch_template(
            LaunchTemplateName="gpu", LaunchTemplateData={"ImageId": "ami-12c6146b", "InstanceType": "p5.48xlarge"}
        )
        self.template = template["LaunchTemplate"]["LaunchTemplateId"]

    def client(self, service: str) -> Any:
        return self.endpoint.client(service, "admin", "admin")

    def everything(self) -> dict[str, Any]:
        """The arguments with which the module makes all that this endpoint knows."""
        return {
            "cluster": CLUSTER,
            "observe_only": False,
            "auto_scaling_groups": ["gpus"],
            "hyperpod_cluster_arn": HYPERPOD_ARN,
            "launch_spares": True,
            "launched_role_arns": [NODE_ROLE],
            "evidence_bucket": "bundles",
            "run_command": True,
            "run_command_bucket": "outputs",
            "memory_deletion_protection": False,
            "vpc_id": self.vpc,
            "node_security_group_ids": {"nodes": self.nodes},
            "intake_sources": ["10.0.0.0/16"],
            "spares": {
                "launch_template_id": self.template,
                "subnet_ids": [self.subnet],
                "size": 2,
                "terminate_on_destroy": True,
            },
            "tags": {"team": "research"},
        }


COMPACT = SimpleNamespace(
    loads=json.loads, dumps=partial(json.dumps, separators=(",", ":")), JSONDecodeError=json.JSONDecodeError
)


@pytest.fixture(scope="module")
def aws() -> Iterator[Aws]:
    with unenforced(), pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        # SQS gives a policy back as it was written; moto writes it anew, with blanks.
        patch.setattr("moto.sqs.models.json", COMPACT)
        running = Aws()
        yield running
        running.endpoint.stop()


@pytest.fixture(scope="module")
def applying(aws: Aws, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Future[Terraform]]:
    """The module with everything, being applied. Most of that time Terraform waits, so the tests that need less come first."""
    made = Terraform(tmp_path_factory.mktemp("terraform"), aws.endpoint.url, REGION, **aws.everything())

    def apply() -> Terraform:
        made.apply()
        return made

    with ThreadPoolExecutor(1) as pool:
        yield pool.submit(apply)


@pytest.fixture(scope="module")
def module(applying: Future[Terraform]) -> Terraform:
    """The module, applied."""
    return applying.result()


@pytest.mark.usefixtures("applying")
def test_the_module_is_written_as_terraform_writes_it() -> None:
    subprocess.run(["terraform", "fmt", "-check", "-recursive", "-diff", str(TREE / "infra" / "terraform")], check=True)


@pytest.fixture(scope="module")
def bare(aws: Aws, tmp_path_factory: pytest.TempPathFactory) -> Terraform:
    """A folder to plan in."""
    return Terraform(tmp_path_factory.mktemp("bare"), aws.endpoint.url, REGION, cluster="bare")


@pytest.mark.parametrize("name", ["-blue", "b" * 33])
def test_a_name_that_no_cluster_can_have_is_refused(aws: Aws, bare: Terraform, name: str) -> None:
    bare.write(aws.endpoint.url, REGION, cluster=name)
    with pytest.raises(TerraformFailed, match="letters, digits, dots"):
        bare.run("plan", "-input=false")


@pytest.fixture(scope="module")
def planned(aws: Aws, bare: Terraform) -> dict[str, Any]:
    """What would be made for an EKS cluster that is only observed. Not applied: the endpoint has no access entries."""
    bare.write(aws.endpoint.url, REGION, cluster="green", eks_cluster="green")
    values: dict[str, Any] = bare.plan()["planned_values"]
    return values


def test_on_eks_the_roles_become_the_groups_of_the_manifests(planned: dict[str, Any]) -> None:
    resources = planned["root_module"]["child_modules"][0]["resources"]
    groups = {one["index"]: one["values"]["kubernetes_groups"] for one in resources if one["type"] == "aws_eks_access_entry"}
    assert set(groups) == {"k8s", "ssh", "observe"}
    rbac = (TREE / "infra" / "kubernetes" / "rbac.yaml").read_text()
    assert all(f'name: "{group}"' in rbac for named in groups.values() for group in named)
    accounts = {one["index"] for one in resources if one["type"] == "aws_eks_pod_identity_association"}
    namespace = (TREE / "infra" / "kubernetes" / "namespace.yaml").read_text()
    assert all(f"name: {account}\n" in namespace for account in accounts)


def test_who_only_observes_can_become_nobody_who_writes(planned: dict[str, Any]) -> None:
    assert planned["outputs"]["may_become"]["value"] == ["observe"]


def test_what_is_not_asked_for_is_not_made(planned: dict[str, Any]) -> None:
    kinds = {one["type"] for one in planned["root_module"]["child_modules"][0]["resources"]}
    assert not {kind for kind in kinds if "security_group" in kind or "autoscaling" in kind}


def test_each_worker_role_has_the_policy_of_the_table(aws: Aws, module: Terraform) -> None:
    iam = aws.client("iam")
    roles = {one["RoleName"] for one in iam.list_roles()["Roles"]}
    assert roles == {f"hotspare-{CLUSTER}", *(f"hotspare-{CLUSTER}-{role}" for role in PERMISSIONS)}
    for role in PERMISSIONS:
        policy = iam.get_role_policy(RoleName=f"hotspare-{CLUSTER}-{role}", PolicyName="hotspare")["PolicyDocument"]
        assert policy == of_cluster(policy_of(role), CLUSTER)


def test_host_memory_is_the_table_that_hotspare_itself_would_make(aws: Aws, module: Terraform) -> None:
    client, name = aws.client("dynamodb"), module.outputs()["memory_table"]
    made, wanted = client.describe_table(TableName=name)["Table"], memory_table.table_definition(name)
    assert made["KeySchema"] == wanted["KeySchema"]
    kinds = [{one["AttributeName"]: one["AttributeType"] for one in table["AttributeDefinitions"]} for table in (made, wanted)]
    assert kinds[0] == kinds[1]
    (index,), (wished,) = made["GlobalSecondaryIndexes"], wanted["GlobalSecondaryIndexes"]
    assert {key: index[key] for key in wished} == wished
    assert made["BillingModeSummary"]["BillingMode"] == wanted["BillingMode"]
    lifetime = client.describe_time_to_live(TableName=name)["TimeToLiveDescription"]
    assert (lifetime["TimeToLiveStatus"], lifetime["AttributeName"]) == ("ENABLED", memory_table.EXPIRES_AT)
    backups = client.describe_continuous_backups(TableName=name)["ContinuousBackupsDescription"]
    assert backups["PointInTimeRecoveryDescription"]["PointInTimeRecoveryStatus"] == "ENABLED"


def test_each_role_has_what_host_memory_asks_of_it(aws: Aws, module: Terraform) -> None:
    iam, table = aws.client("iam"), module.outputs()["memory_table"]
    for role in set(host_memory.ROLES) & set(PERMISSIONS):
        policy = iam.get_role_policy(RoleName=f"hotspare-{CLUSTER}-{role}", PolicyName="host-memory")["PolicyDocument"]
        assert policy == json.loads(host_memory.text_of(role).replace(host_memory.TABLE, table))
    people = iam.get_policy_version(PolicyArn=module.outputs()["people_policy_arn"], VersionId="v1")["PolicyVersion"]["Document"]
    assert people == json.loads(host_memory.text_of("people").replace(host_memory.TABLE, table))


def test_what_is_allowed_beyond_the_table_is_what_was_asked_for(aws: Aws, module: Terraform) -> None:
    def inline(role: str) -> dict[str, dict[str, Any]]:
        iam, name = aws.client("iam"), f"hotspare-{CLUSTER}-{role}"
        names = iam.list_role_policies(RoleName=name)["PolicyNames"]
        return {one: iam.get_role_policy(RoleName=name, PolicyName=one)["PolicyDocument"] for one in names}

    launching, ssh = inline("aws"), inline("ssh")
    assert launching["provisioning"] == of_cluster(provisioning.policy_of(), CLUSTER)
    assert launching["launched"]["Statement"][0]["Resource"] == [NODE_ROLE]
    for role in HYPERPOD:
        assert inline(role)["hyperpod"] == json.loads(hyperpod.text_of(role).replace(hyperpod.ARN, HYPERPOD_ARN))
    assert ssh["evidence"]["Statement"][0]["Resource"] == "arn:aws:s3:::bundles/hotspare/evidence/*"
    assert set(inline("notify")) == {"hotspare"}


def test_whoever_runs_hotspare_may_become_these_roles_and_do_nothing_else(aws: Aws, module: Terraform) -> None:
    iam, name = aws.client("iam"), f"hotspare-{CLUSTER}"
    (policy,) = iam.list_role_policies(RoleName=name)["PolicyNames"]
    (statement,) = iam.get_role_policy(RoleName=name, PolicyName=policy)["PolicyDocument"]["Statement"]
    assert statement["Action"] == ["sts:AssumeRole"]
    outputs = module.outputs()
    assert set(statement["Resource"]) == {outputs["role_arns"][role] for role in outputs["may_become"]}
    assert set(outputs["may_become"]) == set(PERMISSIONS)
    trust = iam.get_role(RoleName=f"{name}-aws")["Role"]["AssumeRolePolicyDocument"]["Statement"]
    assert trust[0]["Principal"] == {"AWS": outputs["host_role_arn"]}
    profile = iam.get_instance_profile(InstanceProfileName=name)["InstanceProfile"]
    assert [role["RoleName"] for role in profile["Roles"]] == [name]


def test_the_linter_finds_nothing_in_what_the_roles_may_do(aws: Aws, module: Terraform) -> None:
    iam = aws.client("iam")
    judged = 0
    for role in [one["RoleName"] for one in iam.list_roles()["Roles"]]:
        for name in iam.list_role_policies(RoleName=role)["PolicyNames"]:
            document = iam.get_role_policy(RoleName=role, PolicyName=name)["PolicyDocument"]
            found = [one.split(":")[0] for one in findings(json.dumps(document))]
            assert found == MEANT.get(name, []), f"{role}: {name}"
            judged += 1
    assert judged > len(PERMISSIONS)


def test_events_go_to_the_queue_and_only_those_rules_may_send(aws: Aws, module: Terraform) -> None:
    events, sqs = aws.client("events"), aws.client("sqs")
    rules = {rule["Name"]: rule for rule in events.list_rules()["Rules"]}
    assert set(rules) == {
        f"{EVENTS}-{kind}" for kind in ("state", "interruption", "capacity-block", "health", "auto-scaling", "hyperpod")
    }
    url = module.outputs()["event_queue_url"]
    queue = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
    for name in rules:
        assert [target["Arn"] for target in events.list_targets_by_rule(Rule=name)["Targets"]] == [queue["QueueArn"]]
    send, clear = json.loads(queue["Policy"])["Statement"]
    assert send["Principal"] == {"Service": "events.amazonaws.com"}
    assert set(send["Condition"]["ArnEquals"]["aws:SourceArn"]) == {rule["Arn"] for rule in rules.values()}
    assert (clear["Effect"], clear["Condition"]) == ("Deny", {"Bool": {"aws:SecureTransport": "false"}})
    assert json.loads(queue["RedrivePolicy"])["deadLetterTargetArn"].endswith(f"{EVENTS}-unhandled")


STOPPED = {"source": "aws.ec2", "detail-type": "EC2 Instance State-change Notification", "detail": {"state": "stopped"}}
EC2_CHANGE = {"service": "EC2", "eventTypeCategory": "scheduledChange", "eventScopeCode": "ACCOUNT_SPECIFIC"}
RETIRED = {
    "source": "aws.health",
    "detail-type": "AWS Health Event",
    "detail": EC2_CHANGE,
}
REPLACED = {
    "source": "aws.autoscaling",
    "detail-type": "EC2 Instance Terminate Successful",
    "detail": {"AutoScalingGroupName": "gpus"},
}


@pytest.mark.parametrize(
    ("event", "taken"),
    [
        (STOPPED, True),
        ({**STOPPED, "detail": {"state": "running"}}, False),
        (RETIRED, True),
        ({**RETIRED, "detail": {**EC2_CHANGE, "eventScopeCode": "PUBLIC"}}, False),
        ({**RETIRED, "detail": {**EC2_CHANGE, "service": "RDS"}}, False),
        ({"source": "aws.ec2", "detail-type": "Capacity Block Reservation Expiration Warning", "detail": {}}, True),
        (REPLACED, True),
        ({**REPLACED, "detail": {"AutoScalingGroupName": "web"}}, False),
    ],
)
def test_an_event_that_matters_reaches_the_queue_and_no_other_does(
    aws: Aws, module: Terraform, event: dict[str, Any], taken: bool
) -> None:
    sqs, url = aws.client("sqs"), module.outputs()["event_queue_url"]
    entry = {"Source": event["source"], "DetailType": event["detail-type"], "Detail": json.dumps(event["detail"])}
    aws.client("events").put_events(Entries=[entry])
    messages = sqs.receive_message(QueueUrl=url, WaitTimeSeconds=0).get("Messages", [])
    for message in messages:
        sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
    assert [json.loads(one["Body"])["detail"] for one in messages] == ([event["detail"]] if taken else [])


def test_the_nodes_let_hotspare_in_by_ssh_and_the_intake_hears_who_was_named(aws: Aws, module: Terraform) -> None:
    ec2, ours = aws.client("ec2"), module.outputs()["security_group_id"]
    (ssh,) = ec2.describe_security_groups(GroupIds=[aws.nodes])["SecurityGroups"][0]["IpPermissions"]
    assert (ssh["FromPort"], ssh["ToPort"], [pair["GroupId"] for pair in ssh["UserIdGroupPairs"]]) == (22, 22, [ours])
    (intake,) = ec2.describe_security_groups(GroupIds=[ours])["SecurityGroups"][0]["IpPermissions"]
    assert (intake["FromPort"], [block["CidrIp"] for block in intake["IpRanges"]]) == (9099, ["10.0.0.0/16"])


def test_the_group_of_spares_keeps_a_number_and_judges_nothing(aws: Aws, module: Terraform) -> None:
    (group,) = aws.client("autoscaling").describe_auto_scaling_groups()["AutoScalingGroups"]
    assert (group["DesiredCapacity"], group["MaxSize"], group["MinSize"]) == (2, 2, 0)
    assert group["NewInstancesProtectedFromScaleIn"]
    assert {one["ProcessName"] for one in group["SuspendedProcesses"]} >= {"ReplaceUnhealthy", "HealthCheck", "AZRebalance"}
    tags = {tag["Key"]: tag["Value"] for tag in group["Tags"] if tag["PropagateAtLaunch"]}
    assert tags | {names.TAG_CLUSTER: CLUSTER, names.TAG_ROLE: names.ROLE_SPARE} == tags


def test_the_documents_are_made_as_they_are_and_the_roles_may_send_no_other(aws: Aws, module: Terraform) -> None:
    ssm, iam, name = aws.client("ssm"), aws.client("iam"), f"hotspare-{CLUSTER}"
    for document in (documents.NODE, documents.LOOK):
        made = ssm.get_document(Name=document.replace("hotspare", name, 1))
        assert json.loads(made["Content"]) == json.loads(documents.file_of(document).read_text())
    for role in run_command.PERMISSIONS:
        statements = iam.get_role_policy(RoleName=f"{name}-{role}", PolicyName="run-command")["PolicyDocument"]["Statement"]
        sends = [one["Resource"] for one in statements if one["Sid"] == "SendTheseDocuments"]
        assert all(resource.split("/")[1].startswith(f"{name}-node") for resource in sends[0])
    node = iam.get_policy(PolicyArn=module.outputs()["node_output_policy_arn"])["Policy"]
    version = iam.get_policy_version(PolicyArn=node["Arn"], VersionId=node["DefaultVersionId"])["PolicyVersion"]["Document"]
    assert version["Statement"][0]["Resource"] == "arn:aws:s3:::outputs/hotspare/run-command/*"


def test_the_settings_that_it_prints_are_settings_of_hotspare(module: Terraform) -> None:
    outputs = module.outputs()
    settings = parse_settings(tomllib.loads(outputs["settings"]), Path("hotspare.toml"))
    assert (settings.name, settings.aws.region, settings.evidence.bucket) == (CLUSTER, REGION, "bundles")
    assert settings.intake.event_queue == outputs["event_queue_url"]
    ssm = settings.access.ssm
    assert (settings.access.kind, ssm.document, ssm.bucket) == ("ssm", f"hotspare-{CLUSTER}-node", "outputs")
    assert ssm.look_document == f"hotspare-{CLUSTER}-node-look"
    assert (settings.store.memory, settings.store.table) == ("dynamodb", outputs["memory_table"])
    assert {role: one.role_arn for role, one in settings.aws.roles.items()} == outputs["role_arns"]


def test_what_was_made_is_what_is_wanted(module: Terraform) -> None:
    """The endpoint keeps no description of a rule that names a group."""
    assert module.changes() == {'module.hotspare.aws_vpc_security_group_ingress_rule.ssh["nodes"]': ["description"]}


def test_nothing_is_left_when_it_is_taken_away(aws: Aws, module: Terraform) -> None:
    """The last test of this file, because it ends what the others look at."""
    module.destroy()
    iam, groups = aws.client("iam"), aws.client("autoscaling").describe_auto_scaling_groups()["AutoScalingGroups"]
    assert (iam.list_roles()["Roles"], iam.list_instance_profiles()["InstanceProfiles"], groups) == ([], [], [])
    assert aws.client("sqs").list_queues().get("QueueUrls", []) == []
    assert aws.client("events").list_rules()["Rules"] == []
    assert aws.client("dynamodb").list_tables()["TableNames"] == []
    kept = aws.client("ec2").describe_security_groups()["SecurityGroups"]
    assert {one["GroupName"] for one in kept} == {"default", "nodes"}
