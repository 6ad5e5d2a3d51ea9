"""Regenerates docs/settings.md: `python -m workers.settings_doc`."""

from __future__ import annotations

from pathlib import Path

from workers.settings_text import page

PAGE = Path(__file__).resolve().parent.parent / "docs" / "settings.md"

if __name__ == "__main__":
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(page(), encoding="utf-8")
    print(PAGE)
