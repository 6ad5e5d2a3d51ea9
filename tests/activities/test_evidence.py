"""Evidence bundles: bounded in size and time, free of secrets, whole or not there."""

from __future__ import annotations

import random
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from activities.clients.fake_fleet import FakeFleet
from activities.evidence import Gathered, bundle_name, gather, read_bundle, redact, write_bundle


def test_a_bundle_that_would_be_too_large_keeps_the_ends_of_its_largest_items(tmp_path: Path) -> None:
    noise = "".join(random.Random(1).choices("abcdefghijklmnopqrstuvwxyz\n", k=400_000))
    gathered = Gathered({"dmesg.txt": noise + "the last line", "uptime.txt": "up"}, [])
    bundle = write_bundle(gathered, tmp_path / "b.tar.gz", limit_bytes=100_000)
    assert bundle.size_bytes <= 100_000
    assert bundle.items == ["dmesg.txt", "uptime.txt"]
    assert any("dmesg.txt: shortened" in line for line in bundle.missing)
    assert read_bundle(bundle.path) == bundle
    assert [file.name for file in tmp_path.iterdir()] == ["b.tar.gz"]


def test_items_for_which_no_time_is_left_are_named(fleet: FakeFleet) -> None:
    access = fleet.access_to(fleet.node("node-1"))
    gathered = gather(access, lambda: "{}", [], no_nvml=False, deadline_s=0.0, clock=fleet.clock)
    assert list(gathered.files) == ["probe.json"]
    assert "dmesg.txt: no time left of 0 s" in gathered.missing


def test_names_of_bundles_are_safe_and_differ_by_token() -> None:
    first = bundle_name("incident/../lab/i-1", "t1")
    assert "/" not in first
    assert first != bundle_name("incident/../lab/i-1", "t2")


def test_a_private_key_is_taken_out_even_if_its_end_is_cut_off() -> None:
    assert "MIIB" not in redact("before\n-----BEGIN RSA PRIVATE KEY-----\nMIIBOgIBAAJBAK\n")


@given(st.text())
def test_taking_secrets_out_never_fails_and_twice_is_as_once(text: str) -> None:
    once = redact(text)
    assert redact(once) == once


@given(st.from_regex(r"[A-Za-z_]*(password|token|secret)[A-Za-z_]*=[A-Za-z0-9]{8,20}", fullmatch=True))
def test_what_a_secret_was_set_to_is_gone(pair: str) -> None:
    assert pair.split("=", 1)[1] not in redact(f"x {pair} y").split()
