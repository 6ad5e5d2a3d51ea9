"""`hotspare codec-key` and `codec-server`: keys for encrypted payloads, and the server through which people read them."""

from __future__ import annotations

import asyncio
import signal

import typer

from workers.cli.common import ConfigOption, JsonOption, VerboseOption, answering, log_to_stderr, run_async
from workers.settings import Settings, load_settings


def add_to(app: typer.Typer) -> None:
    """Add the commands."""
    app.command(name="codec-key")(codec_key)
    app.command(name="codec-server")(codec_server)


def codec_key(config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """Add a new encryption key to codec.keys_file. Processes use it once they are started again; all can read it at once."""
    from workers.codec.keys import add_key, read_keys

    with answering(as_json) as answer:
        settings = load_settings(config).codec
        key_id = add_key(settings.keys_file)
        kept = len(read_keys(settings.keys_file))
        answer.document({"key": key_id, "file": settings.keys_file, "keys": kept})
        answer.say(f"key {key_id} added to {settings.keys_file}, which has {kept} now")
        answer.say("next: copy the file to every machine that runs Hotspare, then start the processes again, one after the other")
        if not settings.enabled:
            answer.say("nothing is encrypted yet: set codec.enabled = true")


def codec_server(config: ConfigOption = None, as_json: JsonOption = False, verbose: VerboseOption = False) -> None:
    """Decrypt payloads for the Temporal UI and the `temporal` command, for whoever shows the token in codec.token_file."""
    with answering(as_json):
        log_to_stderr(verbose)
        run_async(_serve(load_settings(config), as_json))


async def _serve(settings: Settings, as_json: bool) -> None:
    from workers.cli.processes import Announce
    from workers.codec.codec import EncryptionCodec
    from workers.codec.server import CodecServer
    from workers.http_server import bind, serve_app
    from workers.intake.token import TokenFile, write_token

    codec = settings.codec
    write_token(codec.token_file)
    token = TokenFile(codec.token_file)
    token.check_usable()
    server = CodecServer(EncryptionCodec(codec.keys_file), token, codec)
    listening = bind(codec.host, codec.port, "codec server", "codec")
    stop = asyncio.Event()
    for wanted in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(wanted, stop.set)
    announce = Announce(as_json)
    try:
        await serve_app(server.app(), listening, stop, lambda url: announce("codec-server", f"listening on {url}", url=url))
    finally:
        listening.close()
