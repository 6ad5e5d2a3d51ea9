"""Evidence bundles in a folder that only its owner can read."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from activities.errors import BadInput
from activities.evidence_store import ENDING, StoredBundle


class FolderEvidenceStore:
    """`EvidenceStore` in a folder, which is made when first needed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def keep(self, name: str, content: bytes) -> StoredBundle:
        try:
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._write(self._folder / name, content)
        except OSError as error:
            raise BadInput(
                f"evidence cannot be kept in {self._folder}: {error.strerror}; check store.evidence_dir and the space there"
            ) from error
        kept = self.find(name)
        assert kept is not None, "the file has just been linked"
        return kept

    def find(self, name: str) -> StoredBundle | None:
        file = self._folder / name
        try:
            return StoredBundle(file.absolute().as_uri(), file.read_bytes())
        except FileNotFoundError:
            return None
        except OSError as error:
            raise BadInput(f"{file}: cannot be read: {error.strerror}") from error

    def names(self, prefix: str) -> list[str]:
        try:
            with os.scandir(self._folder) as entries:
                found = [entry for entry in entries if entry.name.startswith(prefix) and entry.name.endswith(ENDING)]
                return [entry.name for entry in sorted(found, key=lambda entry: (entry.stat().st_mtime_ns, entry.name))]
        except FileNotFoundError:
            return []
        except OSError as error:
            raise BadInput(f"{self._folder}: cannot be read: {error.strerror}; only the worker's own user may") from error

    def _write(self, file: Path, content: bytes) -> None:
        """Write beside, then give it its name, unless another was quicker."""
        handle, beside = tempfile.mkstemp(dir=self._folder, prefix=f".{file.name[:60]}.")
        try:
            with os.fdopen(handle, "wb") as opened:
                opened.write(content)
                opened.flush()
                os.fsync(opened.fileno())
            os.link(beside, file)
        except FileExistsError:
            pass
        finally:
            os.unlink(beside)
