"""Parity: how a node is set up, compared with its peers or with a pinned set of values. Pure; reads nothing."""

from checks.parity.compare import Difference, Golden, Parity, compare, fits, own_differences
from checks.parity.configuration import FACTS, Configuration, Fact, configuration_from_json

__all__ = [
    "FACTS",
    "Configuration",
    "Difference",
    "Fact",
    "Golden",
    "Parity",
    "compare",
    "configuration_from_json",
    "fits",
    "own_differences",
]
