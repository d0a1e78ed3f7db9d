"""Faults of the control plane itself, and quota: what is done when their keys appear in ``emulator-faults``."""

from __future__ import annotations

import asyncio

from .api import OUTAGES, Api, Object
from .controlplane import ControlPlane
from .faults import Fault, Faults

SLICE = 0.25
"""Seconds of one turn of a slow apiserver: it runs for a part of it and stands still for the rest."""
QUOTA = "emulator-quota"


class Outages:
    """Acts on the control plane; one outage at a time."""

    def __init__(self, api: Api, plane: ControlPlane, faults: Faults) -> None:
        self._api = api
        self._plane = plane
        self._faults = faults
        self._quota_in: str | None = None

    async def run(self) -> None:
        """Do what appears, for ever."""
        while True:
            change = asyncio.ensure_future(self._faults.next_change())
            appeared = asyncio.ensure_future(self._faults.appeared.get())
            try:
                await asyncio.wait({change, appeared}, return_when=asyncio.FIRST_COMPLETED)
                if appeared.done():
                    await self._do(appeared.result())
                if self._quota_in is not None and self._faults.look("quota") is None:
                    await self._lift_quota()
            finally:
                change.cancel()
                appeared.cancel()

    async def _do(self, fault: Fault) -> None:
        plane = self._plane
        if fault.name == "apiserver-restart":
            await plane.kill_apiserver()
            await plane.start_apiserver()
        elif fault.name == "apiserver-away":
            await plane.kill_apiserver()
            await asyncio.sleep(fault.seconds(60))
            await plane.start_apiserver()
        elif fault.name == "apiserver-holds":
            plane.hold_apiserver()
            await asyncio.sleep(fault.seconds(60))
            plane.let_apiserver_go()
        elif fault.name == "watch-expired":
            await plane.expire_watches()
        elif fault.name == "apiserver-slow":
            await self._slow(fault)
        elif fault.name == "quota":
            await self._set_quota(fault)

    async def _slow(self, fault: Fault) -> None:
        part = float(fault.get("percent", "20")) / 100
        try:
            while self._faults.look("apiserver-slow") is fault:
                self._plane.hold_apiserver()
                await asyncio.sleep(SLICE * (1 - part))
                self._plane.let_apiserver_go()
                await asyncio.sleep(SLICE * part)
        finally:
            self._plane.let_apiserver_go()

    async def _set_quota(self, fault: Fault) -> None:
        self._quota_in = fault.get("namespace", "hub")
        manifest: Object = {
            "apiVersion": "v1",
            "kind": "ResourceQuota",
            "metadata": {"name": QUOTA, "namespace": self._quota_in},
            "spec": {"hard": {"pods": "0"}},
        }
        await self._api.apply(manifest)

    async def _lift_quota(self) -> None:
        try:
            await self._api.delete("ResourceQuota", self._quota_in, QUOTA)
        except OUTAGES:
            return  # the next change tries again
        self._quota_in = None
