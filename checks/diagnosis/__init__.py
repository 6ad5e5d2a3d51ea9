"""Says what is wrong with a node: weighs kernel events, readings and reports by fixed rules. Pure: it reads and does nothing."""

from checks.diagnosis.candidates import assess_among
from checks.diagnosis.diagnose import diagnose
from checks.diagnosis.evidence import Current, current_events
from checks.diagnosis.facts import Hardware, ReportedFault, Timing

__all__ = ["Current", "Hardware", "ReportedFault", "Timing", "assess_among", "current_events", "diagnose"]
