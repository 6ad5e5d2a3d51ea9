"""Host keys are read from a console as real instances print it, and never from what is not a whole key."""

from __future__ import annotations

import asyncssh
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from activities.clients.host_keys import BEGIN, END, HostKey, keys_on_console
from tests.activities.loopback_node import public_words

KEYS = [
    HostKey(*public_words(asyncssh.generate_private_key(kind)).split())
    for kind in ("ssh-ed25519", "ecdsa-sha2-nistp256", "ecdsa-sha2-nistp521", "ssh-rsa")
]


def lines(*keys: HostKey) -> list[str]:
    """A block as cloud-init prints it."""
    return [BEGIN, *(f"{key.kind} {key.blob} root@ip-10-0-0-12" for key in keys), END]


def test_keys_of_every_type_are_found_with_the_fingerprint_that_openssh_shows() -> None:
    found = keys_on_console("\n".join(["Ubuntu 22.04.5 LTS ttyS0", *lines(*KEYS), "login:"]))
    assert found == tuple(KEYS)
    for key in found:
        assert key.fingerprint == asyncssh.import_public_key(f"{key.kind} {key.blob}").get_fingerprint()


@pytest.mark.parametrize("prefix", ["[   12.345678] cloud-init[1234]: ", "ci-info: ", "ec2: ", "<14>Nov 29 22:40:01 ec2: "])
def test_what_cloud_init_or_the_kernel_puts_in_front_of_a_line_does_not_matter(prefix: str) -> None:
    assert keys_on_console("\r\n".join(prefix + line for line in lines(*KEYS))) == tuple(KEYS)


def test_a_line_of_another_program_within_the_block_does_not_matter() -> None:
    begin, key, end = lines(KEYS[0])
    assert keys_on_console("\n".join([begin, "[   13.1] nvidia 0000:59:00.0: enabling device", key, end])) == (KEYS[0],)


def test_a_key_that_another_program_printed_into_is_left_out_and_the_others_are_found() -> None:
    begin, first, second, end = lines(KEYS[0], KEYS[3])
    broken = second[:60] + "[   13.1] random: crng init done" + second[60:]
    assert keys_on_console("\n".join([begin, broken, first, end])) == (KEYS[0],)


@pytest.mark.parametrize("left", [40, 100, 200])
def test_a_key_that_is_cut_off_is_no_key(left: int) -> None:
    begin, rsa, end = lines(KEYS[3])
    assert keys_on_console("\n".join([begin, rsa[:left], end])) == ()


def test_of_two_blocks_the_newest_counts() -> None:
    assert keys_on_console("\n".join([*lines(KEYS[0]), "reboot", *lines(KEYS[1])])) == (KEYS[1],)


def test_a_block_that_is_still_being_printed_or_has_lost_its_begin_does_not_count() -> None:
    begin, key, end = lines(KEYS[0])
    assert keys_on_console("\n".join([begin, key])) == ()
    assert keys_on_console("\n".join([key, end])) == ()
    assert keys_on_console("\n".join([*lines(KEYS[1]), "reboot", begin, key])) == (KEYS[1],)


def test_a_key_whose_type_is_not_the_one_that_it_names_is_no_key() -> None:
    assert keys_on_console("\n".join(lines(HostKey("ssh-rsa", KEYS[0].blob)))) == ()


def test_a_key_outside_of_the_block_does_not_count() -> None:
    assert keys_on_console(f"{KEYS[0].kind} {KEYS[0].blob}\n" + "\n".join(lines())) == ()


@settings(deadline=None, derandomize=True, max_examples=200)
@given(st.lists(st.one_of(st.text(max_size=80), st.sampled_from([line for key in KEYS for line in lines(key)])), max_size=12))
def test_whatever_is_on_a_console_only_whole_keys_come_out(printed: list[str]) -> None:
    assert set(keys_on_console("\n".join(printed))) <= set(KEYS)
