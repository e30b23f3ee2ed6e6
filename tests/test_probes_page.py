"""The page of probes is what the code says now, and its pictures show what the probes find in heads made by hand."""

import importlib
import json
import math
import pkgutil
import re
from collections.abc import Mapping
from pathlib import Path
from xml.etree import ElementTree

import pytest
import torch

import runners
import runners.probes
from grid.errors import SpecError
from runners.catalogue import hand_set, probe_drawings
from runners.catalogue.choice_words import ProbeRow, spec_line
from runners.catalogue.explain_choice import explain_choice
from runners.catalogue.panels import Bars, Cell, Chart, Columns, Map, Row, Series, Strip, number, picture
from runners.catalogue.probe_drawings import PROBES, heads_picture, probe_picture, row_rows
from runners.catalogue.probes_page import page, write_page
from runners.cli.app import execute
from runners.probes import Probe, Probed, Probing
from runners.trial import DEFAULT_PROBES

DOCS = Path(__file__).parent.parent / "docs"
SVG = "{http://www.w3.org/2000/svg}"
REMEDY = "run `python -m runners.catalogue.probes_page` and commit docs/probes.md and docs/probes"
T = hand_set.T
UNIFORM, SINK, IDENTITY, ALTERNATING = range(4)


@pytest.fixture(scope="module")
def files() -> Mapping[str, str]:
    return page()


def packaged() -> dict[str, type[Probe]]:
    """Every probe that a module of the package defines, exported or not."""
    for module in pkgutil.walk_packages(runners.probes.__path__, "runners.probes."):
        importlib.import_module(module.name)
    return {kind: member for kind, member in Probe.members().items() if member.__module__.startswith("runners.")}


def test_the_page_is_what_the_code_says(files: Mapping[str, str]) -> None:
    committed = {"probes.md", *(f"probes/{path.name}" for path in (DOCS / "probes").glob("*.svg"))}
    assert committed == set(files), REMEDY
    assert not [name for name, text in files.items() if (DOCS / name).read_text(encoding="utf-8") != text], REMEDY


def test_every_probe_of_the_package_is_on_the_page_with_its_fields_and_picture(files: Mapping[str, str]) -> None:
    text, there = files["probes.md"], packaged()
    assert set(re.findall(r"\]\(probes/(\w+)\.svg\)", text)) == {*there, "heads"}
    assert {f"probes/{kind}.svg" for kind in (*there, "heads")} == set(files) - {"probes.md"}
    for kind, member in there.items():
        section = text.partition(f"\n### {kind}\n")[2].partition("\n### ")[0]
        assert f"](#{kind})" in text
        assert [name for name in member.model_fields if name != "kind" and f"\n| `{name}` | " not in section] == []
        default = "not among" if member not in map(type, DEFAULT_PROBES) else "among"
        assert f"\n- {default} the default probes" in section
    assert all(f"\n| `{name}` | " in text for name in Probing.model_fields)


def test_every_table_of_the_page_has_as_many_cells_in_each_row(files: Mapping[str, str]) -> None:
    for table in re.findall(r"(?:^\|.*\n)+", files["probes.md"], re.MULTILINE):
        assert len({len(re.findall(r"(?<!\\)\|", line)) for line in table.splitlines()}) == 1, table


def test_pictures_do_not_depend_on_threads_or_the_random_state(files: Mapping[str, str]) -> None:
    threads = torch.get_num_threads()
    torch.manual_seed(7)
    torch.set_num_threads(2)
    try:
        assert heads_picture() == files["probes/heads.svg"]
        for kind in PROBES:
            assert probe_picture(kind) == files[f"probes/{kind}.svg"]
    finally:
        torch.set_num_threads(threads)


