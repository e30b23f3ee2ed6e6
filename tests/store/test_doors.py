"""Unfit names and numbers are refused where they come in, by name; rows logged before and after are stored."""

import math
import unicodedata
from collections.abc import Callable, Mapping
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

from ablate.grid import Measure
from ablate.grid.errors import SpecError
from ablate.grid.values import MOST_NAME, require_text
from ablate.store import Campaign
from ablate.store.files.rows import check_row
from ablate.store.files.shards import TABLES, encode_shard
from ablate.variants import ssa

NAMES: list[Any] = [
    *(0, None, b"loss", 1.5, ("loss",), "", " ", "loss ", "\tloss", "a\nb", "a\0b", "\x1b[31m", "\ud800", "a\u200bb"),
    *("a\u2028b", "a\u00a0b", unicodedata.normalize("NFD", "café"), "x" * 10_000),
]
NUMBERS: list[Any] = [
    *(None, "1", b"1", 1j, np.complex64(1), {"loss": 1.0}, [1.0], np.ones(2), torch.ones(2), 10**400, 10**5000),
    *(object(), math.sin, Decimal("sNaN"), torch.ones(1, device="meta")),
]
WHOLE: list[Any] = [
    *(None, "1", 1.0, True, np.bool_(True), torch.tensor(True), np.float32(1), torch.tensor(1.0), -1, 2**63, 10**5000),
    *(Decimal(1), np.ones(2, int), [1], math.nan, np.uint64(2**63)),
]

Door = Callable[[Any, Any], object]
DOORS: Mapping[str, tuple[list[Any], Door, str]] = {
    "log: name": (NAMES, lambda run, bad: run.log(5, {bad: 1.0}), "metric"),
    "log: value": (NUMBERS, lambda run, bad: run.log(5, {"fine": 1.0, "my/key": bad}), "my/key"),
    "log: step": (WHOLE, lambda run, bad: run.log(bad, loss=1.0), "step"),
    "log: step of nothing": (WHOLE, lambda run, bad: run.log(bad), "step"),
    "log: mapping": ([0.5, "loss", [1.0]], lambda run, bad: run.log(5, bad), "log"),
    "evaluate: name": (NAMES, lambda run, bad: run.evaluate(5, bad, 1.0), "evaluation"),
    "evaluate: value": (NUMBERS, lambda run, bad: run.evaluate(5, "my/key", bad), "my/key"),
    "evaluate: step": (WHOLE, lambda run, bad: run.evaluate(bad, "my/key", 1.0), "step"),
    "evaluate: items": ([0, *WHOLE], lambda run, bad: run.evaluate(5, "my/key", 1.0, items=bad), "my/key"),
    "evaluate: item": (NUMBERS, lambda run, bad: run.evaluate(5, "my/key", items={"q": bad}), "'q'"),
    "evaluate: name of an item": (NAMES, lambda run, bad: run.evaluate(5, "my/key", items={bad: 1.0}), "item"),
    "evaluate: se_items": (NUMBERS[1:], lambda run, bad: run.evaluate(5, "my/key", 1.0, se_items=bad), "my/key"),
    "evaluate: point": (NAMES, lambda run, bad: run.evaluate(5, "my/key", 1.0, point={bad: 1.0}), "my/key"),
    "evaluate: coordinate": (
        [*NUMBERS, math.nan, math.inf],
        lambda run, bad: run.evaluate(5, "my/key", 1.0, point={"length": bad}),
        "length",
    ),
    "probe: name": (NAMES, lambda run, bad: run.probe(5, bad, 1.0), "probe"),
    "probe: value": (NUMBERS, lambda run, bad: run.probe(5, "my/key", bad), "my/key"),
    "probe: layer": ([*WHOLE[1:], 2**15], lambda run, bad: run.probe(5, "my/key", 1.0, layer=bad), "layer"),
    "probe: head": ([*WHOLE[1:], 2**15], lambda run, bad: run.probe(5, "my/key", 1.0, head=bad), "head"),
}


