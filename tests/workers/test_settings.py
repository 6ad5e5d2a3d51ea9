"""The settings file: what is right is read, what is wrong is named with file, key and the nearest right word."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from checks.model import Action
from workers.cli import init
from workers.settings import CONFIG_VARIABLE, Settings, SettingsError, find_config, load_settings, parse_settings
from workers.settings_doc import PAGE
from workers.settings_text import commented_file, page, toml_value
from workflows.decisions.settings import DEFAULT_LADDERS, Mode

FILE = Path("/etc/x/hotspare.toml")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("[policy.ladders]\ngpu_lsot = []", "policy.ladders.gpu_lsot: unknown fault class; did you mean gpu_lost?"),
        ("[polcy]", "polcy: unknown key; did you mean policy"),
        ("[policy]\nmod = 'act'", "policy.mod: unknown key; did you mean mode"),
        ("[intake.mapping]\nnod = ['x']", "intake.mapping.nod: unknown key; did you mean node?"),
        ("[[inventory.nodes]]\ninstance_id='i'\nname='n'\nhots='h'", "inventory.nodes.0.hots: unknown key; did you mean host?"),
        ("[intake]\nport = 'x'", "intake.port: input should be a valid integer"),
        ("[policy]\nmode = 'atc'", "policy.mode: input should be 'observe', 'approve' or 'act' (got 'atc')"),
        ("[policy.ladders_by_code]\n79 = []", 'policy.ladders_by_code."79": not a code; write "xid:79"'),
        ("[parity]\nignored = ['kernal']", "parity.ignored: nothing of this name is compared; did you mean kernel?"),
        (
            '[parity.golden."*"]\ndriwer = "580"',
            'parity.golden."*".driwer: nothing of this name is compared; did you mean driver',
        ),
        ("[burn_in.floors_gbs]\np5 = 300.0", 'burn_in.floors_gbs."p5": not a floor; write "p5.48xlarge/2"'),
        ("[job]\nadapter = 'command'\nhead = 'head'", 'job.find: needed for job.adapter = "command"'),
        ("[cluster]\nname = 'a/b'", "cluster.name: string should match pattern"),
        ("[checks.thresholds]\nnvml_deadlin_s = 3.0", "checks.thresholds: "),
        ("file = 'x'", "file: unknown key"),
    ],
)
def test_a_mistake_is_named_with_file_and_key(text: str, complaint: str) -> None:
    with pytest.raises(SettingsError) as caught:
        parse_settings(tomllib.loads(text), FILE)
    assert f"{FILE}: {complaint}" in str(caught.value)


def test_every_mistake_is_named_at_once() -> None:
    with pytest.raises(SettingsError) as caught:
        parse_settings(tomllib.loads("[intake]\nport = 'x'\nhots = 1\n[sweep]\ninterval = 3"), FILE)
    assert len(str(caught.value).splitlines()) == 3


def test_a_wrong_webhook_address_is_not_repeated_in_the_error() -> None:
    with pytest.raises(SettingsError) as caught:
        parse_settings({"notify": {"urls": [["https://hooks.example/SECRET"]]}}, FILE)
    assert "notify.urls" in str(caught.value)
    assert "SECRET" not in str(caught.value)


def test_an_empty_file_gives_the_defaults_and_a_new_cluster_only_observes() -> None:
    settings = parse_settings({}, FILE)
    assert settings.policy.mode is Mode.OBSERVE
    assert settings.policy.ladders == DEFAULT_LADDERS


def test_a_ladder_in_the_file_replaces_only_the_ladder_of_its_class() -> None:
    settings = parse_settings({"policy": {"ladders": {"gpu_lost": ["REPLACE_NODE"]}}}, FILE)
    assert settings.policy.ladders == {**DEFAULT_LADDERS, "gpu_lost": [Action.REPLACE_NODE]}


def test_relative_paths_are_relative_to_the_file_and_tilde_is_home() -> None:
    settings = parse_settings({"store": {"host_memory": "state/m.sqlite3"}, "intake": {"token_file": "/run/t"}}, FILE)
    assert settings.store.host_memory == FILE.parent / "state/m.sqlite3"
    assert settings.store.evidence_dir == FILE.parent / "evidence"
    assert settings.intake.token_file == Path("/run/t")
    assert settings.access.ssh_config == Path.home() / ".ssh/config"


def test_the_file_is_looked_for_in_the_documented_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(CONFIG_VARIABLE, raising=False)
    with pytest.raises(SettingsError, match="hotspare init"):
        find_config()
    (tmp_path / "hotspare.toml").write_text("")
    assert find_config() == tmp_path / "hotspare.toml"
    named = tmp_path / "named.toml"
    monkeypatch.setenv(CONFIG_VARIABLE, str(named))
    with pytest.raises(SettingsError, match=CONFIG_VARIABLE):
        find_config()
    named.write_text("")
    assert find_config() == named
    given = tmp_path / "given.toml"
    given.write_text("")
    assert find_config(given) == given


@pytest.mark.parametrize("content", [b"[cluster\n", b"\xff\xfe"])
def test_a_file_that_is_no_toml_is_an_error_that_names_it(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "hotspare.toml"
    file.write_bytes(content)
    with pytest.raises(SettingsError, match=re.escape(str(file))):
        load_settings(file)


def test_the_commented_file_reads_as_the_defaults() -> None:
    text = commented_file({"cluster": {"name": "blue"}})
    assert parse_settings(tomllib.loads(text), FILE) == parse_settings({"cluster": {"name": "blue"}}, FILE)


def test_the_commented_file_still_reads_as_the_defaults_with_every_comment_taken_away() -> None:
    lines = [line[2:] if re.match(r"# [a-z_]+ = .", line) else line for line in commented_file({}).splitlines()]
    assert parse_settings(tomllib.loads("\n".join(lines)), FILE) == parse_settings({}, FILE)


def test_any_text_survives_being_written_as_toml() -> None:
    for text in ('a "quoted" word', "back\\slash", "new\nline", "ümlaut €", "\x7f", "tab\t"):
        assert tomllib.loads(f"x = {toml_value(text)}") == {"x": text}


def test_every_setting_says_what_it_means() -> None:
    silent = [
        f"{name}.{key}"
        for name, field in Settings.model_fields.items()
        if not field.exclude
        for key, inner in field.annotation.model_fields.items()  # type: ignore[union-attr]
        if not inner.description and not hasattr(inner.annotation, "model_fields")
    ]
    assert silent == []


def test_the_reference_page_is_current() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "type: python -m workers.settings_doc"


def test_init_asks_only_for_what_no_flag_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def answer(question: str, default: str, show_default: bool) -> str:
        asked.append(question)
        return default

    monkeypatch.setattr("typer.prompt", answer)
    given = {"cluster": "blue", "region": "", "ssh_config": "/etc/hotspare/ssh_config", "head": ""}
    settings = load_settings(init.write_settings(tmp_path / "state" / "hotspare.toml", given, ask=True))
    assert [question.split()[0] for question in asked] == ["AWS", "Head"]
    assert (settings.name, settings.access.ssh_config) == ("blue", Path("/etc/hotspare/ssh_config"))
    assert settings.policy.mode is Mode.OBSERVE


def test_a_folder_in_place_of_the_settings_file_is_said(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="is no file \\(named by --config\\)"):
        load_settings(tmp_path)
