"""Queries of the trials of a campaign: `operator=SSA seed<3`, a label, or the beginning of a key.

Fields are those of `FIELDS`, and the axes of the grids, by name or by path. A word without a sign names trials by their
label or by the beginning of their key, and several such words are alternatives.
"""

import json
from collections.abc import Sequence
from functools import partial
from typing import Final

import polars as pl

from ablate.grid.errors import NotFoundError, SpecError
from ablate.grid.names import label_of, some
from ablate.grid.suggestions import suggest_name
from ablate.store.analysis.query import STATE, Table, compare, fit, split_quoted
from ablate.store.store import Store

FIELDS: Final = ("grid", "operator", "label", "seed", "tag", "note", "reason", "fingerprint")
"""Names that every campaign has, in addition to its axes and to the state of a trial."""

_KEY: Final = "key of the trial"

_ROWS: Final = f"""
    WITH why AS (
        SELECT trial, reason, fingerprint FROM attempt WHERE status IS NOT NULL
        QUALIFY attempt = max(attempt) OVER (PARTITION BY trial)
    )
    SELECT g.grid, g.trial, g.label, g.operator, g.seed, CAST(g.axes AS VARCHAR) AS axes, w.reason, w.fingerprint,
           coalesce(a.tags, []) AS tag, a.note, t.{STATE}
    FROM grid_trial g LEFT JOIN why w USING (trial) LEFT JOIN v_annotation a USING (grid, trial)
    LEFT JOIN trial t USING (trial)
    ORDER BY g.grid, g.position
"""


def select(store: Store, words: Sequence[str]) -> list[str]:
    """Return the keys of the trials that `words` match, in the order of the plan; without words, of all.

    Raises:
        SpecError: a word is the beginning of several keys, or a number is compared with a text.
        NotFoundError: a field is unknown, or no trial matches; the text names the nearest value.
    """
    return list(dict.fromkeys(trial for _, trial in select_planned(store, words)))


def select_planned(store: Store, words: Sequence[str]) -> list[tuple[str, str]]:
    """Return grid and key of the trials that `words` match. Raises as `select` does."""
    rows = store.sql(_ROWS)
    if words:
        rows = rows.filter(fit(_table(store, rows), split_quoted(words)))
        if rows.is_empty():
            raise NotFoundError(f"no trial fits all of {' '.join(words)!r}")
    return [(grid, trial) for grid, trial in rows.select("grid", "trial").iter_rows()]


def _table(store: Store, rows: pl.DataFrame) -> Table:
    """Make a column of texts for every field of `rows`; one of lists where a name is that of a field and an axis."""
    texts = rows["axes"].unique(maintain_order=True)
    cells = [{f"axis {name}": label_of(value) for name, value in json.loads(text).items()} for text in texts]
    named = dict.fromkeys(name for cell in cells for name in cell)
    wide = pl.DataFrame(
        [{"axes": text, **cell} for text, cell in zip(texts, cells, strict=True)],
        {"axes": pl.String, **dict.fromkeys(named, pl.String)},
    )
    sources = {name.removeprefix("axis "): [pl.col(name)] for name in named}
    sources.setdefault(STATE, [pl.col(STATE)])
    for field in FIELDS:
        sources.setdefault(field, []).append(pl.col(field).cast(pl.List(pl.String) if field == "tag" else pl.String))
    levels: dict[str, list[str]] = {}
    axes = store.sql(
        "SELECT path, name, labels, list(grid) AS grids FROM axis GROUP BY ALL ORDER BY min((grid, position))"
    )
    for path, name, labels, grids in axes.iter_rows():
        for field in {path, name}:
            levels.setdefault(field, []).extend(labels)
        if path != name and f"axis {name}" in named:
            here = pl.col("grid").is_in(grids) & (pl.col(f"axis {path}").is_null() if f"axis {path}" in named else True)
            sources.setdefault(path, []).append(pl.when(here).then(pl.col(f"axis {name}")))
    columns = [
        each[0].alias(name) if len(each) == 1 else pl.concat_list(each).list.drop_nulls().alias(name)
        for name, each in sources.items()
    ]
    fields = rows.join(wide, on="axes", how="left", maintain_order="left").select(pl.col("trial").alias(_KEY), *columns)
    return Table(fields, {name: name for name in sources}, partial(_find_name, fields), set(fields["label"]), levels)


def _find_name(fields: pl.DataFrame, word: str) -> tuple[str, pl.Expr]:
    """Return the condition that a label, or else a key, is the word. Raises as `select` does."""
    labels, keys = fields["label"].unique(maintain_order=True), fields[_KEY].unique(maintain_order=True)
    begun = sorted(keys.filter(keys.str.starts_with(word.lower()))) if word else []
    names = [word] if word in labels else begun or [label for label in labels if compare(label, "=", word)]
    if len(begun) > 1 and names == begun:
        raise SpecError(f"several keys begin with {word!r}: {', '.join(begun[:5])}; write more digits")
    if not names:
        having = [name for name in fields.columns if word in fields[name].explode()]
        near = min(having, key=lambda name: ("." in name, name), default=None)
        hint = suggest_name(word, sorted(labels)) if near is None else f"; did you mean {near}={word}?"
        parts = [label for label in labels if word.lower() in label.lower()]
        hint = hint or f"; labels here: {some(parts or [*labels], 5)}"
        raise NotFoundError(f"{word!r} is no label, no beginning of a key and no condition such as seed=3{hint}")
    return "", (pl.col(_KEY) == names[0]) | (pl.col("label") == names[0])
