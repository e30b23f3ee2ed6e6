"""Attention maps: every weight in its place, tokens as one sees them, and sentences where files cannot be read."""

import base64
import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path

import numpy as np
import numpy.typing as npt
import plotly.graph_objects as go
import polars as pl
import pytest
from dashboard_site import ServeSite
from PIL import Image
from playwright.sync_api import Page
from probed_campaign import HEADS, LAYERS, STEPS, TOKENS, weights, write_arrays, write_maps, write_probed

from ablate.dashboards.app.address import read
from ablate.dashboards.app.campaigns import Campaigns
from ablate.dashboards.app.engine import Engine, shown_of
from ablate.dashboards.app.page import PageView, SlotContent
from ablate.dashboards.app.pages.mechanism import MECHANISM
from ablate.dashboards.data.formatting import number
from ablate.dashboards.data.user_errors import Unknown
from ablate.dashboards.figures.attention import (
    MOST_TOKENS,
    Maps,
    byte_names,
    draw_map,
    draw_mosaic,
    farthest,
    one_map,
    sum_words,
    summary,
    token_names,
)
from ablate.dashboards.theme.styles import ON_ANY_PAGE
from ablate.grid.errors import NotFoundError, StoreError
from ablate.store import Store
from ablate.store.analysis.artefacts import LARGEST, StoredArray, arrays, artefacts, with_artefacts

Look = Callable[..., SlotContent]


@contextmanager
def open_views(root: Path) -> Iterator[Callable[[str], PageView]]:
    engine = Engine(Campaigns([root]), [MECHANISM])
    with engine.campaigns.reading(root.name) as store:
        yield lambda search: engine.view(store, root.name, MECHANISM, read(MECHANISM.address, search))


