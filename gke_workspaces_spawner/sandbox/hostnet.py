"""What the host's network is, and the few commands that change it: ``ip``, ``nft`` and sysctls, each in one place."""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import subprocess
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, ip_address
from pathlib import Path
from typing import Any

NETNS = Path("/run/netns")
"""Where ``ip netns`` keeps namespaces."""
RUN = Path("/run/gke-workspaces")
"""What is true until the next reboot, for all state folders of the machine: who needs IPv4 forwarding, and what it was."""

DENIED = (
    "0.0.0.0/8",
    "10.0.0.0/8",
    "100.64.0.0/10",
    "127.0.0.0/8",
    "168.63.129.16",
    "169.254.0.0/16",
    "172.16.0.0/12",
    "192.0.0.0/24",
    "192.168.0.0/16",
    "198.18.0.0/15",
    "224.0.0.0/3",
)
"""Private, shared, link-local, benchmark, multicast and reserved ranges (IANA special-purpose registry), in them the
metadata services 169.254.169.254, 100.100.100.200 and 192.0.0.192; and Azure's, the one with a public address."""

_ENVIRONMENT = {
    **os.environ,
    "PATH": os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin", "/usr/bin", "/bin"]),
    "LC_ALL": "C",
}
_TIMEOUT = 30.0
_CLONE_NEWNET = 0x40000000
_MISSING = ("Cannot find device", "No such device", "No such file or directory", "does not exist", "No such process")


class NetworkError(Exception):
    """Something about the network; ``code`` is stable, ``sentence`` is for people."""

    def __init__(self, code: str, sentence: str) -> None:
        super().__init__(sentence)
        self.code = code
        self.sentence = sentence


@dataclass(frozen=True, slots=True)
class Walls:
    """What the tables say, in data."""

    sandboxes: str
    hub_host: str
    hub_ports: tuple[int, ...]
    outbound: bool
    resolvers: tuple[str, ...]
    denied: tuple[str, ...]
    default_devices: tuple[str, ...]
    keeps_others_out: bool
    """Forwarding was off before us: the machine must not become a router for others on our account."""


def walls(*, sandboxes: str, hub_host: str, hub_ports: tuple[int, ...], outbound: bool, uplink: str) -> Walls:
    """The walls for the host as it is now: its addresses and direct networks are denied, its resolvers allowed."""
    own = [entry for entry in _addresses() if entry[2] != uplink]
    mine = {str(address) for address, _, _ in own}
    direct = {net for _, net, _ in own} | {IPv4Network(address) for address in mine}
    always = [IPv4Network(net) for net in DENIED]
    denied = sorted(str(net) for net in direct if not any(net.subnet_of(wide) for wide in always))
    return Walls(
        sandboxes=sandboxes,
        hub_host=hub_host,
        hub_ports=hub_ports,
        outbound=outbound,
        resolvers=tuple(server for server in resolvers() if server not in mine) if outbound else (),
        denied=(*DENIED, *denied),
        default_devices=tuple(sorted({str(route["dev"]) for route in _routes() if route["dst"] == "default" and "dev" in route})),
        keeps_others_out=outbound and _forwarding_before() == "0",
    )


# ---------------------------------------------------------------- commands


def ip(*arguments: str, missing_ok: bool = False) -> str:
    """Run ``ip``. Raises NetworkError ``network_failed`` with what it said."""
    return _run(["ip", *arguments], missing_ok=missing_ok)


def ip_batch(netns: str | None, *lines: str) -> None:
    """Run several ``ip`` commands in one process, in a namespace; stops at the first that fails."""
    _run(["ip", *(["-n", netns] if netns else []), "-batch", "-"], text="\n".join(lines) + "\n")


def nft(script: str, netns: str | None = None) -> None:
    """Load a script in one transaction, on the host or in a namespace."""
    _run([*(["ip", "netns", "exec", netns] if netns else []), "nft", "-f", "-"], text=script)


def nft_delete_table(table: str) -> None:
    """Delete a table of family inet; harmless when there is none."""
    nft(f"add table inet {table}\ndelete table inet {table}\n")


def add_netns(name: str) -> None:
    ip("netns", "add", name)


def delete_netns(name: str) -> None:
    """Forget a namespace; it ends with its last process."""
    if (NETNS / name).exists():
        ip("netns", "delete", name, missing_ok=True)


def sysctls(netns: str | None, values: Mapping[str, str]) -> None:
    """Write files below /proc/sys/net, in a namespace. What the kernel does not have (IPv6 switched off) is left out."""
    failure: list[OSError] = []

    def write() -> None:
        try:
            if netns:
                _enter(netns)
            for name, value in values.items():
                path = Path("/proc/sys/net") / name
                if path.exists():
                    path.write_text(value, encoding="ascii")
        except OSError as error:
            failure.append(error)

    # A namespace belongs to a thread: one of its own enters it and ends there.
    thread = threading.Thread(target=write)
    thread.start()
    thread.join()
    if failure:
        raise NetworkError("network_failed", f"A network setting could not be written: {failure[0]}.")


def _enter(netns: str) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    handle = os.open(NETNS / netns, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if libc.setns(handle, _CLONE_NEWNET) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), netns)
    finally:
        os.close(handle)


