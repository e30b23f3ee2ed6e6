"""The page of operators is what the code says now, and its pictures show what `attend` computes."""

import math
import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from xml.etree import ElementTree

import pytest
import torch

from grid.operator_view import Profile
from runners.catalogue.operators_page import DRAWN, packaged, page, write_page
from runners.catalogue.weight_profile import CHANNELS, LAST, LOGITS, _queries_and_keys, profiles
from runners.catalogue.weight_svg import drawing
from variants import Operator, prefix_lm, softmax
from variants.papers.catalogue import catalogue

DOCS = Path(__file__).parent.parent / "docs"
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def files() -> Mapping[str, str]:
    return page()


def test_the_page_is_what_the_code_says(files: Mapping[str, str]) -> None:
    committed = {"operators.md", *(f"operators/{path.name}" for path in (DOCS / "operators").glob("*.svg"))}
    remedy = "run `python -m runners.catalogue.operators_page` and commit docs/operators.md and docs/operators"
    assert committed == set(files), remedy
    other = [name for name, text in files.items() if (DOCS / name).read_text(encoding="utf-8") != text]
    assert not other, remedy


def test_the_page_has_every_operator_and_every_picture_it_shows(files: Mapping[str, str]) -> None:
    text = files["operators.md"]
    names = [known.name for known in packaged()]
    assert [name for name in names if f"\n### {name}\n" not in text] == []
    assert {f"{path}.svg" for path in re.findall(r"\]\((operators/\w+)\.svg\)", text)} == set(files) - {"operators.md"}
    assert all(f"](#{name})" in text for name in names)


def test_the_readme_counts_the_operators_of_every_paper() -> None:
    readme = (DOCS.parent / "README.md").read_text(encoding="utf-8")
    counted = {
        paper: int(count) for paper, count in re.findall(r"^\| (\d{3}|baseline|beyond)[^|]*\| (\d+) \|", readme, re.M)
    }
    assert counted == Counter(known.paper for known in packaged())
    named = re.findall(r"`(\w+)\(\)`", readme)
    assert set(named) <= set(catalogue())


def test_every_table_of_the_page_has_as_many_cells_in_each_row(files: Mapping[str, str]) -> None:
    for table in re.findall(r"(?:^\|.*\n)+", files["operators.md"], re.MULTILINE):
        assert len({len(re.findall(r"(?<!\\)\|", line)) for line in table.splitlines()}) == 1, table


def test_what_is_drawn_elsewhere_than_at_the_start_exists() -> None:
    assert set(DRAWN) <= set(catalogue())
    for name, drawn in DRAWN.items():
        assert set(drawn.numbers) <= set(catalogue()[name].make().numbers())


