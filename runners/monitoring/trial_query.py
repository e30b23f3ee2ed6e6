"""Trial queries: `operator=SSA seed<3`, a label, or the beginning of a key.

A query is a list of words; one word with several in it, `operator="two words" lr=1`, is split as a shell does.
`field=value` keeps the trials with that value, and a word without `=` names a trial by its label or the beginning of
its key. Words about different fields must all hold; of two about the same field, either.
Fields are grid, operator, label, seed, tag, reason and fingerprint (of the failure that counts), and the axes of
the grids, by name or by path. The field note fits each note that contains the value. `field<number`, and <=, >, >= and
!=, keep the trials whose value compares so.
"""

import json
import math
import operator
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ablate.grid.errors import NotFoundError, SpecError
from ablate.grid.names import label_of, split_query
from ablate.grid.suggestions import suggest_name

if TYPE_CHECKING:  # `ablate cancel` opens no database
    from ablate.store.store import Store

FIELDS = ("grid", "operator", "label", "seed", "tag", "note", "reason", "fingerprint")
"""Names that every campaign has, in addition to its axes."""

_NAME = ""
"""The field of a word without `=`: label or key."""

_COMPARISON = re.compile(r"([^=<>!]+)(<=|>=|!=|<|>)(.+)")
_COMPARE = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}

_SHOWN = 8

_ROWS = """
    WITH why AS (
        SELECT trial, reason, fingerprint FROM attempt WHERE status IS NOT NULL
        QUALIFY attempt = max(attempt) OVER (PARTITION BY trial)
    )
    SELECT g.grid, g.trial, g.label, g.operator, g.seed, CAST(g.axes AS VARCHAR) AS axes, w.reason, w.fingerprint,
           coalesce(a.tags, []) AS tag, a.note
    FROM grid_trial g LEFT JOIN why w USING (trial) LEFT JOIN v_annotation a USING (grid, trial)
    ORDER BY g.grid, g.position
"""


def split_quoted(words: Sequence[str]) -> list[str]:
    """Split the words that hold quotes: `operator="two words" lr=1` as one word becomes two."""
    quoted = ('="', "='")
    return [part for word in words for part in (split_query(word) if any(map(word.count, quoted)) else [word])]


class Candidate(NamedTuple):
    """A trial as a grid plans it; `values` are the texts of its fields."""

    grid: str
    trial: str
    values: Mapping[str, set[str]]


def select(store: "Store", words: Sequence[str]) -> list[str]:
    """Return the keys of the trials that `words` match, in the order of the plan; without words, of all.

    Raises:
        SpecError: a word is the beginning of several keys.
        NotFoundError: a field is unknown, or no trial matches; the text names the nearest value.
    """
    return list(dict.fromkeys(trial for _, trial in select_planned(store, words)))


def select_planned(store: "Store", words: Sequence[str]) -> list[tuple[str, str]]:
    """Return grid and key of the trials that `words` match. Raises as `select` does."""
    names: dict[str, list[tuple[str, str]]] = {}
    levels: dict[str, list[str]] = {}
    for grid, path, name, labels in store.sql(
        "SELECT grid, path, name, labels FROM axis ORDER BY grid, position"
    ).rows():
        names.setdefault(grid, []).append((path, name))
        for field in {path, name}:
            levels.setdefault(field, []).extend(labels)
    rows = [_candidate(row, names.get(row["grid"], ())) for row in store.sql(_ROWS).rows(named=True)]
    wanted: dict[tuple[str, str], set[str]] = {}
    for word in split_quoted(words):
        field, values, alone = _parse(word, rows, levels)
        wanted.setdefault((field, alone), set()).update(values)
    matching = [
        (row.grid, row.trial)
        for row in rows
        if all(row.values.get(field, set()) & values for (field, _), values in wanted.items())
    ]
    if words and not matching:
        raise NotFoundError(f"no trial fits all of {' '.join(words)!r}; each word of it fits some")
    return matching


