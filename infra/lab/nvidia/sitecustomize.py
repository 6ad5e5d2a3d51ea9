"""Puts the lab's fake driver under every Python that runs on a lab node: pynvml's own code loads it instead of libnvidia-ml.

No driver is imported until a program imports ctypes, so that other programs start as quickly as ever. `os.statvfs` tells of
the node's disks.
"""

import sys
from typing import Any

from lab_disks import replace_statvfs  # type: ignore[import-not-found]


class _CtypesFinder:
    """Finds ctypes once, and replaces its loader of shared libraries."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name != "ctypes":
            return None
        sys.meta_path.remove(self)
        import importlib.util

        spec: Any = importlib.util.find_spec("ctypes")
        load = spec.loader.exec_module

        def load_and_replace(module: Any) -> None:
            load(module)
            _replace_loader(module)

        spec.loader.exec_module = load_and_replace
        return spec


def _replace_loader(ctypes: Any) -> None:
    class CDLL(ctypes.CDLL):  # type: ignore[misc]
        """Loads shared libraries; asked for NVML, it gives the lab's."""

        def __new__(cls, name: Any = None, *args: Any, **kwargs: Any) -> Any:
            if name == "libnvidia-ml.so.1":
                import lab_nvml  # type: ignore[import-not-found]

                return lab_nvml.load()
            return super().__new__(cls)

    ctypes.CDLL = CDLL


sys.meta_path.insert(0, _CtypesFinder())
replace_statvfs()
