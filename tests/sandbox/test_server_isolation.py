"""What code in a notebook can see, write and reach: tried as an attacker in a notebook would."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gke_workspaces_spawner.sandbox import Network
from tests.hub.running import ROOT, RunningHub
from tests.sandbox.jupyter import Jupyter
from tests.sandbox.local_hub import local_hub

pytestmark = pytest.mark.any_hub


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningHub]:
    with local_hub(tmp_path_factory.mktemp("isolation")) as hub:
        yield hub


@pytest.fixture(scope="module")
def ann(hub: RunningHub) -> Inside:
    hub.start_server("ann")
    return Inside(Jupyter(hub, "ann"))


@pytest.fixture(scope="module")
def bo(hub: RunningHub) -> Inside:
    hub.start_server("bo")
    return Inside(Jupyter(hub, "bo"))


class Inside:
    """A notebook of a user."""

    def __init__(self, jupyter: Jupyter) -> None:
        self.jupyter = jupyter
        self._kernel = jupyter.kernel()

    def value(self, code: str) -> Any:
        """The JSON value that the last line's expression has in the kernel."""
        *lines, last = code.strip().splitlines()
        out = self.jupyter.run(self._kernel, "\n".join(["import json, os, socket", *lines, f"print(json.dumps({last}))"]))
        return json.loads(out)

    def reaches(self, host: str, port: int) -> bool:
        code = f"""
try:
    socket.create_connection(({host!r}, {port}), 2).close(); ok = True
except OSError as error:
    ok = False
ok"""
        return bool(self.value(code))


def test_a_server_runs_as_a_user_of_its_own_and_never_as_root(ann: Inside, bo: Inside) -> None:
    uids = [each.value("[os.getuid(), os.getgid(), os.getgroups()]") for each in (ann, bo)]
    assert all(uid >= 210_000 and gid >= 210_000 and not set(groups) & {0} for uid, gid, groups in uids)
    assert uids[0][0] != uids[1][0]
    assert ann.value("int([l for l in open('/proc/self/status') if l.startswith('CapEff')][0].split()[1], 16)") == 0


def test_homes_of_others_and_the_host_cannot_be_seen(hub: RunningHub, ann: Inside, bo: Inside) -> None:
    bo.value("open('secret.txt', 'w').write('of bo')")
    assert ann.value("sorted(os.listdir('/home'))") == [ann.value("os.path.basename(os.environ['HOME'])")]
    for path in ("/root/.bashrc", "/var/lib", str(hub.folder), "/etc/shadow", str(ROOT / "tests"), "/proc/1/root/root/.bashrc"):
        assert ann.value(f"os.access({path!r}, os.R_OK) and bool(os.path.isfile({path!r}) or os.listdir({path!r}))") is False, path


def test_nothing_of_the_host_but_the_home_can_be_written(hub: RunningHub, ann: Inside) -> None:
    code = """
import sys
tried = ['/usr', '/etc', '/bin', '/', sys.prefix, sys.base_prefix, '/opt', '/var', '/srv']
written = []
for folder in tried:
    try:
        name = os.path.join(folder, 'planted-by-ann'); open(name, 'w').write('x'); written.append(name)
    except OSError:
        pass
written"""
    written = ann.value(code)
    assert [name for name in written if Path(name).exists()] == []
    ann.value("open('mine.txt', 'w').write('x')")
    owners = {path.stat().st_uid for path in Path(hub.folder, "state", "homes").glob("*/mine.txt")}
    assert owners == {ann.value("os.getuid()")}


def test_other_servers_cannot_be_reached(ann: Inside, bo: Inside) -> None:
    address = bo.value("socket.gethostbyname(socket.gethostname())")
    if address.startswith("127."):
        address = bo.value("[l.split()[0] for l in open('/etc/hosts') if l.split() and l.split()[0][:4] == '100.' or l[:3] == '10.'][0]")
    assert bo.reaches("127.0.0.1", 8888)
    assert not ann.reaches(address, 8888)


def test_of_the_host_only_the_hub_s_api_can_be_reached(hub: RunningHub, ann: Inside) -> None:
    network = Network.load(Path(hub.folder, "state"))
    listener = socket.create_server(("0.0.0.0", 0))
    port = listener.getsockname()[1]
    threading.Thread(target=accept_all, args=(listener,), daemon=True).start()
    own = socket.gethostbyname(socket.gethostname())
    assert ann.reaches(network.hub_host, hub.settings["hub_port"])
    for address in {network.hub_host, network.gateway, own, *host_addresses()} - {"127.0.0.1"}:
        assert not ann.reaches(address, port), address
        assert not ann.reaches(address, hub.settings["proxy_api_port"]), address
    listener.close()


def accept_all(listener: socket.socket) -> None:
    while True:
        try:
            listener.accept()[0].close()
        except OSError:
            return


def host_addresses() -> set[str]:
    found = set()
    for line in Path("/proc/net/fib_trie").read_text().splitlines():
        if "|--" in line:
            last = line.split()[-1]
        if "/32 host LOCAL" in line:
            found.add(last)
    return found


@pytest.mark.parametrize("address", ["169.254.169.254", "169.254.170.2", "100.100.100.200", "192.0.0.192"])
def test_cloud_metadata_cannot_be_reached(ann: Inside, address: str) -> None:
    assert not ann.reaches(address, 80)


def test_no_secret_of_the_server_lies_in_its_own_files(hub: RunningHub, ann: Inside) -> None:
    """The token is in the server's memory, and in no file of the sandbox's folder."""
    token = ann.value("os.environ['JUPYTERHUB_API_TOKEN']").encode()
    state = Path(hub.folder, "state")
    found = [
        path
        for folder in ("sandboxes", "runsc", "homes")
        for path in (state / folder).rglob("*")
        if path.is_file() and token in path.read_bytes()
    ]
    assert found == []


def test_kernels_do_not_inherit_the_secret_that_hub_and_server_share(ann: Inside) -> None:
    assert ann.value("'GKE_WORKSPACES_GUEST_SECRET' in os.environ") is False