def _run(command: list[str], *, text: str | None = None, missing_ok: bool = False) -> str:
    try:  # in a session of its own: a Ctrl-C in the terminal is for us, not for what is half way through a change of the machine
        done = subprocess.run(
            command,
            input=text,
            capture_output=True,
            text=True,
            env=_ENVIRONMENT,
            timeout=_TIMEOUT,
            check=False,
            start_new_session=True,
        )
    except FileNotFoundError as error:
        raise NetworkError("tools_missing", f"{command[0]} not found: run 'apt-get install iproute2 nftables'.") from error
    except subprocess.TimeoutExpired as error:
        raise NetworkError("network_failed", f"'{' '.join(command)}' did not end in {_TIMEOUT:.0f} s.") from error
    if done.returncode != 0 and not (missing_ok and any(words in done.stderr for words in _MISSING)):
        raise NetworkError("network_failed", f"'{' '.join(command)}' failed: {done.stderr.strip()[:600]}")
    return done.stdout


# ---------------------------------------------------------------- what is there


def networks_in_use() -> list[tuple[IPv4Network, str]]:
    """Every network of an interface or a route of any routing table, with its device; the default route is none."""
    found = [(net, device) for _, net, device in _addresses()]
    routes = [route for route in _routes() if route["dst"] != "default"]
    found += [(IPv4Network(str(route["dst"]), strict=False), str(route.get("dev", "a route without device"))) for route in routes]
    return found


def has_address(netns: str | None, device: str, address: str) -> bool:
    """Whether a device exists, is up and has that address."""
    text = ip(*(["-n", netns] if netns else []), "-json", "address", "show", "dev", device, "up", missing_ok=True)
    return any(info.get("local") == address for link in _json(text) for info in link.get("addr_info", ()))


def has_route(device: str, network: IPv4Network) -> bool:
    """Whether the host's main table leads to a network through a device."""
    return any(route["dst"] == str(network) and route.get("dev") == device for route in _routes())


def has_default_route(netns: str) -> bool:
    """Whether a namespace has a default route."""
    return bool(_json(ip("-n", netns, "-4", "-json", "route", "show", "default")))


def mtu_of(device: str) -> int:
    """Bytes in a packet of a device of the host."""
    return int(Path(f"/sys/class/net/{device}/mtu").read_text(encoding="ascii"))


def outward_mtu() -> int:
    """The smallest MTU on the way out, at most 1500: no packet of a sandbox needs to be cut or refused on the way."""
    devices = {str(route["dev"]) for route in _routes() if route["dst"] == "default" and "dev" in route}
    return min([1500, *(mtu_of(device) for device in devices)])


def _addresses() -> list[tuple[IPv4Address, IPv4Network, str]]:
    found = []
    for link in _json(ip("-4", "-json", "address", "show")):
        for info in link.get("addr_info", ()):
            address = IPv4Address(info["local"])
            # A point-to-point address speaks of its peer's network.
            peer = info.get("address", info["local"])
            found.append((address, IPv4Network(f"{peer}/{info['prefixlen']}", strict=False), str(link["ifname"])))
    return found


def _routes() -> list[dict[str, Any]]:
    skipped = {"local", "broadcast", "multicast", "anycast"}
    routes = _json(ip("-4", "-json", "route", "show", "table", "all"))
    return [route for route in routes if route.get("type", "unicast") not in skipped]


def _json(text: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(text) if text.strip() else []
    return found


def resolvers() -> tuple[str, ...]:
    """The host's IPv4 name servers; a stub on the loopback (systemd-resolved) is replaced by those that it asks."""
    for path in (Path("/etc/resolv.conf"), Path("/run/systemd/resolve/resolv.conf")):
        servers = [words[1] for words in _resolv_lines(path) if words[0] == "nameserver"]
        usable = [server for server in servers if _reachable_v4(server)]
        if usable:
            return tuple(usable[:3])
    return ()


def search_domains() -> tuple[str, ...]:
    """The host's search list, from the last such line, as the resolver library takes it."""
    lists = [words[1:] for words in _resolv_lines(Path("/etc/resolv.conf")) if words[0] in ("search", "domain")]
    return tuple(domain for domain in lists[-1] if domain != ".") if lists else ()


def _resolv_lines(path: Path) -> list[list[str]]:
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    return [words for words in (line.split() for line in text.splitlines()) if len(words) > 1 and words[0][0] not in "#;"]


def _reachable_v4(server: str) -> bool:
    try:
        address = ip_address(server)
    except ValueError:
        return False
    return address.version == 4 and not address.is_loopback and not address.is_unspecified


# ---------------------------------------------------------------- forwarding


def start_forwarding(user: str) -> None:
    """Switch IPv4 forwarding on for one state folder's network, and remember what it was."""
    RUN.mkdir(mode=0o700, exist_ok=True)
    with (RUN / "lock").open("w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not _forward_users():
            (RUN / "ip_forward.before").write_text(_ip_forward(), encoding="ascii")
        (RUN / f"forwards.{user}").touch()
        if _ip_forward() != "1":
            sysctls(None, {"ipv4/ip_forward": "1"})


def stop_forwarding(user: str) -> None:
    """The last one puts it back as it was."""
    if not (RUN / f"forwards.{user}").exists():
        return
    with (RUN / "lock").open("w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        (RUN / f"forwards.{user}").unlink(missing_ok=True)
        if not _forward_users():
            if _forwarding_before() == "0":
                sysctls(None, {"ipv4/ip_forward": "0"})
            (RUN / "ip_forward.before").unlink(missing_ok=True)


def _forward_users() -> list[str]:
    return [entry.name for entry in RUN.glob("forwards.*")]


def _forwarding_before() -> str:
    try:
        return (RUN / "ip_forward.before").read_text(encoding="ascii").strip()
    except FileNotFoundError:
        return _ip_forward()


def _ip_forward() -> str:
    return Path("/proc/sys/net/ipv4/ip_forward").read_text(encoding="ascii").strip()
