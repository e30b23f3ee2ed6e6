import math
from collections.abc import Callable
from pathlib import Path

import pytest
from synthetic import Campaign, write_start

from ablate.grid.errors import NotFoundError, SpecError
from ablate.store.files.layout import Layout
from ablate.store.files.shards import ShardBuffer
from ablate.store.store import Store

OpenStore = Callable[..., Store]

POINT = {"sigma_f": 5, "sigma_x": 1}


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("SELECT 1; SELECT 2", "2 SQL statements"),
        ("", "^there is no SQL statement in the query; write SELECT"),
        ("SELECT strated FROM attempt", '"strated" not found in FROM clause; Candidate bindings: .*"started"'),
        ("SELECT * FROM atempt", 'Table with name atempt does not exist; Did you mean "attempt"'),
        ("PIVOT trial ON state USING count(*)", "several inside .*PIVOT ... ON column IN"),
        ("SELECT 'x'::INT", "^SQL: Conversion Error"),
    ],
)
def test_a_wrong_query_is_answered_in_one_line(reading: Store, query: str, message: str) -> None:
    with pytest.raises(SpecError, match=message) as caught:
        reading.sql(query)
    assert "\n" not in str(caught.value)
    assert reading.sql("SELECT 1 AS one")["one"].item() == 1


@pytest.mark.parametrize(
    "query", ["EXPLAIN SELECT 1", "DESCRIBE v_final", "FROM grid", "PIVOT trial ON state IN ('done') USING count(*)"]
)
def test_every_way_of_reading_works(reading: Store, query: str) -> None:
    assert reading.sql(query).height > 0


def test_parameters_are_values_and_never_text(shared: Campaign, reading: Store) -> None:
    hostile = "x'; DROP TABLE metric; --"
    assert reading.sql("SELECT $v AS v, ?::INT AS i".replace("?", "$i"), {"v": hostile, "i": 3}).row(0) == (hostile, 3)
    assert reading.sql("SELECT ? AS v", [hostile])["v"].item() == hostile
    with pytest.raises(NotFoundError):
        reading.grid(hostile)


def test_a_grid_is_its_header(shared: Campaign, reading: Store) -> None:
    assert reading.grids() == ["quickstart"]
    assert reading.grid("quickstart") == shared.header
    with pytest.raises(NotFoundError, match="'quikstart'; the campaign has 'quickstart'; did you mean 'quickstart'"):
        reading.grid("quikstart")


def test_final_has_every_planned_trial_and_a_value_for_those_that_are_ok(shared: Campaign, reading: Store) -> None:
    found = reading.final("quickstart", "mse", POINT)
    assert found["trial"].to_list() == [line["trial"] for line in shared.lines]
    for row in found.iter_rows(named=True):
        assert (row["value"] is None) == (row["state"] != "done")
    ok = {(row["label"], row["seed"]): row["value"] for row in found.iter_rows(named=True) if row["state"] == "done"}
    ratio = math.log(ok["SSA · 8", 0] / ok["softmax · 8", 0])
    effects = {line["label"]: shared.effects[line["cell"]] for line in shared.lines}
    assert ratio == pytest.approx(effects["SSA · 8"], abs=0.3)  # planted, with noise of 0.05 on each
    assert found.columns == ["grid", "cell", "label", "operator", "trial", "seed", "state", "value", "se_items"]


def test_final_at_a_point_that_does_not_single_out_one_value_is_an_error(shared: Campaign, reading: Store) -> None:
    with pytest.raises(SpecError, match=r"'mse' has 2 points that agree with \{'sigma_x': 1\}, such as .*sigma_f"):
        reading.final("quickstart", "mse", {"sigma_x": 1})
    assert reading.final("quickstart", "mse", {"sigma_f": 5})["value"].count() == 8  # sigma_x does not vary
    assert reading.final("quickstart", "mse", {"sigma_f": 77})["value"].count() == 0
    assert reading.final("quickstart", "nothing")["value"].count() == 0


def test_an_evaluation_has_a_column_per_coordinate(shared: Campaign, reading: Store) -> None:
    found = reading.evaluation("quickstart", "mse")
    assert found.columns == [
        *("cell", "label", "operator", "trial", "seed", "step", "sigma_f", "sigma_x", "value", "items", "se_items")
    ]
    assert set(found["step"]) == {12}  # the last one only
    assert set(zip(found["sigma_f"], found["sigma_x"], strict=True)) == {(1.0, 1.0), (5.0, 1.0)}
    assert found.height == 8 * 2
    assert reading.evaluation("quickstart", "mse", {"sigma_f": 5}).height == 8
    assert reading.evaluation("quickstart", "nothing").is_empty()


@pytest.mark.parametrize("buckets", [1, 2, 5, 7])
def test_curves_in_buckets_keep_mean_and_extremes(shared: Campaign, reading: Store, buckets: int) -> None:
    curves = reading.curves("quickstart", "loss", buckets=buckets)
    width = math.ceil(12 / buckets)
    key = shared.line("SSA · 8", 0)["trial"]
    raw = dict(
        reading.sql("SELECT step, value FROM v_metric WHERE name = 'loss' AND trial = $k", {"k": key}).iter_rows()
    )
    for row in curves.filter(curves["trial"] == key).iter_rows(named=True):
        values = [raw[step] for step in range(row["step"], min(row["step"] + width, 12))]
        assert row["step"] % width == 0
        assert (row["low"], row["high"], row["n"]) == (min(values), max(values), len(values))
        assert row["mean"] == pytest.approx(sum(values) / len(values))
    assert curves["step"].n_unique() <= buckets


def test_the_later_attempt_counts_point_by_point_and_number_by_number(tmp_path: Path, opened: OpenStore) -> None:
    layout = Layout(tmp_path)
    buffer = ShardBuffer(layout, submission="20260102T030405-0a1b2c", worker=0)
    key, other = "ab" * 16, "cd" * 16
    for attempt, value in ((2, 2.0), (1, 1.0)):  # the order of arrival does not matter
        for coordinates in ({"b": 1.0, "a": 2.0}, {"a": 2.0, "b": 1.0}, {"a": 3.0}):
            buffer.add("evaluation", (key, attempt, 5, "mse", coordinates, value, 1, None))
        buffer.add("item", (key, attempt, 5, "mse", {"a": 3.0}, "first", value))
        buffer.add("probe", (key, attempt, 5, "n", None, None, {}, value))
        buffer.add("probe", (key, attempt, 5, "n", 0, attempt, {}, value))
    buffer.add("evaluation", (key, 1, 4, "mse", {"a": 3.0}, 1.0, 1, None))
    buffer.add("evaluation", (other, 1, 5, "mse", {"a": 3.0}, 9.0, 1, None))
    buffer.flush()
    write_start(layout, key, 1)
    write_start(layout, key, 2, resumed_from={"attempt": 1, "step": 5})
    write_start(layout, other, 1)
    store = opened(tmp_path)
    found = store.sql("SELECT trial, step, point['a'] AS a, value FROM v_evaluation ORDER BY ALL").rows()
    assert found == [
        (key, 4, 3.0, 1.0),
        (key, 5, 2.0, 2.0),
        (key, 5, 2.0, 2.0),
        (key, 5, 3.0, 2.0),
        (other, 5, 3.0, 9.0),
    ]
    assert store.sql("SELECT point['a'] AS a, item, value FROM v_item").rows() == [(3.0, "first", 2.0)]
    probes = store.sql("SELECT layer, head, value FROM v_probe ORDER BY ALL NULLS FIRST").rows()
    assert probes == [(None, None, 2.0), (0, 1, 1.0), (0, 2, 2.0)]