def test_every_picture_is_svg_whose_parts_lie_inside(files: Mapping[str, str]) -> None:
    for name, text in files.items():
        if name.endswith(".svg"):
            tree = ElementTree.fromstring(text)
            height = float(tree.get("height", ""))
            rects = [
                {key: float(each.get(key, "0")) for key in ("x", "y", "width", "height")}
                for each in tree.iter(f"{SVG}rect")
            ]
            assert all(box["x"] >= 0 and box["x"] + box["width"] <= 640 for box in rects), name
            assert all(box["y"] >= 0 and box["y"] + box["height"] <= height + 0.05 for box in rects), name


def test_the_heads_are_what_the_page_says_of_them() -> None:
    weights = hand_set.weights()[0]
    assert weights[SINK, 1:, 0].tolist() == pytest.approx([0.8] * (T - 1))
    sums = weights.sum(-1)
    assert sums[:ALTERNATING].flatten().tolist() == pytest.approx([1.0] * 3 * T)
    assert sums[ALTERNATING].tolist() == pytest.approx([1 / i if i % 2 else 0 for i in range(1, T + 1)])
    assert (weights.triu(1) == 0).all()
    made = hand_set.heads()
    assert torch.allclose((made.q @ made.k.mT)[0] / math.sqrt(T), hand_set.logits())
    assert made.k.norm(dim=-1)[0, SINK, 0] == 0.5
    assert made.v.norm(dim=-1)[0, SINK, 0] == pytest.approx(0.2)


def found(kind: str) -> dict[tuple[str, float | None], list[float]]:
    """Values by head, of a row and its position."""
    rows: dict[tuple[str, float | None], list[float]] = {}
    for each in PROBES[kind].show().found:
        if isinstance(each, Probed) and each.head is not None:
            rows.setdefault((each.name, each.point.get("position")), []).append(each.value)
    return rows


def test_what_probes_find_in_the_four_heads_are_the_closed_forms() -> None:
    harmonic = sum(1 / i for i in range(1, T + 1))
    sink = found("sink_share")
    assert sink["importance", 1] == pytest.approx([harmonic / T, (1 + 0.8 * (T - 1)) / T, 1 / T, harmonic / T])
    assert sink["sink_share", 1] == [0, 1, 0, 0]  # at eps = 0.5: uniform attention over so few tokens is above 0.3
    assert found("effective_rank")["effective_rank", None][IDENTITY] == pytest.approx(T)
    entropy = found("attention_entropy")
    mean_log = sum(math.log(i) for i in range(1, T + 1)) / T
    assert entropy["entropy", None][:1] + entropy["entropy", None][2:] == pytest.approx([mean_log, 0, mean_log])
    assert entropy["entropy_last", None][UNIFORM] == pytest.approx(math.log(T))
    first = found("first_token")
    assert first["first_token_weight", None][:3] == pytest.approx([(harmonic - 1) / (T - 1), 0.8, 0])
    assert first["first_token_negative", None] == pytest.approx([0, 0, 0, 4 / 7])  # queries 2, 4, 6 and 8 of seven
    assert found("weight_sums")["weight_sum", None] == pytest.approx([1, 1, 1, sum(1 / i for i in (1, 3, 5, 7)) / T])
    assert found("first_key")["first_qk_cosine", None][:3] == pytest.approx([0, 1, 0])
    assert found("qk_logits")["qk_logit_mean", None][SINK] == pytest.approx(3 * T / (T * (T + 1) / 2))
    assert found("gate_sparsity")["gate_sparsity", None] == pytest.approx([0, 7 / 8, 0, 1 / 2])
    threshold, own = math.exp(probe_drawings.THRESHOLD), math.exp(6)
    ground = found("ground_mass")["ground_mass", None]
    shortfalls = [before * (threshold - 1) / (own + before * threshold) for before in range(T)]
    assert ground[UNIFORM] == pytest.approx(1 - 1 / threshold)
    assert ground[IDENTITY] == pytest.approx(sum(shortfalls) / T)
    assert found("ground_mass")["below_threshold", None] == pytest.approx([1, 28 / 36, 28 / 36, 16 / 36])


