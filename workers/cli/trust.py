"""`hotspare trust NODE`: learns a node's SSH host keys over AWS, so that nobody has to believe the network."""

from __future__ import annotations

from dataclasses import asdict

import typer
from rich.text import Text

from workers.cli.common import ConfigOption, JsonOption, NodeArgument, answering
from workers.settings import load_settings
from workers.wiring import Wiring


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(trust)


def trust(node: NodeArgument, config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """Take NODE's SSH host keys from its EC2 console and write them where SSH looks for them. Replaces no known key."""
    with answering(as_json) as answer:
        settings = load_settings(config)
        wiring = Wiring(settings)
        try:
            found = wiring.inventory.resolve(settings.name, node)
            trusted = wiring.host_keys.trust(found)
        finally:
            wiring.close()
        keys = [{"type": key.kind, "fingerprint": key.fingerprint, "added": key in trusted.added} for key in trusted.keys]
        answer.document({"node": found, **asdict(trusted), "keys": keys, "added": len(trusted.added)})
        answer.say(Text(f"{found.name}: {trusted.host} in {trusted.file}, from the {trusted.source}", style="bold"))
        for key in trusted.keys:
            answer.say(f"  {key}  {'added' if key in trusted.added else 'known before'}")
