"""The walls of :mod:`gke_workspaces_spawner.sandbox.network`, tried with real namespaces from the inside."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from gke_workspaces_spawner.sandbox import hostnet
from gke_workspaces_spawner.sandbox.network import Attachment, Network, NetworkError, mac_of

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root"),
    pytest.mark.filterwarnings("error"),
]

SERVE = """
import socket, sys
listeners = []
for host, port in [a.rsplit(":", 1) for a in sys.argv[1:]]:
    s = socket.create_server((host, int(port)))
    listeners.append(s)
print("up", flush=True)
import selectors
sel = selectors.DefaultSelector()
for s in listeners: sel.register(s, selectors.EVENT_READ)
while True:
    for key, _ in sel.select():
        c, _ = key.fileobj.accept(); c.sendall(b"hello"); c.close()
"""
TRY = """
import socket, sys
out = []
for host, port in [a.rsplit(":", 1) for a in sys.argv[2:]]:
    try:
        with socket.create_connection((host, int(port)), timeout=float(sys.argv[1])) as s:
            out.append(s.recv(5).decode() or "closed")
    except OSError as e:
        out.append("refused" if isinstance(e, ConnectionRefusedError) else "no")
print(" ".join(out))
"""


def sh(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def tables() -> str:
    return sh("nft", "list", "tables")


@contextmanager
def serving(netns: str | None, *where: str) -> Iterator[None]:
    prefix = ["ip", "netns", "exec", netns] if netns else []
    with subprocess.Popen([*prefix, sys.executable, "-c", SERVE, *where], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        try:
            assert process.stdout.readline() == "up\n"
            yield
        finally:
            process.kill()


def reach(attachment: Attachment, *where: str, timeout: float = 0.7) -> list[str]:
    return sh("ip", "netns", "exec", attachment.netns, sys.executable, "-c", TRY, str(timeout), *where).split()


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[..., Network]]:
    made: dict[str, Network] = {}

    def build(name: str = "state", **options: object) -> Network:
        made[name] = Network.open(tmp_path / name, **options)  # type: ignore[arg-type]
        return made[name]

    yield build
    for network in made.values():
        for sandbox in network.attached():
            network.release(sandbox)
        assert network.close()
        assert network.table not in tables()
        assert network.name not in sh("ip", "-o", "link") + sh("ip", "netns")


@pytest.fixture
def internet() -> Iterator[str]:
    """A machine outside: a namespace behind an interface of the host, with public, private and metadata addresses."""
    name, port = "tst-internet", "tst-inet0"
    addresses = ["203.0.113.201", "10.99.0.1", "192.168.99.1", "172.16.99.1", "169.254.169.254", "100.100.100.200", "198.51.100.9"]
    with ExitStack() as undo:
        sh("ip", "netns", "add", name)
        undo.callback(sh, "ip", "netns", "delete", name)
        sh("ip", "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", name)
        undo.callback(lambda: subprocess.run(["ip", "link", "delete", port], check=False, capture_output=True))
        sh("ip", "address", "add", "198.51.100.1/24", "dev", port)
        sh("ip", "link", "set", port, "up")
        for address in addresses:
            sh("ip", "-n", name, "address", "add", f"{address}/{24 if address == '198.51.100.9' else 32}", "dev", "eth0")
        sh("ip", "-n", name, "link", "set", "eth0", "up")
        for address in addresses[:-1]:
            sh("ip", "route", "add", address, "via", "198.51.100.9", "dev", port)
        with serving(name, *(f"{address}:80" for address in addresses), "203.0.113.201:53"):
            yield name


def test_the_hub_reaches_a_sandbox_and_a_sandbox_reaches_the_hub_port_only(make: Callable[..., Network]) -> None:
    network = make(hub_ports=[18081])
    a = network.attach("a")
    hub = network.hub_host
    with serving(a.netns, f"{a.ip}:8888"), serving(None, f"{hub}:18081", f"{hub}:18082", "0.0.0.0:18083"):
        with socket.create_connection((a.ip, 8888), timeout=5) as connection:
            assert connection.recv(5) == b"hello"
        own = [address for address, _, device in hostnet._addresses() if device != network.name]
        everywhere = [f"{address}:18083" for address in own]
        assert reach(a, f"{hub}:18081") == ["hello"]
        assert set(reach(a, f"{hub}:18082", f"{hub}:18083", f"{a.gateway}:18083", *everywhere)) <= {"no", "refused"}
        network.allow_hub_port(18082)
        assert reach(a, f"{hub}:18082", f"{hub}:18083") == ["hello", "no"]


def test_no_sandbox_reaches_another_also_while_others_come_and_go(make: Callable[..., Network]) -> None:
    network = make()
    a, b = network.attach("a"), network.attach("b")
    with serving(a.netns, f"{a.ip}:8888"):
        loop = subprocess.Popen(
            ["ip", "netns", "exec", b.netns, sys.executable, "-c", HAMMER, a.ip, "8888"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        with loop:
            assert loop.stdout
            assert loop.stdout.readline() == "going\n"
            for turn in range(15):
                network.attach(f"c{turn % 3}")
                network.detach(f"c{turn % 3}")
                network.allow_hub_port(20000 + turn)
            out, _ = loop.communicate(timeout=20)
    tries, successes = map(int, out.split())
    assert tries > 5
    assert successes == 0


HAMMER = """
import socket, sys, threading
stop = threading.Event()
def wait():
    sys.stdin.read(); stop.set()