def test_the_ratio_that_is_told_is_that_of_the_norms_that_are_drawn() -> None:
    shown = PROBES["massive_activation"].show()
    strip = next(panel for panel in shown.panels if isinstance(panel, Strip))
    for depth, row in enumerate(strip.rows[1:]):
        first, *others = (float(cell.words) for cell in row.cells if cell)
        (told,) = [
            each.value
            for each in shown.found
            if isinstance(each, Probed) and each.name == "activation_ratio" and each.point["depth"] == depth
        ]
        assert told == pytest.approx(first / (sum(others) / len(others)), rel=0.01)


def test_spikes_that_are_drawn_are_those_that_are_counted() -> None:
    shown = PROBES["gradient_norms"].show()
    chart = next(panel for panel in shown.panels if isinstance(panel, Chart))
    bound, _, spikes = chart.series
    counted = [each.value for each in shown.found if isinstance(each, Probed) and each.point.get("k") == 9]
    assert counted == [len(spikes.points)]
    assert {60.0, 100.0} < {step for step, _ in spikes.points}
    assert 80.0 not in {step for step, _ in spikes.points}
    assert all(norm > bound.points[0][1] for _, norm in spikes.points)


def rectangles(svg: str, style: str) -> list[dict[str, float]]:
    names = ("x", "y", "width", "height", "fill-opacity")
    boxes = [each for each in ElementTree.fromstring(svg).iter(f"{SVG}rect") if each.get("class") == style]
    return [{name: float(box.get(name, "1")) for name in names} for box in boxes]


def test_bars_are_as_long_as_their_numbers_and_negative_ones_have_another_colour() -> None:
    columns = Columns("A & B", [Map("one", [[1.0, 0.0], [-0.5, 0.25]])] * 3, [Bars("row", "", [4.0, -2.0, None])])
    svg = picture("x < y", [columns])
    (positive,), (negative,) = rectangles(svg, "dot mark"), rectangles(svg, "dot odd")
    assert negative["width"] == pytest.approx(positive["width"] / 2, abs=0.1)
    assert [box["fill-opacity"] for box in rectangles(svg, "key")] == [1, 0.36] * 3
    assert [box["fill-opacity"] for box in rectangles(svg, "other")] == pytest.approx([0.575] * 3, abs=0.006)
    said = [each.text for each in ElementTree.fromstring(svg).iter(f"{SVG}text")]
    assert {"x < y", "A & B", "4", "−2", "no row"} <= set(said)


def test_bars_of_one_unit_have_one_scale() -> None:
    rows = [Bars("a", "", [4.0], "nats"), Bars("b", "", [2.0], "nats"), Bars("c", "", [0.1], "share of 1")]
    svg = picture("x", [Columns("", [Map("one", [[1.0]])], rows)])
    first, second, third = (box["width"] for box in rectangles(svg, "dot mark"))
    assert (second, third) == (pytest.approx(first / 2, abs=0.1), first)


def test_a_picture_of_norms_has_no_empty_steps() -> None:
    svg = probe_picture("gradient_norms")
    ticks = [each.text for each in ElementTree.fromstring(svg).iter(f"{SVG}text") if each.get("class") == "small mid"]
    assert ticks[-1] == "200"
    _, norms, _ = next(panel for panel in PROBES["gradient_norms"].show().panels if isinstance(panel, Chart)).series
    assert norms.points[-1][0] == 200


def test_a_chart_puts_points_where_its_ticks_say() -> None:
    svg = picture("c", [Chart("", "x", "y", [Series("mark", [(0.0, 0.0), (5.0, 20.0), (10.0, 40.0)], as_dots=True)])])
    dots = [
        (float(dot.get("cx", "")), float(dot.get("cy", ""))) for dot in ElementTree.fromstring(svg).iter(f"{SVG}circle")
    ]
    ticks = {each.text: each for each in ElementTree.fromstring(svg).iter(f"{SVG}text")}
    assert dots[1] == pytest.approx(((dots[0][0] + dots[2][0]) / 2, (dots[0][1] + dots[2][1]) / 2))
    assert float(ticks["10"].get("x", "")) == dots[2][0]
    assert float(ticks["40"].get("y", "")) == dots[2][1] + 4


