"""The eighth validation: the home's disk attaches to the machine, is made where the machine is, and is one that can be made."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from .catalogue import Catalogue, StorageClass
from .entries import Choice
from .findings import Finding, State, listed, shown
from .quantities import quantity
from .rules import Context, disks, gpu_type, tpu_type
from .schema import Settings

DEFAULT_CLASS = "standard-rwo"
"""GKE's default; an admin can have made another one the default."""
OF_A_SERVER = ("{user_server}", "{servername}", "{safe_user_server}", "{safe_servername}", "{escaped_user_server}", "{escaped_servername}")
OF_A_SERVER_TOO = ("{unescaped_user_server}", "{unescaped_servername}", "{pod_name}")
"""Placeholders of ``pvc_name_template`` that differ between servers of one user."""


def home(say: Callable[..., Finding], choice: Choice, settings: Settings, catalogue: Catalogue, context: Context) -> Iterator[Finding]:
    """What is wrong with the home of one choice by itself."""
    name, row = class_of(choice, settings, catalogue, context)
    key = "gke.home.storage_class"
    if not makes_homes(choice, settings, context):
        return
    takes, machine = disks(settings, catalogue), _machine(settings, catalogue)
    written = name is not None
    row = row if written else catalogue.disks.get(DEFAULT_CLASS)
    if row is not None and not attaches(row, takes):
        if written:
            yield say(key, f"{shown(name)} is {_words(row)}, which does not attach to {machine}.", _right(takes, catalogue), "home")
        else:
            what = f"The home has no class: GKE's default is {_words(row)}, which does not attach to {machine}."
            yield say(key, what, _right(takes, catalogue), "home", State.WARNING)
    elif row is None and takes == "hyperdisk":
        what = f"{shown(name)} is no class that is known here, and {machine} takes Hyperdisk only."
        yield say(key, what, f"Tell what it is: catalogue = {{'disks': {{{name!r}: {{'disk': 'hyperdisk'}}}}}}.", "home", State.WARNING)
    elif row is not None and takes == "unsure" and row.disk == "pd" and machine != "the machine":
        yield say(key, f"Whether {_words(row)} attaches to {machine} is not documented.", "", "home", State.WARNING)
    if written and row is not None and row.binding == "at_once":
        what = f"{shown(name)} makes the disk before the machine is chosen, perhaps in a zone without such machines."
        yield say(key, what, "Use a class that waits for the first consumer, such as standard-rwo.", "home", State.WARNING)
    yield from _written(say, settings, row if written else None, name)
    yield from _per(say, settings, context)
    if settings.home is not None and "volumes" in context.settings and not _mounts_a_claim(choice, context):
        what = "A claim is made for the home, and none of the server's volumes is a claim."
        mend = "Add a volume with persistentVolumeClaim: {claimName: '{pvc_name}'} to c.KubeSpawner.volumes, and its mount."
        yield say("gke.home", what, mend, "home", State.WARNING)


def _written(say: Callable[..., Finding], settings: Settings, row: StorageClass | None, name: str | None) -> Iterator[Finding]:
    wanted = settings.home
    if wanted is None:
        return
    if wanted.access == "ReadWriteMany" and row is not None and row.disk == "pd":
        mend = "Use ReadWriteOnce, or a Filestore class such as standard-rwx."
        yield say("gke.home.access", f"{_words(row)} cannot be mounted by several machines.", mend, "home")
    if row is not None and row.smallest and wanted.size and (quantity(wanted.size) or 0) < (quantity(row.smallest) or 0):
        yield say("gke.home.size", f"{shown(name)} makes no volume below {row.smallest}.", f"Write {row.smallest!r}.", "home")
    if wanted.kms_key is None:
        return
    mend = f"Make a class with the parameter disk-encryption-kms-key: {wanted.kms_key}, and name it in storage_class."
    if name is None:
        yield say("gke.home.kms_key", "A key belongs to a storage class, and none is named.", mend, "home")
    elif row is not None and not row.own_key:
        yield say("gke.home.kms_key", f"The class {shown(name)} has no key of yours: it is fixed when a class is made.", mend, "home")
    elif row is None:
        what = f"Whether the class {shown(name)} has this key cannot be seen from here; a claim cannot choose it."
        yield say("gke.home.kms_key", what, mend, "home", State.WARNING)


