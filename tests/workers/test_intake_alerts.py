"""Reading Alertmanager's messages: labels to node, code and GPU; what cannot be read is told, the rest is taken."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from activities.errors import BadInput
from workers.intake.alerts import read_alert, read_notification
from workers.sections import DEFAULT_NODE_LABELS, IntakeMapping

MAPPING = IntakeMapping()


def alert(labels: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    """One alert as Alertmanager writes it."""
    return {
        "status": "firing",
        "labels": {"alertname": "GpuXid79", "Hostname": "node-1", **(labels or {})},
        "annotations": {"summary": "GPU 3 fell off the bus"},
        "startsAt": "2026-08-22T10:00:05.123Z",
        "endsAt": "0001-01-01T00:00:00Z",
        "fingerprint": "1a2b3c4d5e6f7081",
        **more,
    }


def test_an_alert_of_dcgm_exporter_gives_node_code_gpu_and_time() -> None:
    read = read_alert(
        alert({"err_code": "79", "gpu": "3", "UUID": "GPU-5c8e", "pci_bus_id": "00000000:18:00.0", "instance": "10.1.2.3:9400"}),
        MAPPING,
    )
    assert read.alias == "node-1"
    report = read.report
    assert (report.source, report.xid, report.what) == ("alertmanager", 79, "GPU 3 fell off the bus")
    assert (report.gpu.index, report.gpu.uuid, report.gpu.pci) == (3, "GPU-5c8e", "00000000:18:00.0")
    assert report.seen_at == datetime(2026, 8, 22, 10, 0, 5, 123000, tzinfo=UTC)
    assert report.key == "1a2b3c4d5e6f7081/2026-08-22T10:00:05.123Z"
    assert not report.resolved


def test_the_first_node_label_in_the_documented_order_names_the_node() -> None:
    labels = {name: f"by-{name}" for name in DEFAULT_NODE_LABELS}
    for name in DEFAULT_NODE_LABELS:
        assert read_alert({**alert(), "labels": labels}, MAPPING).alias == f"by-{name}"
        del labels[name]


def test_a_code_may_stand_in_an_annotation() -> None:
    assert read_alert(alert(annotations={"xid": "64"}), MAPPING).report.xid == 64


@pytest.mark.parametrize(("text", "xid"), [("79", 79), ("79.0", 79), ("0", None), ("", None), ("GPU lost", None), ("-3", None)])
def test_a_code_is_a_number_and_zero_means_none(text: str, xid: int | None) -> None:
    assert read_alert(alert({"err_code": text}), MAPPING).report.xid == xid


def test_a_code_that_is_no_number_is_kept_as_a_remark() -> None:
    assert "'GPU lost' is not a number" in read_alert(alert({"xid": "GPU lost"}), MAPPING).report.what


def test_resolved_is_told_by_each_alerts_own_status() -> None:
    message = {"version": "4", "status": "firing", "alerts": [alert(), alert(status="resolved")]}
    assert [one.report.resolved for one in read_notification(message, MAPPING).alerts] == [False, True]


def test_one_unreadable_alert_is_told_and_the_rest_is_taken() -> None:
    bad: list[Any] = [
        None,
        {"status": "firing", "labels": {"alertname": "x"}},
        alert(status="maybe"),
        alert(labels=None) | {"labels": 3},
    ]
    read = read_notification({"version": "4", "alerts": [alert(), *bad, alert()]}, MAPPING)
    assert len(read.alerts) == 2
    assert [one.index for one in read.unreadable] == [1, 2, 3, 4]
    assert "names no node" in read.unreadable[1].why


@pytest.mark.parametrize(
    "body", [[], "x", None, {}, {"version": "3", "alerts": []}, {"version": "4"}, {"version": 4, "alerts": []}]
)
def test_what_is_no_alertmanager_message_is_refused(body: Any) -> None:
    with pytest.raises(BadInput):
        read_notification(body, MAPPING)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["labels", "annotations", "status", "startsAt", "xid", "gpu", "node"]), inner, max_size=5
        )
    ),
    max_leaves=12,
)


@given(st.lists(JSON, max_size=5))
def test_no_alert_whatever_its_shape_stops_the_reading(alerts: list[Any]) -> None:
    read = read_notification({"version": "4", "alerts": alerts}, MAPPING)
    assert len(read.alerts) + len(read.unreadable) == len(alerts)
    assert all(one.alias for one in read.alerts)