threading.Thread(target=wait, daemon=True).start()
print("going", flush=True)
tries = successes = 0
while not stop.is_set():
    tries += 1
    try:
        socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=0.05).close(); successes += 1
    except OSError: pass
print(tries, successes)
"""


def test_outbound_goes_to_public_addresses_only(make: Callable[..., Network], internet: str) -> None:
    network = make()
    a = network.attach("a")
    private = ["10.99.0.1:80", "192.168.99.1:80", "172.16.99.1:80", "169.254.169.254:80", "100.100.100.200:80"]
    assert reach(a, "203.0.113.201:80", *private) == ["hello", *["no"] * len(private)]
    # A neighbour in a network that the host is directly on is not the internet, whatever its address.
    assert reach(a, "198.51.100.9:80") == ["no"]


def test_outbound_off_leaves_only_the_hub(make: Callable[..., Network], internet: str) -> None:
    network = make(outbound=False, hub_ports=[18081])
    a = network.attach("a")
    with serving(None, f"{network.hub_host}:18081"):
        assert reach(a, "203.0.113.201:80", f"{network.hub_host}:18081") == ["no", "hello"]
    assert network.resolvers() == ()


def test_a_flush_on_the_host_opens_nothing(make: Callable[..., Network], internet: str) -> None:
    network = make(hub_ports=[18081])
    a, b = network.attach("a"), network.attach("b")
    with serving(a.netns, f"{a.ip}:8888"), serving(None, f"{network.hub_host}:18081", "0.0.0.0:18083"):
        sh("nft", "delete", "table", "inet", network.table)
        own = [f"{address}:18083" for address, _, device in hostnet._addresses()]
        tried = reach(b, f"{a.ip}:8888", f"{a.gateway}:18083", "10.99.0.1:80", "169.254.169.254:80", *own)
        assert set(tried) <= {"no", "refused"}
        assert reach(b, f"{network.hub_host}:18081") == ["hello"]


def test_there_is_no_ipv6(make: Callable[..., Network]) -> None:
    network = make()
    a = network.attach("a")
    assert sh("ip", "-n", a.netns, "-6", "address") == ""
    assert sh("ip", "-n", network.router, "-6", "address") == ""
    assert sh("ip", "-6", "address", "show", "dev", network.name) == ""


def test_a_sandbox_keeps_address_and_mac_until_release(make: Callable[..., Network]) -> None:
    network = make()
    first = network.attach("a")
    assert network.attach("a") == first
    mac = json.loads(sh("ip", "-n", first.netns, "-json", "link", "show", "eth0"))[0]["address"]
    assert mac == mac_of(first.ip)
    network.detach("a")
    network.detach("a")
    other = network.attach("b")
    assert other.ip != first.ip
    assert network.attach("a") == first
    assert json.loads(sh("ip", "-n", first.netns, "-json", "link", "show", "eth0"))[0]["address"] == mac
    network.release("a")
    assert network.attach("c").ip != first.ip, "an address just given back is not the next to be given"


def test_a_used_namespace_is_made_afresh(make: Callable[..., Network]) -> None:
    network = make()
    a = network.attach("a")
    # What gVisor does when a sandbox starts:
    sh("ip", "-n", a.netns, "route", "flush", "dev", "eth0")
    sh("ip", "-n", a.netns, "address", "flush", "dev", "eth0")
    again = network.attach("a")
    assert again == a
    with serving(a.netns, f"{a.ip}:8888"), socket.create_connection((a.ip, 8888), timeout=5) as connection:
        assert connection.recv(5) == b"hello"


def test_a_resumed_address_answers_at_once_beside_another_server(make: Callable[..., Network]) -> None:
    network = make()
    a, b = network.attach("a"), network.attach("b")
    with serving(b.netns, f"{b.ip}:8888"):
        for _ in range(5):
            with serving(a.netns, f"{a.ip}:8888"), socket.create_connection((a.ip, 8888), timeout=1) as connection:
                assert connection.recv(5) == b"hello"
            network.detach("a")
            network.attach("a")


def test_open_again_changes_nothing_for_running_sandboxes(make: Callable[..., Network]) -> None:
    network = make(hub_ports=[18081])
    a = network.attach("a")
    with serving(a.netns, f"{a.ip}:8888"):
        again = make(hub_ports=[18082])
        assert (again.name, again.hub_host) == (network.name, network.hub_host)
        with socket.create_connection((a.ip, 8888), timeout=5) as connection:
            assert connection.recv(5) == b"hello"


def test_after_a_reboot_the_same_network_is_built_again(make: Callable[..., Network]) -> None:
    network = make(hub_ports=[18081])
    a = network.attach("a")
    for netns in (a.netns, network.router):
        sh("ip", "netns", "delete", netns)
    sh("nft", "delete", "table", "inet", network.table)
    subprocess.run(["ip", "link", "delete", network.name], check=False, capture_output=True)
    again = make()
    assert again.hub_host == network.hub_host
    assert again.attach("a") == a
    with serving(None, f"{again.hub_host}:18081"):
        assert reach(a, f"{again.hub_host}:18081") == ["hello"]


def test_close_waits_for_the_last_sandbox(make: Callable[..., Network]) -> None:
    network = make()
    network.attach("a")
    assert not network.close()
    assert network.table in tables()
    network.detach("a")
    assert network.close()
    assert network.table not in tables()


def test_forwarding_is_put_back_by_the_last_of_two_networks(make: Callable[..., Network]) -> None:
    before = Path("/proc/sys/net/ipv4/ip_forward").read_text().strip()
    one, two = make("one"), make("two")
    assert one.name != two.name
    assert one.hub_host != two.hub_host
    assert Path("/proc/sys/net/ipv4/ip_forward").read_text().strip() == "1"
    assert one.close()
    assert Path("/proc/sys/net/ipv4/ip_forward").read_text().strip() == "1"
    assert two.close()
    assert Path("/proc/sys/net/ipv4/ip_forward").read_text().strip() == before


def test_two_networks_do_not_reach_one_another(make: Callable[..., Network]) -> None:
    one, two = make("one", hub_ports=[18081]), make("two", hub_ports=[18082])
    a, b = one.attach("a"), two.attach("b")
    with serving(b.netns, f"{b.ip}:8888"), serving(None, f"{two.hub_host}:18082"):
        assert reach(a, f"{b.ip}:8888", f"{two.hub_host}:18082") == ["no", "no"]


def test_a_subnet_that_somebody_else_took_is_said(make: Callable[..., Network], tmp_path: Path) -> None:
    network = make()
    block = hostnet.IPv4Network(f"{network.hub_host}/22", strict=False)
    assert network.close()
    sh("ip", "link", "add", "tst-clash", "type", "bridge")
    try:
        sh("ip", "link", "set", "tst-clash", "up")
        sh("ip", "route", "add", str(block), "dev", "tst-clash")
        with pytest.raises(NetworkError, match="tst-clash") as error:
            make()
        assert error.value.code == "network_clash"
        # A new state folder leaves the whole pool alone that somebody else uses.
        assert make("other").hub_host.startswith("10.")
    finally:
        sh("ip", "link", "delete", "tst-clash")


def test_attach_from_many_threads_gives_many_addresses(make: Callable[..., Network], tmp_path: Path) -> None:
    make()
    found: list[Attachment] = []
    threads = [threading.Thread(target=lambda i=i: found.append(Network.load(tmp_path / "state").attach(f"s{i}"))) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({a.ip for a in found}) == 8


def test_missing_tools_are_one_sentence(make: Callable[..., Network], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda *_, **__: None)
    with pytest.raises(NetworkError, match="apt-get install iproute2 nftables"):
        make("absent")


@pytest.mark.parametrize("bad", ["", "..", "a/b", "-x", "x" * 65])
def test_a_bad_sandbox_id_is_refused(make: Callable[..., Network], bad: str) -> None:
    with pytest.raises(ValueError, match="sandbox id"):
        make().attach(bad)


def test_the_stub_resolver_is_replaced_by_its_upstream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stub, upstream = tmp_path / "etc", tmp_path / "run"
    stub.write_text("nameserver 127.0.0.53\nsearch a.example b.example\n")
    upstream.write_text("nameserver 192.0.2.53\nnameserver 2001:db8::1\n")
    real = Path

    def path(name: str) -> Path:
        return {"/etc/resolv.conf": stub, "/run/systemd/resolve/resolv.conf": upstream}.get(name) or real(name)

    monkeypatch.setattr(hostnet, "Path", path)
    assert hostnet.resolvers() == ("192.0.2.53",)
    assert hostnet.search_domains() == ("a.example", "b.example")
