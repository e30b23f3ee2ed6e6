"""The file of an offline run of W&B has every value that counts, the axes, and nothing else."""

import json
import re
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from synthetic import write_campaign
from tracked_campaign import scalar_name, write_tracked_campaign

from ablate.runners.cli.app import execute
from ablate.store.store import Store

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    pytest.importorskip("wandb", reason='needs "ablate[wandb]"')
    from wandb.proto.wandb_internal_pb2 import Record

BLOCK = 32_768


def records(file: Path) -> Iterator[Any]:
    """Yield the records of a file, which are in the format of LevelDB's log after a head of seven bytes."""
    data, at, parts = file.read_bytes(), 7, b""
    while at < len(data):
        if BLOCK - at % BLOCK < 7:  # no room for the head of a record
            at += BLOCK - at % BLOCK
            continue
        length, kind = int.from_bytes(data[at + 4 : at + 6], "little"), data[at + 6]
        parts += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # whole, or the last part
            yield Record.FromString(parts)
            parts = b""


def read(file: Path) -> dict[str, Any]:
    """Return project, group, name, config, exit code and, by step and name, the values of a run."""
    found: dict[str, Any] = {"config": {}, "values": set()}
    for record in records(file):
        kind = record.WhichOneof("record_type")
        if kind == "run":
            run = record.run
            found |= {"project": run.project, "group": run.run_group, "name": run.display_name, "tags": [*run.tags]}
            found["config"] |= {each.key: json.loads(each.value_json) for each in run.config.update}
        elif kind == "history":
            named = {each.key or "/".join(each.nested_key): each.value_json for each in record.history.item}
            step = json.loads(named["_step"])
            found["values"] |= {(step, name, repr(json.loads(v))) for name, v in named.items() if name[0] != "_"}
        elif kind == "exit":
            found["exit"] = record.exit.exit_code
    return found


def test_the_file_of_a_run_has_what_counts(tmp_path: Path) -> None:
    root = tmp_path / "c"
    campaign = write_tracked_campaign(root)
    assert execute(["export", "wandb", str(tmp_path / "runs"), "--campaign", str(root)]) == 0
    files = list((tmp_path / "runs").rglob("*.wandb"))
    runs = {found["name"]: found for found in map(read, files)}
    assert set(runs) == {"a/b · 0.1 · true seed 0", "a/b · 0.1 · true seed 1", "softmax · 0.1 · true seed 0"}
    with Store.open(root) as store:
        for name, found in runs.items():
            label, seed = name.rsplit(" seed ", 1)
            line = campaign.line(label, int(seed))
            failed = label.startswith("softmax")
            query = (
                "SELECT step, name, value, '{}' AS p FROM v_metric WHERE trial = $t UNION ALL "
                "SELECT step, name, value, point::JSON::VARCHAR FROM v_evaluation WHERE trial = $t"
            )
            rows = store.sql(query, {"t": line["trial"]}).iter_rows()
            wanted = {(step, scalar_name(what, json.loads(point)), repr(value)) for step, what, value, point in rows}
            assert found["values"] == wanted
            assert (found["project"], found["group"], found["exit"]) == (line["grid"], label, int(failed))
            config = {name: value for name, value in found["config"].items() if not name.startswith("_")}
            axes = {"operator": line["axes"]["operator"], "lr": 0.1, "gated": True, "seed": line["seed"]}
            assert (config, found["tags"]) == (axes, ["failed" if failed else "ok"])


def test_a_missing_package_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_campaign(tmp_path / "c", operators=("softmax",), seeds=range(1))
    monkeypatch.setitem(sys.modules, "wandb", None)
    assert execute(["export", "wandb", str(tmp_path / "runs"), "--campaign", str(tmp_path / "c")]) == 5
    assert re.search(r'pip install "ablate\[wandb\]"', capsys.readouterr().err)
