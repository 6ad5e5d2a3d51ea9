"""DynamoDB of the lab: moto's, one call at a time.

DynamoDB carries out the conditional writes of one item one after the other (Developer Guide, "Condition expressions"); moto looks
and writes without a lock, so two threads could both find the condition met.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import boto3

from activities.memory_table import create
from infra.lab.options import REGION

SERVICE = "dynamodb"

KINDS = ("sqlite", SERVICE)
"""Where a lab's host memory may be."""

TABLE = "hotspare-lab-memory"
"""The lab's table of host memory."""

Wsgi = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


class OneAtATime:
    """Hands the calls of DynamoDB to moto, never two at once."""

    def __init__(self, moto: Wsgi) -> None:
        self._moto = moto
        self._lock = threading.Lock()

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        """As WSGI has it."""
        with self._lock:
            return list(self._moto(environ, start_response))


def check(memory: str) -> None:
    """Raise ValueError for a kind of host memory that there is none of."""
    if memory not in KINDS:
        raise ValueError(f"the lab keeps host memory in {' or '.join(KINDS)}, not in {memory}")


def make_table(url: str, table: str, credentials: Mapping[str, str]) -> None:
    """Make the table of host memory, as Terraform does on AWS."""
    client = boto3.client(
        "dynamodb",
        endpoint_url=url,
        region_name=REGION,
        aws_access_key_id=credentials["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=credentials["AWS_SECRET_ACCESS_KEY"],
    )
    create(client, table)
