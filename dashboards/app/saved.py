"""Views that people save: a page with its state under a name, kept in the campaign."""

import json
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

from dashboards.problems import Unknown
from store import Layout
from store.shelf import VIEWS


def saved_views(root: Path) -> list[tuple[str, str]]:
    """Name and page of every saved view. Raises as `Shelf.every`; Unknown where one is no view."""
    return [(name, _read(name, text)["page"]) for name, text in VIEWS.every(Layout(root)).items()]


def resolved(root: Path, page: str, search: str) -> str:
    """The query string that `search` stands for: "?view=NAME" that of a saved view, anything else itself.

    Raises:
        SpecError, NotFoundError, EnvironmentProblem: as `Shelf.text`; Unknown where the view is another page's.
    """
    given = parse_qs(search.removeprefix("?"), keep_blank_values=True)
    if "view" not in given:
        return search
    if given.keys() != {"view"} or len(given["view"]) != 1:
        raise Unknown("a saved view says all: `view` stands alone in an address")
    name = given["view"][0]
    found = _read(name, VIEWS.text(Layout(root), name))
    if found["page"] != page:
        raise Unknown(f"the view {name!r} is one of the page {found['page']!r}")
    return str(found["search"])


def save(root: Path, name: str, page: str, search: str) -> bool:
    """Keep a page with its state; whether that replaced another. Raises as `Shelf.save`."""
    return VIEWS.save(Layout(root), name, json.dumps({"page": page, "search": search}))


def _read(name: str, text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except json.JSONDecodeError:
        found = None
    if not isinstance(found, dict) or not all(isinstance(found.get(part), str) for part in ("page", "search")):
        raise Unknown(f"views/{name}.json is no saved view; save it again or delete it")
    return found
