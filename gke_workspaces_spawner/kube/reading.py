"""What Google's objects say, read through the two tables ``conditions.toml`` and ``events.toml``. Pure functions."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from . import facts
from .client import Object
from .manifest import notebook_of

DONE, FAILED, DELETING, RESTORED = "done", "failed", "deleting", "restored"
COLD, CRASHED = "cold", "crashed"
SCHEDULER_REASONS = ("FailedScheduling", "FailedAttachVolume")
AUTOSCALER_REASONS = ("TriggeredScaleUp", "NotTriggerScaleUp", "FailedScaleUp")
MESSAGE_LIMIT = 400


def conditions(each: Object) -> list[Object]:
    """The object's conditions."""
    return [one for one in ((each.get("status") or {}).get("conditions") or ()) if isinstance(one, dict)]


def meaning(kind: str, condition: Object) -> str | None:
    """What a condition of an object of that kind means; None when it says nothing yet."""
    for row in facts.data("conditions")["condition"]:
        if (row["kind"], row["type"], row["status"]) != (kind, condition.get("type"), condition.get("status")):
            continue
        if "reasons" not in row or condition.get("reason") in row["reasons"]:
            return str(row["means"])
    return None


def state(each: Object, kind: str) -> tuple[str | None, str]:
    """(``failed`` | ``deleting`` | ``done`` | None, its message) of a trigger, a snapshot or a policy; the worst of its conditions."""
    if each["metadata"].get("deletionTimestamp"):
        return DELETING, "it is being deleted"
    said = [(meaning(kind, one), str(one.get("message") or one.get("reason") or "")) for one in conditions(each)]
    for wanted in (FAILED, DELETING):
        for what, message in said:
            if what == wanted:
                return wanted, message[:MESSAGE_LIMIT]
    ready = "Triggered" if kind == "PodSnapshotManualTrigger" else "Ready"
    done = any(meaning(kind, one) == DONE and one.get("type") == ready for one in conditions(each))
    return (DONE, "") if done else (None, "")


def since(each: Object, condition: str) -> float | None:
    """When a condition was last changed, seconds since the epoch."""
    for one in conditions(each):
        if one.get("type") == condition and one.get("lastTransitionTime"):
            return timestamp(str(one["lastTransitionTime"]))
    return None


def timestamp(text: str) -> float | None:
    """A time as the API writes it."""
    try:
        return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()
    except ValueError:
        return None


def snapshot_created(trigger: Object) -> str | None:
    """Name of the PodSnapshot that a trigger made: the page says a text, every observed object has an object with a name."""
    created = (trigger.get("status") or {}).get("snapshotCreated")
    if isinstance(created, Mapping):
        created = created.get("name")
    return str(created) if created else None


# ---------------------------------------------------------------- a pod


def phase(pod: Object) -> str:
    """``Pending``, ``Running``, ``Succeeded``, ``Failed`` or ``Unknown``."""
    return str((pod.get("status") or {}).get("phase") or "Pending")


def bound(pod: Object) -> bool:
    """Whether a node was found for it."""
    return bool(pod["spec"].get("nodeName"))


def runs(pod: Object) -> bool:
    """Whether anything of the server runs, or may: a pod that has not ended, and whose server's container has not."""
    if phase(pod) in ("Succeeded", "Failed"):
        return False
    return ended(pod) is None


def ended(pod: Object) -> Object | None:
    """How the server's container ended; None while it has not, or nothing is known of it."""
    name = notebook_of(pod)["name"]
    for status in (pod.get("status") or {}).get("containerStatuses") or ():
        if status.get("name") == name:
            return (status.get("state") or {}).get("terminated") or None
    return None


def stopped_by_save(pod: Object) -> bool:
    """Whether GKE has ended it after a save: Succeeded, every container with exit code 0."""
    statuses = (pod.get("status") or {}).get("containerStatuses") or ()
    ends = [(status.get("state") or {}).get("terminated") for status in statuses]
    return phase(pod) == "Succeeded" and all(end is not None and end.get("exitCode") == 0 for end in ends)


