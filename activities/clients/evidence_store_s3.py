"""Evidence bundles in S3: encrypted, with the digest checked on arrival, and never written over."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from typing import Any

from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError, PartialCredentialsError, ProfileNotFound

from activities.clients.aws_session import session_of
from activities.errors import AccessRefused, BadInput, ProviderBusy
from activities.evidence_store import StoredBundle
from activities.settings import AwsSettings, EvidenceSettings

CONNECT_TIMEOUT_S = 5
READ_TIMEOUT_S = 10
TRIES = 2
"""Limits of one request. Hotspare default: a bundle of 20 MB is sent in a second; a bucket that is silent is given up after 20 s,
and the bundle kept in the folder."""

ABSENT = frozenset({"404", "NoSuchKey", "NotFound"})
THERE_ALREADY = frozenset({"PreconditionFailed", "ConditionalRequestConflict", "412", "409"})
REFUSED = frozenset(
    {"403", "AccessDenied", "InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "KMS.DisabledException"}
)
"""Error codes of S3; a HEAD request has only the HTTP status. Source: S3 API reference, "Error responses"."""


class S3EvidenceStore:
    """`EvidenceStore` in a bucket. Needs s3:PutObject and s3:GetObject below the prefix, and s3:ListBucket for `names`.

    A missing object reads as refused where ListBucket is not allowed: it is then found out by the write, which never replaces.
    """

    def __init__(self, aws: AwsSettings, settings: EvidenceSettings, role: str = "") -> None:
        """`role` is the worker role whose credentials are used, as for EC2."""
        self._settings = settings
        with self._mapped("open the S3 client"):
            self._s3: Any = session_of(aws, role).client(
                "s3",
                region_name=aws.region or None,
                endpoint_url=aws.endpoint_url or None,
                config=Config(
                    connect_timeout=CONNECT_TIMEOUT_S,
                    read_timeout=READ_TIMEOUT_S,
                    retries={"mode": "standard", "total_max_attempts": TRIES},
                    s3={"addressing_style": "path"} if aws.endpoint_url else {},
                ),
            )

    def keep(self, name: str, content: bytes) -> StoredBundle:
        try:
            self._put(name, content)
        except ClientError as error:
            if _code(error) not in THERE_ALREADY:
                raise self._explained(f"keep {name}", error) from error
            kept = self.find(name)
            if kept is None:
                raise ProviderBusy(f"S3: {self._uri(name)} is just being written by another; try again") from error
            return kept
        return StoredBundle(self._uri(name), content)

    def find(self, name: str) -> StoredBundle | None:
        try:
            with self._mapped(f"read {name}"):
                answer = self._s3.get_object(Bucket=self._settings.bucket, Key=self._key(name))
                return StoredBundle(self._uri(name), answer["Body"].read())
        except _Absent:
            return None

    def names(self, prefix: str) -> list[str]:
        with self._mapped(f"list {prefix}*"):
            pages = self._s3.get_paginator("list_objects_v2").paginate(Bucket=self._settings.bucket, Prefix=self._key(prefix))
            found = [(one["LastModified"], one["Key"]) for page in pages for one in page.get("Contents", [])]
        return [key[len(self._settings.prefix) :] for _, key in sorted(found)]

    def _put(self, name: str, content: bytes) -> None:
        key = self._settings.kms_key
        encryption = {"ServerSideEncryption": "aws:kms", "SSEKMSKeyId": key} if key else {"ServerSideEncryption": "AES256"}
        with self._mapped(f"keep {name}", answers=True):
            self._s3.put_object(
                Bucket=self._settings.bucket,
                Key=self._key(name),
                Body=content,
                ContentType="application/gzip",
                ChecksumAlgorithm="SHA256",
                Metadata={"sha256": sha256(content).hexdigest()},
                IfNoneMatch="*",
                **encryption,
            )

    def _key(self, name: str) -> str:
        return f"{self._settings.prefix}{name}"

    def _uri(self, name: str) -> str:
        return f"s3://{self._settings.bucket}/{self._key(name)}"

    @contextmanager
    def _mapped(self, what: str, *, answers: bool = False) -> Iterator[None]:
        """Turn boto3's errors into ours; with `answers` the caller reads S3's own."""
        try:
            yield
        except ClientError as error:
            if answers:
                raise
            if _code(error) in ABSENT:
                raise _Absent(what) from error
            raise self._explained(what, error) from error
        except (NoCredentialsError, PartialCredentialsError, ProfileNotFound) as error:
            raise AccessRefused(f"S3: {what}: {error}; check the AWS variables: aws sts get-caller-identity") from error
        except (BotoCoreError, OSError) as error:
            raise ProviderBusy(f"S3: {what}: no clear answer: {error}") from error

    def _explained(self, what: str, error: ClientError) -> AccessRefused | BadInput | ProviderBusy:
        code, bucket = _code(error), self._settings.bucket
        message = f"S3: {what} in bucket {bucket}: {code}: {error.response.get('Error', {}).get('Message', '')}"
        if code in REFUSED:
            return AccessRefused(f"{message}; allow s3:PutObject and s3:GetObject on {bucket}/{self._settings.prefix}*")
        if code == "NoSuchBucket":
            return BadInput(f"{message}; check evidence.bucket")
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        return ProviderBusy(message) if status >= 500 or code == "SlowDown" else BadInput(message)


class _Absent(BadInput):
    """There is no such object."""


def _code(error: ClientError) -> str:
    return str(error.response.get("Error", {}).get("Code", ""))
