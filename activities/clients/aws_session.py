"""Who we are on AWS, by worker role: a profile, a role that is assumed, or whatever the process was given."""

from __future__ import annotations

from typing import Any

import boto3
import botocore.session
from botocore.credentials import AssumeRoleCredentialFetcher, CredentialProvider, DeferredRefreshableCredentials
from botocore.exceptions import BotoCoreError

from activities.errors import AccessRefused
from activities.settings import AwsRole, AwsSettings


def session_of(settings: AwsSettings, role: str = "") -> boto3.session.Session:
    """Return the session of a worker role; the process's own where the settings have nothing for it.

    Raises AccessRefused when the profile is not there or there is nothing to assume the role with. An assumed role is asked for
    at the first call, and again before it expires.
    """
    who = next((known for name, known in settings.roles.items() if name == role), AwsRole())
    try:
        source = botocore.session.Session(profile=who.profile or None)
        source.get_scoped_config()
    except BotoCoreError as error:
        raise AccessRefused(
            f"AWS credentials of role {role or 'of this process'}: {error}; see aws.roles in the settings"
        ) from error
    if not who.role_arn:
        return boto3.session.Session(botocore_session=source)
    assumed = botocore.session.Session(profile=who.profile or None)
    resolver = assumed.get_component("credential_provider")
    resolver.insert_before(resolver.providers[0].METHOD, _Assumed(settings, role, who, source))
    return boto3.session.Session(botocore_session=assumed)


class _Assumed(CredentialProvider):
    """Gives botocore the credentials of an assumed role, before it looks anywhere else."""

    METHOD = "hotspare-assume-role"

    def __init__(self, settings: AwsSettings, role: str, who: AwsRole, source: botocore.session.Session) -> None:
        super().__init__()
        self._settings = settings
        self._role = role
        self._who = who
        self._source = source

    def load(self) -> DeferredRefreshableCredentials:
        """Return credentials that fetch themselves."""
        held = self._source.get_credentials()
        if held is None:
            raise AccessRefused(
                f"AWS: no credentials to assume {self._who.role_arn} with; give the process a profile or an instance role"
            )
        # The session's name is in every line of CloudTrail.
        extra = {"RoleSessionName": f"hotspare-{self._role}"} | (
            {"ExternalId": self._who.external_id} if self._who.external_id else {}
        )
        fetcher = AssumeRoleCredentialFetcher(self._client, held, self._who.role_arn, extra_args=extra)
        return DeferredRefreshableCredentials(refresh_using=fetcher.fetch_credentials, method=self.METHOD)

    def _client(self, service: str, **credentials: Any) -> Any:
        return self._source.create_client(
            service, region_name=self._settings.region or None, endpoint_url=self._settings.endpoint_url or None, **credentials
        )
