"""The one way to Temporal: connection settings of the `temporal` CLI, pydantic messages, sandbox rules, Core's log on stderr.

Client, workers and replay tests share `PLUGIN`, so they cannot drift apart.
"""

from __future__ import annotations

import dataclasses
import functools
import logging
import os
import socket
from datetime import timedelta

from temporalio.client import Client
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.converter import DataConverter, DefaultFailureConverterWithEncodedAttributes, PayloadCodec
from temporalio.envconfig import ClientConfig
from temporalio.plugin import SimplePlugin
from temporalio.runtime import LogForwardingConfig, LoggingConfig, PrometheusConfig, Runtime, TelemetryConfig, TelemetryFilter
from temporalio.service import RPCError
from temporalio.worker import WorkflowRunner
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner, SandboxRestrictions

from activities.errors import TransientError
from workers.sections import CodecSettings

PASSED_THROUGH = ("activities", "checks", "workflows.decisions", "workflows.messages")
"""Our modules without workflow code. Re-imported for each run they would cost 6 ms a workflow, measured with one small module."""


class TemporalAway(TransientError):
    """No Temporal server answers where the connection settings point."""


def sandboxed(_runner: WorkflowRunner | None = None) -> WorkflowRunner:
    """Return the workflow sandbox that lets our own message and decision modules through."""
    return SandboxedWorkflowRunner(restrictions=SandboxRestrictions.default.with_passthrough_modules(*PASSED_THROUGH))


def plugin_of(converter: DataConverter) -> SimplePlugin:
    """Return what client, workers and replay share, with this converter."""
    return SimplePlugin("hotspare", data_converter=converter, workflow_runner=sandboxed)


PLUGIN = plugin_of(pydantic_data_converter)
"""Given to `Client.connect` and to `Replayer`. Workers take it from their client: do not pass it to them again."""


def encrypting(codec: PayloadCodec) -> DataConverter:
    """Return the converter that encrypts payloads, and texts of errors with them."""
    return dataclasses.replace(
        pydantic_data_converter, payload_codec=codec, failure_converter_class=DefaultFailureConverterWithEncodedAttributes
    )


@functools.cache
def runtime(metrics_address: str = "") -> Runtime:
    """Return the process's one SDK runtime. Core logs to stdout, which would break `--json`, so its log is forwarded."""
    forwarding = LogForwardingConfig(logger=logging.getLogger("temporalio.core"))
    return Runtime(
        telemetry=TelemetryConfig(
            logging=LoggingConfig(filter=TelemetryFilter(core_level="WARN", other_level="ERROR"), forwarding=forwarding),
            metrics=PrometheusConfig(bind_address=metrics_address) if metrics_address else None,
        )
    )


def address() -> tuple[str, str]:
    """Return target and namespace that the connection settings name, for messages."""
    config = ClientConfig.load_client_connect_config()
    return config.get("target_host") or "localhost:7233", config.get("namespace") or "default"


async def connect(
    role: str = "cli", metrics_address: str = "", codec: CodecSettings | None = None, *, at_first_use: bool = False
) -> Client:
    """Connect as the `temporal` CLI would (TEMPORAL_* variables, temporal.toml), with the settings' encryption.

    With `at_first_use` no server need answer yet: each call fails until one does. Raises TemporalAway, saying where it looked,
    and BadInput when the keys cannot be used.
    """
    plugin = PLUGIN
    if codec is not None and codec.enabled:
        from workers.codec.codec import EncryptionCodec

        plugin = plugin_of(encrypting(EncryptionCodec(codec.keys_file)))
    try:
        config = ClientConfig.load_client_connect_config()
    except (RuntimeError, ValueError) as error:
        raise TemporalAway(f"the Temporal connection settings are wrong: {error}; see `temporal config list`") from error
    config.setdefault("target_host", "localhost:7233")
    try:
        return await Client.connect(
            **config,
            plugins=[plugin],
            lazy=at_first_use,
            runtime=runtime(metrics_address),
            identity=f"hotspare-{role}@{socket.gethostname()}:{os.getpid()}",
        )
    except (RuntimeError, RPCError) as error:
        raise TemporalAway(
            f"no Temporal server answers at {config['target_host']}: {error}; "
            "set TEMPORAL_ADDRESS or a profile of `temporal config`, or start one with `temporal server start-dev`"
        ) from error


RPC_TIMEOUT = timedelta(seconds=10)
"""One question to the server from the command line. Hotspare default."""
