"""What the API server does with one object, as far as our fake needs it: selectors, merge patch, disruption budgets."""

from __future__ import annotations

import math
import re
from copy import deepcopy
from typing import Any

from activities.errors import BadInput
from activities.kubernetes import DISRUPTION_BUDGET, POD, Blocked, Kind, Object, labels_of

_IN = re.compile(r"^(\S+)\s+(in|notin)\s+\(([^)]*)\)$")
_UNPROTECTED = ("Pending", "Succeeded", "Failed")


def matches(item: Object, labels: str, fields: str) -> bool:
    """Whether an object is what two selectors ask for."""
    return _labels_match(labels_of(item), labels) and all(_field_matches(item, one) for one in fields.split(",") if one)


def _labels_match(labels: dict[str, str], selector: str) -> bool:
    return all(_label_matches(labels, one.strip()) for one in re.split(r",(?![^(]*\))", selector) if one.strip())


def _label_matches(labels: dict[str, str], term: str) -> bool:
    found = _IN.match(term)
    if found:
        key, word, values = found.groups()
        listed = labels.get(key) in [value.strip() for value in values.split(",")]
        return listed if word == "in" else not listed
    if "!=" in term:
        key, _, value = term.partition("!=")
        return labels.get(key.strip()) != value.strip()
    if "=" in term:
        key, _, value = term.replace("==", "=").partition("=")
        return labels.get(key.strip()) == value.strip()
    return term[1:] not in labels if term.startswith("!") else term in labels


def _field_matches(item: Object, term: str) -> bool:
    path, wanted, value = term.partition("!=")
    if not wanted:
        path, wanted, value = term.partition("=")
    found: Any = item
    for part in path.split("."):
        found = found.get(part, "") if isinstance(found, dict) else ""
    return (str(found) == value.lstrip("=")) is (wanted == "=")


def merge(before: Any, patch: Any) -> Any:
    """Return a value with a JSON merge patch applied (RFC 7396)."""
    if not isinstance(patch, dict):
        return deepcopy(patch)
    after = deepcopy(before) if isinstance(before, dict) else {}
    for key, value in patch.items():
        if value is None:
            after.pop(key, None)
        else:
            after[key] = merge(after.get(key), value)
    return after


def status_only(before: Object, patch: Object) -> Object:
    """Return an object with a patch of its status applied."""
    after = deepcopy(before)
    after["status"] = merge(before.get("status"), patch.get("status", {}))
    return after


def budgets_against(pod: Object, objects: dict[Kind, dict[tuple[str, str], Object]]) -> Blocked | None:
    """Return the disruption budget that forbids a pod's eviction now, if one does."""
    if pod.get("status", {}).get("phase") in _UNPROTECTED or "deletionTimestamp" in pod["metadata"]:
        return None
    namespace = pod["metadata"].get("namespace", "")
    all_budgets = [budget for (of, _), budget in objects.get(DISRUPTION_BUDGET, {}).items() if of == namespace]
    budgets = [budget for budget in all_budgets if _selects(budget, pod)]
    if len(budgets) > 1:
        names = ", ".join(budget["metadata"]["name"] for budget in budgets)
        return Blocked(names, "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.")
    pods = [other for (of, _), other in objects.get(POD, {}).items() if of == namespace]
    return _exhausted(budgets[0], [other for other in pods if _selects(budgets[0], other)]) if budgets else None


def _selects(budget: Object, pod: Object) -> bool:
    selector = budget["spec"].get("selector") or {}
    if selector.get("matchExpressions"):
        raise BadInput("this fake knows only matchLabels in a disruption budget")
    labels = labels_of(pod)
    return all(labels.get(key) == value for key, value in selector.get("matchLabels", {}).items())


def _exhausted(budget: Object, pods: list[Object]) -> Blocked | None:
    spec, name = budget["spec"], budget["metadata"]["name"]
    alive = [
        pod for pod in pods if pod.get("status", {}).get("phase") == "Running" and "deletionTimestamp" not in pod["metadata"]
    ]
    if "minAvailable" in spec:
        needed = _share(spec["minAvailable"], len(pods))
    else:
        needed = len(pods) - _share(spec.get("maxUnavailable", 0), len(pods))
    if len(alive) > needed:
        return None
    return Blocked(name, f"The disruption budget {name} needs {needed} healthy pods and has {len(alive)} currently")


def _share(amount: int | str, of: int) -> int:
    """Return a number, or a percentage of `of`; rounded up, as the API does for both."""
    return math.ceil(int(amount[:-1]) / 100 * of) if isinstance(amount, str) else int(amount)