def restarts(pod: Object) -> int:
    """How often containers of the pod were started again in place."""
    return sum(int(status.get("restartCount") or 0) for status in (pod.get("status") or {}).get("containerStatuses") or ())


def images(pod: Object) -> dict[str, str]:
    """What each container's image really is (with its digest), as far as the node has said."""
    found = {}
    for status in (pod.get("status") or {}).get("containerStatuses") or ():
        image = str(status.get("imageID") or "")
        if "@" in image:
            found[str(status["name"])] = image.rpartition("@")[2]
    return found


def outcome(pod: Object, events: Iterable[Object], snapshot: str) -> tuple[str | None, str]:
    """How a restore from ``snapshot`` went, by what is said outside of the pod: ``restored``, ``cold``, ``crashed``, or None so far.

    What names another snapshot is no restore of this one.
    """
    crash = crashed(pod)
    if crash:
        return CRASHED, crash
    for one in conditions(pod):
        if meaning("Pod", one) == RESTORED and _names(str(one.get("message") or ""), snapshot):
            return RESTORED, str(one.get("message"))
    said: tuple[str | None, str] = (None, "")
    for event in events:
        if str((event.get("involvedObject") or {}).get("uid") or "") not in ("", pod["metadata"].get("uid")):
            continue
        code, message = code_of(event), str(event.get("message") or "")
        if code == RESTORED and _names(message, snapshot):
            return RESTORED, message
        if code in (COLD, CRASHED):
            said = (code, message[:MESSAGE_LIMIT])
    return said


def crashed(pod: Object) -> str | None:
    """The message of a restore that gVisor began and could not finish: it never falls back to a cold start by itself."""
    for status in (pod.get("status") or {}).get("containerStatuses") or ():
        for where in ("state", "lastState"):
            for what in ("terminated", "waiting"):
                message = str(((status.get(where) or {}).get(what) or {}).get("message") or "")
                if message and _code("", message) == CRASHED:
                    return message[:MESSAGE_LIMIT]
    return None


def _names(message: str, snapshot: str) -> bool:
    return bool(snapshot) and re.search(rf"(?<![\w.-]){re.escape(snapshot)}(?![\w-])", message) is not None


# ---------------------------------------------------------------- waiting


def why_waiting(pod: Object, events: Iterable[Object]) -> tuple[str, str]:
    """(reason code, the message that it was read from) for a pod that has no node yet.

    The scheduler repeats itself as long as it finds none; what the autoscaler said after it took the pod up is the news.
    """
    mine = [event for event in events if str((event.get("involvedObject") or {}).get("uid") or "") == pod["metadata"].get("uid")]
    mine.sort(key=_when)
    for reasons in (AUTOSCALER_REASONS, SCHEDULER_REASONS):
        for event in reversed(mine):
            if event.get("reason") in reasons:
                code = code_of(event)
                if code is not None:
                    return code, str(event.get("message") or "")[:MESSAGE_LIMIT]
    for one in conditions(pod):
        if one.get("type") == "PodScheduled" and one.get("status") == "False":
            message = str(one.get("message") or "")
            return _code("FailedScheduling", message) or "waiting_for_scheduler", message[:MESSAGE_LIMIT]
    return "waiting_for_scheduler", ""


def code_of(event: Object) -> str | None:
    """Our code for an event, by ``events.toml``."""
    return _code(str(event.get("reason") or ""), str(event.get("message") or ""))


def _code(reason: str, message: str) -> str | None:
    for row in facts.data("events")["event"]:
        if row.get("reason") not in (None, reason):
            continue
        if re.search(row.get("text", ""), message, re.IGNORECASE):
            return str(row["code"])
    return None


def _when(event: Object) -> float:
    for name in ("lastTimestamp", "eventTime", "firstTimestamp"):
        if event.get(name):
            return timestamp(str(event[name])) or 0.0
    series: Any = event.get("series") or {}
    return timestamp(str(series.get("lastObservedTime"))) or 0.0
