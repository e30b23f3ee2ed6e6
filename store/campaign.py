"""A campaign in Python: its results as polars frames, and a place to log runs of your own; see docs/python.md."""

import html
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, SupportsIndex, final

from ablate.grid.errors import AblateError, NotFoundError, SpecError
from ablate.grid.measure import Measure
from ablate.grid.names import some
from ablate.grid.suggestions import suggest_name
from ablate.store.files.layout import Layout
from ablate.store.state import OF_FILES

if TYPE_CHECKING:
    import polars as pl

    from ablate.store.external_runs.logged_run import CampaignRun
    from ablate.store.store import Store

_VERDICT = ("label", "verdict", "percent", "p_holm", "reason", "pairs", "value", "baseline_value")
_COUNTS = ("planned", *OF_FILES)


def only(what: str, wanted: str | None, known: Sequence[str], where: str) -> str:
    """`wanted` if it is among `known`, or the only one there is if none is wanted; `what` names the kind of thing."""
    if wanted is not None and wanted not in known:
        near = suggest_name(wanted, list(known))
        raise NotFoundError(f"{where} has no {what} {wanted!r}; it has {some([*map(repr, known)], 12) or 'none'}{near}")
    if not known:
        raise NotFoundError(f"{where} has no {what} yet")
    if wanted is None and len(known) > 1:
        raise SpecError(f"{where} has several {what}s: {some([*map(repr, known)], 12)}; say which one")
    return known[0] if wanted is None else wanted


