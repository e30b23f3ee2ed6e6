"""Results of finished campaigns as files for a repository: `python docs/generate/result_files.py CAMPAIGN FOLDER`.

    FOLDER/GRID.json       header of the grid; versions, device, cost; processors, systems and commits of the campaign;
                           the checks of each cell at the planned measure
    FOLDER/GRID.parquet    a row per run and measurement, and what a run costs; a run without one has a row, too
    FOLDER/*.py            the spec files as they ran, if `specs/` has no such file
    FOLDER/about.md        written by hand: question, setting, findings, and places for tables and figures

`results_page.py` makes docs/results.md from these folders.
"""

import argparse
import json
import sys
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from ablate.grid.errors import AblateError
from ablate.papers.results.grid_results import OF_RUN
from ablate.papers.results.result_files import SCHEMA
from ablate.runners.attempts.submission_record import Submission, submission_records
from ablate.store.analysis.judge import judge
from ablate.store.analysis.verdicts import every_run, measure_of
from ablate.store.files.layout import Layout
from ablate.store.store import Store

SPECS: Final = Path(__file__).parent.parent.parent / "specs"
_VALUES: Final = """
SELECT cell, seed, source, name, point::JSON::VARCHAR AS point, value FROM v_final
WHERE grid = $grid AND (source = 'evaluation' OR name = $measure)
UNION ALL
SELECT g.cell, g.seed, 'probe', p.name,
       json_merge_patch(json_object('layer', p.layer, 'head', p.head), p.point::JSON)::VARCHAR, p.value
FROM (FROM v_probe QUALIFY step = max(step) OVER (PARTITION BY trial, name)) p JOIN grid_trial g USING (trial)
WHERE g.grid = $grid AND (p.name LIKE 'number.%' OR p.name LIKE 'gradient_%'
      OR p.name IN ('sink_share', 'activation_ratio', 'effective_rank', 'ground_at_queries'))
UNION ALL
SELECT g.cell, g.seed, 'cost', n.name, '{}', CASE n.name WHEN 'parameters' THEN a.parameters
       WHEN 'memory_bytes' THEN a.memory_bytes ELSE a.train_s / (a.step - coalesce(a.resumed_step, 0)) END
FROM (FROM attempt WHERE status = 'ok' QUALIFY attempt = max(attempt) OVER (PARTITION BY trial)) a
JOIN grid_trial g USING (trial) CROSS JOIN (VALUES ('train_s_per_step'), ('memory_bytes'), ('parameters')) n(name)
WHERE g.grid = $grid
ORDER BY ALL
"""
_COST: Final = """
SELECT count(DISTINCT trial) AS trials, sum(wall_s) / 3600 AS hours, list(DISTINCT device ORDER BY device) AS devices,
       list(DISTINCT threads ORDER BY threads) AS threads, list(DISTINCT path ORDER BY path) AS paths,
       list(DISTINCT versions::VARCHAR ORDER BY versions::VARCHAR) AS versions
FROM attempt SEMI JOIN (FROM grid_trial WHERE grid = $grid) USING (trial) WHERE status = 'ok'
"""


def collect(campaign: Path, folder: Path) -> None:
    """Write the grids of a campaign that have a measure and a finished trial, and its spec files, the newest last."""
    folder.mkdir(parents=True, exist_ok=True)
    submissions = [each for each in submission_records(Layout(campaign)) if isinstance(each, Submission)]
    places = [each.environment for each in submissions if each.environment is not None]
    environment = {
        "processors": sorted({place["cpu"] for place in places if place["cpu"]}),
        "systems": sorted({place["platform"] for place in places}),
        "commits": sorted({each.snapshot["head"] for each in submissions if each.snapshot and each.snapshot["head"]}),
    }
    with Store.open(campaign) as store:
        for grid in store.grids():
            header = store.grid(grid)
            cost = store.sql(_COST, {"grid": grid}).row(0, named=True)
            if header["measure"] is None or not cost["trials"]:
                continue
            about = store.sql("SELECT cell, seed, trial, baseline FROM grid_trial WHERE grid = $grid", {"grid": grid})
            planned = every_run(store, grid, measure_of(store, grid, None))
            planned = planned.join(about, on=["cell", "seed"], how="left", maintain_order="left").select(*OF_RUN)
            values = store.sql(_VALUES, {"grid": grid, "measure": header["measure"]["name"]})
            rows = planned.join(values, on=["cell", "seed"], how="left", maintain_order="left_right")
            rows.write_parquet(folder / f"{grid}.parquet", compression="zstd", compression_level=19)
            cost["hours"] = round(cost["hours"] or 0.0, 3)
            cost["versions"] = [json.loads(each) for each in cost["versions"]]
            checks = judge(store, grid).checks if header["baseline"] or header.get("baselines") else {}
            record = {"schema": SCHEMA, "cost": cost | environment, "header": header, "checks": checks}
            text = json.dumps(record, ensure_ascii=False)
            (folder / f"{grid}.json").write_text(text + "\n", encoding="utf-8")
    for each in submissions:
        if each.snapshot is not None:
            _extract_specs(campaign, each.snapshot, folder)


def _extract_specs(campaign: Path, snapshot: Mapping[str, Any], folder: Path) -> None:
    """Write the spec files of a snapshot of code, but for those that `specs/` has as they ran."""
    known = {path.read_bytes() for path in SPECS.rglob("*.py")}
    with tarfile.open(campaign / "snapshots" / f"{snapshot['tar']}.tar") as archive:
        for name in snapshot["spec"]:
            file = archive.extractfile(name)
            if file is not None and (text := file.read()) not in known:
                (folder / Path(name).name).write_bytes(text)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("campaign", type=Path)
    parser.add_argument("folder", type=Path)
    arguments = parser.parse_args()
    try:
        collect(arguments.campaign, arguments.folder)
    except AblateError as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(error.exit_code)
