"""Says what is wrong with a node: weighs kernel events, readings and reports by fixed rules; tells storms from single faults.

It does nothing to any node; only `FleetLogs` reads, from streams that it is handed.
"""

from checks.diagnosis.candidates import assess_among
from checks.diagnosis.diagnose import diagnose
from checks.diagnosis.evidence import Current, current_events, describe
from checks.diagnosis.facts import Hardware, ReportedFault, Timing
from checks.diagnosis.fleet_logs import FleetLogs, Recommendation
from checks.diagnosis.history import History, PastFault, PastRepair, with_log
from checks.diagnosis.storm_question import NodeFault, StormAnswer, storm_around, worth_keeping
from checks.diagnosis.storms import Sighting, Storm, find_storms

__all__ = [
    "Current",
    "FleetLogs",
    "Hardware",
    "History",
    "NodeFault",
    "PastFault",
    "PastRepair",
    "Recommendation",
    "ReportedFault",
    "Sighting",
    "Storm",
    "StormAnswer",
    "Timing",
    "assess_among",
    "current_events",
    "describe",
    "diagnose",
    "find_storms",
    "storm_around",
    "with_log",
    "worth_keeping",
]
