"""The two nft tables of a state folder's network, as text. See :mod:`.network` for the picture.

Each text deletes and makes its table in one transaction, so that at no instant one is missing.
"""

from __future__ import annotations

from collections.abc import Iterable

from .hostnet import Walls


def router_table(table: str, walls: Walls) -> str:
    """First wall, in the router's namespace: everything that is not said here is dropped."""
    return f"""
{_fresh(table)}
table inet {table} {{
{_sets(walls)}
    chain forward {{
        type filter hook forward priority 0; policy drop;
        ct state invalid drop
        ct state established,related accept
        iifname "up0" oifname "br0" ip saddr {walls.hub_host} ip protocol tcp accept
        iifname "br0" oifname "up0" ip saddr {walls.sandboxes} goto outward
    }}
    chain outward {{
        ip daddr {walls.hub_host} tcp dport @hub_ports accept
        ip daddr @resolvers meta l4proto {{ tcp, udp }} th dport 53 accept
        ip daddr @denied drop
        {"ip daddr 0.0.0.0/0 accept" if walls.outbound else "drop"}
    }}
    chain input {{
        type filter hook input priority 0; policy drop;
    }}
}}
"""


def host_table(table: str, uplink: str, walls: Walls) -> str:
    """Second wall, on the host, for what arrives from or goes to our one interface; and the masquerade."""
    stays_a_host = (
        "".join(
            f'        iifname "{device}" oifname != "{uplink}" ct state new ct status & dnat == 0 drop\n'
            for device in walls.default_devices
        )
        if walls.keeps_others_out
        else ""
    )
    return f"""
{_fresh(table)}
table inet {table} {{
{_sets(walls)}
    chain input {{
        type filter hook input priority -5; policy accept;
        iifname "{uplink}" ct state established,related accept
        iifname "{uplink}" ip saddr {walls.sandboxes} ip daddr {walls.hub_host} tcp dport @hub_ports accept
        iifname "{uplink}" drop
        iifname != "lo" ip daddr {walls.hub_host} drop
    }}
    chain forward {{
        type filter hook forward priority -5; policy accept;
        iifname "{uplink}" goto outward
        oifname "{uplink}" ct state established,related accept
        oifname "{uplink}" drop
{stays_a_host}    }}
    chain outward {{
        ip saddr != {walls.sandboxes} drop
        ip daddr @resolvers meta l4proto {{ tcp, udp }} th dport 53 accept
        ip daddr @denied drop
        {"ip daddr 0.0.0.0/0 accept" if walls.outbound else "drop"}
        drop
    }}
    chain postrouting {{
        type nat hook postrouting priority 100; policy accept;
        ip saddr {walls.sandboxes} oifname != "{uplink}" masquerade
    }}
}}
"""


def _fresh(table: str) -> str:
    return f"add table inet {table}\ndelete table inet {table}"


def _sets(walls: Walls) -> str:
    return "\n".join(
        (
            _set("hub_ports", "inet_service", map(str, walls.hub_ports), flags=""),
            _set("resolvers", "ipv4_addr", walls.resolvers, flags=""),
            _set("denied", "ipv4_addr", walls.denied, flags="flags interval; auto-merge;"),
        )
    )


def _set(name: str, kind: str, elements: Iterable[str], flags: str) -> str:
    inside = ", ".join(elements)
    return f"    set {name} {{ type {kind}; {flags} {f'elements = {{ {inside} }};' if inside else ''} }}"
