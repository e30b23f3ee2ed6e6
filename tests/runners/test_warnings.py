"""Every command that reads results says what is damaged."""

from collections.abc import Callable
from pathlib import Path

import pytest
from real_spec import real_spec
from submission_files import SMALL
from synthetic import SUBMISSION, write_campaign

from ablate.store.files.layout import Layout
from ablate.store.ingest.ingest_lock import ingest_lock

SELECT = "select count(*) from trial"
COMMANDS = (
    ["table"], ["effects"], ["curves", "--by", "steps", "--level", "0.2"], ["pareto", "--against", "parameters"],
    ["status"], ["status", "--failures"], ["published", "--compare"], ["sql", SELECT],
    ["compare", "{0}", "{1}"], ["retry"], ["report", "--out", "{place}/r.html"],
    ["export", "cells", "--to", "{place}/c.csv"],
)  # fmt: skip


@pytest.fixture(scope="module")
def damaged(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """A campaign with one flipped bit in a shard of evaluations, and keys of two of its trials."""
    root = tmp_path_factory.mktemp("damaged") / "campaign"
    campaign = write_campaign(root, operators=("softmax", "SSA"), seeds=range(3), **SMALL)
    shard = next(root.glob("spool/**/*evaluation*.parquet"))
    content = bytearray(shard.read_bytes())
    content[len(content) // 2] ^= 1
    shard.write_bytes(content)
    return root, [line["trial"] for line in campaign.lines[:2]]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_answers_tell_damage_and_that_they_may_be_old(
    command: list[str], damaged: tuple[Path, list[str]], ablate: Callable, tmp_path: Path
) -> None:
    root, keys = damaged
    words = [*(word.format(*keys, place=tmp_path) for word in command), "--campaign", root]
    assert "is not served" in ablate(*words, code=2 if command == ["retry"] else 0).err
    if command[0] in ("retry", "report", "export"):  # they print no results
        return
    with ingest_lock(Layout(root), wait=True):
        for told in (ablate(*words).err, ablate(*words, "--json").out):
            assert "is not served" in told
            assert "results may be out of date: another process" in told


@pytest.mark.usefixtures("repro_here")
def test_commands_that_train_tell_damage_of_earlier_results(tmp_path: Path, ablate: Callable) -> None:
    spec, root = tmp_path / "spec.py", tmp_path / "c"
    spec.write_text(real_spec("small", training="steps=1", operators="softmax()", seeds=1))
    ablate("run", spec, "--campaign", root, "--on", "inline")
    shard = next(root.glob("spool/**/*evaluation*.parquet"))
    shard.write_bytes(shard.read_bytes()[:-9])
    for words in (["run", spec, "--on", "inline"], ["plan", spec], ["repro", "seed=0"]):
        code = 4 if words[0] == "repro" else 0
        assert "is not served" in ablate(*words, "--campaign", root, code=code).err, words


def test_a_damaged_header_or_manifest_is_named_and_not_what_depends_on_it(tmp_path: Path, ablate: Callable) -> None:
    campaign = write_campaign(tmp_path, operators=("softmax", "SSA"), seeds=[0], **SMALL)
    campaign.layout.manifest(SUBMISSION).write_bytes(b"")
    said = ablate("check", "--campaign", tmp_path, code=6).out
    assert "manifest.jsonl" in said
    assert "manifest.idx" not in said
    campaign.layout.grid_header("quickstart").write_text("{")
    assert "no grid of" in ablate("table", "--campaign", tmp_path, code=6).err
