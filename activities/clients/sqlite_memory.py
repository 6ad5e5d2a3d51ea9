"""Host memory in one SQLite file, safe for several threads and processes on one machine.

Every call opens its own connection: calls are rare, and a connection must not wander between threads or over a fork.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC
from pathlib import Path
from typing import Literal

from activities.bandwidth_records import BandwidthRecord
from activities.errors import PreconditionFailed, ProviderBusy
from activities.gpu_records import GpuRecord
from activities.host_memory import ClosedIncident, Freeze, Freezes, HostRecord, SeenConfiguration

BUSY_S = 10.0
"""Seconds to wait for another writer. Hotspare default: a write takes milliseconds."""

KEPT_INTENT_DAYS = 30
"""Days that the token of an effect is kept. Hotspare default: longer than any incident waits for a person."""

KEPT_BANDWIDTH_DAYS = 400
"""Days that clean runs are kept after the last of their kind. Hotspare default: a year; software is renewed sooner."""

_SCHEMA = """
CREATE TABLE IF NOT EXISTS hosts (instance_id TEXT PRIMARY KEY, version INTEGER NOT NULL, record TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS gpus (serial TEXT PRIMARY KEY, version INTEGER NOT NULL, record TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS bandwidths (key TEXT PRIMARY KEY, version INTEGER NOT NULL, record TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS incidents (
    incident TEXT NOT NULL, run_id TEXT NOT NULL, instance_id TEXT NOT NULL, closed_at TEXT NOT NULL, closed TEXT NOT NULL,
    PRIMARY KEY (incident, run_id)
);
CREATE INDEX IF NOT EXISTS incidents_by_host ON incidents (instance_id, closed_at);
CREATE TABLE IF NOT EXISTS configurations (instance_id TEXT PRIMARY KEY, seen TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS freezes (cluster TEXT PRIMARY KEY, freezes TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS intents (
    token TEXT PRIMARY KEY, what TEXT NOT NULL, noted_at TEXT NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now'))
);
"""


class SqliteMemory:
    """`HostMemory` in a file. The folder is made when it does not exist."""

    def __init__(self, file: Path) -> None:
        self._file = file.expanduser()
        self._file.parent.mkdir(parents=True, exist_ok=True)
        with self._open() as database:
            database.execute("PRAGMA journal_mode=WAL")
            database.executescript(_SCHEMA)

    def note_intent(self, token: str, what: str) -> bool:
        with self._open() as database:
            database.execute("DELETE FROM intents WHERE noted_at < datetime('now', ?)", (f"-{KEPT_INTENT_DAYS} days",))
            added = database.execute("INSERT OR IGNORE INTO intents (token, what) VALUES (?, ?)", (token, what))
            return added.rowcount == 1

    def intent_age_s(self, token: str) -> float | None:
        sql = "SELECT (julianday('now') - julianday(noted_at)) * 86400 FROM intents WHERE token = ?"
        with self._open() as database:
            row = database.execute(sql, (token,)).fetchone()
        return max(0.0, float(row[0])) if row else None

    def withdraw_intent(self, token: str) -> None:
        with self._open() as database:
            database.execute("DELETE FROM intents WHERE token = ?", (token,))

    def recall(self, instance_id: str) -> HostRecord:
        with self._open() as database:
            row = database.execute("SELECT version, record FROM hosts WHERE instance_id = ?", (instance_id,)).fetchone()
        return _record(row) if row else HostRecord(instance_id=instance_id)

    def save(self, record: HostRecord) -> HostRecord:
        saved = record.model_copy(update={"version": record.version + 1})
        self._put("hosts", record.instance_id, saved.version, saved.model_dump_json())
        return saved

    def gpus(self, serials: Sequence[str] | None = None) -> list[GpuRecord]:
        wanted = None if serials is None else json.dumps(list(serials))
        sql = "SELECT version, record FROM gpus WHERE ?1 IS NULL OR serial IN (SELECT value FROM json_each(?1)) ORDER BY serial"
        with self._open() as database:
            rows = database.execute(sql, (wanted,)).fetchall()
        return [GpuRecord.model_validate_json(text).model_copy(update={"version": version}) for version, text in rows]

    def save_gpu(self, record: GpuRecord) -> GpuRecord:
        saved = record.model_copy(update={"version": record.version + 1})
        self._put("gpus", record.serial, saved.version, saved.model_dump_json())
        return saved

    def bandwidths(self, keys: Sequence[str] | None = None) -> list[BandwidthRecord]:
        wanted = None if keys is None else json.dumps(list(keys))
        sql = "SELECT version, record FROM bandwidths WHERE ?1 IS NULL OR key IN (SELECT value FROM json_each(?1)) ORDER BY key"
        with self._open() as database:
            rows = database.execute(sql, (wanted,)).fetchall()
        return [BandwidthRecord.model_validate_json(text).model_copy(update={"version": version}) for version, text in rows]

    def save_bandwidth(self, record: BandwidthRecord) -> BandwidthRecord:
        saved = record.model_copy(update={"version": record.version + 1})
        self._put("bandwidths", record.key, saved.version, saved.model_dump_json())
        old = "DELETE FROM bandwidths WHERE julianday(json_extract(record, '$.runs[#-1].at')) < julianday('now', ?)"
        with self._open() as database:
            database.execute(old, (f"-{KEPT_BANDWIDTH_DAYS} days",))
        return saved

    def _put(self, table: Literal["hosts", "gpus", "bandwidths"], key: str, version: int, text: str) -> None:
        """Write a record in place of the version before it, the first where there is none."""
        known_by = {"hosts": "instance_id", "gpus": "serial", "bandwidths": "key"}[table]
        if version == 1:
            sql = f"INSERT OR IGNORE INTO {table} VALUES (?1, ?2, ?3)"
        else:
            sql = f"UPDATE {table} SET version = ?2, record = ?3 WHERE {known_by} = ?1 AND version = ?2 - 1"
        with self._open() as database:
            if database.execute(sql, (key, version, text)).rowcount != 1:
                raise PreconditionFailed(f"host memory: {key} was changed by somebody else")

    def records(self) -> list[HostRecord]:
        with self._open() as database:
            rows = database.execute("SELECT version, record FROM hosts ORDER BY instance_id").fetchall()
        return [_record(row) for row in rows]

    def save_incident(self, closed: ClosedIncident) -> None:
        row = (
            closed.incident,
            closed.run_id,
            closed.instance_id,
            closed.closed_at.astimezone(UTC).isoformat(),
            closed.model_dump_json(),
        )
        with self._open() as database:
            database.execute("INSERT OR REPLACE INTO incidents VALUES (?, ?, ?, ?, ?)", row)

    def incidents(self, instance_id: str = "", limit: int = 100) -> list[ClosedIncident]:
        sql = "SELECT closed FROM incidents WHERE ?1 IN ('', instance_id) ORDER BY closed_at DESC LIMIT ?2"
        with self._open() as database:
            rows = database.execute(sql, (instance_id, limit)).fetchall()
        return [ClosedIncident.model_validate_json(row[0]) for row in rows]

    def configurations(self, instance_ids: Sequence[str]) -> list[SeenConfiguration]:
        wanted = json.dumps(list(instance_ids))
        sql = "SELECT seen FROM configurations WHERE instance_id IN (SELECT value FROM json_each(?)) ORDER BY instance_id"
        with self._open() as database:
            rows = database.execute(sql, (wanted,)).fetchall()
        return [SeenConfiguration.model_validate_json(row[0]) for row in rows]

    def save_configuration(self, seen: SeenConfiguration) -> None:
        with self._open() as database:
            database.execute("INSERT OR REPLACE INTO configurations VALUES (?, ?)", (seen.instance_id, seen.model_dump_json()))

    def freezes(self, cluster: str) -> list[Freeze]:
        with self._open() as database:
            row = database.execute("SELECT freezes FROM freezes WHERE cluster = ?", (cluster,)).fetchone()
        return Freezes.model_validate_json(row[0]).freezes if row else []

    def save_freezes(self, cluster: str, freezes: list[Freeze]) -> None:
        text = Freezes(freezes=freezes).model_dump_json()
        with self._open() as database:
            database.execute("INSERT OR REPLACE INTO freezes VALUES (?, ?)", (cluster, text))

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        """One connection for one transaction; committed when the block ends well, rolled back when it raises."""
        try:
            database = sqlite3.connect(self._file, timeout=BUSY_S)
            try:
                with database:
                    yield database
            finally:
                database.close()
        except sqlite3.OperationalError as error:
            raise ProviderBusy(f"host memory {self._file}: {error}; is the disk full, or the file read-only?") from error


def _record(row: tuple[int, str]) -> HostRecord:
    return HostRecord.model_validate_json(row[1]).model_copy(update={"version": row[0]})
