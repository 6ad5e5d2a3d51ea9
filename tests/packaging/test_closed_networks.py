"""Partitions and closed networks: no partition is written into code, the page of endpoints is whole, and nothing is fetched."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import botocore.session
import pytest

TREE = Path(__file__).parents[2]
PAGE = TREE / "docs" / "endpoints.md"
REGIONS = {"aws": "us-west-2", "aws-us-gov": "us-gov-west-1", "aws-cn": "cn-north-1"}
PRODUCT = ("checks", "activities", "workflows", "workers", "hotspare")
SET_UP = ("infra/iam", "infra/ssm", "infra/terraform", "infra/helm", "infra/kubernetes", "infra/systemd", "infra/docker")
EXAMPLE_ACCOUNT = "111122223333"
"""The account of examples in AWS' own documentation."""

ONE_PARTITION = re.compile(rf"arn:aws(?:-cn|-us-gov)?:(?!iam::{EXAMPLE_ACCOUNT})")
HOST = re.compile(r"[\w.{}\-*$]*amazonaws\.com(?:\.cn)?[*/\w]*")

NO_HOSTS = {
    "eks.amazonaws.com/nodegroup",
    "eks.amazonaws.com/compute",
    "eks.amazonaws.com/role",
    "sagemaker.amazonaws.com/node",
    "sagemaker.amazonaws.com/enable",
    "sagemaker.amazonaws.com/job",
    "eks.amazonaws.com",
    "sagemaker.amazonaws.com",
    "events.amazonaws.com",
    "pods.eks.amazonaws.com",
    "ec2.amazonaws.com*",
}
"""Names with a host's look that are the same in every partition: labels of Kubernetes, operators of instances as EC2 tells them,
principals of services in trust policies, and one that a condition matches in all of them."""


def is_shipped(file: Path) -> bool:
    """Whether a file says something to machines."""
    suffixes = (".py", ".json", ".tf", ".yaml", ".tpl", ".service", ".csv", ".txt", "")
    return file.is_file() and file.suffix in suffixes and "__pycache__" not in file.parts


def files(folder: str) -> list[Path]:
    """What is shipped of a folder; not the fakes, which stand in for one region."""
    return [file for file in sorted((TREE / folder).rglob("*")) if is_shipped(file) and not file.name.startswith("fake_")]


def texts(file: Path) -> Iterator[str]:
    """What a file says to machines: of Python the strings that are no documentation, of others each line that is no comment."""
    if file.suffix != ".py":
        yield from (line.split("#")[0] for line in file.read_text(encoding="utf-8").splitlines())
        return
    tree = ast.parse(file.read_text(encoding="utf-8"))
    told = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    yield from (
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in told
    )


@pytest.mark.parametrize("folder", [*PRODUCT, *SET_UP])
def test_no_partition_is_written_into_what_is_shipped(folder: str) -> None:
    """The lab is left out: it stands in for one region."""
    shipped = files(folder)
    assert shipped
    for file in shipped:
        for text in texts(file):
            assert ONE_PARTITION.search(text) is None, f"{file}: {text}"
            assert [one for one in HOST.findall(text) if one not in NO_HOSTS] == [], f"{file}: {text}"


@pytest.mark.parametrize(
    "text", ["arn:aws:s3:::bucket", "arn:aws-cn:iam::123456789012:role/x", "https://sts.us-east-1.amazonaws.com/"]
)
def test_a_slip_would_be_found(text: str) -> None:
    assert ONE_PARTITION.search(text) or [one for one in HOST.findall(text) if one not in NO_HOSTS]


def opened_services() -> set[str]:
    """The services for which the product opens clients."""
    services = {"ec2", "iam", "sts", "eks", "autoscaling"}  # those that permissions_boto3 is handed
    calls = (
        node
        for file in sorted((TREE / "activities" / "clients").glob("*.py"))
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "client"
    )
    first = (call.args[0] for call in calls if call.args)
    return services | {str(one.value) for one in first if isinstance(one, ast.Constant)}


def rows() -> dict[str, list[str]]:
    """The page's table of services: name -> the hosts of each partition as written."""
    found = re.findall(r"^\| `(\w+)` \|[^|]*\|[^|]*\|([^|]*)\|([^|]*)\|$", PAGE.read_text(), re.MULTILINE)
    return {service: re.findall(r"`([^`]+)`", west) + re.findall(r"`([^`]+)`", china) for service, west, china in found}


def test_the_page_names_every_service_that_is_opened_and_no_other() -> None:
    assert set(rows()) == opened_services()


@pytest.mark.parametrize("partition", REGIONS)
def test_the_hosts_on_the_page_are_those_of_the_sdk(partition: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
    session, region = botocore.session.Session(), REGIONS[partition]
    for service, hosts in rows().items():
        assert host_of(session, service, region) in [written.replace("REGION", region) for written in hosts]


def host_of(session: botocore.session.Session, service: str, region: str) -> str:
    """Where the SDK finds a service in a region."""
    client = session.create_client(service, region, aws_access_key_id="x", aws_secret_access_key="x")
    return str(client.meta.endpoint_url).removeprefix("https://")


def test_nothing_is_fetched_while_it_runs() -> None:
    """No address of anybody's is in the product, and no unit, chart or manifest starts by fetching."""
    addresses = [
        (file.name, text)
        for folder in PRODUCT
        for file in files(folder)
        if file.suffix == ".py"
        for text in texts(file)
        if re.search(r"https?://(?!127\.0\.0\.1|localhost|hotspare)[a-z0-9]+\.[a-z]", text)
    ]
    assert [one for one in addresses if one[0] != "owners.py"] == []  # the sources that a refusal names, to be read by people
    for folder in ("infra/helm", "infra/kubernetes", "infra/systemd"):
        for file in files(folder):
            assert re.search(r"\b(curl|wget|pip install|apt-get|yum|git clone)\b", file.read_text()) is None, file


def test_the_image_installs_what_is_locked_by_digest_and_its_last_step_fetches_nothing() -> None:
    recipe = (TREE / "infra/docker/Dockerfile").read_text()
    installs = re.findall(r"^RUN .*pip install (.*)$", recipe, re.MULTILINE)
    assert installs
    assert all("--require-hashes" in one or "--no-index" in one for one in installs)


def test_terraform_takes_partition_region_and_domain_from_the_provider() -> None:
    module = "\n".join(file.read_text() for file in (TREE / "infra/terraform").glob("*.tf"))
    assert "data.aws_partition.current.partition" in module
    assert re.findall(r"\b(?:us|eu|ap|cn)-[a-z]+-\d\b", module) == []
