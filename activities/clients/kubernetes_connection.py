"""How the Kubernetes API is reached: a kubeconfig, the pod's own service account, or an EKS cluster by its name."""

from __future__ import annotations

import base64
from collections.abc import Callable

import boto3
from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError
from kubernetes.client import ApiClient, Configuration
from kubernetes.config import ConfigException, load_incluster_config, new_client_from_config

from activities.clients.eks_token import EksToken
from activities.clients.kubernetes_api import KubernetesClient
from activities.errors import AccessRefused, BadInput, ProviderBusy
from activities.settings import AwsSettings
from activities.settings_jobs import KubernetesSettings


def connect(settings: KubernetesSettings, aws: AwsSettings, session: Callable[[], boto3.session.Session]) -> KubernetesClient:
    """Return the client that the settings describe, which reaches for nothing before its first request.

    That one raises AccessRefused where there are no credentials, BadInput where the settings lead nowhere, ProviderBusy where AWS
    does not answer. Only for EKS is anything asked of AWS, with `session`'s credentials.
    """

    def api() -> ApiClient:
        try:
            return _eks(settings, aws, session()) if settings.source == "eks" else _configured(settings)
        except ConfigException as error:
            raise BadInput(f"kubernetes.source = {settings.source!r}: {error}") from error

    return KubernetesClient(api, settings.timeout_s)


def _configured(settings: KubernetesSettings) -> ApiClient:
    if settings.source == "in-cluster":
        configuration = Configuration()
        load_incluster_config(client_configuration=configuration)
        return ApiClient(configuration)
    file = settings.kubeconfig.expanduser()
    if not file.is_file():
        raise BadInput(f"kubernetes.kubeconfig: {file}: no such file")
    return new_client_from_config(str(file), context=settings.context or None, persist_config=False)


def _eks(settings: KubernetesSettings, aws: AwsSettings, session: boto3.session.Session) -> ApiClient:
    name = settings.eks_cluster
    region = aws.region or session.region_name
    if not region:
        raise BadInput("aws.region: needed for kubernetes.source = 'eks'")
    endpoint, certificate = described(name, region, aws, session)
    token = EksToken(session, region, name)
    configuration = Configuration()
    configuration.host = endpoint

    def renew(of: Configuration) -> None:
        of.api_key["authorization"] = f"Bearer {token()}"

    configuration.api_key["authorization"] = "Bearer"  # replaced at each request
    configuration.refresh_api_key_hook = renew
    api = ApiClient(configuration)
    api.rest_client.pool_manager.connection_pool_kw["ca_cert_data"] = certificate.decode()  # the configuration takes only a file
    return api


def described(name: str, region: str, aws: AwsSettings, session: boto3.session.Session) -> tuple[str, bytes]:
    """Return address and certificate authority of an EKS cluster."""
    try:
        client = session.client("eks", region_name=region, endpoint_url=aws.endpoint_url or None)
        cluster = client.describe_cluster(name=name)["cluster"]
        return str(cluster["endpoint"]), base64.b64decode(cluster["certificateAuthority"]["data"])
    except NoCredentialsError as error:
        raise AccessRefused(f"EKS: describe cluster {name}: {error}; check: aws sts get-caller-identity") from error
    except ClientError as error:
        code = error.response.get("Error", {}).get("Code", "")
        message = f"EKS: describe cluster {name}: {code}: {error.response.get('Error', {}).get('Message', '')}"
        if code == "ResourceNotFoundException":
            raise BadInput(f"{message}; see kubernetes.eks_cluster and aws.region") from error
        if error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0) in (401, 403) or "AccessDenied" in code:
            raise AccessRefused(f"{message}; the role needs eks:DescribeCluster (infra/iam, docs/kubernetes.md)") from error
        raise ProviderBusy(message) from error
    except BotoCoreError as error:
        raise ProviderBusy(f"EKS: describe cluster {name}: no clear answer: {error}") from error
    except KeyError as error:
        raise ProviderBusy(f"EKS: cluster {name} has no address yet: it is still being created") from error
