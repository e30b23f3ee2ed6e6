"""Grids that grow as runs are logged: every run publishes its own line, and the grid's files are derived from all.

No lock is needed: each process that publishes a run derives the grid files again until they agree with the runs. The
last writer also checks after its last write.
"""

import json
import secrets
import struct
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from typing import Any, SupportsIndex

from ablate.grid.errors import NotFoundError, SpecError, StoreError
from ablate.grid.key import canonical_json, content_key
from ablate.grid.names import label_of, require_slug, some
from ablate.grid.values import MOST_LABEL, require_text, require_whole
from ablate.store.external_runs.logged_config import plain_data, plain_levels, require_apart
from ablate.store.files import atomic
from ablate.store.files.atomic import disk_errors, read_bytes, read_json, write_atomic, write_json
from ablate.store.files.layout import FILE_SCHEMA, Layout
from ablate.store.files.plans import require_version
from ablate.store.files.trust import trust_new

Line = Mapping[str, Any]  # a trial line, as in docs/wire-format.md


def require_logged(layout: Layout, grid: str) -> None:
    """Raise SpecError for a name that no grid of logged runs can have, or that a grid of a spec file has."""
    require_slug(grid)
    require_version(layout, grid)
    try:
        header = read_json(layout.grid_header(grid))
    except NotFoundError:
        return
    if header.get("logged") is not True:
        raise SpecError(f"grid {grid!r} of {layout.root} was planned by a spec; log runs into a grid of another name")


def trial_line(
    grid: str, label: str, seed: SupportsIndex, config: Mapping[str, Any], axes: Mapping[str, Any]
) -> dict[str, Any]:
    """The line of one run: its key is that of config, label and seed, its cell's that of config and label.

    A `seed` among `config` must be the run's and is left out there, so that runs that differ by it are replicates.
    Raises SpecError: the label is unfit, the seed no whole number from 0, the config no plain data, an axis no scalar.
    """
    label, seed = require_text(label, "the label of a run", MOST_LABEL), require_whole(seed, "the seed of a run")
    if not isinstance(config, Mapping):
        raise SpecError(f"config is a {type(config).__name__}; give a mapping of names to values, such as vars(args)")
    data, levels = plain_data(config, "config"), plain_levels(axes)
    if data.get("seed", seed) != seed:
        raise SpecError(f"the run has seed={seed!r}, and {data['seed']!r} in its config; give one")
    rest = {name: value for name, value in data.items() if name != "seed"}
    same = {"kind": "logged", "label": label, "config": rest}
    return {
        "trial": content_key(canonical_json({**same, "seed": seed})),
        "cell": content_key(canonical_json(same)),
        "seed": seed,
        "grid": grid,
        "label": label,
        "operator": label,
        "axes": json.loads(canonical_json(levels)),
        "spec": json.loads(canonical_json({**same, "seed": seed})),
    }


KnownLines = dict[str, tuple[float, str, dict[str, Any]] | None]
"""Submissions that one command has read, by their names, so that it reads each once; None: of another grid."""


def publish(layout: Layout, line: Line, known: KnownLines | None = None) -> str:
    """Make the run of `line` part of its grid; the name of its submission. Raises SpecError: it does not fit.

    A command that publishes many runs has `known`, and calls `derive` after the last one.
    """
    _require_fits(line, logged_lines(layout, line["grid"], known))  # so that what is refused leaves nothing behind
    trust_new(layout)
    submission = f"{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}-{secrets.token_hex(3)}"
    _publish_submission(layout, submission, line)
    try:
        _require_fits(line, logged_lines(layout, line["grid"], known))  # another may have come in between
    except SpecError:
        for name in ("logged.json", "manifest.jsonl", "manifest.idx"):
            (layout.submission(submission) / name).unlink(missing_ok=True)
        layout.submission(submission).rmdir()
        raise
    if known is None:
        derive(layout, line["grid"])
    return submission


def _require_fits(line: Line, others: Sequence[Line]) -> None:
    require_apart(dict.fromkeys(chain(*(other["axes"] for other in (*others, line)))))
    for other in others:
        if other["label"] == line["label"] and other["cell"] != line["cell"]:
            before, now = other["spec"]["config"], line["spec"]["config"]
            pairs = {name: (before.get(name, "nothing"), now.get(name, "nothing")) for name in sorted({*before, *now})}
            changed = [f"{name} was {old!r} and is {new!r}" for name, (old, new) in pairs.items() if old != new]
            told = some(changed, 3)
            raise SpecError(
                f"{line['label']!r} of grid {line['grid']!r} has another config: {told}; give this one another label, "
                "or log it into another grid"
            )
        if other["cell"] == line["cell"] and other["axes"] != line["axes"]:
            was, now = other["axes"], line["axes"]
            raise SpecError(f"{line['label']!r} is at {was}, and now at {now}; a variant has one place on the axes")


def _publish_submission(layout: Layout, submission: str, line: Line) -> None:
    place = layout.submission(submission)
    draft = place.with_name(atomic.temporary_name(place.name))
    atomic.make_directory(draft)
    with disk_errors("write", place):
        write_atomic(draft / "manifest.jsonl", _encode([line]))
        write_atomic(draft / "manifest.idx", struct.pack("<Q", 0))
        write_json(draft / "logged.json", {"schema": FILE_SCHEMA, "grid": line["grid"], "began": time.time()})
        draft.rename(place)
        atomic.sync_directory(place.parent)


