"""Arrays that probes left beside the tables: which there are of a trial, and what is in one."""

import io
import zipfile
import zlib
from typing import Final, NamedTuple

import numpy as np
import polars as pl

from ablate.grid.errors import StoreError
from ablate.store.files.atomic import read_file
from ablate.store.store import Store

LARGEST: Final = 2**28
"""Bytes of all arrays of a file together, unpacked: more is refused, since it would take the reader's memory."""


class StoredArray(NamedTuple):
    """A file of arrays."""

    trial: str
    attempt: int
    step: int
    name: str


def artefacts(store: Store, trial: str) -> list[StoredArray]:
    """The files of a trial that count, by step and name: of the attempts that its result came from, the last."""
    counted = store.sql("SELECT attempt, until FROM counted WHERE trial = $trial ORDER BY attempt", {"trial": trial})
    files: dict[tuple[int, str], StoredArray] = {}
    for attempt, until in counted.iter_rows():
        for name, step in store.layout.artefact_names(trial, attempt):
            if until is None or step <= until:
                files[step, name] = StoredArray(trial, attempt, step, name)
    return [files[key] for key in sorted(files)]


def with_artefacts(store: Store, grid: str, kind: str) -> pl.DataFrame:
    """The trials of a grid whose spec lists the probe `kind`, such as attention_maps: trial, cell, seed, state."""
    return store.sql(
        """
        SELECT g.trial, g.cell, g.seed, t.state FROM grid_trial g JOIN trial t USING (trial)
        WHERE g.grid = $grid AND list_contains(json_extract_string(t.spec, '$.probing.probes[*].kind'), $kind)
        ORDER BY g.position
        """,
        {"grid": grid, "kind": kind},
    )


def arrays(store: Store, artefact: StoredArray) -> dict[str, np.ndarray]:
    """Read the arrays of a file by name; nothing in it is executed. Raises NotFoundError, StoreError."""
    path = store.layout.artefact(*artefact)
    data = read_file(path)
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as packed:
            size = sum(each.file_size for each in packed.infolist())
        if size > LARGEST:
            raise StoreError(f"{path} has {size:,} bytes of arrays; at most {LARGEST:,} are read")
        with np.load(io.BytesIO(data), allow_pickle=False) as held:
            return {name: held[name] for name in held.files}
    except (zipfile.BadZipFile, zlib.error, ValueError, EOFError, KeyError, NotImplementedError) as error:
        raise StoreError(f"{path} is no file of arrays ({error}); the trial's other files are served") from error
