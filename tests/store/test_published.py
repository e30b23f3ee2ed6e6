"""The cells of the papers' tables as data, and `ablate published`: none lost, none altered, doubts in place."""

import csv
import io
import json
import math
from collections import Counter
from pathlib import Path

import pytest

from ablate.runners.cli.app import execute
from ablate.store.files.layout import STORE_SCHEMA
from ablate.store.published.tables import PublishedCell, cells, file_hash, notes, operators
from ablate.store.store import Store
from ablate.variants.papers.catalogue import catalogue


def at(paper: str, table: str, row: str, column: str) -> PublishedCell:
    found = [c for c in cells() if (c.paper, c.paper_table, c.row_label, c.column_label) == (paper, table, row, column)]
    assert len(found) == 1, (paper, table, row, column, len(found))
    return found[0]


def of(paper: str, table: str) -> list[PublishedCell]:
    return [c for c in cells() if (c.paper, c.paper_table) == (paper, table)]


def test_every_cell_of_every_table_is_there_once() -> None:
    assert Counter(c.paper for c in cells()) == {"000": 188, "002": 432, "003": 437, "004": 198}
    assert len({(c.paper, c.paper_table) for c in cells()}) == 38
    assert [c.id for c in cells()] == list(range(1255))
    assert len({(c.paper, c.paper_table, c.row_label, c.column_label) for c in cells()}) == 1255


def test_a_cell_without_a_number_is_a_dash_with_its_reason() -> None:
    dashes = [c for c in cells() if c.value is None]
    assert {c.printed for c in dashes} == {"-"}
    assert Counter((c.paper, c.paper_table, c.mark) for c in dashes) == {
        ("002", "T5", "not evaluated"): 3,
        ("004", "T3", "not applicable"): 2,
        ("004", "T13", "training failed"): 6,
    }


def test_errors_over_items_are_binomial() -> None:
    cell = at("000", "T1", "0.5B · Baseline", "ARC-c")
    assert cell.binomial_se == pytest.approx(100 * math.sqrt(0.276 * 0.724 / 1171))
    for each in of("003", "T4"):
        assert each.binomial_se is not None
        assert each.uncertainty is not None
        assert 0.93 <= each.uncertainty / each.binomial_se <= 1.17, each  # the score is rounded
    assert all(c.binomial_se is None for c in cells() if c.items is None)
    assert all(c.items is None for c in cells() if "mean" in c.metric or "accuracy" not in c.unit)


def test_operators_are_those_of_the_catalogue_whatever_they_are_called() -> None:
    named = catalogue()
    assert {c.operator for c in cells() if c.operator} <= set(named)
    plain = [made for made in operators() if not made.arguments]
    assert len(plain) == 23
    for made in plain:
        spec = json.loads(named[made.operator].make().changed(name="mine").model_dump_json())
        for path, text in {**made.kinds, **made.numbers}.items():
            found = spec
            for part in path.removeprefix("$.").split("."):
                found = found[part]
            assert found == json.loads(text), (made.operator, path)


def test_every_cell_has_its_operator_and_one_baseline_per_comparison() -> None:
    known = {(made.operator, tuple(sorted(made.arguments.items()))) for made in operators()}
    assert {(c.operator, tuple(sorted(c.arguments.items()))) for c in cells() if c.operator} == known
    bases = Counter(
        (c.paper, c.paper_table, c.metric, tuple(c.point.items()), c.model, tuple(c.setup.items()))
        for c in cells()
        if c.baseline
    )
    assert set(bases.values()) == {1}


def test_the_file_changes_with_its_version() -> None:
    assert file_hash() == "8a44004847cc85581875c0f2b6db211e", "raise the version in tables.json and put both here"


def test_the_store_holds_all_of_it(reading: Store) -> None:
    assert reading.sql("SELECT count(*) AS n, count(value) AS told FROM published").rows() == [(1255, 1244)]
    assert dict(reading.sql("FROM meta WHERE NOT starts_with(name, 'grid_views')").iter_rows()) == {
        "store_schema": str(STORE_SCHEMA),
        "published_version": "4",
        "published_hash": file_hash(),
    }
    rows = reading.sql("SELECT id, printed, value, point['sigma_f'] AS f, notes FROM published ORDER BY id").rows()
    assert rows == [(c.id, c.printed, c.value, c.point.get("sigma_f"), list(c.notes)) for c in cells()]
    assert reading.sql("SELECT sum(cells)::BIGINT AS n FROM published_note").item() == sum(n.cells for n in notes())


def test_all_inconsistencies_stand_at_the_cells_they_concern() -> None:
    assert [note.cells for note in notes()] == [1, 1, 188, 2, 48, 9, 36, 0, 20, 6, 44, 291, 20, 12, 12, 12, 2]
    assert Counter(note.paper for note in notes()) == {"000": 3, "002": 5, "003": 5, "004": 4}
    assert at("000", "T1", "0.5B · Baseline", "Avg.").notes == (1, 3)
    assert at("000", "T1", "0.5B · Baseline", "Wino").notes == (3,)
    assert at("000", "T3", "CSR Avg.", "Linear clipping").notes == (2, 3)
    assert at("002", "T1", "1.2B parameters and 128B tokens · INTG", "Avg.").notes == (4,)
    assert at("002", "T1", "1.2B parameters and 128B tokens · INTG, all layers", "Avg.").notes == ()
    assert all(c.notes == (5,) for c in of("002", "T6"))
    assert all(c.notes == ((6,) if c.row_label == "logits (our)" else ()) for c in of("002", "T8"))
    assert all(c.notes == (7,) for c in of("002", "T12"))
    assert all(c.notes == ((9, 12) if c.row_label == "Softmax" else (12,)) for c in of("003", "T1"))
    assert {c.row_label: c.notes for c in of("003", "T6") if c.notes != (12,)} == {
        "12L8AH": (9, 12),
        "2AI32AH": (12, 13),
        "12AI8AH": (12, 13),
    }
    assert {(c.row_label, c.column_label.partition(" · ")[0]) for c in of("003", "T2") if c.notes} == {
        ("LM-Eval · LAMBADA", "Zero-shot"),
        ("SuperGLUE · WiC", "Few-shot (3-shot)"),
    }
    assert all(c.notes == (11,) for c in of("003", "T4"))
    assert [{n for c in of("004", t) for n in c.notes} for t in ("T11", "T14", "T7")] == [{14}, {15}, {16}]
    assert {c.column_label for c in of("004", "T2") if c.notes == (17,)} == {"Relative PE"}
    assert {c.paper_table for c in cells() if c.unusable} == {"T4", "T2"}