def _read_logged(
    layout: Layout, grid: str, known: KnownLines | None = None
) -> Iterator[tuple[float, str, dict[str, Any]]]:
    """When each run of `grid` was logged, its submission and its line; those of `ablate run` are passed over.

    So are damaged ones, as ingest reports them, and those that go meanwhile.
    """
    for submission in layout.submission_ids():
        with suppress(NotFoundError, StoreError, FileNotFoundError):
            if known is None or submission not in known:
                record = read_json(layout.submission(submission) / "logged.json")
                manifest = layout.manifest(submission)
                one = None
                if record.get("grid") == grid:
                    one = float(record["began"]), submission, atomic.parse_object(read_bytes(manifest), str(manifest))
            else:
                one = known[submission]
            if known is not None:
                known[submission] = one
            if one is not None:
                yield one


def submissions_of(layout: Layout, grid: str) -> dict[str, str]:
    """The trial of each run that was logged into `grid`, by submission."""
    return {submission: str(line["trial"]) for _, submission, line in _read_logged(layout, grid)}


def move_run(layout: Layout, submission: str, grid: str | None) -> None:
    """Write down that a run belongs to `grid`; None: to no grid any more."""
    path = layout.submission(submission) / "logged.json"
    write_json(path, {**read_json(path), "grid": grid})


def logged_lines(layout: Layout, grid: str, known: KnownLines | None = None) -> list[dict[str, Any]]:
    """The lines of all runs logged into `grid`, oldest first; of a trial that was logged again the first."""
    lines: dict[str, dict[str, Any]] = {}
    for _, _, line in sorted(_read_logged(layout, grid, known), key=lambda each: each[:2]):
        lines.setdefault(line["trial"], line | {"grid": grid})
    return list(lines.values())


LoggedBaseline = str | Mapping[str, object]  # a label, or levels on some axes


def set_measure(layout: Layout, grid: str, baseline: LoggedBaseline | None, measure: Mapping[str, Any] | None) -> None:
    """Write down what `grid` is compared by; None leaves what was said before."""
    require_logged(layout, grid)
    if isinstance(baseline, Mapping) and baseline:
        baseline = plain_data(baseline, "baseline")
    elif baseline is not None:
        baseline = require_text(baseline, "the baseline, a label or levels of axes,", MOST_LABEL)
    before = _read_judged(layout, grid)
    after = {"schema": FILE_SCHEMA, "grid": grid, "baseline": baseline, "measure": measure and dict(measure)}
    after |= {name: before.get(name) for name in ("baseline", "measure") if after[name] is None}
    trust_new(layout)
    if after != before:
        write_json(layout.grid_header(grid).with_suffix(".judged"), after)
    derive(layout, grid)


def _read_judged(layout: Layout, grid: str) -> dict[str, Any]:
    try:
        return read_json(layout.grid_header(grid).with_suffix(".judged"))
    except NotFoundError:
        return {}


def derive(layout: Layout, grid: str) -> None:
    """Write the files of `grid` from all of its runs, until they say what the runs do."""
    while True:
        lines = logged_lines(layout, grid)
        trials, header = _encode(lines), _header(grid, lines, _read_judged(layout, grid))
        with suppress(FileNotFoundError, NotFoundError, StoreError):  # a file that is missing or torn is written anew
            if read_json(layout.grid_header(grid)) == header and read_bytes(layout.grid_trials(grid)) == trials:
                return
        if not lines:
            return
        write_atomic(layout.grid_trials(grid), trials)
        write_json(layout.grid_header(grid), header)


def _header(grid: str, lines: Sequence[Line], judged: Mapping[str, Any]) -> dict[str, Any]:
    labels: dict[str, dict[str, None]] = {}
    for line in lines:
        for name, value in line["axes"].items():
            labels.setdefault(name, {})[label_of(value)] = None
    return {
        "schema": FILE_SCHEMA,
        "grid": grid,
        "cells": len({line["cell"] for line in lines}),
        "trials": len(lines),
        "seeds": sorted({line["seed"] for line in lines}),
        "axes": [{"path": name, "name": name, "labels": list(texts)} for name, texts in labels.items()],
        "rules": [],
        **_find_baselines(lines, judged.get("baseline")),
        "measure": judged.get("measure"),
        "base": {"kind": "logged"},
        "logged": True,
    }


def _find_baselines(lines: Sequence[Line], wanted: LoggedBaseline | None) -> dict[str, Any]:
    """Return fields of a header: the cell of a label; of levels the cell that has them, or one per other levels.

    If one cell has the levels, all others are compared with it; else each with the one of its other levels.
    """
    if not isinstance(wanted, Mapping):
        return {"baseline": {line["label"]: line["cell"] for line in lines}.get(wanted)}
    cells = {line["cell"]: {name: label_of(value) for name, value in line["axes"].items()} for line in lines}
    matched = [name for name in dict.fromkeys(chain(*cells.values())) if name not in wanted]
    asked = {name: label_of(value) for name, value in wanted.items()}
    bases = [cell for cell, levels in cells.items() if asked.items() <= levels.items()]
    if len(bases) == 1:
        return {"baseline": bases[0]}
    others = {cell: tuple(levels.get(name) for name in matched) for cell, levels in cells.items()}
    by_others = {others[base]: base for base in reversed(bases)}
    baselines = {cell: by_others[own] for cell, own in others.items() if cell not in bases and own in by_others}
    if not baselines:
        return {"baseline": None, "matched": matched}
    return {"baseline": bases[0], "baselines": dict(sorted(baselines.items())), "matched": matched}


def _encode(lines: Sequence[Line]) -> bytes:
    texts = (json.dumps(line, allow_nan=False, separators=(",", ":")).encode("ascii") for line in lines)
    return b"".join(atomic.add_seal(text) + b"\n" for text in texts)
