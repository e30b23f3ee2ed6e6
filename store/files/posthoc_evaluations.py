"""Evaluations of finished trials that were made later: their records, read and checked, as rows of `evaluated`.

    trials/<k>/<key>/<attempt>/evaluations/<evaluation>.json                     what, when, with which code
    trials/<k>/<key>/<attempt>/evaluations/<id>-0000-000000-<table>.<blake2b>.parquet     its rows, as shards

A record names its shards, and only shards that a record names are served. So one rename publishes an evaluation or
replaces it, and what a killed process has left counts for nothing.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, final

from grid.errors import NotFoundError, StoreError
from store.files.atomic import read_json
from store.files.layout import Layout
from store.files.plans import file_signature, json_text
from store.files.record_fields import Field, check_record, check_schema, clean_text
from store.files.shards import is_shard_name

_RECORD = {
    "trial": Field("key"),
    "attempt": Field("int32"),
    "evaluation": Field("key"),
    "kind": Field("text"),
    "spec": Field("object"),
    "step": Field("int64"),
    "shards": Field("list"),
    "ended": Field("float"),
    "wall_s": Field("float"),
    "host": Field("text"),
    "device": Field("text"),
    "threads": Field("int32"),
    "versions": Field("object"),
    "sources": Field("object", optional=True),
    "changed": Field("list"),
    "data": Field("object", optional=True),
}

Place = tuple[str, int, str]
"""A trial, its attempt, and the key of an evaluation."""


@final
class Evaluated(NamedTuple):
    """A row of the table `evaluated`, in the order of its columns."""

    trial: str
    attempt: int
    evaluation: str
    kind: str
    spec: str | None
    step: int
    ended: float
    wall_s: float
    host: str | None
    device: str | None
    threads: int
    versions: str | None
    sources: str | None
    changed: list[str]
    data: str | None
    shards: list[str]
    signature: str


def read_evaluation(layout: Layout, place: Place) -> dict[str, Any]:
    """The record of a later evaluation.

    Raises:
        NotFoundError: there is none.
        StoreError: it is torn or altered, of another version, or of another place.
    """
    record = read_json(layout.evaluation(*place))
    check_schema(record)
    check_record(record, _RECORD)
    if (record["trial"], record["attempt"], record["evaluation"]) != place:
        raise StoreError(f"it speaks of {record['evaluation']} of {record['trial']}, and lies elsewhere")
    for name in record["shards"]:
        if not isinstance(name, str) or not is_shard_name(name):
            raise StoreError(f"field 'shards' must be names of shards, got {name!r}")
    return record


def evaluated_on_disk(layout: Layout, attempts: Iterable[tuple[str, int]]) -> dict[Place, str]:
    """Every later evaluation of the `attempts`, with a signature that changes when its record does."""
    places = ((*attempt, key) for attempt in attempts for key in layout.evaluation_keys(*attempt))
    return {place: file_signature(layout.evaluation(*place)) for place in places}


def evaluated_row(layout: Layout, place: Place, signature: str) -> Evaluated | tuple[str, str] | None:
    """Its row; or the file and what is wrong with it; or None where it has gone meanwhile."""
    try:
        record = read_evaluation(layout, place)
    except NotFoundError:
        return None
    except StoreError as error:
        return layout.evaluation(*place).relative_to(layout.root).as_posix(), str(error)
    return Evaluated(
        *place,
        kind=str(clean_text(record["kind"])),
        spec=json_text(record["spec"]),
        step=record["step"],
        ended=record["ended"],
        wall_s=record["wall_s"],
        host=clean_text(record["host"]),
        device=clean_text(record["device"]),
        threads=record["threads"],
        versions=json_text(record["versions"]),
        sources=json_text(record.get("sources")),
        changed=[str(clean_text(str(name))) for name in record["changed"]],
        data=json_text(record.get("data")),
        shards=record["shards"],
        signature=signature,
    )


def evaluation_shards(layout: Layout, record: Mapping[str, Any]) -> list[Path]:
    """The files that a record names."""
    directory = layout.evaluations(record["trial"], record["attempt"])
    return [directory / name for name in record["shards"]]
