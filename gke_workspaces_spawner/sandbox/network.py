"""The network of one state folder: a room of its own for all sandboxes, with one door to the Hub and one to the internet.

::

    sandbox 1 --veth--+
    sandbox 2 --veth--+-- bridge [ router namespace: first wall ] --uplink-- [ host: second wall, NAT ] -- internet
                      |   port isolation                                     Hub on ``hub_host``

The bridge and the first wall live in a network namespace of their own (the *router*), so that ``nft flush ruleset``, a
firewall manager or another program on the host cannot open them: without our table nothing is forwarded, because the
router forwards only while its table stands and the table is as old as the router. The host has one interface of ours (the
uplink), one route and one nft table ``inet gkews_HASH`` with the second wall and the masquerade.

What a sandbox reaches: the Hub's API ports on ``hub_host``, the resolvers on port 53 and, unless ``outbound`` is off,
addresses that are public, are not the host's and are not in a network that the host is directly on. Nothing else of the
host on any address, no other sandbox, no metadata service, no IPv6 at all.

Addresses, MACs and names are chosen once per state folder and kept in ``STATE/network`` (paused processes hold the Hub's
address in their memory). A sandbox keeps its address from :meth:`Network.attach` until :meth:`Network.release`; MACs are
derived from addresses and the router's neighbour entries are permanent, since a changed MAC costs a reachable time of some
35 s per resume (measured, with a second sandbox on the bridge).

gVisor takes addresses and routes off the host's side when a sandbox starts: call :meth:`Network.attach` afresh before
every start and every restore. Everything here is synchronous, idempotent and safe to call from several processes.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path

from . import hostnet
from .hostnet import NetworkError
from .walls import host_table, router_table

__all__ = ["Attachment", "Network", "NetworkError"]

BLOCK_PREFIX = 22
"""One block per state folder: the first /30 is the uplink, the upper /23 are the sandboxes."""
POOLS = (IPv4Network("100.64.0.0/10"), IPv4Network("10.0.0.0/8"))
"""Shared address space first (RFC 6598): rarer on a machine than 10/8; left alone where anything else uses it."""
_SANDBOX_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_LIBRARY_PATHS = ("/usr/sbin", "/sbin", "/usr/bin", "/bin")


@dataclass(frozen=True, slots=True)
class Attachment:
    """Where a sandbox runs. ``netns`` is a name; ``path`` is what an OCI spec's network namespace takes."""

    netns: str
    ip: str
    gateway: str

    @property
    def path(self) -> str:
        """The namespace as a file."""
        return str(hostnet.NETNS / self.netns)


@dataclass(frozen=True, slots=True)
class Plan:
    """What was chosen once, and the switches of the last ``open``."""

    name: str
    block: str
    outbound: bool
    hub_ports: tuple[int, ...]

    @property
    def base(self) -> int:
        return int(IPv4Address(self.block.partition("/")[0]))

    @property
    def hub_host(self) -> str:
        """The host's end of the uplink; the Hub listens here."""
        return str(IPv4Address(self.base + 1))

    @property
    def router_host(self) -> str:
        """The router's end of the uplink."""
        return str(IPv4Address(self.base + 2))

    @property
    def sandboxes(self) -> IPv4Network:
        return IPv4Network((self.base + 512, BLOCK_PREFIX + 1))

    @property
    def gateway(self) -> str:
        """The bridge in the router, the sandboxes' default route."""
        return str(IPv4Address(self.base + 513))

    @property
    def router(self) -> str:
        return f"{self.name}-r"

    @property
    def table(self) -> str:
        return f"gkews_{self.name[5:]}"


def mac_of(ip: str) -> str:
    """The one MAC of an address: locally administered, unicast, the address in the last four bytes."""
    return "02:67:" + ":".join(f"{byte:02x}" for byte in IPv4Address(ip).packed)


