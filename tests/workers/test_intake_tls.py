"""The intake behind a certificate: agents and Alertmanager reach it over HTTPS, and a renewed certificate needs no restart."""

from __future__ import annotations

import asyncio
import socket
import ssl
import tomllib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from activities.errors import BadInput
from infra.lab.kube.certificates import Certificates
from tests.workers.test_intake_http import Door, message
from workers.intake.app import Intake
from workers.intake.server import bind, serve_intake, tls_of
from workers.intake.token import TokenFile, write_token
from workers.sections import IntakeSettings
from workers.settings import SettingsError, parse_settings


@pytest.fixture
async def door(tmp_path: Path) -> AsyncIterator[tuple[Door, Certificates]]:
    files = Certificates(tmp_path / "pki")
    files.make()
    write_token(tmp_path / "intake.token")
    door = Door(tmp_path / "intake.token", tls_cert=files.certificate, tls_key=files.key)
    stop, up = asyncio.Event(), asyncio.get_running_loop().create_future()
    listening = bind(door.settings)
    intake = Intake(door.delivery, TokenFile(door.token_file), door.settings, door.spool)
    serving = asyncio.ensure_future(serve_intake(intake, listening, stop, up.set_result, tls_of(door.settings)))
    door.url = await up
    yield door, files
    stop.set()
    await serving
    listening.close()


def trusting(files: Certificates) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(files.ca))


async def post(url: str, files: Certificates, token: str) -> httpx.Response:
    async with httpx.AsyncClient(verify=trusting(files)) as client:
        return await client.post(url, json=message(), headers={"Authorization": f"Bearer {token}"})


async def test_the_intake_is_reached_over_https_by_who_knows_its_authority(door: tuple[Door, Certificates]) -> None:
    running, files = door
    assert running.url.startswith("https://127.0.0.1:")
    assert (await post(running.url, files, running.token_file.read_text().strip())).status_code == 200
    async with httpx.AsyncClient() as stranger:
        with pytest.raises(httpx.ConnectError, match="certificate"):
            await stranger.get(running.url)


def serial(url: str, files: Certificates) -> int:
    """Serial number of the certificate that is shown."""
    host, port = url.removeprefix("https://").split("/")[0].split(":")
    with socket.create_connection((host, int(port))) as plain, trusting(files).wrap_socket(plain, server_hostname=host) as shown:
        certificate: Any = shown.getpeercert()
        return int(certificate["serialNumber"], 16)


async def test_a_renewed_certificate_is_shown_without_a_restart_and_a_broken_one_is_not(door: tuple[Door, Certificates]) -> None:
    running, files = door
    first = await asyncio.to_thread(serial, running.url, files)
    files.make()
    second = await asyncio.to_thread(serial, running.url, files)
    assert second != first
    files.certificate.write_text("half written")
    assert await asyncio.to_thread(serial, running.url, files) == second


def test_files_that_hold_no_certificate_are_named_before_anything_listens(tmp_path: Path) -> None:
    (tmp_path / "tls.crt").write_text("nothing")
    with pytest.raises(BadInput, match=r"tls\.crt"):
        tls_of(IntakeSettings(tls_cert=tmp_path / "tls.crt", tls_key=tmp_path / "tls.key"))


def test_a_certificate_without_its_key_is_a_mistake_in_the_settings(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="HTTPS needs both"):
        parse_settings(tomllib.loads('[intake]\ntls_cert = "tls.crt"'), tmp_path / "hotspare.toml")
    found = parse_settings(tomllib.loads('[intake]\ntls_cert = "tls.crt"\ntls_key = "tls.key"'), tmp_path / "hotspare.toml")
    assert found.intake.tls_cert == tmp_path / "tls.crt"
    assert parse_settings(tomllib.loads('[intake]\ntls_cert = ""'), tmp_path / "hotspare.toml").intake.tls_cert is None
