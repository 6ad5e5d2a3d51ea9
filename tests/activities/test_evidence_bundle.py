"""The bundle as a file, and where it is kept: bounded, whole or not there, never written over."""

from __future__ import annotations

import gzip
import io
import os
import random
import tarfile
import time
from base64 import b64encode
from collections.abc import Iterator
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

import boto3
import pytest
from moto.server import ThreadedMotoServer

from activities.clients.evidence_store_folder import FolderEvidenceStore
from activities.clients.evidence_store_s3 import S3EvidenceStore
from activities.errors import AccessRefused, BadInput, ProviderBusy
from activities.evidence_bundle import pack, unpack
from activities.evidence_parts import Part, PartState, glob_safe, node_parts, unpacked_report
from activities.evidence_spool import FORGOTTEN_S, Spool
from activities.evidence_store import EvidenceStore, bundle_name, bundle_prefix
from activities.settings import AwsSettings, EvidenceSettings

NAME = bundle_name("incident/lab/i-1", "t1")


def taken(name: str, text: str) -> Part:
    return Part(name, PartState.TAKEN, text=text)


def noise(length: int, seed: int = 1) -> str:
    return "".join(random.Random(seed).choices("abcdefghijklmnopqrstuvwxyz\n", k=length))


@pytest.mark.parametrize("limit", [10_000, 60_000, 100_000, 150_000])
def test_a_bundle_that_would_be_too_large_keeps_the_ends_of_its_largest_parts(limit: int) -> None:
    parts = [taken("dmesg.txt", noise(300_000) + "the last line"), taken("smi.txt", noise(60_000, 2)), taken("uptime.txt", "up")]
    content = pack({"incident": "i"}, parts, limit, 0)
    assert len(content) <= limit
    bundle = unpack(content)
    assert bundle.broken == ()
    assert bundle.texts["dmesg.txt"].endswith("the last line")
    assert bundle.texts["uptime.txt"] == "up"
    dmesg = next(part for part in bundle.parts if part["name"] == "dmesg.txt")
    assert dmesg["state"] == "truncated"
    assert f"size limit of {limit} bytes" in dmesg["why"]
    assert dmesg["sha256"] == sha256(bundle.texts["dmesg.txt"].encode()).hexdigest()


def test_the_manifest_comes_first_so_that_the_beginning_of_a_bundle_tells_the_rest() -> None:
    content = pack({}, [taken("a.txt", "a")], 10_000, 0)
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        assert archive.getnames() == ["manifest.json", "a.txt"]


def test_a_part_that_was_changed_afterwards_is_named() -> None:
    content = pack({}, [taken("a.txt", "a"), taken("b.txt", "b")], 10_000, 0)
    changed = io.BytesIO()
    with tarfile.open(fileobj=io.BytesIO(content)) as source, tarfile.open(fileobj=changed, mode="w:gz") as target:
        for member in source:
            text = source.extractfile(member)
            assert text is not None
            target.addfile(member, io.BytesIO(b"x" if member.name == "a.txt" else text.read()))
    assert unpack(changed.getvalue()).broken == ("a.txt",)