class Network:
    """The network of one state folder. Make it with :meth:`open` (the Hub's side) or :meth:`load` (a shim)."""

    def __init__(self, folder: Path, plan: Plan) -> None:
        self._folder = folder
        self._plan = plan

    # ------------------------------------------------------------ made, found, removed

    @classmethod
    def open(cls, state: Path, *, outbound: bool = True, hub_ports: Iterable[int] = ()) -> Network:
        """Choose the network (the first time), or find it, and build what is missing of it, also after a crash or a reboot.

        Running sandboxes go on undisturbed. ``hub_ports`` are added to those allowed before.

        Raises NetworkError: ``tools_missing``, ``not_root``, ``network_clash``, ``no_free_subnet``, ``network_failed``.
        """
        _require_tools()
        folder = state.resolve() / "network"
        (folder / "leases").mkdir(mode=0o700, parents=True, exist_ok=True)
        with _locked(folder):
            old = _read_plan(folder)
            ports = tuple(sorted({*(old.hub_ports if old else ()), *hub_ports}))
            if old is None:
                name = "gkews" + hashlib.sha256(str(folder).encode()).hexdigest()[:8]
                plan = Plan(name, str(_choose_block(name)), outbound, ports)
            else:
                plan = Plan(old.name, old.block, outbound, ports)
                _refuse_clash(plan)
            _write_plan(folder, plan)
            network = cls(folder, plan)
            network._build()
        return network

    @classmethod
    def load(cls, state: Path) -> Network:
        """The network that :meth:`open` made. Raises NetworkError ``network_absent``."""
        folder = state.resolve() / "network"
        plan = _read_plan(folder)
        if plan is None:
            raise NetworkError("network_absent", f"There is no network for {state}: start the demo first.")
        return cls(folder, plan)

    def close(self) -> bool:
        """Take everything off the host; False, and nothing is done, while a sandbox is still attached.

        Addresses stay leased for paused servers.
        """
        with _locked(self._folder):
            if self.attached():
                return False
            plan = self._plan
            hostnet.delete_netns(plan.router)
            hostnet.ip("link", "delete", plan.name, missing_ok=True)
            hostnet.nft_delete_table(plan.table)
            hostnet.stop_forwarding(plan.name)
        return True

    # ------------------------------------------------------------ facts

    @property
    def name(self) -> str:
        """Name of the host's interface; namespaces start with it."""
        return self._plan.name

    @property
    def table(self) -> str:
        """Name of the nft table (family ``inet``), in the host and in the router."""
        return self._plan.table

    @property
    def router(self) -> str:
        """Name of the router's namespace."""
        return self._plan.router

    @property
    def hub_host(self) -> str:
        """The host's address that sandboxes reach, on the allowed ports only: bind the Hub's API here."""
        return self._plan.hub_host

    @property
    def gateway(self) -> str:
        """Default route of the sandboxes."""
        return self._plan.gateway

    @property
    def outbound(self) -> bool:
        """Whether sandboxes reach the internet."""
        return self._plan.outbound

    def attached(self) -> tuple[str, ...]:
        """Ids of the sandboxes whose namespace exists."""
        return tuple(sandbox for sandbox, index in self._leases().items() if self._netns_path(index).exists())

    def resolvers(self) -> tuple[str, ...]:
        """The name servers that sandboxes may ask; none when outbound is off."""
        return hostnet.resolvers() if self._plan.outbound else ()

    def resolv_conf(self) -> str:
        """Contents of ``/etc/resolv.conf`` for a sandbox."""
        search = hostnet.search_domains()
        lines = [f"search {' '.join(search)}"] if search else []
        return "\n".join([*lines, *(f"nameserver {server}" for server in self.resolvers())]) + "\n"

    # ------------------------------------------------------------ sandboxes

    def attach(self, sandbox_id: str) -> Attachment:
        """A fresh namespace with ``eth0``, the sandbox's address and its default route.

        Called again before the namespace was used it changes nothing. Do not call it for a running sandbox.
        """
        with _locked(self._folder):
            plan = self._plan = _read_plan(self._folder) or self._plan
            self._refresh_walls()
            index = self._lease(sandbox_id)
            found = self._attachment(index)
            if self._netns_path(index).exists():
                if hostnet.has_default_route(found.netns):  # made last by us, taken off by a sandbox that started
                    return found
                self._unplug(index)
            port, mtu = f"s{index}", hostnet.mtu_of(plan.name)
            hostnet.add_netns(found.netns)
            hostnet.sysctls(found.netns, {"ipv6/conf/all/disable_ipv6": "1", "ipv6/conf/default/disable_ipv6": "1"})
            hostnet.ip_batch(
                plan.router,
                f"link add {port} mtu {mtu} type veth peer name eth0 netns {found.netns} address {mac_of(found.ip)} mtu {mtu}",
                f"link set {port} master br0",
                f"link set {port} type bridge_slave isolated on",
                f"neigh replace {found.ip} lladdr {mac_of(found.ip)} dev br0 nud permanent",
                f"link set {port} up",
            )
            hostnet.ip_batch(
                found.netns,
                "link set lo up",
                f"address add {found.ip}/{plan.sandboxes.prefixlen} dev eth0",
                "link set eth0 up",
                f"route add default via {plan.gateway}",
            )
            return found

    def detach(self, sandbox_id: str) -> None:
        """Remove the namespace and its interfaces; the address stays the sandbox's."""
        with _locked(self._folder):
            index = self._leases().get(sandbox_id)
            if index is not None:
                self._unplug(index)

    def release(self, sandbox_id: str) -> None:
        """Detach and give the address back."""
        with _locked(self._folder):
            index = self._leases().get(sandbox_id)
            if index is not None:
                if self._netns_path(index).exists():
                    self._unplug(index)
                (self._folder / "leases" / sandbox_id).unlink(missing_ok=True)

    def allow_hub_port(self, port: int) -> None:
        """Let sandboxes reach one more TCP port on ``hub_host``."""
        with _locked(self._folder):
            plan = _read_plan(self._folder) or self._plan
            self._plan = Plan(plan.name, plan.block, plan.outbound, tuple(sorted({*plan.hub_ports, port})))
            _write_plan(self._folder, self._plan)
            self._refresh_walls(force=True)

    # ------------------------------------------------------------ inside

    def _attachment(self, index: int) -> Attachment:
        return Attachment(f"{self._plan.name}-{index}", str(IPv4Address(self._plan.base + 512 + index)), self._plan.gateway)

    def _netns_path(self, index: int) -> Path:
        return hostnet.NETNS / f"{self._plan.name}-{index}"

    def _unplug(self, index: int) -> None:
        # The interface first: a namespace that a dying process still holds keeps its veth otherwise.
        hostnet.ip("-n", self._plan.router, "link", "delete", f"s{index}", missing_ok=True)
        hostnet.delete_netns(f"{self._plan.name}-{index}")

    def _leases(self) -> dict[str, int]:
        folder = self._folder / "leases"
        texts = {entry.name: entry.read_text() for entry in folder.iterdir() if not entry.name.startswith(".")}
        return {name: int(text) for name, text in texts.items() if text.isdigit()}  # empty: the machine went down; no sandbox lived on

    def _lease(self, sandbox_id: str) -> int:
        if not _SANDBOX_ID.fullmatch(sandbox_id):
            raise ValueError(f"not a sandbox id: {sandbox_id!r}")
        leases = self._leases()
        if sandbox_id in leases:
            return leases[sandbox_id]
        taken = set(leases.values())
        # The next one, not the lowest: an address that was just given back is the last to be given again.
        cursor = self._folder / "cursor"
        text = cursor.read_text() if cursor.exists() else ""
        last = int(text) if text.isdigit() else 1
        room = range(2, self._plan.sandboxes.num_addresses - 1)
        index: int | None = next((i for i in (*range(last + 1, room.stop), *room) if i not in taken), None)
        if index is None:
            raise NetworkError("addresses_used_up", f"All {len(room)} addresses of {self._plan.sandboxes} are taken by servers.")
        _write(self._folder / "leases" / sandbox_id, str(index), durable=False)
        _write(cursor, str(index), durable=False)
        return index

    def _build(self) -> None:
        """Walls first, interfaces second, forwarding last."""
        plan = self._plan
        hostnet.nft(host_table(plan.table, plan.name, self._walls()))
        if not self._router_complete():
            self._build_router()
        self._refresh_walls(force=True)
        if plan.outbound:
            hostnet.start_forwarding(plan.name)
        else:
            hostnet.stop_forwarding(plan.name)

    def _router_complete(self) -> bool:
        plan = self._plan
        return (
            (hostnet.NETNS / plan.router).exists()
            and hostnet.has_address(None, plan.name, plan.hub_host)
            and hostnet.has_address(plan.router, "br0", plan.gateway)
            and hostnet.has_route(plan.name, plan.sandboxes)
        )

    def _build_router(self) -> None:
        plan = self._plan
        for index in self._leases().values():
            self._unplug(index)
        hostnet.ip("link", "delete", plan.name, missing_ok=True)
        hostnet.delete_netns(plan.router)
        hostnet.add_netns(plan.router)
        quiet = {f"ipv6/conf/{which}/disable_ipv6": "1" for which in ("all", "default")}
        hostnet.sysctls(plan.router, {"ipv4/ip_forward": "0", **quiet})
        hostnet.nft(router_table(plan.table, self._walls()), netns=plan.router)
        hostnet.ip_batch(
            plan.router,
            "link set lo up",
            f"link add br0 address {mac_of(plan.gateway)} type bridge stp_state 0 forward_delay 0 mcast_snooping 0",
            f"address add {plan.gateway}/{plan.sandboxes.prefixlen} dev br0",
            "link set br0 up",
        )
        mtu = str(hostnet.outward_mtu())
        hostnet.ip(
            *("link", "add", plan.name, "address", mac_of(plan.hub_host), "mtu", mtu, "type", "veth"),
            *("peer", "name", "up0", "netns", plan.router, "address", mac_of(plan.router_host), "mtu", mtu),
        )
        hostnet.sysctls(None, {f"ipv6/conf/{plan.name}/disable_ipv6": "1", f"ipv4/conf/{plan.name}/rp_filter": "1"})
        hostnet.ip_batch(
            plan.router,
            f"address add {plan.router_host}/30 dev up0",
            "link set up0 up",
            f"route add default via {plan.hub_host}",
        )
        hostnet.ip_batch(
            None,
            f"address add {plan.hub_host}/30 dev {plan.name}",
            f"link set {plan.name} up",
            f"route add {plan.sandboxes} via {plan.router_host} dev {plan.name} src {plan.hub_host}",
        )
        hostnet.sysctls(plan.router, {"ipv4/ip_forward": "1"})

    def _walls(self) -> hostnet.Walls:
        plan = self._plan
        return hostnet.walls(
            sandboxes=str(plan.sandboxes),
            hub_host=plan.hub_host,
            hub_ports=plan.hub_ports,
            outbound=plan.outbound,
            uplink=plan.name,
        )

    def _refresh_walls(self, *, force: bool = False) -> None:
        """Renew both tables when the host's addresses or resolvers have changed; each is replaced in one transaction."""
        walls = self._walls()
        seen = self._folder / "walls.json"
        now = json.dumps(asdict(walls), sort_keys=True)
        if not force and seen.exists() and seen.read_text() == now:
            return
        hostnet.nft(router_table(self._plan.table, walls), netns=self._plan.router)
        hostnet.nft(host_table(self._plan.table, self._plan.name, walls))
        _write(seen, now)


