"""Who this process is on AWS, for `hotspare doctor`."""

from __future__ import annotations

from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from activities.errors import AccessRefused
from activities.settings import AwsSettings
from workers.wiring import aws_session

TIMEOUTS = Config(connect_timeout=5, read_timeout=10, retries={"total_max_attempts": 2})
"""Limits of the one call, seconds. Hotspare default: a person waits for the answer."""


def aws_identity(settings: AwsSettings, role: str = "") -> str:
    """Return account, role and region of a worker role's credentials, or of the process's own.

    Raises AccessRefused when there are none or AWS does not take them.
    """
    try:
        session = aws_session(settings, role)
        region = settings.region or session.region_name or ""
        sts = session.client("sts", region_name=region or None, endpoint_url=settings.endpoint_url or None, config=TIMEOUTS)
        seen = sts.get_caller_identity()
    except (BotoCoreError, ClientError) as error:
        raise AccessRefused(f"AWS does not say who we are: {error}") from error
    return f"{seen['Arn']} in {region or 'no region'}"