@final
class Campaign:
    """The campaign in the directory `root`.

    The first question brings the database of the campaign up to date, and later ones are answered from the same state,
    until `refresh`. With `refresh=False` the database is read as it was last published, and nothing is written. If
    `grid` is None, the only grid is meant. `code` names the version of your own code, as a commit does, for the runs
    that are logged through this object: results of several versions get no verdict.

    Methods that read raise NotFoundError for an unknown campaign, grid or name, SpecError for a question without
    meaning, and StoreError for stored data that cannot be read. The text says what to do.
    """

    def __init__(self, root: str | Path, *, refresh: bool = True, code: str | None = None) -> None:
        self.root = Path(root).expanduser()
        self._refreshes = refresh
        self._code = code
        self._store: Store | None = None
        self._running: list[CampaignRun] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the database; the next question opens it again."""
        if self._store is not None:
            self._store.close()
            self._store = None

    def refresh(self) -> Self:
        """Bring in what has landed since the first question."""
        self.close()
        self._refreshes = True
        self.store  # noqa: B018  (opened now, so that errors are raised here)
        return self

    @property
    def store(self) -> "Store":
        """The open database; the functions of `ablate.store.analysis` take it."""
        from ablate.store.analysis.judge import conclude
        from ablate.store.store import Store

        if any(run.ended for run in self._running):  # runs logged through this object are among its results
            self._running = [run for run in self._running if not run.ended]
            self.close()
        if self._store is None:
            self._store = Store.open(self.root, refresh=self._refreshes, conclude=conclude)
        return self._store

    def sql(self, query: str, parameters: Sequence[Any] | Mapping[str, Any] | None = None) -> "pl.DataFrame":
        """The result of one reading statement; docs/sql.md has the tables, views and an example of each."""
        return self.store.sql(query, parameters)

    def grids(self) -> list[str]:
        """Names of the grids, sorted."""
        return self.store.grids()

    def grid_named(self, grid: str | None = None) -> str:
        """`grid`, or the only grid."""
        if grid is not None or not self.grids():
            self.store.require_read(self.store.layout.grid_names() if grid is None else [grid])
        return only("grid", grid, self.grids(), f"the campaign in {self.root}")

    def trials(self, grid: str | None = None) -> "pl.DataFrame":
        """One row per planned trial, in execution order.

        Columns: label, seed, state (see `ablate.store.State`), reason (of a failure), attempts, step, wall_s.
        Then a typed column per axis, `value` (the grid's measure, null unless the trial is done), and keys. An axis
        that is called operator takes the place of that column.
        """
        from ablate.store.export.tables import trials

        return trials(self.store, self.grid_named(grid))

    def curves(self, name: str, grid: str | None = None, *, buckets: int = 400) -> "pl.DataFrame":
        """A training metric of every trial by step, in at most `buckets` buckets of equal width.

        Columns: label, seed, step (the bucket's first), mean, low, high of its finite values, n, n_finite, and keys.
        """
        chosen = self._grid_with("metric", name, grid)
        return _led_by(self.store.curves(chosen, name, buckets=buckets), "label", "seed")

    def evaluations(
        self, name: str | None = None, grid: str | None = None, *, where: Mapping[str, float] | None = None
    ) -> "pl.DataFrame":
        """The values of an evaluation, by default the measured one, at every point that agrees with `where`.

        Columns: label, seed, step (the last), one per coordinate of the points, value, items, se_items, and keys.
        """
        from ablate.store.analysis.verdicts import measure_of

        chosen = self.grid_named(grid)
        wanted = measure_of(self.store, chosen, None).name if name is None else name
        self._grid_with("evaluation", wanted, chosen)
        return _led_by(self.store.evaluation(chosen, wanted, where), "label", "seed")

    def probes(self, name: str, grid: str | None = None) -> "pl.DataFrame":
        """The values of a probe at every step.

        Columns: label, seed, state, step, layer, head (or null), one per coordinate of the points, value, and keys.
        """
        from ablate.store.export.tables import probes

        return probes(self.store, self._grid_with("probe", name, grid), name)

    def compare(
        self,
        grid: str | None = None,
        baseline: str | None = None,
        measure: "str | Measure | Mapping[str, Any] | None" = None,
    ) -> "pl.DataFrame":
        """The verdict of every cell against the baseline, as `ablate table` prints it.

        `baseline` is a label or a cell's key, by default the grid's. `measure` replaces the grid's: an evaluation's
        name, a Measure, or single fields such as `{"point": {"sigma_f": 5}}`. One row per other cell: label, verdict,
        percent, p_holm, reason, pairs, value, baseline_value, and what else docs/statistics.md explains.
        """
        from ablate.store.analysis.judge import judge

        frame = judge(self.store, self.grid_named(grid), baseline=baseline, measure=_changes(measure)).rows
        return _led_by(frame, *_VERDICT)

    def effects(
        self, grid: str | None = None, measure: "str | Measure | Mapping[str, Any] | None" = None
    ) -> "pl.DataFrame":
        """Return what levels of axes do, against those of the baseline; docs/factorial.md has the columns.

        `ablate effects` notes what it leaves out besides rows with a `note`.
        """
        from ablate.store.analysis.effects import effects

        return effects(self.store, self.grid_named(grid), measure=_changes(measure)).effects

    def progress(self, grid: str | None = None) -> "pl.DataFrame":
        """How far each cell is: label, planned, a count per state, unreadable, operator, cell."""
        return _led_by(self.store.progress(self.grid_named(grid)), "label")

    def failures(self, grid: str | None = None) -> "pl.DataFrame":
        """Failed trials by kind, commonest first: fingerprint, reason, n, example, labels, message, traceback."""
        return self.store.failures(grid)

    def _grid_with(self, table: str, name: str, grid: str | None) -> str:
        chosen = self.grid_named(grid)
        only(table, name, self.store.list_names(chosen, f"v_{table}"), f"grid {chosen!r}")
        return chosen

    def grid(
        self,
        name: str,
        *,
        baseline: str | Mapping[str, object] | None = None,
        measure: Measure | Mapping[str, Any] | None = None,
    ) -> Self:
        """Say once what the runs logged into the grid `name` are compared by; what is None stays as it was.

        `baseline` is the label of a variant, which may be logged later, or levels of axes: {"operator": "softmax"} is
        the baseline at each level of the other axes. Raises SpecError: a name or measure without meaning, or a grid
        that a spec has planned; EnvironmentProblem: the campaign cannot be written.
        """
        from pydantic import ValidationError

        from ablate.grid.validation import spec_error
        from ablate.store.external_runs.logged_plans import set_measure

        try:
            checked = Measure.model_validate(dict(measure)) if isinstance(measure, Mapping) else measure
        except ValidationError as error:
            raise spec_error(error, "Measure") from error
        set_measure(Layout(self.root), name, baseline, None if checked is None else checked.data())
        return self

    def start(
        self,
        grid: str,
        *,
        label: str,
        seed: SupportsIndex,
        config: Mapping[str, Any] | None = None,
        axes: Mapping[str, str | float | bool | None] | None = None,
        steps: SupportsIndex | None = None,
    ) -> "CampaignRun":
        """Begin to log a run of a training loop of your own; the campaign and the grid are made if need be.

        `grid` is lower-case letters and digits joined by - or _. `label` names the variant; its runs differ in their
        seeds only, and seeds pair the runs of different variants. `config` is everything that makes a difference, as
        plain data, paths, specs or arrays. `axes` are levels of the variant, by axis: a number, a text or a truth value
        each. `steps` is how many there will be, for displays. Raises SpecError: one of these has no meaning, the label
        has another config, or a live process logs the run.
        """
        from ablate.store.external_runs.logged_plans import require_logged, trial_line
        from ablate.store.external_runs.logged_run import start_run

        layout = Layout(self.root)
        require_logged(layout, grid)
        run = start_run(
            layout,
            trial_line(grid, label, seed, {} if config is None else config, {} if axes is None else axes),
            steps,
            self._code,
        )
        self._running.append(run)
        return run

    def finished(self, *, label: str, seed: SupportsIndex, config: Mapping[str, Any] | None = None) -> bool:
        """Return True if such a run was logged and finished, so that a script can skip it when it is run again.

        If this object has a `code`, a run that another version of the code finished does not count.
        """
        from ablate.store.external_runs.logged_plans import trial_line
        from ablate.store.files.trial_state import trial_state

        line = trial_line("any", label, seed, {} if config is None else config, {})
        done = trial_state(Layout(self.root), line["trial"]).result
        return done is not None and self._code in (None, done.start.get("code"))

    def __repr__(self) -> str:
        layout = Layout(self.root)
        try:
            names = layout.grid_names()
            what = f"{len(names)} grid{'s' * (len(names) != 1)}: {', '.join(names)}" if names else "no grid yet"
            return f"Campaign({str(self.root)!r}): {what if layout.exists() else 'there is no campaign yet'}"
        except AblateError as error:
            return f"Campaign({str(self.root)!r}): {error}"

    def _repr_html_(self) -> str:
        title = f"<p><strong>Campaign</strong> <code>{html.escape(str(self.root))}</code></p>"
        try:
            rows = [self._overview(grid) for grid in self.grids()]
            notes = self.store.warnings()
        except AblateError as error:
            return f"{title}<p>{html.escape(str(error))}</p>"
        heads = [("grid", "cells", *_COUNTS, "baseline", "measure")]
        cells = ("".join(f"<td>{html.escape(str(each))}</td>" for each in row) for row in [*heads, *rows])
        table = f"<table>{''.join(f'<tr>{row}</tr>' for row in cells)}</table>" if rows else "<p>no grid yet</p>"
        return title + table + "".join(f"<p>{html.escape(note)}</p>" for note in notes)

    def _overview(self, grid: str) -> list[object]:
        progress, header = self.store.progress(grid), self.store.grid(grid)
        labels = dict(progress.select("cell", "label").iter_rows())
        counts = [progress[name].sum() for name in _COUNTS]
        measure = header["measure"] or {}
        return [grid, progress.height, *counts, labels.get(header["baseline"], "–"), measure.get("name", "–")]


def _led_by(frame: "pl.DataFrame", *first: str) -> "pl.DataFrame":
    """The frame with the columns `first` in front and the keys at the end."""
    keys = [name for name in ("operator", "cell", "trial") if name in frame.columns]
    return frame.select(*first, *(name for name in frame.columns if name not in (*first, *keys)), *keys)


def _changes(measure: str | Measure | Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """The fields of a measure that replace a grid's; another evaluation does not keep the point of the grid's own."""
    if isinstance(measure, str):
        return {"name": measure, "point": {}}
    if isinstance(measure, Measure):
        return {name: value for name, value in measure.data().items() if name != "unit"}
    return measure