@pytest.fixture(scope="module")
def campaign(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("mapped") / "mapped"
    write_probed(root)
    return root


@pytest.fixture(scope="module")
def at(campaign: Path) -> Iterator[Callable[[str], PageView]]:
    with open_views(campaign) as found:
        yield found


@pytest.fixture(scope="module")
def look(at: Callable[[str], PageView]) -> Look:
    return look_at(at)


def look_at(at: Callable[[str], PageView]) -> Look:
    slots = {slot.name: slot for slot in MECHANISM.slots}
    return lambda name, search="": shown_of(slots[name], at(search))


def figure(shown: SlotContent) -> go.Figure:
    assert shown.figure is not None, shown.message
    json.loads(shown.figure.to_json())
    return shown.figure


def heat(shown: go.Figure) -> go.Heatmap:
    (found,) = (trace for trace in shown.data if isinstance(trace, go.Heatmap))
    return found


def picture(shown: go.Figure) -> tuple[npt.NDArray[np.uint8], bytes, bytes]:
    """Places in the palette, its colours and their opacities, of the picture of a figure."""
    (image,) = (trace for trace in shown.data if isinstance(trace, go.Image))
    found = Image.open(BytesIO(base64.b64decode(image.source.removeprefix("data:image/png;base64,"))))
    return np.asarray(found), bytes(found.getpalette() or ()), found.info["transparency"]


def maps_of(found: npt.NDArray[np.float64]) -> Maps:
    """[layers, heads, tokens, tokens] of tokens that are numbered."""
    names = [str(i) for i in range(found.shape[-2])]
    return Maps(list(range(len(found))), found.astype(np.float32), names, names, 1)


def test_the_mosaic_is_one_picture_with_each_head_in_its_place() -> None:
    found = np.zeros((2, 3, 4, 4))
    found[1, 2, 3, 0] = -1.0
    found[0, 1, 0, 0] = 0.25
    shown = draw_mosaic(maps_of(found), (1, 2))
    places, colors, opacities = picture(shown)
    side = 4 + 2
    assert places.shape == (2 * side, 3 * side)
    marked = {(int(row), int(column)) for row, column in np.argwhere(places != 127)}
    assert marked == {(1 * side + 1 + 3, 2 * side + 1), (1, 1 * side + 1)}
    low, high = int(places[side + 4, 2 * side + 1]), int(places[1, side + 1])
    assert (opacities[low], opacities[high], opacities[127]) == (255, round(64 / 127 * 255), 0)  # sqrt(0.25) is a half
    assert [f"#{bytes(colors[3 * at : 3 * at + 3]).hex()}" for at in (high, low)] == list(ON_ANY_PAGE)
    (image,) = (trace for trace in shown.data if isinstance(trace, go.Image))
    assert image.x0 - image.dx / 2 == pytest.approx(-0.5)
    assert image.x0 + image.dx * (3 * side - 0.5) == pytest.approx(2.5)
    assert heat(shown).customdata[1][2] == "1.2"
    (box,) = shown.layout.shapes
    assert (box.x0, box.x1, box.y0, box.y1) == (1.5, 2.5, 0.5, 1.5)


def test_a_mosaic_of_many_large_heads_stays_small_and_a_long_map_is_in_blocks_that_keep_the_mean() -> None:
    random = np.random.default_rng(0)
    assert len(draw_mosaic(maps_of(random.random((22, 32, 64, 64))), (0, 0)).to_json()) < 3_000_000
    n = 2 * MOST_TOKENS + 1
    found = np.tril(random.random((1, 1, n, n)))
    z = np.array(heat(draw_map(maps_of(found), 0, 0)).z)
    assert max(z.shape) <= MOST_TOKENS
    assert z[0, 0] == pytest.approx(found[0, 0, :3, :3].mean(), rel=1e-5)
    listed = one_map(maps_of(found), 0, 0)
    assert listed.height == z.size
    assert listed["query"].unique().sort().to_list()[:2] == [1, 4]


def test_a_map_has_its_tokens_at_both_axes_and_every_weight(look: Look) -> None:
    shown = look("map", "?cell=SSA&seed=1&head=1.2")
    drawn = figure(shown)
    assert np.array(heat(drawn).z) == pytest.approx(weights(1, 1)[0, 2].astype(float))
    assert drawn.layout.xaxis.ticktext == ("a", "␣", "&lt;", "b", "&gt;", "↵")
    assert drawn.layout.yaxis.ticktext == drawn.layout.xaxis.ticktext
    assert heat(drawn).x[2] == "3 &lt;"
    assert heat(drawn).zmin == -heat(drawn).zmax < 0  # signed weights have zero in the middle
    row = shown.data.row(by_predicate=(pl.col("query") == 4) & (pl.col("key") == 2), named=True)
    assert row["weight"] == pytest.approx(float(weights(1, 1)[0, 2, 3, 1]))
    assert (row["query_token"], row["key_token"]) == ("b", "␣")


def test_rows_that_do_not_sum_to_1_are_told(look: Look) -> None:
    assert "0 to 1.1" in look("map", "?cell=SSA&seed=1").caption
    assert sum_words(0.9999, 1.001) != sum_words(0.5, 0.5)


def test_a_ground_state_is_a_column_of_its_own_and_in_the_sums(tmp_path: Path) -> None:
    layout = write_probed(tmp_path / "g")
    with Store.open(tmp_path / "g") as store:
        trial = with_artefacts(store, "probed", "attention_maps").filter(seed=0)["trial"][0]
    half = (weights(0, 0) / 2).astype(np.float16)
    write_maps(layout, trial, half, ground=np.full(half.shape[:3], 0.5, np.float16))
    with open_views(tmp_path / "g") as at:
        shown = look_at(at)("map", "?cell=softmax&seed=0")
    assert figure(shown).layout.xaxis.ticktext[:2] == ("ground", "a")
    assert np.array(heat(figure(shown)).z)[:, 0] == pytest.approx([0.5] * TOKENS)


def test_a_head_is_summed_up_by_first_token_and_entropy() -> None:
    found = np.zeros((1, 2, 2, 2))
    found[0, 0] = np.array([[1, 0], [0.5, 0.5]])
    found[0, 1] = np.array([[0, 0], [-1, 1]])
    rows = summary(maps_of(found)).rows(named=True)
    assert rows[0]["first"] == pytest.approx(0.75)
    assert rows[0]["entropy"] == pytest.approx(np.log(2) / 2)
    assert (rows[1]["sum_low"], rows[1]["sum_high"]) == (0, 0)
    assert rows[1]["entropy"] == pytest.approx(np.log(2) / 2)


def test_the_answer_names_the_head_that_differs_most(look: Look) -> None:
    one, other = np.zeros((2, 2, 3, 3)), np.zeros((2, 2, 3, 3))
    one[1, 0, 2], other[1, 0, 2] = [0.5, 0.5, 0], [-0.1, 0.1, 1]
    one[0, 1, 0, 0] = 1.0
    assert farthest(maps_of(one), maps_of(other)) == (1, 0, pytest.approx((0.6 + 0.4 + 1) / 3))
    assert farthest(maps_of(one), maps_of(one)) is None
    assert farthest(maps_of(one), maps_of(other[:, :, :2, :2])) is None
    apart = np.abs(weights(0, 0)[0].astype(float) - weights(1, 0)[0].astype(float)).sum(-1).mean()
    assert re.search(rf"^Layer 0, head 0 .*{re.escape(number(apart))}", look("mosaic").answer)


def test_bytes_are_letters_and_other_tokens_are_numbers() -> None:
    assert byte_names(list("a é\n".encode())) == ["a", "␣", "é", "…", "↵"]
    assert byte_names([0xFF, 0x41, 0xE2, 0x82, 0x00, 0x1A]) == ["\\xff", "A", "\\xe2", "\\x82", "␀", "␚"]
    assert byte_names([*"€".encode(), 0x7F]) == ["€", "…", "…", "\\u007f"]
    assert token_names(np.array([3, 300]), {}, 4) == ["sink 1", "sink 2", "3", "300"]  # the model's own come first
    assert token_names(np.array([[0.5], [-1.25]]), {}, 3) == ["sink", "0.5", "−1.2"]


@pytest.mark.parametrize(
    ("search", "named"),
    [
        ("?cell=nobody", "'nobody'"),
        ("?sequence=3", "sequence 3"),
        ("?head=<script>", "'<script>'"),
        ("?head=9.9", "'9.9'"),
    ],
)
def test_an_address_that_names_what_is_not_there_gets_a_sentence(
    look: Look, at: Callable[[str], PageView], search: str, named: str
) -> None:
    for slot in ("mosaic", "map"):
        assert named in look(slot, search).message
    assert look("training", search).figure is not None
    assert {"cell", "head"} <= {control.field for control in MECHANISM.controls(at(search))}  # so that it can be mended
    assert MECHANISM.check is not None
    with pytest.raises(Unknown):  # so that the page is answered with 404
        MECHANISM.check(at(search))


def test_a_step_is_that_of_probes_and_maps(look: Look, at: Callable[[str], PageView]) -> None:
    controls = {control.field: control for control in MECHANISM.controls(at(""))}
    assert list(controls["step"].options) == ["", *map(str, STEPS)]
    for step in STEPS:
        assert f"tep {step}" in look("layers", f"?probe=sink_share&step={step}").caption
        assert f"step {STEPS[-1]}" in look("map", f"?step={step}").caption  # the only one of the maps
    assert "15" in look("layers", "?probe=sink_share&step=15").message


def test_maps_are_of_the_chosen_cells_and_a_click_on_a_head_of_a_probe_shows_its_map(look: Look) -> None:
    assert "SSA, seed" in look("map", "?cells=SSA").caption
    heads = figure(look("heads", "?probe=first_token_weight"))
    keys = {key for trace in heads.data if isinstance(trace, go.Heatmap) for row in trace.customdata for key in row}
    assert keys == {f"{layer}.{head}" for layer in range(LAYERS) for head in range(HEADS)}


def test_the_same_head_of_another_cell_stands_beside_it(look: Look, at: Callable[[str], PageView]) -> None:
    for search, cell in (("", "softmax"), ("&cell=softmax", "<script>%{x}</script>"), ("&beside=SSA", "SSA")):
        assert look("beside", f"?head=1.0{search}").caption.startswith(f"Layer 1, head 0. {cell}, seed 0,")
    assert "'nobody'" in look("beside", "?beside=nobody").message
    controls = {control.field: control for control in MECHANISM.controls(at("?cell=SSA"))}
    assert controls["beside"].usual == "softmax"


def test_the_head_of_the_answer_is_shown_unless_another_is_chosen(tmp_path: Path) -> None:
    layout = write_probed(tmp_path / "h")
    with Store.open(tmp_path / "h") as store:
        trial = with_artefacts(store, "probed", "attention_maps").filter(seed=0)["trial"][-1]
    changed = weights(0, 0)
    changed[:, 2] *= 3  # in layer 1; all other heads are as those of softmax
    write_maps(layout, trial, weights(0, 0))
    write_arrays(layout, trial, "attention-01", weights=changed)
    with open_views(tmp_path / "h") as at:
        slots = {slot.name: shown_of(slot, at("")) for slot in MECHANISM.slots}
        controls = {control.field: control for control in MECHANISM.controls(at(""))}
    assert slots["mosaic"].answer.startswith("Layer 1, head 2 differs most from softmax")
    assert all(slots[name].caption.startswith("Layer 1, head 2.") for name in ("map", "beside"))
    assert controls["head"].usual == "1.2"


@pytest.mark.browser
def test_a_click_on_a_head_shows_its_map(page: Page, serve_site: ServeSite, campaign: Path) -> None:
    caption = "() => document.querySelector('#slot-map .caption')?.textContent"
    with serve_site([campaign]) as site:
        page.goto(f"{site.url}/mapped/mechanism?cell=softmax&sequence=2")
        page.wait_for_selector("#slot-mosaic .imagelayer image")
        assert "Layer 0, head 0. softmax, seed 0, sequence 2" in page.evaluate(caption)
        page.locator("#slot-beside .main-svg").first.wait_for()  # it no longer moves
        page.locator("#slot-mosaic .nsewdrag").scroll_into_view_if_needed()
        box = page.locator("#slot-mosaic .nsewdrag").bounding_box()
        assert box is not None
        page.mouse.move(box["x"] + 0.5 * box["width"], box["y"] + 0.75 * box["height"])
        page.wait_for_selector("#slot-mosaic .hoverlayer text")
        page.mouse.click(box["x"] + 0.5 * box["width"], box["y"] + 0.75 * box["height"])
        page.wait_for_url("**/mechanism?cell=softmax&sequence=2&head=1.1")
        page.wait_for_function(f"() => ({caption})().startsWith('Layer 1, head 1.')")
        mosaic, one, other = (page.locator(f"#slot-{name}").bounding_box() for name in ("mosaic", "map", "beside"))
        assert mosaic is not None
        assert one is not None
        assert other is not None
        assert mosaic["x"] + mosaic["width"] < one["x"]
        assert one["x"] + one["width"] < other["x"]
        assert mosaic["y"] == one["y"] == other["y"]


class TestFiles:
    @pytest.fixture
    def store(self, tmp_path: Path) -> Iterator[Store]:
        write_probed(tmp_path / "c")
        with Store.open(tmp_path / "c") as found:
            yield found

    @pytest.fixture
    def first(self, store: Store) -> StoredArray:
        return artefacts(store, with_artefacts(store, "probed", "attention_maps")["trial"][0])[0]

    def test_those_of_a_run_are_listed_by_step_and_name_and_no_other_files(
        self, store: Store, first: StoredArray
    ) -> None:
        path = store.layout.artefact(first.trial, 1, first.step, first.name)
        for name in ("attention-00.npz", "x_y-000000020.npz", "Attention-000000020.npz", ".tmp-000000020.npz"):
            (path.parent / name).write_bytes(b"")
        found = artefacts(store, first.trial)
        assert [each.name for each in found] == ["attention-00", "attention-01", "attention-inputs"]
        assert {(each.step, each.attempt) for each in found} == {(STEPS[-1], 1)}
        assert arrays(store, found[0])["weights"].shape == (2, HEADS, TOKENS, TOKENS)

    def test_one_that_is_torn_has_objects_would_take_all_memory_or_is_gone_is_refused(
        self, store: Store, first: StoredArray
    ) -> None:
        path, objects = store.layout.artefact(first.trial, 1, first.step, first.name), BytesIO()
        np.savez(objects, weights=np.array([{"a": 1}], dtype=object))
        for data in (b"", b"PK\x03\x04 torn", b"no arrays at all", objects.getvalue()):
            path.write_bytes(data)
            with pytest.raises(StoreError, match="is no file of arrays"):
                arrays(store, first)
        write_arrays(store.layout, first.trial, first.name, weights=np.zeros(LARGEST // 4 + 1, np.float32))
        with pytest.raises(StoreError, match="bytes of arrays; at most"):
            arrays(store, first)
        path.unlink()
        with pytest.raises(NotFoundError, match="there is no file"):
            arrays(store, first)


@pytest.mark.browser
def test_no_caption_has_more_than_two_lines(page: Page, serve_site: ServeSite, campaign: Path) -> None:
    with serve_site([campaign]) as site:
        page.set_viewport_size({"width": 1440, "height": 900})
        page.goto(f"{site.url}/{campaign.name}/mechanism")
        page.wait_for_selector("#slot-beside .caption")
        tall = "() => [...document.querySelectorAll('.caption')].map((each) => each.getBoundingClientRect().height)"
        assert max(page.evaluate(tall)) < 45
