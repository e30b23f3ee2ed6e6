"""The wide views of a grid: columns, rows, and names that collide."""

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from synthetic import Campaign, plan_header, plan_lines, publish_grid, write_end, write_start

from ablate.grid.errors import SpecError
from ablate.store.database.grid_views import MOST
from ablate.store.files.layout import Layout
from ablate.store.files.shards import ShardBuffer
from ablate.store.store import Store

OpenStore = Callable[..., Store]
Values = Mapping[str, Sequence[tuple[Mapping[str, float], float]]]


def row(store: Store, query: str) -> dict[str, Any]:
    return store.sql(query).row(0, named=True)


def recorded(
    root: Path, evaluations: Values, metrics: Mapping[str, float], *, factors: Mapping[str, Sequence[Any]] | None = None
) -> Layout:
    """A grid `g` of two operators and a seed; the first trial ended with these values, the other has none."""
    layout = Layout(root)
    lines = plan_lines(("softmax", "SSA"), [0], "g", factors or {})
    publish_grid(layout, plan_header(lines, "g", factors or {}, ("softmax", "SSA")), lines)
    key = lines[0]["trial"]
    write_start(layout, key, 1)
    buffer = ShardBuffer(layout, submission="20260102T030405-0a1b2c", worker=0)
    for name, taken in evaluations.items():
        buffer.extend("evaluation", [(key, 1, 3, name, dict(point), value, 10, 0.1) for point, value in taken])
    buffer.extend("metric", [(key, 1, 3, name, value, 0.5) for name, value in metrics.items()])
    buffer.flush()
    write_end(layout, key, 1, step=3)
    return layout


def columns(store: Store, view: str) -> list[str]:
    return store.sql(f"FROM {view} LIMIT 0").columns


def test_each_trial_has_a_row_per_point_or_one_of_nulls(shared: Campaign, reading: Store) -> None:
    counted = reading.sql(
        "SELECT state, count(*) AS n, count(DISTINCT trial) AS trials, count(mse) AS mse, count(loss) AS loss "
        "FROM grid_quickstart GROUP BY ALL ORDER BY ALL"
    ).rows()
    # 12 trials: 2 failed, 1 pending, 1 running; those that are done were judged at 2 points
    assert counted == [
        ("done", 16, 8, 16, 16),
        ("failed", 2, 2, 0, 0),
        ("pending", 1, 1, 0, 0),
        ("running", 1, 1, 0, 0),
    ]
    assert reading.sql("SELECT trial FROM trials_quickstart ORDER BY ALL").rows() == [
        (line["trial"],) for line in sorted(shared.lines, key=lambda line: str(line["trial"]))
    ]


def test_values_of_a_trial_stand_in_all_of_its_rows_and_those_at_points_in_theirs(
    tmp_path: Path, opened: OpenStore
) -> None:
    recorded(
        tmp_path,
        {"mse": [({"f": 1}, 1.0), ({"f": 2}, 2.0)], "far": [({"n": 8}, 8.0)], "both": [({}, 5.0), ({"f": 1}, 6.0)]}
        | {"score": [({}, 7.0)]},
        {"loss": math.nan},
    )
    found = opened(tmp_path).sql(
        "SELECT f, n, mse, far, \"both\", score, loss FROM grid_g WHERE state = 'done' ORDER BY ALL"
    )
    assert found.rows(named=False) == [
        (1.0, None, 1.0, None, 6.0, 7.0, pytest.approx(math.nan, nan_ok=True)),
        (2.0, None, 2.0, None, None, 7.0, pytest.approx(math.nan, nan_ok=True)),
        (None, 8.0, None, 8.0, None, 7.0, pytest.approx(math.nan, nan_ok=True)),
        (None, None, None, None, 5.0, 7.0, pytest.approx(math.nan, nan_ok=True)),
    ]


