"""Draw the progress of a grid: the state of every trial, or of many cells the share that is done."""

from collections import Counter
from collections.abc import Sequence
from typing import Final, NamedTuple

import plotly.graph_objects as go
import polars as pl

from ablate.dashboards.data.formatting import plain
from ablate.dashboards.data.grid_context import MOST_ROWS, Appearance, in_order
from ablate.dashboards.figures.canvas import canvas, name_rows, one_line, points
from ablate.dashboards.figures.heat import Ramp, draw_heat
from ablate.dashboards.figures.pivot import NOWHERE
from ablate.dashboards.theme.styles import INK, PAPER, STATE_COLORS, Style
from ablate.store import Store
from ablate.store.analysis.effects import levels_of
from ablate.store.analysis.verdicts import GridMeasure
from ablate.store.state import OF_FILES, State

_MOST_SEEDS: Final = 60
_ROW: Final = 28
_WIDTH: Final = 900  # pixels of all seeds together, about


class Look(NamedTuple):
    """Word, sign and colour of a state."""

    word: str
    sign: str
    color: str
    ink: str  # colour of its sign


STATES: Final = {
    "done": Look("done", "✓", STATE_COLORS["done"], PAPER),
    "failed": Look("failed", "✗", STATE_COLORS["failed"], PAPER),
    "not finite": Look("done, its value is no finite number", "!", STATE_COLORS["failed"], PAPER),
    "running": Look("running", "▸", STATE_COLORS["running"], PAPER),
    "stopped": Look("stopped, to be continued", "‖", STATE_COLORS["stopped"], INK),
    "lost": Look("lost, to be continued", "–", STATE_COLORS["lost"], INK),
    "pending": Look("to do", "·", STATE_COLORS["pending"], INK),
    "unreadable": Look("without a readable result", "?", STATE_COLORS["failed"], PAPER),
}


def states(store: Store, grid: str, cells: Sequence[str], measure: GridMeasure | None = None) -> pl.DataFrame:
    """Read every planned trial of `cells`: cell, label, operator, axes (JSON), seed, trial, state (of `STATES`), why.

    With a `measure`, a trial whose value is not finite has a state of its own: comparisons cannot use it.
    """
    trials = store.sql(
        """
        SELECT g.cell, g.label, g.operator, g.axes::VARCHAR AS axes, g.seed, g.trial,
               CASE WHEN u.trial IS NOT NULL THEN 'unreadable' ELSE t.state END AS state,
               CASE WHEN t.state = 'failed' THEN t.reason END AS why
        FROM grid_trial g JOIN trial t USING (trial)
        LEFT JOIN v_unreadable u ON u.grid = g.grid AND u.trial = g.trial
        WHERE g.grid = $grid
        """,
        {"grid": grid},
    )
    if measure is not None:
        values = store.final(grid, measure.name, measure.point).select("trial", "value")
        lost = (pl.col("state") == State.DONE) & ~pl.col("value").is_finite()
        words = pl.format("{} {}", pl.lit(measure.name), pl.col("value"))
        state = pl.when(lost).then(pl.lit("not finite")).otherwise("state")
        why = pl.when(lost).then(words).otherwise("why")
        trials = trials.join(values, on="trial", how="left").with_columns(state=state, why=why).drop("value")
    return in_order(trials, cells, "seed")


def draw_states(trials: pl.DataFrame, appearance: Appearance) -> go.Figure:
    """A square with a sign per trial: a row per cell, a column per seed, a trace per state."""
    cells = list(dict.fromkeys(trials["cell"]))
    seeds = trials["seed"].unique().sort().to_list()
    figure = canvas(80 + _ROW * len(cells), x="seed")
    for name, state in STATES.items():
        rows = trials.filter(pl.col("state") == name)
        if rows.is_empty():
            continue
        texts = [
            f"{plain(appearance.names[cell])}, seed {seed}<br>{state.word}{f': {plain(why)}' if why else ''}"
            for cell, seed, why in rows.select("cell", "seed", "why").iter_rows()
        ]
        x, y = [seeds.index(seed) for seed in rows["seed"]], [cells.index(cell) for cell in rows["cell"]]
        square = Style(state.color, state.color, "solid", "square")
        trace = points(x, y, square, texts, name=state.word, legendgroup=name, mode="markers+text")
        trace.update(text=[state.sign] * rows.height, textfont={"color": state.ink, "size": 13})
        figure.add_trace(trace.update(marker_size=min(20, round(0.8 * _WIDTH / len(seeds)))))
    every = max(1, -(-len(seeds) // 24))
    ticks = {"tickvals": [*range(0, len(seeds), every)], "ticktext": [str(seed) for seed in seeds[::every]]}
    figure.update_xaxes(range=[-0.7, len(seeds) - 0.3], showgrid=False, **ticks)
    name_rows(figure, one_line([appearance.names[cell] for cell in cells], 40))
    return figure


def fits_rows(trials: pl.DataFrame) -> bool:
    """True if there is room for a row per cell and a column per seed."""
    return trials["cell"].n_unique() <= MOST_ROWS and trials["seed"].n_unique() <= _MOST_SEEDS


class Shares(NamedTuple):
    """Cells in groups."""

    frame: pl.DataFrame
    """x (seed), y (group), value (share that is done), text (how many are in which state), note (in words)."""
    by: str  # name of the groups: "operator", an axis, or "" for one group


def shares(store: Store, grid: str, trials: pl.DataFrame) -> Shares:
    """The trials of `states` by operator and seed; of one operator, or of too many, by the first axis that fits."""
    header = store.grid(grid)
    levels = levels_of(header, trials["axes"].to_list())
    columns = {name: [level or NOWHERE for level in each] for name, each in levels.items()}
    columns = {"operator": trials["operator"].to_list()} | {n: of for n, of in columns.items() if n != "operator"}
    by = next((name for name, levels in columns.items() if 1 < len(set(levels)) <= MOST_ROWS), "")
    order = list(dict.fromkeys(columns[by])) if by else ["all cells"]
    labels: list[str] = next((axis["labels"] for axis in header["axes"] if axis["name"] == by), [])
    order.sort(key=lambda level: labels.index(level) if level in labels else len(labels))
    grouped = trials.with_columns(pl.Series("group", columns[by] if by else ["all cells"] * trials.height, pl.String))
    rows = []
    for (group, seed), part in grouped.group_by("group", "seed"):
        counts = Counter(part["state"].to_list())
        known = [(state, counts[name]) for name, state in STATES.items() if counts[name]]
        text = " ".join(f"{state.sign} {n}" for state, n in known)
        note = ", ".join(f"{n} {state.word}" for state, n in known)
        rows.append({"x": seed, "y": str(group), "value": counts[State.DONE] / part.height, "text": text, "note": note})
    return Shares(pl.DataFrame(rows, schema_overrides={"y": pl.Enum(order)}).sort("y", "x"), by)


def draw_shares(shares: Shares) -> go.Figure:
    """A row per group, a column per seed."""
    return draw_heat(shares.frame, Ramp(0.0, 1.0, title="share done"), x="seed", y=shares.by)


def totals(progress: pl.DataFrame) -> dict[str, int]:
    """Trials of the whole grid: planned, and in each state."""
    return {name: int(progress[name].sum()) for name in ("planned", *OF_FILES)}
