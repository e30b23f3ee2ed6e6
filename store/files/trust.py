"""Remembers which campaigns this user made or trusts, so that code from others does not run unseen.

A campaign has a random token in its file `owner`. For each campaign that a user made or trusts, the user's directory
`$XDG_STATE_HOME/ablate/campaigns` (by default below `~/.local/state`) has a file named by the token, which lists the
path. So code of a campaign that was sent, copied or moved is unknown until the user trusts it. A second such file marks
databases that were built for the user. These stay known when the campaign moves.
"""

import logging
import os
import re
import secrets
from pathlib import Path
from typing import Literal

from ablate.grid.errors import AblateError
from ablate.store.files.atomic import make_directory, write_atomic
from ablate.store.files.layout import Layout

Part = Literal["code", "store"]  # the code that its submissions name; its database

_LOG = logging.getLogger(__name__)
_TOKEN = re.compile(rb"[0-9a-f]{32}\n")


def trusts(layout: Layout, part: Part) -> bool:
    """Return True if this user made `part` of the campaign, or trusts it."""
    token = _token(layout)
    try:
        places = "" if token is None else _note(token, part).read_text(encoding="utf-8")
        return _place(layout) in places.split("\n") or (part == "store" and bool(places))
    except (OSError, UnicodeDecodeError):
        return False


def trust(layout: Layout, part: Part) -> bool:
    """Trust `part` of the campaign from now on; False if that cannot be remembered."""
    try:
        token = _token(layout)
        if token is None:
            token = secrets.token_hex(16)
            write_atomic(layout.owner, f"{token}\n".encode())
        note = _note(token, part)
        make_directory(note.parent, durable=False)
        places = note.read_text(encoding="utf-8").split("\n") if note.exists() else []
        write_atomic(note, "\n".join([*places, _place(layout)]).encode())
    except (AblateError, OSError, RuntimeError, UnicodeDecodeError) as error:  # RuntimeError: there is no home
        _LOG.warning("ablate: trust in %s is not remembered: %s", layout.root, error)
        return False
    return True


def trust_new(layout: Layout) -> None:
    """Trust the code of the campaign if it does not exist yet: this user makes it."""
    if not layout.exists():
        layout.make()
        trust(layout, "code")


def _token(layout: Layout) -> str | None:
    try:
        with layout.open_inside(layout.owner) as file:
            token = file.read(64)
    except (OSError, AblateError):
        return None
    return token.decode().strip() if _TOKEN.fullmatch(token) else None


def _note(token: str, part: Part) -> Path:
    home = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(home) / "ablate" / "campaigns" / f"{token}.{part}"


def _place(layout: Layout) -> str:
    return str(layout.root.resolve())