def test_names_that_collide_say_what_they_are(tmp_path: Path, opened: OpenStore) -> None:
    recorded(
        tmp_path,
        {"zero.mse": [({"loss": 1}, 1.0)], "zero_mse": [({}, 2.0)], "Loss": [({}, 3.0)], "seed": [({}, 4.0)]},
        {"loss": 5.0, "rate": 6.0, 'o"; DROP VIEW v_final; --': 7.0},
        factors={"rate": [0.5]},
    )
    found = row(opened(tmp_path), "FROM grid_g WHERE state = 'done'")
    assert {name: value for name, value in found.items() if isinstance(value, float)} == {
        "rate": 0.5,
        "loss": 1.0,  # the coordinate
        "zero_mse": 1.0,
        "zero_mse_evaluation": 2.0,
        "Loss_evaluation": 3.0,
        "seed_evaluation": 4.0,
        "loss_metric": 5.0,
        "rate_metric": 6.0,
        "o_DROP_VIEW_v_final_": 7.0,
    }


def test_columns_follow_what_lands_and_what_goes(tmp_path: Path, opened: OpenStore) -> None:
    layout = recorded(tmp_path, {"mse": [({"f": 1}, 1.0)]}, {"loss": 1.0})
    assert "later" not in columns(opened(tmp_path), "grid_g")
    key = next(iter(layout.trial_keys()))
    buffer = ShardBuffer(layout, submission="20260102T030406-0a1b2c", worker=0)
    buffer.add("evaluation", (key, 1, 3, "later", {"g": 1}, 2.0, 10, 0.1))
    (path,) = buffer.flush()
    assert {"later", "g"} <= set(columns(opened(tmp_path), "grid_g"))
    path.write_bytes(b"")
    assert not {"later", "g"} & set(columns(opened(tmp_path), "grid_g"))


def test_an_axis_has_the_type_of_its_values(tmp_path: Path, opened: OpenStore) -> None:
    factors: dict[str, list[Any]] = {
        "width": [8, 16],
        "rate": [1, 0.5],
        "gate": [True, False],
        "mixed": [1, "one"],
        "absent": [None, 3],
        "never": [None],
        "salt": [1, 2**63],
        "least": [-(2**63), 2**63 - 1],
        "fine": [2**53 + 1, 0.5],
        "huge": [10**400, 0.5],
    }
    lines = plan_lines(("softmax",), [0], "types", factors)
    publish_grid(Layout(tmp_path), plan_header(lines, "types", factors, ("softmax",)), lines)
    store = opened(tmp_path)
    described = dict(store.sql("SELECT column_name, column_type FROM (DESCRIBE trials_types)").iter_rows())
    assert {name: described[name] for name in factors} == {
        "width": "BIGINT",
        "rate": "DOUBLE",
        "gate": "BOOLEAN",
        "mixed": "VARCHAR",
        "absent": "BIGINT",
        "never": "VARCHAR",
        "salt": "VARCHAR",
        "least": "BIGINT",
        "fine": "VARCHAR",
        "huge": "VARCHAR",
    }
    exact = store.sql("SELECT DISTINCT salt, least, fine FROM trials_types")
    assert set(exact["salt"]) == {"1", str(2**63)}
    assert set(exact["least"]) == {-(2**63), 2**63 - 1}
    assert set(exact["fine"]) == {str(2**53 + 1), "0.5"}
    counted = store.sql("SELECT count(*) AS n FROM trials_types WHERE width > 8 AND gate AND absent IS NULL")
    assert counted["n"].item() == 4 * 2**4


def test_no_name_of_an_axis_or_a_grid_breaks_the_views(tmp_path: Path, opened: OpenStore) -> None:
    names = [
        "trial",
        "Seed",
        "state",
        "label",
        'we"ird',
        "semi;colon",
        "o'clock",
        "back\\slash",
        "select",
        "Width",
        "width",
        "2d",
    ]
    factors = {name: [f"value of {name}"] for name in names}
    for grid in ("a-b", "a.b", "A_B", "trial"):
        lines = plan_lines(("softmax",), [7], grid, factors)
        publish_grid(Layout(tmp_path), plan_header(lines, grid, factors, ("softmax",)), lines)
    store = opened(tmp_path)
    for view in (f"{kind}_{name}" for kind in ("grid", "trials") for name in ("A_B", "a_b_2", "a_b_3", "trial_2")):
        found = row(store, f"FROM {view}")
        assert found["seed"] == 7
        assert found["state"] == "value of state"
        expected = {"trial_2": "trial", "Seed_2": "Seed", "width_2": "width", "select": "select", "we_ird": 'we"ird'}
        expected |= {"o_clock": "o'clock", "back_slash": "back\\slash", "semi_colon": "semi;colon", "_2d": "2d"}
        assert {name: found[name] for name in expected} == {name: f"value of {of}" for name, of in expected.items()}


