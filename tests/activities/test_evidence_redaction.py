"""What may be stored: secrets are gone, boards are told apart by marks, and everything else stays as it was."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from activities.evidence_redaction import Redactor

SECRET = "S3cr3tValue0123456789"


def cleaned(text: str) -> str:
    return Redactor(b"key").clean(text).text


@pytest.mark.parametrize(
    "line",
    [
        f"AWS_SECRET_ACCESS_KEY={SECRET}",
        f"export HF_TOKEN='{SECRET}'",
        f'{{"SecretAccessKey": "{SECRET}", "Code": "Success"}}',
        f"wandb_api_key: {SECRET}",
        f"python train.py --wandb-token {SECRET} --lr 0.1",
        f"python train.py --password={SECRET}",
        f"Authorization: Bearer {SECRET}",
        f"curl -H 'authorization: Basic {SECRET}' https://host/",
        f"curl -u me:{SECRET} https://host/",
        f"sent with bearer {SECRET}",
        f"PGPASSWORD={SECRET};{SECRET}}}{SECRET}",
        f"password => '{SECRET}', token:={SECRET}",
        f'secret = "it\'s {SECRET}"',
        json.dumps({"line": json.dumps({"token": SECRET, "password": f"a {SECRET}"})}),
        json.dumps({"line": json.dumps(f'authorization="Bearer {SECRET}" secret="x{SECRET}"')}),
        f"sshpass -p {SECRET} ssh node",
        f"mysql -h db -p{SECRET} jobs",
        f"docker login -u me -p {SECRET} registry",
        f"machine api.wandb.ai login user password {SECRET}",
        f"https://me:{SECRET}@github.com/x.git",
        f"https://bucket.s3.amazonaws.com/x?X-Amz-Signature={SECRET}&x=1",
        f"https://account.blob.core.windows.net/x?sv=1&sig={SECRET}",
        f"posting to https://hooks.slack.com/services/T000/B000/{SECRET}",
        f"posting to https://events.pagerduty.com/integration/{SECRET}/enqueue",
        f"Cookie: session={SECRET}",
        f"ghp_{SECRET}0123456789 and glpat-{SECRET}",
        f"nvapi-{SECRET}abc sk-{SECRET}",
        f"eyJhbGciOiJIUzI1NiJ9.eyJzdWIi{SECRET}.abc",
        f"-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXktdjE{SECRET}\n-----END OPENSSH PRIVATE KEY-----",
        f'{{"key": "-----BEGIN PRIVATE KEY-----\\nMIIE{SECRET}\\n-----END PRIVATE KEY-----\\n"}}',
    ],
)
def test_a_secret_is_gone_whatever_gives_it_away(line: str) -> None:
    text = f"before\n{line}\nafter\n"
    assert SECRET not in cleaned(text)
    assert cleaned(text).startswith("before\n")
    assert cleaned(text).endswith("after\n")


def test_a_private_key_is_gone_even_if_its_beginning_or_its_end_was_cut_off() -> None:
    assert SECRET not in cleaned(f"{SECRET}AAAA\nBBBB\n-----END RSA PRIVATE KEY-----\nafter\n")
    assert SECRET not in cleaned(f"before\n-----BEGIN RSA PRIVATE KEY-----\nMIIB{SECRET}\n")


def test_a_secret_key_of_aws_is_gone_even_without_a_name_where_its_id_stands_beside_it() -> None:
    text = cleaned("AKIAIOSFODNN7EXAMPLE,wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY,us-east-1\n")
    assert text == "[redacted],[redacted],us-east-1\n"


@pytest.mark.parametrize(
    "line",
    [
        "[   12.345678] NVRM: Xid (PCI:0000:53:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
        "max_tokens: 4096 tokens per second: 12000 tokenizer=llama num_token=77",
        "[    0.000000] Key type dns_resolver registered",
        "module verification failed: signature and/or required key missing - tainting kernel",
        "Serial: 8250/16550 driver, 4 ports, IRQ sharing enabled",
        "usb 1-1: New USB device strings: Mfr=3, Product=2, SerialNumber=1",
        "GPU 00000000:53:00.0 GPU-1f2e3d4c-0000-1111-2222-333344445555",
        "Serial Number                         : N/A",
        "NCCL INFO NET/OFI Selected provider is efa, fabric is efa-direct (found 32 nics)",
        '{"run_token": "incident/lab/i-1/run/3", "token": "", "password": \'\'}',
        "commit 3f786850e387550fdab836ed7e6dc881de23001b",
    ],
)
def test_what_is_no_secret_stays(line: str) -> None:
    assert cleaned(line) == line


@pytest.mark.parametrize(
    "line",
    [
        "[    5.0] NVRM: GPU Board Serial Number: {}",
        "    Serial Number                         : {}",
        '{{"index": 3, "serial": "{}", "pci": "0000:53:00.0"}}',
        '{{"gpu_serials": ["{}"]}}',
        "<serial>{}</serial>",
        "Chassis Serial Number: {}",
        "serial={}",
    ],
)
def test_a_serial_number_becomes_the_mark_of_its_board_wherever_it_stands(line: str) -> None:
    redactor = Redactor(b"key")
    said = redactor.clean(line.format("1650123456789") + "\nlisted: 1650123456789, 16501234567890\n")
    assert "1650123456789," not in said.text
    assert said.text.count(redactor.board("1650123456789")) == said.serials == 2
    assert "16501234567890" in said.text


def test_a_mark_depends_on_the_board_and_on_the_key_alone() -> None:
    one, other = Redactor(b"one"), Redactor(b"other")
    assert one.board("1650123456789") == Redactor(b"one").board("1650123456789")
    assert len({one.board("1650123456789"), one.board("1650123456780"), other.board("1650123456789")}) == 3


def test_a_serial_that_is_learned_late_is_marked_in_what_was_clean_before() -> None:
    redactor = Redactor(b"key")
    early = redactor.clean("row 1650123456789\n").text
    redactor.clean("Serial Number: 1650123456789\n")
    assert redactor.mark(early).text == f"row {redactor.board('1650123456789')}\n"


@pytest.mark.parametrize("indent", [None, 1])
def test_json_stays_json(indent: int | None) -> None:
    inner = {
        "token": "abc",
        "secret": 'a "quoted" \\ one',
        "authorization": "Bearer abcdefghijk",
        "password": 12345,
        "cookie": "a=b",
    }
    lines = ['env token="abc" x', "password=abc\nnext line", "api_key: a\\b", "https://u:p@h/", json.dumps(inner)]
    document = {**inner, "nested": {"password": "x y", "serial": "1650123456789"}, "list": [*lines, json.dumps(lines)], "n": 3}
    read = json.loads(cleaned(json.dumps(document, indent=indent)).replace(": [redacted]", ": 0"))
    assert read["n"] == 3
    assert len(read["list"]) == len(lines) + 1
    assert "next line" not in read["token"]


def test_a_long_report_is_cleaned_across_its_pieces() -> None:
    filler = "an ordinary line of some report\n" * 20_000
    text = f"{filler}token={SECRET}\n{filler}-----BEGIN EC PRIVATE KEY-----\n{SECRET}\n-----END EC PRIVATE KEY-----\n{filler}"
    said = Redactor(b"key").clean(text)
    assert SECRET not in said.text
    assert said.secrets == 2
    assert said.text.count("an ordinary line") == 60_000


@given(st.text(alphabet="ab:=\"' \n-tokenpsw[redacted]Bearer.,{}0123456789AKIA/@", max_size=200) | st.text())
@settings(max_examples=300)
def test_cleaning_never_fails_and_twice_is_as_once(text: str) -> None:
    once = cleaned(text)
    assert cleaned(once) == once


@given(
    st.from_regex(r"[A-Za-z_]{0,10}(password|token|secret)_?[A-Za-z]{0,5}", fullmatch=True).filter(
        lambda name: "tokens" not in name
    ),
    st.sampled_from(["=", ": ", '": "', "='"]),
    st.from_regex(r"[A-Za-z][A-Za-z0-9]{8,20}", fullmatch=True),
)
def test_what_a_secret_was_set_to_is_gone(name: str, joint: str, value: str) -> None:
    if "tokeniz" not in name.lower() and "tokens" not in name.lower():
        assert value not in cleaned(f'x "{name}{joint}{value}"').replace(name, "")