def _require_tools() -> None:
    path = os.pathsep.join([os.environ.get("PATH", ""), *_LIBRARY_PATHS])
    missing = [tool for tool in ("ip", "nft") if shutil.which(tool, path=path) is None]
    if missing:
        raise NetworkError("tools_missing", f"{' and '.join(missing)} not found: run 'apt-get install iproute2 nftables'.")
    if os.geteuid() != 0:
        raise NetworkError("not_root", "Making namespaces and firewall rules needs root: run it with sudo.")


def _choose_block(name: str) -> IPv4Network:
    """The block for a name: a place that depends on the name, then on from there until one is free."""
    used = hostnet.networks_in_use()
    start = int(hashlib.sha256(name.encode()).hexdigest(), 16)
    for pool in POOLS:
        if pool is POOLS[0] and any(net.overlaps(pool) for net, device in used if not device.startswith("gkews")):
            continue
        count = 1 << (BLOCK_PREFIX - pool.prefixlen)
        for step in range(count):
            base = int(pool.network_address) + ((start + step) % count << (32 - BLOCK_PREFIX))
            block = IPv4Network((base, BLOCK_PREFIX))
            if not any(net.overlaps(block) for net, _ in used) and not block.overlaps(IPv4Network("100.100.100.0/22", strict=False)):
                return block
    raise NetworkError("no_free_subnet", "No free private subnet is left on this machine: every one is used by an interface or a route.")


def _refuse_clash(plan: Plan) -> None:
    block = IPv4Network(plan.block)
    for net, device in hostnet.networks_in_use():
        if device != plan.name and net.overlaps(block):
            raise NetworkError(
                "network_clash",
                f"The subnet {block} of this state folder is used by {device} ({net}) now: take that down, "
                "or use another state folder (paused servers hold this address in their memory).",
            )


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    with (folder / "lock").open("w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _read_plan(folder: Path) -> Plan | None:
    try:
        data = json.loads((folder / "network.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    return Plan(str(data["name"]), str(data["block"]), bool(data["outbound"]), tuple(map(int, data["hub_ports"])))


def _write_plan(folder: Path, plan: Plan) -> None:
    _write(folder / "network.json", json.dumps(asdict(plan)))


def _write(path: Path, text: str, *, durable: bool = True) -> None:
    """Replace a file at once. What is true until the next reboot only need not be durable: a resume would wait for the disk."""
    temporary = path.with_name(f".{path.name}.new")
    with temporary.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        if durable:
            os.fsync(file.fileno())
    temporary.replace(path)