def _per(say: Callable[..., Finding], settings: Settings, context: Context) -> Iterator[Finding]:
    """``per`` states what the hub's claims are; a hub has one naming for all, since a change of it would leave homes behind."""
    template = context.settings.get("pvc_name_template")
    wanted = settings.home.per if settings.home else None
    if wanted is None or not isinstance(template, str):
        return
    if wanted != claims_are_per(template):
        named = "named for each server" if wanted == "user" else "the same for all servers of a user"
        mend = f"Write per: {claims_are_per(template)}, or change the template (homes that exist keep their names)."
        yield say("gke.home.per", f"With pvc_name_template {shown(template)} claims are {named}.", mend, "home")


def shared_homes(made: Sequence[tuple[Choice, Settings]], catalogue: Catalogue, context: Context) -> Iterator[Finding]:
    """Choices that use one claim, and whose machines take no common disk: whichever is started first decides about the other."""
    per = claims_are_per(str(context.settings.get("pvc_name_template") or "{user_server}"))
    homes: dict[tuple[str, str | None, str], tuple[Choice, StorageClass | None]] = {}
    for choice, settings in made:
        if makes_homes(choice, settings, context):
            name, row = class_of(choice, settings, catalogue, context)
            homes.setdefault((repr(choice.override.get("pvc_name")), name, disks(settings, catalogue)), (choice, row))
    said: set[frozenset[str]] = set()
    for (claim, name, _), (one, row) in homes.items():
        for (other_claim, _, takes), (other, _) in homes.items():
            pair = frozenset({one.name, other.name})
            if row is None or claim != other_claim or one is other or attaches(row, takes) or pair in said:
                continue
            said.add(pair)
            whose = "A user" if per == "user" else "A server"
            what = f"{whose} has one home for this and {other.name}: made as {shown(name)} it does not attach to the machine of that."
            mend = "Give both a Filestore class, or let claims be named for each server and use a server for each."
            state = State.REFUSED if per == "user" else State.WARNING
            yield Finding(one.name, "gke.home.storage_class", what, mend, "home", state)


def class_of(choice: Choice, settings: Settings, catalogue: Catalogue, context: Context) -> tuple[str | None, StorageClass | None]:
    """(name of the storage class, what is known of it); an override wins."""
    written = choice.override.get("storage_class") or (settings.home.storage_class if settings.home else None)
    name = written or context.settings.get("storage_class")
    return (name, catalogue.disks.get(name)) if isinstance(name, str) and name else (None, None)


def makes_homes(choice: Choice, settings: Settings, context: Context) -> bool:
    """Whether a claim is made for this choice."""
    return bool(settings.home) or bool(context.value(choice, "storage_pvc_ensure"))


def claims_are_per(template: str) -> str:
    return "server" if any(mark in template for mark in (*OF_A_SERVER, *OF_A_SERVER_TOO)) else "user"


def attaches(row: StorageClass, takes: str) -> bool:
    """Whether such a volume can be used on machines that take those disks; True where that is not known."""
    return (row.disk, takes) not in {("pd", "hyperdisk"), ("hyperdisk", "pd")}


def _mounts_a_claim(choice: Choice, context: Context) -> bool:
    volumes = context.value(choice, "volumes")
    if "volumes" in choice.override and volumes is None:  # a function's
        return True
    each = volumes.values() if isinstance(volumes, Mapping) else volumes or ()
    return any(isinstance(one, Mapping) and ("persistentVolumeClaim" in one or "persistent_volume_claim" in one) for one in each)


def _machine(settings: Settings, catalogue: Catalogue) -> str:
    kind = gpu_type(settings, catalogue) or tpu_type(settings, catalogue)
    if kind is not None:
        return f"machines with {kind.words}"
    return f"{settings.machine.family.upper()} machines" if settings.machine.family else "the machine"


def _words(row: StorageClass) -> str:
    return row.words or {"pd": "Persistent Disk", "hyperdisk": "Hyperdisk", "filestore": "Filestore volume"}.get(row.disk, "volume")


def _right(takes: str, catalogue: Catalogue) -> str:
    wanted = "hyperdisk" if takes == "hyperdisk" else "pd"
    fit = [name for name, row in catalogue.disks.rows.items() if row.disk == wanted]
    if fit:
        return f"Such as {listed(fit[:3])}."
    return "Make a class of type hyperdisk-balanced, and tell of it: catalogue = {'disks': {NAME: {'disk': 'hyperdisk'}}}."
