"""Files of TensorBoard, W&B and CSV as their own writers make them, and what an import of them stored."""

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ablate.runners.cli.app import execute
from ablate.store.files.layout import Layout
from ablate.store.store import Store

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    pytest.importorskip("tensorboard", reason='needs "ablate[tensorboard]"')
    pytest.importorskip("wandb", reason='needs "ablate[wandb]"')
    from torch.utils.tensorboard import SummaryWriter

Rows = dict[tuple[str, int], set[tuple[Any, ...]]]


def import_(root: Path, *words: str, grid: str = "main") -> int:
    return execute(["import", *words, "--grid", grid, "--campaign", str(root)])


def stored(root: Path, rounded: Callable[[float], float] = float) -> tuple[Rows, dict[tuple[str, int], str]]:
    """The metrics and evaluations that count, and the state, of each run by label and seed."""
    queries = (
        "SELECT label, seed, m.step, m.name, '{}', m.value FROM v_metric m JOIN grid_trial g USING (trial)",
        "SELECT label, seed, e.step, e.name, point::JSON::VARCHAR, e.value FROM v_evaluation e "
        "JOIN grid_trial g USING (trial)",
    )
    found: Rows = {}
    with Store.open(root) as store:
        for query in queries:
            for label, seed, step, name, point, value in store.sql(query).iter_rows():
                found.setdefault((label, seed), set()).add((step, name, point, repr(rounded(value))))
        states = store.sql("SELECT g.label, g.seed, state FROM grid_trial g JOIN trial USING (trial)").iter_rows()
        return found, {(label, seed): state for label, seed, state in states}


def attempts(root: Path) -> set[str]:
    return {str(path.relative_to(root)) for path in root.rglob("start.json")} | set(Layout(root).submission_ids())


def lines(file: Path, *rows: str, end: str = "\n") -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("\n".join(rows) + end, encoding="utf-8")
    return file


def event_file(folder: Path, *steps: int, tag: str = "train/loss", name: str = "", **hparams: Any) -> Path:
    """Write scalars by the writer of torch; a step s has the value 1 / (s + 1)."""
    with SummaryWriter(str(folder), filename_suffix=name) as writer:
        for step in steps:
            writer.add_scalar(tag, 1 / (step + 1), step, walltime=1000 + 2 * step)
        if hparams:
            from torch.utils.tensorboard.summary import hparams as summaries

            for each in summaries(hparams, {}):
                writer.file_writer.add_summary(each)
    (file,) = folder.glob(f"*tfevents*{name}")
    return file


def wandb_run(
    folder: Path, config: dict[str, Any], code: int = 0, act: Callable[[Any], object] = id, **values: Any
) -> Path:
    """Write an offline run of three steps; `act` is called with it before its end."""
    import wandb

    before = {*folder.rglob("*.wandb")}
    settings = wandb.Settings(console="off", silent=True, x_disable_meta=True, x_disable_stats=True, disable_git=True)
    folder.mkdir(parents=True, exist_ok=True)
    run = wandb.init(mode="offline", dir=folder, config=config, settings=settings)
    for step in range(3):
        run.log({"loss": 1 / (step + 1), **values})
    act(run)
    run.finish(exit_code=code)
    wandb.teardown()  # its own process may still write
    (file,) = {*folder.rglob("*.wandb")} - before
    return file