def test_a_grid_whose_own_name_a_view_has_keeps_it(tmp_path: Path, opened: OpenStore) -> None:
    def grids(*names: str) -> list[str]:
        for grid in names:
            lines = plan_lines((grid,), [0], grid, {})
            publish_grid(Layout(tmp_path), plan_header(lines, grid, {}, (grid,)), lines)
        store = opened(tmp_path)
        views = store.sql(
            "SELECT view_name AS v FROM duckdb_views() WHERE starts_with(view_name, 'trials_') ORDER BY len(v), v"
        )
        return [store.sql(f"SELECT operator FROM {view}")["operator"].item() for view in views["v"]]

    assert grids("lr_sweep") == ["lr_sweep"]
    assert grids("lr-sweep") == ["lr_sweep", "lr-sweep"]
    assert grids("LR_sweep", "Lr-sweep") == ["lr_sweep", "LR_sweep", "Lr-sweep", "lr-sweep"]


def test_columns_are_the_measure_and_the_commonest_names_however_many_there_are(
    tmp_path: Path, opened: OpenStore
) -> None:
    def sizes(names: int) -> tuple[int, int]:
        layout = recorded(
            tmp_path / str(names), {f"set.{at:04d}": [({}, float(at))] for at in range(names)}, {"loss": 1.0}
        )
        lines = plan_lines(("softmax", "SSA"), [0], "g", {})
        header = plan_header(lines, "g", {}, ("softmax", "SSA"))
        publish_grid(layout, {**header, "measure": {**header["measure"], "name": "set.0999"}}, lines)
        second = lines[1]["trial"]
        write_start(layout, second, 1)
        buffer = ShardBuffer(layout, submission="20260102T030405-0a1b2c", worker=1)
        buffer.extend("evaluation", [(second, 1, 3, "set.0700", {}, 5.0, 10, 0.1)])
        buffer.flush()
        write_end(layout, second, 1, step=3)
        store = opened(layout.root)
        return len(columns(store, "grid_g")), store.sql("SELECT sum(len(sql)) FROM duckdb_views()").item()

    assert sizes(1000) == sizes(2000)
    store = opened(tmp_path / "2000")
    shown = columns(store, "grid_g")
    assert len(shown) == 6 + 1 + MOST
    # the measure; what two trials have; what one has, by name
    assert {name for name in shown if name.startswith("set_")} == {
        "set_0999", "set_0700", *(f"set_{at:04d}" for at in range(MOST - 2))
    }  # fmt: skip
    assert "loss" in shown
    assert row(store, "SELECT set_0999, set_0007 FROM grid_g WHERE label = 'softmax'") == {
        "set_0999": 999.0,
        "set_0007": 7.0,
    }
    for query in ("SELECT set_1500 FROM grid_g", "SELECT g.set_1500 FROM grid_g g", 'SELECT "set.1500" FROM grid_g'):
        with pytest.raises(SpecError) as told:
            store.sql(query)
        instead = str(told.value).split("its values are rows: ")[1]
        assert store.sql(instead)["value"].to_list() == [1500.0]


def test_coordinates_without_number_are_left_to_rows(tmp_path: Path, opened: OpenStore) -> None:
    points = [({f"axis_{at}": 1.0}, float(at)) for at in range(2 * MOST)]
    store = opened(recorded(tmp_path, {"many": points, "one": [({"at": 2.0}, 1.0)]}, {}).root)
    assert {"at", "one"} <= set(columns(store, "grid_g"))
    assert len(columns(store, "grid_g")) < 20
    assert store.sql("SELECT count(*) FROM v_final WHERE name = 'many'").item() == 2 * MOST