@pytest.mark.parametrize("door", DOORS)
def test_one_bad_row_takes_no_other_with_it(tmp_path: Path, door: str) -> None:
    """Each is refused by its name when it comes in; then the run goes on, and everything else of it is stored."""
    bad, log, told = DOORS[door]
    with Campaign(tmp_path) as campaign:
        with campaign.start("g", label="a", seed=0) as run:
            run.log(1, loss=1.0)
            for each in bad:
                with pytest.raises(SpecError, match=told):
                    log(run, each)
            run.log(5, loss=0.5, fine=2.0)
            run.evaluate(5, "my/key", 3.0, point={"length": 1})
            run.evaluate(5, "my/key", 4.0)
            run.probe(5, "my/key", 5.0)
        found = campaign.sql(
            "SELECT step, name, value FROM v_metric UNION ALL SELECT step, name, value FROM v_evaluation "
            "UNION ALL SELECT step, name, value FROM v_probe ORDER BY value"
        )
        assert found.rows() == [
            *((5, "loss", 0.5), (1, "loss", 1.0), (5, "fine", 2.0)),
            *((5, "my/key", 3.0), (5, "my/key", 4.0), (5, "my/key", 5.0)),
        ]
        assert campaign.trials()["state"].to_list() == ["done"]


ONES: list[Any] = [
    *(1, 1.0, True, np.float16(1), np.longdouble(1), np.int8(1), np.bool_(True), np.array(1.0), np.array([1])),
    *(torch.tensor(1.0, dtype=torch.bfloat16), torch.ones(1, requires_grad=True), torch.tensor(True), Decimal(1)),
    Fraction(1),
]
WHOLE_ONES: list[Any] = [1, np.int64(1), np.uint8(1), np.array(1), torch.tensor(1), torch.tensor([1], dtype=torch.int8)]


def test_numbers_of_other_packages_are_taken_at_every_door(tmp_path: Path) -> None:
    with Campaign(tmp_path) as campaign:
        for seed, one in enumerate(WHOLE_ONES):
            assert not campaign.finished(label="a", seed=one, config={"n": one})
            with campaign.start(
                "g",
                label=f"a{seed}",
                seed=one,
                config={"n": one},
                axes={"n": one if np.ndim(one) == 0 else 1},
                steps=one,
            ) as run:
                run.log(one, {f"m{at}": value for at, value in enumerate(ONES)})
                for at, value in enumerate(ONES):
                    run.evaluate(one, f"e{at}", value, items=one, point={"x": value}, se_items=value)
                    run.evaluate(one, f"i{at}", items={"q": value})
                    run.probe(one, f"p{at}", value, layer=one, head=one, point={"x": value})
        n, every = len(WHOLE_ONES) * len(ONES), (1, 1.0)
        for table, more in (("metric", ""), ("evaluation", ", items"), ("probe", ", layer, head, point['x']")):
            found = campaign.sql(f"SELECT step, value{more}, count(*) FROM v_{table} GROUP BY ALL").rows()
            times = 2 if table == "evaluation" else 1
            assert found == [(*every, *([1] * more.count(",")), times * n)]
        assert campaign.trials().select("seed", "n").unique().rows() == [(1, 1)]


@pytest.mark.parametrize(
    ("bad", "told"),
    [
        *(({"a": {"b": [1, each]}}, r"config\['a'\]\['b'\]\[1\]") for each in (math.nan, object(), {1}, b"x", 1j, max)),
        *(({"a": {each: 1}}, r"config\['a'\]") for each in (0, None, 1.5)),
        ({"a": "\ud800"}, r"config\['a'\]"),
        ({"a": 10**400}, r"config\['a'\]"),
    ],
)
def test_a_config_that_is_no_plain_data_is_refused_by_its_key(tmp_path: Path, bad: Any, told: str) -> None:
    with pytest.raises(SpecError, match=told):
        Campaign(tmp_path / "c").start("g", label="a", seed=0, config=bad)
    assert not (tmp_path / "c").exists()


