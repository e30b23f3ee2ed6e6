"""Names of axes and labels of values in tables, and queries of them."""

import re
import shlex
from collections.abc import Sequence

from ablate.grid.errors import SpecError
from ablate.grid.key import canonical_json
from ablate.grid.values import MOST_NAME, show, text_fault

_VAGUE = frozenset({"per", "init", "link", "learned", "kind", "name", "value", "values"})
"""Fields that are ambiguous without the field before them."""

_TAKEN = (
    *("trial", "cell", "seed", "label", "state", "grid", "reason", "attempts", "step", "wall_s", "parameters"),
    *("operator_parameters", "value", "tag", "note", "fingerprint"),
)
"""Columns of each grid and fields of queries, which an axis of that name would hide."""

_RESERVED = re.compile(
    r"""all|analy[sz]e|and|any|array|as|asc|asymmetric|at|both|case|cast|check|collate|column|constraint|create|default|
    deferrable|desc|describe|distinct|do|else|end|except|false|fetch|for|foreign|from|group|having|in|initially|
    intersect|into|lambda|lateral|leading|limit|not|null|offset|on|only|or|order|pivot|placing|primary|qualify|
    references|returning|select|show|some|summarize|symmetric|table|then|to|trailing|true|union|unique|unpivot|using|
    variadic|when|where|window|with""",
    re.VERBOSE | re.IGNORECASE,
)
"""Words that DuckDB refuses as a column name without quotes."""


def require_name(name: str) -> str:
    """Return `name` if it can be a column in SQL without quotes; else raise `SpecError`."""
    if isinstance(name, str) and _RESERVED.fullmatch(name):
        raise SpecError(f"the axis name {name!r} is a reserved word of SQL; give it another name=, such as {name}_")
    if text_fault(name) is not None or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
        raise SpecError(
            f"the axis name {show(name)} is no column of SQL (letters, digits, _; at most {MOST_NAME} "
            "characters); give it name="
        )
    if name.lower() in _TAKEN:
        raise SpecError(
            f"the axis name {name!r} is taken: every grid has the columns {', '.join(_TAKEN)}; give it another name="
        )
    return name


def require_slug(name: str) -> str:
    """Return `name` if it can be part of a file name and, with _ for -, of a view; else raise `SpecError`."""
    if text_fault(name) is not None or not re.fullmatch(r"[a-z0-9]+([-_][a-z0-9]+)*", name):
        raise SpecError(
            f"the grid's name {show(name)} does not fit; write lower-case letters and digits joined by - or _, at most "
            f"{MOST_NAME} characters"
        )
    return name


def axis_names(wanted: Sequence[tuple[str, str | None]]) -> list[str]:
    """Name each (path, given name): by the given name, or by the shortest unambiguous end of the path."""
    lengths = [_shortest(path) for path, _ in wanted]
    while True:
        names = [chosen or _tail(path, length) for (path, chosen), length in zip(wanted, lengths, strict=True)]
        lowered = [name.lower() for name in names]  # SQL ignores case
        clashing = next((name for name in lowered if lowered.count(name) > 1), None)
        if clashing is None:
            return [require_name(name) for name in names]
        places = [at for at, name in enumerate(lowered) if name == clashing]
        longer = [at for at in places if wanted[at][1] is None and lengths[at] < len(wanted[at][0].split("."))]
        if not longer:
            told = " and ".join(repr(wanted[at][0]) for at in places[:2])
            raise SpecError(f"two axes are called {names[places[0]]!r}: {told}; give one another name=")
        for at in longer:
            lengths[at] += 1


def _shortest(path: str) -> int:
    """Count the last fields of a path that make a name which is neither vague nor reserved."""
    parts, length = path.split("."), 1
    while length < len(parts) and (
        parts[-length] in _VAGUE or (name := _tail(path, length)).lower() in _TAKEN or _RESERVED.fullmatch(name)
    ):
        length += 1
    return length


def _tail(path: str, length: int) -> str:
    return "_".join(path.split(".")[-length:])


def label_of(value: object) -> str:
    """Return the name of a value in tables: a spec's label, a tuple's labels, or a scalar as JSON."""
    if isinstance(value, list | tuple):
        return ", ".join(map(label_of, value)) or "none"
    text = "none" if value is None else getattr(value, "label", value)
    return text if isinstance(text, str) else canonical_json(value)


def split_query(text: str) -> list[str]:
    """Split a query into its words as a shell does: `operator="two words" lr=0.01` has two.

    Raises `SpecError` if a quote is open.
    """
    words = shlex.shlex(text, posix=True, punctuation_chars=False)
    words.whitespace_split, words.commenters, words.escape = True, "", ""
    try:
        return list(words)
    except ValueError as error:
        raise SpecError(f"the query {text!r} has an open quote; write one at both ends of a value") from error


def some(names: Sequence[str], most: int) -> str:
    """Join the first `most` of `names` by commas, and say how many more there are."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")


def shorten(texts: Sequence[str], most: int) -> list[str]:
    """Cut the middle out of texts longer than `most`; keep all whole if different texts became equal."""
    most = min(most, max(map(len, texts), default=0))
    for tail in sorted(range(most), key=lambda tail: abs(2 * tail - most)):
        short = [
            text if len(text) <= most else f"{text[: most - 1 - tail]}…{text[len(text) - tail :]}" for text in texts
        ]
        if len(set(short)) == len(set(texts)):
            return short
    return [*texts]
