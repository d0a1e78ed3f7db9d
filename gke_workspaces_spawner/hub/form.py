"""The spawn form while a workspace is open: the Paused form, wrapped around the admin's own form.

A plain login starts the default server in JupyterHub 5 and 6; a form stops that, so logging in never takes an accelerator by itself.
"""

from __future__ import annotations

from typing import Any

FIELD = "gke_workspaces"
"""Form field with the button that was pressed: ``resume`` or ``fresh``."""

PAGES = "gke_workspaces"
"""Key of the tornado settings under which ``configure`` puts what renders our pages."""


def paused_form(spawner: Any, admin_form: str) -> str:
    """HTML for the Hub's spawn page. Without ``configure`` in the Hub's configuration there are no pages: two plain buttons."""
    pages = spawner.user.settings.get(PAGES)
    if pages is None:
        return f'<button name="{FIELD}" value="resume">Resume</button> <button name="{FIELD}" value="fresh">Start fresh</button>'
    html: str = pages.paused_form(spawner, admin_form)
    return html


def page_address(spawner: Any) -> str | None:
    """Our page of that server, where there are pages."""
    pages = spawner.user.settings.get(PAGES)
    return None if pages is None else str(pages.page_address(spawner))


def pressed(form: dict[str, Any]) -> str | None:
    """Take our field out of a submitted form; which button was pressed."""
    values = form.pop(FIELD, None)
    return str(values[0]) if values else None
