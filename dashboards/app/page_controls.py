"""Controls of a page, and the values that they show."""

from collections.abc import Sequence
from typing import Any, Final

from ablate.dashboards.app.address import Address, entries
from ablate.dashboards.app.page import AppPage, Control, PageView, options
from ablate.dashboards.data.user_errors import require

_LEGEND: Final = Control("hide", "", "hidden")  # fields that entries of legends set


def page_controls(page: AppPage, view: PageView) -> Sequence[Control]:
    """List the controls of a page: the grid if there are several, those of the page, and the hidden legends."""
    if page.of == "campaign":
        return (*page.controls(view), _LEGEND)
    if view.context is None:
        return ()
    known = view.store.grids()
    grid = Control("grid", "Grid", "choice", options(known), usual=view.context.grid)
    return (*((grid,) if len(known) > 1 or view.address.grid else ()), *page.controls(view), _LEGEND)


def require_options(page: AppPage, controls: Sequence[Control], address: Address) -> None:
    """Raise Unknown if a field of `page.named` is none of its control's options; a measure may lack its point."""
    for control in controls:
        if control.field in page.named and getattr(address, control.field) not in (None, ()):
            value, known = value_of(control, address), [*control.options]
            known += [option.partition("@")[0] for option in known]
            for each in value if control.kind == "choices" else [value]:
                require(f"page {page.title}", control.label.lower(), each, dict.fromkeys(known))


def value_of(control: Control, address: Address) -> Any:
    """Return the value that a control shows: that of the address, else the usual one."""
    name, several, entry = control.field.partition(":")
    value = entries(getattr(address, name)).get(entry) if several else getattr(address, name)
    if value in (None, ()):
        return control.usual
    return str(value) if control.kind == "choice" else value  # as its options are written
