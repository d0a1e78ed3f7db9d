"""What a call ends with is told apart by what its caller can do."""

from __future__ import annotations

import pytest

from gke_workspaces_spawner.engines.gke_settings import in_our_words
from gke_workspaces_spawner.kube.errors import AlreadyExists, Forbidden, Gone, Invalid, Lacking, NotFound, Unavailable, of_status
from gke_workspaces_spawner.lifecycle.reasons import LifecycleError, Refused, TryLater

NO_ROLE = 'pods is forbidden: User "system:serviceaccount:hub:hub" cannot list resource "pods" in API group "" in the namespace "hub"'
DENIED = (
    "pods \"x\" is forbidden: ValidatingAdmissionPolicy 'gke-workspaces' with binding 'gke-workspaces' denied request: Only the hub may"
)
QUOTA = 'pods "x" is forbidden: exceeded quota: q, requested: pods=1, used: pods=0, limited: pods=0'


@pytest.mark.parametrize(
    ("status", "message", "kind", "later"),
    [
        (404, "", NotFound, False),
        (409, "", AlreadyExists, True),
        (410, "", Gone, True),
        (422, "", Invalid, False),
        (400, "unknown field", Invalid, False),
        (429, "", Unavailable, True),
        (500, "", Unavailable, True),
        (0, "no answer", Unavailable, True),
        (401, "Unauthorized", Lacking, True),
        (403, NO_ROLE, Lacking, True),
        (403, DENIED, Forbidden, False),
        (403, QUOTA, Unavailable, True),
    ],
)
def test_what_may_work_later_is_told_from_what_never_will(status: int, message: str, kind: type[Exception], later: bool):
    error = of_status(status, message)
    assert type(error) is kind
    with pytest.raises(LifecycleError) as told, in_our_words("start_failed"):
        raise error
    assert isinstance(told.value, TryLater if later else Refused)
    assert told.value.code == ("cluster_unreachable" if later else "start_failed")
