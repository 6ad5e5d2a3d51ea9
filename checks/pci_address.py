"""PCI bus ids in one spelling, so that kernel log, sysfs and NVML can be compared."""

from __future__ import annotations

import re

_ADDRESS = re.compile(r"^(?:PCI:)?([0-9a-f]{1,8}):([0-9a-f]{1,2}):([0-9a-f]{1,2})(?:\.[0-7])?$", re.IGNORECASE)


def canonical(address: str) -> str:
    """Return `dddd:bb:dd` in lower case, without function; text that is no PCI bus id comes back in lower case as it is.

    The driver's kernel lines have no function, sysfs has one, and NVML writes the domain with eight digits.
    """
    match = _ADDRESS.match(address.strip())
    if not match:
        return address.strip().lower()
    domain, bus, device = (int(part, 16) for part in match.groups())
    return f"{domain:04x}:{bus:02x}:{device:02x}"