def _candidate(row: Mapping[str, Any], axes: Sequence[tuple[str, str]]) -> Candidate:
    """Read a trial; `axes` are path and name of those of its grid."""
    values = {name: {label_of(value)} for name, value in json.loads(row["axes"]).items()}
    for name in FIELDS:
        texts = row[name] if isinstance(row[name], list) else [row[name]]
        if texts := {str(text) for text in texts if text is not None}:
            values.setdefault(name, set()).update(texts)
    named = set(values)
    for path, name in axes:
        if path not in named and name in named:
            values.setdefault(path, set()).update(values[name])
    values[_NAME] = {row["trial"], *values["label"]}
    return Candidate(row["grid"], row["trial"], values)


def _parse(word: str, rows: Sequence[Candidate], levels: Mapping[str, list[str]]) -> tuple[str, list[str], str]:
    """Split a word into its field and the values as the campaign writes them; of a note all that contain the value.

    The last text tells words apart that must all hold although their field is the same. `levels` are the labels of each
    axis, in the order of the spec.
    """
    labels = {label for row in rows for label in row.values["label"]}
    field, equals, value = word.partition("=")
    compared, sign = _COMPARISON.fullmatch(word), ""
    if word in labels or not (equals or compared):
        return _NAME, [_find_name(word, rows, labels)], ""
    known = sorted({name for row in rows for name in row.values if name != _NAME} | set(FIELDS))
    if compared and field not in known:
        field, sign, value = compared.groups()
    if field not in known:
        names = ", ".join(name for name in known if "." not in name)
        raise NotFoundError(f"trials have no field {field!r}; they have {names}{suggest_name(field, known)}")
    there = {each for row in rows for each in row.values.get(field, ())}
    declared = [each for each in dict.fromkeys(levels.get(field, ())) if each in there]
    values = [*declared, *sorted(there.difference(declared), key=lambda each: (len(each), each))]
    if sign:
        return field, _compare(word, values, sign, value), word
    equal = [each for each in values if each == value] or [each for each in values if _alike(each, value)][:1]
    if field == "note":
        equal = [each for each in values if value.casefold() in each.casefold()]
        if not equal:
            raise NotFoundError(
                f"no note contains {value!r}; {len(values)} notes are there, and `ablate tag` lists them"
            )
    if not equal:
        listed = ", ".join(values[:_SHOWN]) + (" and others" if len(values) > _SHOWN else "")
        near = suggest_name(value, values)
        raise NotFoundError(
            f"no trial has {field}={value}; {f'there are {listed}{near}' if listed else 'none has any'}"
        )
    return field, equal, ""


def _compare(word: str, values: Sequence[str], sign: str, wanted: str) -> list[str]:
    """Return those of the texts `values` that compare so with a number, or for != that are not `wanted`."""
    if sign == "!=":
        return [each for each in values if not _alike(each, wanted)]
    if math.isnan(_number(wanted)):
        raise SpecError(f"{word!r} compares numbers; got {wanted!r}: write a number, or = for a text")
    return [each for each in values if _COMPARE[sign](_number(each), _number(wanted))]


def _number(text: str) -> float:
    """The number that a text is; NaN, which compares with nothing, if it is none."""
    try:
        return float(text)
    except ValueError:
        return math.nan


def _alike(written: str, wanted: str) -> bool:
    """Return True for the same number, or the same text apart from case."""
    try:
        return float(written) == float(wanted)
    except ValueError:
        return written.casefold() == wanted.casefold()


def _find_name(word: str, rows: Sequence[Candidate], labels: set[str]) -> str:
    keys = sorted({row.trial for row in rows if row.trial.startswith(word.lower())}) if word else []
    names = [label for label in labels if label == word] or keys or [label for label in labels if _alike(label, word)]
    if len(keys) > 1 and names == keys:
        raise SpecError(f"several keys begin with {word!r}: {', '.join(keys[:5])}; write more digits")
    if not names:
        fields = {field for row in rows for field, values in row.values.items() if field and word in values}
        near = (
            f"; did you mean {min(fields, key=lambda field: ('.' in field, field))}={word}?"
            if fields
            else suggest_name(word, sorted(labels))
        )
        raise NotFoundError(f"{word!r} is no label, no beginning of a key and no condition such as seed=3{near}")
    return names[0]