def test_a_page_that_is_written_loses_pictures_of_operators_that_are_gone(
    tmp_path: Path, files: Mapping[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("runners.catalogue.operators_page.page", lambda: files)
    (tmp_path / "operators").mkdir()
    (tmp_path / "operators" / "gone.svg").write_text("", encoding="utf-8")
    assert write_page(tmp_path) == len(files)
    assert {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*.*")} == set(files)


@pytest.mark.parametrize("query", [LAST, 4])
def test_queries_and_keys_have_the_logits_of_the_row(query: int) -> None:
    q, k = _queries_and_keys(5, query)
    z = (q[0, 0, query, :CHANNELS] * k[0, 0, :, :CHANNELS]).sum(-1) / math.sqrt(CHANNELS)
    assert z.tolist() == pytest.approx(LOGITS, abs=1e-12)


def test_softmax_s_profile_is_softmax_of_the_row() -> None:
    (row,) = profiles(softmax(), {})
    expected = [math.exp(z) / sum(map(math.exp, LOGITS)) for z in LOGITS]
    assert row.keys == pytest.approx(expected, abs=5e-4)
    assert (row.ground, row.extra, row.total, row.heads) == (None, None, 1.0, "")


def test_a_learned_key_is_drawn_at_the_logit_that_is_shown() -> None:
    (row,) = profiles(catalogue()["key_bias"].make(), {"extra.learned_key": 2.0})
    total = sum(map(math.exp, LOGITS)) + math.exp(2.0)
    assert row.extra == pytest.approx(math.exp(2.0) / total, abs=5e-4)
    assert row.total == pytest.approx(1 - math.exp(2.0) / total, abs=5e-4)


def test_heads_of_different_scores_have_a_profile_each() -> None:
    rows = profiles(catalogue()["soft_avg"].make(), {})
    assert [row.heads for row in rows] == ["head 1 of 2", "head 2 of 2"]
    assert rows[0].keys == profiles(softmax(), {})[0].keys
    assert set(rows[1].keys) == {round(1 / len(LOGITS), 3)}


def test_profiles_do_not_depend_on_the_random_state() -> None:
    operators = [catalogue()[name].make() for name in ("differential", "mlp_kernel", "key_bias")]

    def drawn(seed: int) -> list[list[Profile]]:
        torch.manual_seed(seed)
        return [profiles(operator, {}) for operator in operators]

    assert drawn(0) == drawn(7)


def test_a_bar_is_as_high_as_its_weight_and_hangs_below_the_axis_when_negative() -> None:
    keys = (0.4, -0.2, *([0.0] * 11))
    panel = Profile(heads="", keys=keys, ground=0.6, extra=None, total=0.2)
    tree = ElementTree.fromstring(drawing("A & B", "s = -1", [panel], (1 / 13,) * 13, "sink"))
    bars = [each for each in tree.iter(f"{SVG}rect") if each.get("class") in ("key", "other")]
    heights = [float(bar.get("height", "")) for bar in bars]
    assert heights[0] / heights[-1] == pytest.approx(0.4 / 0.6, rel=0.01)
    assert heights[1] / heights[0] == pytest.approx(0.5, rel=0.01)
    first, second = (float(bar.get("y", "")) for bar in bars[:2])
    assert second == pytest.approx(first + heights[0], abs=0.11)  # its top is the axis, where the first one stands
    words = [each.text for each in tree.iter(f"{SVG}text")]
    assert {"A & B", "0.600", "sink", "weight; keys sum to 0.200; s = −1"} <= set(words)


def test_every_picture_is_closed_svg_with_a_bar_for_every_key(files: Mapping[str, str]) -> None:
    for name, text in files.items():
        if name.endswith(".svg"):
            bars = [each for each in ElementTree.fromstring(text).iter(f"{SVG}rect") if each.get("class") == "key"]
            assert len(bars) % len(LOGITS) == 0, name
            assert bars, name


def test_a_prefix_is_drawn_for_a_query_that_sees_more_keys_for_it() -> None:
    drawn = DRAWN["prefix_lm"]
    (row,), (usual,) = (profiles(each, {}, drawn.query) for each in (prefix_lm(**drawn.arguments), softmax()))
    seen, usually_seen = ([weight > 0 for weight in profile.keys] for profile in (row, usual))
    assert usually_seen == [True] * (drawn.query + 1) + [False] * (len(LOGITS) - drawn.query - 1)
    assert seen == [True] * drawn.arguments["length"] + [False] * (len(LOGITS) - drawn.arguments["length"])
    expected = [math.exp(z) / sum(map(math.exp, LOGITS[:8])) for z in LOGITS[:8]]
    assert row.keys[:8] == pytest.approx(expected, abs=5e-4)


def test_an_operator_that_acts_after_the_weights_says_so_in_place_of_a_picture(files: Mapping[str, str]) -> None:
    section = files["operators.md"].partition("### gated_heads\n")[2].partition("\n### ")[0]
    assert "Its weights are softmax's; it changes a head's output." in section
    assert "operators/gated_heads.svg" not in files
    assert profiles(catalogue()["gated_heads"].make(), {}) == profiles(Operator(), {})
