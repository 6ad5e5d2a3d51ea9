"""The bearer token of an EKS cluster: a presigned call to STS that says who we are, made here, without the aws command."""

from __future__ import annotations

import base64
import threading
import time
from collections.abc import Callable

import boto3
from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError
from botocore.signers import RequestSigner

from activities.errors import AccessRefused

PREFIX = "k8s-aws-v1."
"""What aws-iam-authenticator expects before the encoded address. Source: kubernetes-sigs/aws-iam-authenticator, pkg/token."""

HEADER = "x-k8s-aws-id"
"""Signed header with the cluster's name, so that a token serves for that cluster alone. Same source."""

EXPIRES_S = 60
"""X-Amz-Expires of the address. Same source; the authenticator takes tokens for 15 minutes whatever it says."""

RENEW_S = 13 * 60.0
"""Seconds after which a token is made anew: before the 14 minutes after which the official clients renew."""


class EksToken:
    """Makes the token of one cluster, and keeps it until it is about to expire. Safe for threads."""

    def __init__(
        self, session: boto3.session.Session, region: str, cluster: str, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._session = session
        self._region = region
        self._cluster = cluster
        self._now = now
        self._lock = threading.Lock()
        self._token = ""
        self._made_at = 0.0

    def __call__(self) -> str:
        """Return the token. Raises AccessRefused where there are no credentials."""
        with self._lock:
            if not self._token or self._now() - self._made_at >= RENEW_S:
                self._made_at = self._now()
                self._token = self._make()
            return self._token

    def _make(self) -> str:
        try:
            client = self._session.client("sts", region_name=self._region)
            service, credentials = client.meta.service_model.service_id, self._session.get_credentials()
            if credentials is None:
                raise NoCredentialsError
            signer = RequestSigner(service, self._region, "sts", "v4", credentials, self._session.events)
            request = {
                "method": "GET",
                "url": f"https://sts.{self._region}.{suffix_of(self._session, self._region)}/"
                "?Action=GetCallerIdentity&Version=2011-06-15",
                "body": {},
                "headers": {HEADER: self._cluster},
                "context": {},
            }
            url = signer.generate_presigned_url(request, region_name=self._region, expires_in=EXPIRES_S, operation_name="")
        except (BotoCoreError, ClientError) as error:
            raise AccessRefused(
                f"no AWS credentials to sign the token of EKS cluster {self._cluster}: {type(error).__name__}; "
                "check: aws sts get-caller-identity"
            ) from error
        return PREFIX + base64.urlsafe_b64encode(url.encode()).decode().rstrip("=")


def suffix_of(session: boto3.session.Session, region: str) -> str:
    """Return the domain of a region's partition: amazonaws.com, amazonaws.com.cn in China."""
    partition = session.get_partition_for_region(region)
    data = session._session.get_data("endpoints")
    return next(str(one["dnsSuffix"]) for one in data["partitions"] if one["partition"] == partition)