def test_half_a_bundle_is_none() -> None:
    content = pack({}, [taken("a.txt", noise(10_000))], 100_000, 0)
    for broken in (content[: len(content) // 2], b"", b"no archive"):
        with pytest.raises(BadInput, match="no evidence bundle"):
            unpack(broken)


def test_what_was_spooled_is_read_back_but_for_what_was_missing_or_is_broken(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool")
    whole = Part("a.txt", PartState.TRUNCATED, "node", "dmesg", "the end", "text\ud800", 1.5, "now", 1, 2)
    spool.keep(whole)
    spool.keep(Part("b.txt", PartState.MISSING, why="gone"))
    (tmp_path / "spool/c.txt.part").write_text('{"name": "c.txt", "sta')
    again = Spool(tmp_path / "spool").parts()
    assert list(again) == ["a.txt"]
    assert (again["a.txt"].state, again["a.txt"].secrets, again["a.txt"].serials) == (PartState.TRUNCATED, 1, 2)
    spool.clear()
    assert Spool(tmp_path / "spool").parts() == {}


def test_parts_whose_bundle_nobody_finished_are_not_kept_for_ever(tmp_path: Path) -> None:
    for name in ("mine", "recent", "forgotten"):
        Spool(tmp_path / name).keep(taken("a.txt", "a"))
    month_ago = time.time() - FORGOTTEN_S - 1.0
    os.utime(tmp_path / "forgotten", (month_ago, month_ago))
    Spool(tmp_path / "mine").clear()
    assert [file.name for file in tmp_path.iterdir()] == ["recent"]


def test_names_of_bundles_are_safe_and_differ_by_token() -> None:
    first = bundle_name("incident/../lab/i-1", "t1")
    assert "/" not in first
    assert first.startswith(bundle_prefix("incident/../lab/i-1"))
    assert first != bundle_name("incident/../lab/i-1", "t2")


def test_a_word_in_a_path_of_logs_stands_for_itself() -> None:
    settings = EvidenceSettings(nccl_logs=["/logs/{job}/*.log", "/other/{node}.log"])
    words = {"node": "node-1", "job": "a*b/../c"}
    (logs,) = [part for part in node_parts(settings, "python3", datetime.now(UTC), words) if part.name == "nccl-logs.txt"]
    assert list(logs.command[-2:]) == ["/logs/a[*]b_.._c/*.log", "/other/node-1.log"]
    assert glob_safe("x[1]?") == "x[[]1][?]"


def test_what_a_manifest_says_counts_for_the_size_too() -> None:
    parts = [Part(f"{n}.txt", PartState.TAKEN, why=noise(3_000, n), text=noise(20_000, n + 99)) for n in range(20)]
    content = pack({}, parts, 60_000, 0)
    assert len(content) <= 60_000
    assert len(unpack(content).items) == 20


def test_a_packed_report_is_read_as_far_as_it_goes_and_no_further_than_it_may() -> None:
    packed = gzip.compress(noise(100_000).encode())
    half = unpacked_report(b64encode(packed[: len(packed) // 2]).decode())
    assert noise(100_000).startswith(half.removesuffix("\n[the report goes on; it was cut here]\n"))
    assert len(half) > 10_000
    assert unpacked_report(b64encode(packed).decode()) == noise(100_000)
    bomb = unpacked_report(b64encode(gzip.compress(b"a" * 1_000_000)).decode(), limit=1_000)
    assert len(bomb) < 1_100


def test_a_report_that_cannot_be_unpacked_is_said_to_be_so() -> None:
    with pytest.raises(BadInput, match="cannot be unpacked"):
        unpacked_report("bm90IGd6aXA=")


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    """An S3 endpoint on loopback."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def s3(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A client beside the store, with the bucket `evidence` made."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    client: Any = boto3.client("s3", region_name="us-east-1", endpoint_url=endpoint)
    client.create_bucket(Bucket="evidence")
    yield client
    for one in client.list_objects_v2(Bucket="evidence").get("Contents", []):
        client.delete_object(Bucket="evidence", Key=one["Key"])


def bucket(endpoint: str, **changes: Any) -> S3EvidenceStore:
    aws = AwsSettings(region="us-east-1", endpoint_url=endpoint)
    return S3EvidenceStore(aws, EvidenceSettings(**{"bucket": "evidence", "prefix": "lab/", **changes}))


@pytest.fixture(params=["folder", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> EvidenceStore:
    if request.param == "folder":
        return FolderEvidenceStore(tmp_path / "evidence")
    request.getfixturevalue("s3")
    return bucket(request.getfixturevalue("endpoint"))


def test_a_bundle_is_kept_whole_and_found_under_its_name(store: EvidenceStore) -> None:
    assert store.find(NAME) is None
    kept = store.keep(NAME, b"content")
    assert kept.sha256 == sha256(b"content").hexdigest()
    assert kept.uri.endswith(NAME)
    assert store.find(NAME) == kept


def test_a_bundle_that_is_there_is_never_replaced(store: EvidenceStore) -> None:
    first = store.keep(NAME, b"first")
    assert store.keep(NAME, b"second") == first
    assert store.find(NAME) == first
    assert store.names("") == [NAME]


def test_bundles_are_listed_by_their_incident(store: EvidenceStore) -> None:
    names = [bundle_name(f"incident/lab/{one}", "t") for one in ("i-1", "i-2", "i-10")]
    for name in names:
        store.keep(name, b"content")
    assert store.names(bundle_prefix("incident/lab/i-1")) == [names[0]]
    assert sorted(store.names("")) == sorted(names)


def test_a_folder_shows_bundles_to_its_owner_alone_and_no_halves(tmp_path: Path) -> None:
    store = FolderEvidenceStore(tmp_path / "deep/evidence")
    store.keep(NAME, b"content")
    assert [file.name for file in (tmp_path / "deep/evidence").iterdir()] == [NAME]
    assert (tmp_path / "deep/evidence" / NAME).stat().st_mode & 0o077 == 0


def test_a_folder_that_cannot_be_made_is_said_to_be_so(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(BadInput, match=r"store\.evidence_dir"):
        FolderEvidenceStore(tmp_path / "file/evidence").keep(NAME, b"content")


@pytest.mark.parametrize(("kms_key", "algorithm"), [("", "AES256"), ("alias/evidence", "aws:kms")])
def test_what_s3_keeps_is_encrypted_and_carries_its_digest(endpoint: str, s3: Any, kms_key: str, algorithm: str) -> None:
    bucket(endpoint, kms_key=kms_key).keep(NAME, b"content")
    seen = s3.head_object(Bucket="evidence", Key=f"lab/{NAME}")
    assert seen["ServerSideEncryption"] == algorithm
    assert seen["Metadata"]["sha256"] == sha256(b"content").hexdigest()
    assert seen["ContentType"] == "application/gzip"
    if kms_key:
        assert seen["SSEKMSKeyId"].endswith(kms_key)


def test_a_bucket_that_is_not_there_is_an_error_of_the_settings(endpoint: str, s3: Any) -> None:
    with pytest.raises(BadInput, match=r"NoSuchBucket.*check evidence\.bucket"):
        bucket(endpoint, bucket="nowhere").keep(NAME, b"content")


def test_without_credentials_s3_is_refused_and_without_an_answer_it_is_busy(
    endpoint: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID", raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    with pytest.raises(AccessRefused, match="aws sts get-caller-identity"):
        bucket(endpoint).keep(NAME, b"content")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
    monkeypatch.setattr("activities.clients.evidence_store_s3.TRIES", 1)
    with pytest.raises(ProviderBusy, match="no clear answer"):
        bucket("http://127.0.0.1:1").keep(NAME, b"content")