def test_a_strip_that_is_too_long_goes_on_below() -> None:
    cells = [Cell(str(at), "mark") for at in range(45)]
    boxes = rectangles(picture("s", [Strip("", [Row("", cells)], size=27)]), "cell mark")
    assert len(boxes) == 45
    assert len({box["y"] for box in boxes}) == 3
    assert max(box["x"] + box["width"] for box in boxes) <= 640


@pytest.mark.parametrize(("value", "words"), [(1e-9, "0"), (-0.5, "-0.5"), (1 / 3, "0.333"), (12.0, "12")])
def test_numbers_have_three_digits(value: float, words: str) -> None:
    assert number(value) == words


def test_rows_are_read_off_what_a_probe_finds() -> None:
    assert row_rows("sink_share") == [
        ProbeRow("sink_sequences", "layer", "{position}", "sequences"),
        ProbeRow("importance", "layer and head", "{position}", "share of 1"),
        ProbeRow("sink_share", "layer and head", "{eps, position}", "share of 1"),
        ProbeRow("raw_sink_sequences", "layer", "{position}", "sequences"),
        ProbeRow("raw_importance", "layer and head", "{position}", "weight, signed"),
        ProbeRow("raw_sink_share", "layer and head", "{eps, position}", "share of 1"),
    ]
    assert [row.name for row in row_rows("learned_numbers")] == ["number.STAGE.FIELD"]
    assert [row.of for row in row_rows("gradient_norms")] == ["model"] * 6
    further = {
        "attention_entropy": "entropy_last_sd",
        "gradient_norms": "gradient_norm_not_finite",
        "massive_activation": "unnormed_activation_ratio",
        "token_classes": "token_class_softmax.BY.CLASS",
    }
    assert all(name in {row.name for row in row_rows(kind)} for kind, name in further.items())


def test_a_line_to_copy_makes_the_probe_that_is_explained() -> None:
    known = {name: getattr(runners, name) for name in dir(runners)}
    for kind, drawing in PROBES.items():
        assert eval(spec_line(drawing.probe), dict(known)) == drawing.probe
        assert drawing.probe.kind == kind  # type: ignore[attr-defined]


def test_a_probe_without_a_picture_and_a_row_without_a_unit_name_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe_drawings, "PROBED", {})
    with pytest.raises(SpecError, match=r"say that of 'importance' in runners/catalogue/probed_words\.py"):
        explain_choice("sink_share", "probe")
    monkeypatch.setattr(probe_drawings, "PROBES", {})
    with pytest.raises(SpecError, match=r"every probe has a picture.*'sink_share' in runners/catalogue/probe_draw"):
        explain_choice("sink_share", "probe")


def test_the_command_lists_and_explains(capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(["probes", "--json"]) == 0
    assert set(PROBES) <= {row["name"] for row in json.loads(capsys.readouterr().out)["data"]}
    assert execute(["probes", "gate_sparsity", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)["data"]
    assert [row["name"] for row in told["fields"]] == ["below"]
    assert any("no operator of the trial has an output gate" in line for line in told["needs"])
    assert execute(["probes", "gate_sparsity"]) == 0
    assert "What counts as closed." in capsys.readouterr().out
    assert execute(["probes", "needle"]) == 3
    assert "there is no probe 'needle'; `ablate probes` lists them" in capsys.readouterr().err


def test_a_page_that_is_written_loses_pictures_of_probes_that_are_gone(
    tmp_path: Path, files: Mapping[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("runners.catalogue.probes_page.page", lambda: files)
    (tmp_path / "probes").mkdir()
    (tmp_path / "probes" / "gone.svg").write_text("", encoding="utf-8")
    assert write_page(tmp_path) == len(files)
    assert {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*.*")} == set(files)
