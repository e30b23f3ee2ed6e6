"""Campaigns whose every value is planted, and what the slots of a page show of them."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl
from synthetic import MEASURE, SUBMISSION, plan_header, plan_lines, publish_grid, write_end, write_start

from ablate.dashboards.app.address import read
from ablate.dashboards.app.campaigns import Campaigns
from ablate.dashboards.app.engine import Engine, shown_of
from ablate.dashboards.app.page import AppPage, Control, PageView, SlotContent
from ablate.store.files.layout import Layout
from ablate.store.files.shards import ShardBuffer

Line = Mapping[str, Any]
POINT = {"sigma_f": 5.0, "sigma_x": 1.0}


class Planted(NamedTuple):
    """The parts of a trial; the value is that of "mse" at `POINT`."""

    value: Callable[[Line], float]
    state: Callable[[Line], str] = lambda _: "ok"
    """ok, pending, running, stopped, or the reason of a failure."""
    cost: Callable[[Line], Mapping[str, float]] = lambda _: {}
    """Fields of `cost` in end.json, and parameters and memory_bytes."""
    items: Callable[[Line], Mapping[str, float]] = lambda _: {}
    probes: Callable[[Line], Sequence[tuple[str, int, int, Mapping[str, float], float]]] = lambda _: ()
    """name, layer, head, point, value."""
    more: Callable[[Line], Mapping[str, float]] = lambda _: {}
    """Further evaluations without a point, by name."""
    metrics: Callable[[Line], Mapping[str, float]] = lambda _: {}
    """Measurements at the end of training, by name."""
    planned: Callable[[Line], bool] = lambda _: True
    """True if the grid has the trial; the rest make zipped axes, and axes that vary one at a time."""


def plant(
    root: Path,
    operators: Sequence[str],
    seeds: Sequence[int],
    planted: Planted,
    *,
    factors: Mapping[str, Sequence[Any]] | None = None,
    measure: Mapping[str, Any] | None = None,
) -> Path:
    """Write the campaign."""
    layout = Layout(root)
    lines = [line for line in plan_lines(operators, seeds, "grid", factors or {}) if planted.planned(line)]
    header = plan_header(lines, "grid", factors or {}, operators)
    publish_grid(layout, header | {"measure": {**MEASURE, **(measure or {})}}, lines)
    buffer = ShardBuffer(layout, submission=SUBMISSION, worker=0)
    for line in lines:
        _write(layout, buffer, line, planted)
    buffer.flush("nothing")
    return root


def _write(layout: Layout, buffer: ShardBuffer, line: Line, planted: Planted) -> None:
    key, state = line["trial"], planted.state(line)
    if state == "pending":
        return
    write_start(layout, key, 1)
    if state == "running":
        return
    if state == "stopped":
        write_end(layout, key, 1, status="stopped", step=2)
        return
    if state != "ok":
        write_end(layout, key, 1, status="failed", reason=state, message=f"it {state} <b>", step=2)
        return
    buffer.add("evaluation", (key, 1, 4, "mse", POINT, planted.value(line), 10, None))
    for name, value in planted.more(line).items():
        buffer.add("evaluation", (key, 1, 4, name, {}, value, 10, None))
    for name, value in planted.metrics(line).items():
        buffer.add("metric", (key, 1, 4, name, value, 0.0))
    for item, value in planted.items(line).items():
        buffer.add("item", (key, 1, 4, "mse", POINT, item, value))
    for name, layer, head, point, value in planted.probes(line):
        buffer.add("probe", (key, 1, 4, name, layer, head, point, value))
    told = dict(planted.cost(line))
    outside = {name: told.pop(name) for name in ("parameters", "memory_bytes") if name in told}
    write_end(layout, key, 1, step=4, **outside, **({"cost": {"steps": 4, **told}} if told else {}))


class Seen(NamedTuple):
    """A page for one state."""

    slots: Mapping[str, SlotContent]
    controls: Mapping[str, Control]

    def frame(self, slot: str) -> pl.DataFrame:
        """The data of a slot."""
        return self.slots[slot].data


@contextmanager
def open_view(root: Path, page: AppPage) -> Iterator[PageView]:
    """A page of an open campaign."""
    engine = Engine(Campaigns([root]), [page])
    name = engine.campaigns.names[0]
    with engine.campaigns.reading(name) as store:
        yield engine.view(store, name, page, page.address())


def show_slot(view: PageView, page: AppPage, name: str, search: str = "") -> SlotContent:
    """A slot for another state."""
    slot = next(each for each in page.slots if each.name == name)
    return shown_of(slot, view._replace(address=read(page.address, search)))


def seen(root: Path, page: AppPage, search: str = "", only: Sequence[str] = ()) -> Seen:
    """The slots `only` (else every one) of `page` of the campaign `root` for the state `search`."""
    engine = Engine(Campaigns([root]), [page])
    name = engine.campaigns.names[0]
    with engine.campaigns.reading(name) as store:
        view = engine.view(store, name, page, read(page.address, search))
        slots = {slot.name: shown_of(slot, view) for slot in page.slots if not only or slot.name in only}
        return Seen(slots, {each.field: each for each in page.controls(view)})
