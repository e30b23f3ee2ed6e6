"""The pages of the app, each an `AppPage` that an entry point of `ablate.pages` names; any package may add some.

Our own entry points are in `pyproject.toml`; `make` installs anew after an edit. Published is `papers/page.py`;
`mechanism_maps.py` is a part of Mechanism, `compare_costs.py` of Compare, `run_*.py` of Run.
"""

import logging
from collections.abc import Callable, Collection
from importlib.metadata import EntryPoint
from typing import Final

from ablate.dashboards.app.address import MOVED
from ablate.dashboards.app.page import AppPage
from ablate.grid.errors import EnvironmentProblem, SpecError
from ablate.grid.plugins import plugins, use_plugin

_LOG: Final = logging.getLogger(__name__)

ORDER: Final = ("overview", "runs", "curves", "factors", "compare", "mechanism", "published", "sql", "run")
"""Pages of this package in the order of the navigation; those of other packages follow by name."""


def app_pages(
    notify: Callable[[str], None] = _LOG.warning, *, only: Collection[str] | None = None
) -> tuple[AppPage, ...]:
    """Load the pages, all or those called `only`; `notify` gets a sentence for each that cannot be used.

    Raises EnvironmentProblem if there is none.
    """
    entries = plugins("ablate.pages", notify)
    places = {name: place for place, name in enumerate(ORDER)}
    names = sorted(entries, key=lambda name: (places.get(name, len(ORDER)), name))
    pages = list[AppPage]()
    for name in names if only is None else [each for each in names if each in only]:
        try:
            pages.append(use_plugin(entries[name], lambda entry: _load(entry, pages)))
        except EnvironmentProblem as problem:
            notify(str(problem))
    if not pages:
        raise EnvironmentProblem("no page of the dashboard is installed; install ablate again")
    return tuple(pages)


def _load(entry: EntryPoint, before: Collection[AppPage]) -> AppPage:
    page = entry.load()
    if not isinstance(page, AppPage) or page.name != entry.name:
        raise SpecError(f"it is not an AppPage whose name is {entry.name!r}")
    if page.name in MOVED:
        raise SpecError(f"{page.name!r} is an earlier address of the page {MOVED[page.name]}")
    others = [each.title for each in before if page.letter and each.letter == page.letter]
    if others:
        raise SpecError(f"its letter {page.letter!r} opens the page {others[0]}; give it another or none")
    return page
