"""Fresh environments with Hotspare installed the two ways people install it, each beside a foreign package named `workflows`."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

TREE = Path(__file__).resolve().parents[2]


def run(*command: str | Path, folder: Path) -> str:
    """Run `command` in `folder` with a clean Python environment; its standard output, or an error with all it said."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run([str(part) for part in command], cwd=folder, env=clean, text=True, capture_output=True, check=False)
    if done.returncode != 0:
        raise AssertionError(f"{command} ended with {done.returncode}\n{done.stdout}\n{done.stderr}")
    return done.stdout


class Installation:
    """A virtual environment in `folder` that sees this environment's third-party packages and holds a foreign `workflows`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        venv.create(folder / "venv", with_pip=False)
        self.bin = folder / "venv" / "bin"
        self.site_packages = Path(self.python("import sysconfig; print(sysconfig.get_path('purelib'))").strip())
        # A .pth file found through another one is not followed, so this environment's own editable install stays out.
        (self.site_packages / "third_party.pth").write_text(sysconfig.get_path("purelib") + "\n")
        foreign = self.site_packages / "workflows"
        foreign.mkdir()
        (foreign / "__init__.py").write_text("OWNER = 'another distribution'\n")

    def python(self, code: str) -> str:
        """Run `code` in the environment, from a folder that is not the tree."""
        return run(self.bin / "python", "-c", code, folder=self.folder)

    def hotspare(self, *arguments: str) -> str:
        """Run the installed command, from a folder that is not the tree."""
        return run(self.bin / "hotspare", *arguments, folder=self.folder)

    def install(self, *what: str | Path) -> None:
        """Install with pip, without its dependencies and without asking an index."""
        pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", self.bin / "python", "install", "--quiet")
        run(*pip, "--no-deps", "--no-index", "--no-build-isolation", *what, folder=self.folder)


def build_wheel(folder: Path, tree: Path = TREE) -> Path:
    """Build the wheel of the tree into `folder`."""
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder, tree, folder=folder)
    (wheel,) = folder.glob("hotspare-*.whl")
    return wheel
