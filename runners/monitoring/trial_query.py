"""Which trials a query means: `operator=SSA seed=3`, a label, or the beginning of a key.

A query is a list of words. `field=value` keeps the trials with that value, and a word without `=` names a trial by its
label or the beginning of its key. Words about different fields must all hold; of two about the same field, either.
Fields are grid, operator, label, seed, tag, reason and fingerprint (of the failure that counts), and the axes of
the grids.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from grid.errors import NotFoundError, SpecError
from grid.names import label_of
from grid.suggestions import suggest_name

if TYPE_CHECKING:
    from store.store import Store

FIELDS = ("grid", "operator", "label", "seed", "tag", "reason", "fingerprint")
"""Names that every campaign has, in addition to its axes."""

_NAMED = ""
"""The field that a word without `=` is about: the trial, by label or key."""

_HEXADECIMAL = re.compile(r"[0-9a-f]{1,32}")
_SHOWN = 8

_ROWS = """
    WITH why AS (
        SELECT trial, reason, fingerprint FROM attempt WHERE status IS NOT NULL
        QUALIFY attempt = max(attempt) OVER (PARTITION BY trial)
    )
    SELECT g.grid, g.trial, g.label, g.operator, g.seed, CAST(g.axes AS VARCHAR) AS axes, w.reason, w.fingerprint,
           coalesce(a.tags, []) AS tag
    FROM grid_trial g LEFT JOIN why w USING (trial) LEFT JOIN v_annotation a USING (grid, trial)
    ORDER BY g.grid, g.position
"""


class Candidate(NamedTuple):
    """A trial as a grid plans it; `values` are its fields in words."""

    grid: str
    trial: str
    values: Mapping[str, frozenset[str]]


def select(store: "Store", words: Sequence[str]) -> list[str]:
    """Keys of the trials that `words` mean, in the order of the plan; without words, of all.

    Raises:
        SpecError: a word is about a field that there is not, or says nothing.
        NotFoundError: no trial is so; names the nearest value.
    """
    return list(dict.fromkeys(trial for _, trial in select_planned(store, words)))


def select_planned(store: "Store", words: Sequence[str]) -> list[tuple[str, str]]:
    """Grid and key of the trials that `words` mean. Raises as `select` does."""
    rows = [_candidate(row) for row in store.sql(_ROWS).rows(named=True)]
    wanted: dict[str, list[str]] = {}
    for word in words:
        field, value = _parse(word, rows)
        wanted.setdefault(field, []).append(value)
    found = [(row.grid, row.trial) for row in rows if _fits(row, wanted)]
    if words and not found:
        raise NotFoundError(f"no trial fits all of {' '.join(words)!r}; each word of it fits some")
    return found


def _candidate(row: Mapping[str, Any]) -> Candidate:
    axes = json.loads(str(row["axes"]))
    values = {name: {label_of(value)} for name, value in axes.items()}
    for name in FIELDS:
        found = row[name] if isinstance(row[name], list) else [row[name]]
        if told := {str(value) for value in found if value is not None}:
            values.setdefault(name, set()).update(told)
    return Candidate(str(row["grid"]), str(row["trial"]), {name: frozenset(found) for name, found in values.items()})


def _parse(word: str, rows: Sequence[Candidate]) -> tuple[str, str]:
    """The field that a word is about, and the value as the campaign writes it."""
    labels = {label for row in rows for label in row.values["label"]}
    field, equals, value = word.partition("=")
    if not equals or word in labels:
        return _find_name(word, rows, labels)
    known = sorted({name for row in rows for name in row.values} | set(FIELDS))
    if field not in known:
        raise SpecError(f"trials have no field {field!r}; they have {', '.join(known)}{suggest_name(field, known)}")
    values = {each for row in rows for each in row.values.get(field, ())}
    return field, _as_written(field, value, values)


def _as_written(field: str, value: str, values: set[str]) -> str:
    equal = [each for each in values if each == value] or [each for each in values if _alike(each, value)]
    if equal:
        return equal[0]
    listed = sorted(values, key=lambda each: (len(each), each))
    there = ", ".join(listed[:_SHOWN]) + (" and others" if len(listed) > _SHOWN else "")
    near = suggest_name(value, listed)
    raise NotFoundError(f"no trial has {field}={value}; {f'there are {there}{near}' if there else 'none has any'}")


def _alike(written: str, wanted: str) -> bool:
    """Whether both are the same number, or the same text but for case."""
    try:
        return float(written) == float(wanted)
    except ValueError:
        return written.casefold() == wanted.casefold()


def _find_name(word: str, rows: Sequence[Candidate], labels: set[str]) -> tuple[str, str]:
    if word in labels:
        return _NAMED, word
    keys = sorted({row.trial for row in rows if row.trial.startswith(word.lower())}) if word else []
    if len(keys) == 1:
        return _NAMED, keys[0]
    if keys:
        raise NotFoundError(f"several keys begin with {word!r}: {', '.join(keys[:5])}; write more digits")
    alike = [label for label in labels if _alike(label, word)]
    if alike:
        return _NAMED, alike[0]
    if _HEXADECIMAL.fullmatch(word.lower()):
        raise NotFoundError(f"no trial's key begins with {word!r}, and no cell is labelled so")
    near = suggest_name(word, sorted(labels))
    raise NotFoundError(f"{word!r} is no label, no beginning of a key and no condition such as seed=3{near}")


def _fits(row: Candidate, wanted: Mapping[str, Sequence[str]]) -> bool:
    names = {row.trial, *row.values["label"]}
    return all(
        names & set(values) if field == _NAMED else row.values.get(field, frozenset()) & set(values)
        for field, values in wanted.items()
    )