def test_the_notes_on_sums_are_true() -> None:
    tasks = [c for c in of("000", "T1") if c.row_label == "0.5B · Baseline" and c.items]
    assert sum(c.value or 0 for c in tasks) / 6 == pytest.approx(50.67, abs=0.005)
    softmax, gain = (
        at("003", "T2", "LM-Eval · LAMBADA", f"Zero-shot · {x}").value or 0 for x in ("Softmax", "SSA, gain")
    )
    assert ((at("003", "T2", "LM-Eval · LAMBADA", "Zero-shot · SSA").value or 0) / softmax - 1) * 100 < gain - 4
    best = Counter(
        max((c.value or 0, c.operator) for c in of("002", "T6") if c.row_label == row)[1]
        for row in dict.fromkeys(c.row_label for c in of("002", "T6"))
    )
    assert best["integral"] == 11


def told(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[str, str]:
    assert execute(["published", *words]) == 0
    found = capsys.readouterr()
    return found.out, found.err


def test_programs_get_every_field(capsys: pytest.CaptureFixture[str]) -> None:
    out, _ = told(capsys, "--metric", "mse", "--json")
    data = json.loads(out)["data"]
    assert len(data) == 140 + 140
    assert data[0]["point"] == {"sigma_x": 1, "sigma_f": 1}
    out, _ = told(capsys, "--csv")
    rows = list(csv.DictReader(io.StringIO(out)))
    assert len(rows) == 1255
    assert json.loads(rows[0]["setup"]) == {}
    assert out.count("\n") == 1256


def test_a_table_has_the_rows_and_columns_of_the_paper(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for paper in ("000", "002", "003", "004"):
        cells = json.loads(told(capsys, paper, "--json")[0])["data"]
        for table in dict.fromkeys(cell["paper_table"] for cell in cells):
            out, _ = told(capsys, paper, table)
            assert max(map(len, out.splitlines())) <= 80
            printed = " ".join(cell["printed"] for cell in cells if cell["paper_table"] == table)
            assert Counter(printed.split()) <= Counter(out.split())
    lines = told(capsys, "003", "T1")[0].splitlines()
    assert len(lines) < 40
    assert next(line.split() for line in lines if line.startswith("Softmax")) == SOFTMAX
    for words, fewest in (((), 38), (("003",), 6), (("--metric", "accuracy"), 3)):
        assert fewest < len(told(capsys, *words)[0].splitlines()) <= 60


SOFTMAX = ["Softmax", "8e-5", "3e-4", "6e-3", "0.42", "1.62", "3.84", "9.42", "13.51", "27.99", "45.35"]


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("--paper", "005"), 3, "there is no paper '005'; there are 000 Affine-Scaled Attention; 001"),
        (("004", "T15"), 3, "paper 004 has no table 'T15' of values; there are T1, T2, T3"),
        (("--metric", "msee"), 3, "did you mean 'mse'?"),
        (("--csv", "--json"), 2, "--json and --csv are"),
        (("--grid", "mine"), 2, "add --compare"),
        (("001",), 3, "paper 001 has no table of values: Principled Attention publishes no results"),
        (("--compare", "--campaign", "nowhere"), 3, "there is no campaign in nowhere"),
    ],
)
def test_what_is_not_there_is_said_in_a_sentence(
    capsys: pytest.CaptureFixture[str], words: tuple[str, ...], code: int, said: str
) -> None:
    assert execute(["published", *words]) == code
    assert said in capsys.readouterr().err


def test_a_comparison_counts_what_it_leaves_out(capsys: pytest.CaptureFixture[str], compared: Path) -> None:
    words = ("--compare", "--campaign", str(compared))
    out, err = told(capsys, *words)
    assert "SSA against Softmax · 5" in out
    assert "of 527 claims: 2 same direction, 1 differs, 1 within noise, 523 not comparable" in err
    everything, _ = told(capsys, *words, "--all")
    assert everything.count("\n") > 527 > out.count("\n")
    found, _ = told(capsys, *words, "--json")
    assert len(json.loads(found)["data"]) == 527


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from published_campaign import mse, planted

    from ablate.variants import softmax, ssa

    root = tmp_path_factory.mktemp("compared")
    effects = {1: -1.0, 3: 1.0, 5: -1.0, 10: 0.0}
    values = {
        "plain": [mse(seed, dict.fromkeys(effects, 0.0)) for seed in range(5)],
        "mine": [mse(3 * seed + 1, effects) for seed in range(5)],
    }
    planted(root, {"plain": softmax(), "mine": ssa()}, values).close()
    return root