def test_paths_specs_and_arrays_are_plain_data(tmp_path: Path) -> None:
    """They are the same run as their plain form; a spec is what is in its key, so a new label is no new run."""
    with Campaign(tmp_path) as campaign:
        rich = {
            "op": ssa(),
            "out": Path("x/y"),
            "lr": np.float32(0.5),
            "w": np.arange(2),
            "b": torch.ones(1, 2),
            "n": 2**64,
        }
        with campaign.start("g", label="a", seed=0, config=rich):
            pass
        plain = {**rich, "op": ssa().changed(name="mine"), "out": "x/y", "lr": 0.5, "w": [0, 1], "b": ((1.0, 1.0),)}
        assert campaign.finished(label="a", seed=0, config=plain)


def test_axes_that_differ_by_case_only_are_refused_also_in_a_later_run(tmp_path: Path) -> None:
    with Campaign(tmp_path) as campaign:
        with campaign.start("g", label="a", seed=0, axes={"Gate": 1}):
            pass
        with pytest.raises(SpecError, match="gate"):
            campaign.start("g", label="b", seed=0, axes={"gate": 1})
        assert campaign.trials()["Gate"].to_list() == [1]


@pytest.mark.parametrize("label", [*NAMES[:-1], "x" * 1001])
def test_labels_that_look_alike_or_break_a_line_are_refused(tmp_path: Path, label: Any) -> None:
    campaign = Campaign(tmp_path / "c")
    for ask in (
        lambda: campaign.start("g", label=label, seed=0),
        lambda: campaign.start("g", label="a", seed=0, axes={"operator": label} if isinstance(label, str) else [label]),
        lambda: campaign.grid("g", baseline=label or ""),
        lambda: campaign.grid("g", measure={"name": label if isinstance(label, str) else None}),
    ):
        with pytest.raises(SpecError):
            ask()
    assert not (tmp_path / "c").exists()


def test_the_longest_names_have_files_and_columns(tmp_path: Path) -> None:
    name = "a" * MOST_NAME
    with Campaign(tmp_path).grid(name, baseline="x", measure=Measure(name=name)) as campaign:
        with campaign.start(name, label="x", seed=2**63 - 1, axes={name: 1}) as run:
            run.evaluate(1, name, 2.0)
        assert campaign.trials()["seed"].to_list() == [2**63 - 1]
        assert campaign.sql(f"SELECT {name}, {name}_evaluation FROM grid_{name}").rows() == [(1, 2.0)]
        with pytest.raises(SpecError, match="grid"):
            campaign.start(name + "a", label="x", seed=0)


texts = st.text() | st.sampled_from(NAMES) | st.integers() | st.none()
numbers = st.floats() | st.integers() | st.sampled_from([*NUMBERS, *ONES])
whole = st.integers() | st.sampled_from([*WHOLE, *WHOLE_ONES])
points = st.dictionaries(texts.filter(lambda each: each.__hash__ is not None), numbers, max_size=2) | st.none()
COLUMNS = {"step": whole, "items": whole, "layer": whole, "head": whole, "name": texts, "item": texts, "point": points}


@given(st.data(), st.sampled_from(sorted(TABLES)))
def test_a_row_that_is_taken_can_be_written(data: st.DataObject, table: str) -> None:
    """Whatever passes the check fits a shard as it is."""
    columns = TABLES[table].names[2:]
    row = ("ab" * 16, 1, *(data.draw(COLUMNS.get(column, numbers)) for column in columns))
    try:
        taken = check_row(table, row)
    except SpecError:
        return
    encode_shard(table, {name: [value] for name, value in zip(TABLES[table].names, taken, strict=True)}, "x")
    assert check_row(table, taken) == taken or any(map(math.isnan, filter(lambda x: isinstance(x, float), taken)))


@given(st.text(max_size=20), st.text(max_size=20))
def test_names_that_are_taken_look_different(first: str, second: str) -> None:
    """Two that differ still differ in normal form without the blanks at their ends, on one line each."""
    try:
        names = [require_text(each, "it") for each in (first, second)]
    except SpecError:
        return
    shown = [unicodedata.normalize("NFC", each).strip() for each in names]
    assert shown == names
    assert all(len(each.splitlines()) == 1 for each in shown)
