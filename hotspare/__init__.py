"""The one package that an installation of Hotspare adds to Python: every folder of the tree lives under it in a wheel.

The tree's folders import each other by their plain names (`from checks.model import ...`), and `workflows` is a name that other
distributions install too. So nothing of Hotspare is installed at the top level: a wheel holds `hotspare/workflows` and so on, and
`hotspare.workers.launch` puts the folder that holds them at the front of `sys.path` before anything else is imported.
"""

from __future__ import annotations

from pathlib import Path

_here = Path(__file__).resolve().parent
if not (_here / "workers").is_dir():
    # An editable install: the folders stand beside this one, not inside it. The console script finds them under the same names.
    __path__.append(str(_here.parent))
