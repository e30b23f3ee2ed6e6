"""Run beside other runs: what differs between them, and nothing else."""

import io
import shutil
import tarfile
from collections.abc import Iterator, Mapping
from inspect import getsource
from pathlib import Path
from typing import Any

import pytest
from known_campaign import Planted, open_view, plant, show_slot
from published_campaign import mse, planted
from synthetic import plan_header, plan_lines, publish_grid, write_campaign, write_end, write_start

from ablate import Training
from ablate.dashboards.app.page import PageView, SlotContent
from ablate.dashboards.app.pages.run import RUN
from ablate.dashboards.app.pages.run_differences import MISSING, RunAddress, table
from ablate.dashboards.data.result_table import flat
from ablate.grid.key import content_key
from ablate.store.files.atomic import write_json
from ablate.store.files.layout import Layout
from ablate.store.files.shards import ShardBuffer
from ablate.variants import gpt2, principled_ground, softmax, stages

LINES = plan_lines(("softmax", "<i>SSA"), [0, 1], "known", {"depth": [2]})
KEYS = {(line["operator"], line["seed"]): line["trial"] for line in LINES}


@pytest.fixture(scope="module")
def view(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PageView]:
    layout = Layout(tmp_path_factory.mktemp("diff") / "runs")
    publish_grid(layout, plan_header(LINES, "known", {"depth": [2]}, ("softmax", "<i>SSA")), LINES)
    buffer = ShardBuffer(layout, submission="20260921T141320-0a1b2c", worker=0)
    for line in LINES[:-1]:
        other = {"device": "cuda:0"} if line["seed"] else {}
        write_start(layout, line["trial"], 1, sources={"softmax": f"hash {line['seed']}"}, **other)
        for name, value in (("loss", 1.0 + line["seed"]), ("both", 5.0)):
            buffer.add("metric", (line["trial"], 1, 60, name, value, 0.0))
        buffer.add("evaluation", (line["trial"], 1, 60, "both", {}, 7.0 + line["seed"], 10, None))
        write_end(layout, line["trial"], 1)
    buffer.flush()
    with open_view(layout.root, RUN) as found:
        yield found


def show(view: PageView, slot: str, *keys: str, more: str = "") -> SlotContent:
    return show_slot(view, RUN, slot, "?" + "&".join(f"run={key}" for key in keys) + more)


def rows(found: SlotContent) -> dict[str, list[str]]:
    return {row[0]: list(row[1:]) for row in found.data.iter_rows()}


def test_only_what_differs_is_shown(view: PageView) -> None:
    one, two = KEYS["softmax", 0], KEYS["<i>SSA", 0]
    found = show(view, "spec", one[:8], two[:8])
    assert rows(found) == {"operator.kind": ["softmax", "<i>ssa"], "operator.operator": ["softmax", "<i>SSA"]}


def test_all_is_shown_on_demand(view: PageView) -> None:
    found = show(view, "spec", KEYS["softmax", 0], KEYS["<i>SSA", 0], more="&all=1")
    assert rows(found)["task.points"] == ["11", "11"]


def test_environment_code_and_results_stand_beside_each_other(view: PageView) -> None:
    keys = KEYS["softmax", 0], KEYS["softmax", 1]
    assert rows(show(view, "environment", *keys)) == {
        "device": ["cpu", "cuda:0"],
        "sources.softmax": ["hash 0", "hash 1"],
    }
    assert rows(show(view, "results", *keys)) == {"both": ["7.0", "8.0"], "loss": ["1.0", "2.0"]}
    assert show(view, "environment", keys[0], KEYS["<i>SSA", 0]).data.is_empty()


def test_a_run_alone_stands_beside_the_baselines_run_of_its_seed(view: PageView) -> None:
    own, base, other = (KEYS[who] for who in (("<i>SSA", 0), ("softmax", 0), ("softmax", 1)))
    assert show(view, "spec", own).data.equals(show(view, "spec", base, own).data)
    assert "task.points" in rows(show(view, "spec", base))  # nothing stands beside the baseline: all of it
    controls = {each.field: each for each in RUN.controls(view._replace(address=RunAddress(run=(base,))))}
    assert any(other.startswith(begins) for begins in controls["run"].options)


def test_the_environment_is_that_of_the_chosen_attempt(tmp_path: Path) -> None:
    layout = Layout(plant(tmp_path / "runs", ("softmax",), range(1), Planted(lambda _: 1.0)))
    (key,) = layout.trial_keys()
    write_start(layout, key, 2, host="elsewhere")
    with open_view(layout.root, RUN) as found:
        for more, is_last in (("", True), ("&attempt=1", False)):
            assert (rows(show(found, "environment", key, more=more))["host"] == ["elsewhere"]) == is_last
        assert "attempt 7" in show(found, "environment", key, more="&attempt=7").message


def test_curves_of_several_runs_are_drawn_together(view: PageView) -> None:
    found = show(view, "curves", *(KEYS["softmax", seed] for seed in (0, 1)))
    assert found.data["group"].n_unique() == 2


def test_lists_and_empty_parts_are_compared_by_place() -> None:
    assert flat({"a": [1, {"b": []}], "c": {}}) == {"a.0": 1, "a.1.b": [], "c": {}}
    found = table({"x": {"a": [1, 2], "s": None}, "y": {"a": [1], "s": True}, "z": {}}, whole=False)
    assert found.rows() == [("a.0", "1", "1", MISSING), ("a.1", "2", MISSING, MISSING), ("s", "null", "true", MISSING)]


FIRST = KEYS["softmax", 0]


MANY = tuple(f"{i:08x}" for i in range(21))


@pytest.mark.parametrize(
    ("keys", "named"),
    [
        ((), "no run"),
        ((FIRST, "zz"), "'zz'"),
        ((FIRST, "0" * 32), "00"),
        (MANY, "21"),
    ],
)
def test_runs_that_cannot_be_compared_are_told(view: PageView, keys: tuple[str, ...], named: str) -> None:
    shown = show(view, "spec", *keys)
    assert (named in shown.message.lower(), shown.data.height) == (True, 0)
    given = {each.field: each for each in RUN.controls(view._replace(address=RunAddress(run=keys)))}
    assert list(given["run"].options) == list(keys)  # a wrong run can be removed


def test_cells_are_paired_by_seed_with_an_interval(tmp_path: Path) -> None:
    value = {"softmax": 2.0, "SSA": 3.0}
    planted = Planted(lambda line: value[line["operator"]] + 0.1 * line["seed"] * (line["operator"] == "SSA"))
    root = plant(tmp_path / "runs", ("softmax", "SSA"), range(3), planted)
    with open_view(root, RUN) as found:
        lines = found.store.sql("SELECT operator, seed, trial FROM grid_trial").rows()
        one, other, again = (
            next(t for o, s, t in lines if (o, s) == key) for key in (("softmax", 0), ("SSA", 2), ("SSA", 0))
        )
        half = 4.302653 * 0.1 / 3**0.5  # differences 1.0, 1.1 and 1.2
        whole = show_slot(found._replace(whole=True), RUN, "pairs", f"?run={one}&run={other}").data
        row = whole.row(0, named=True)
        assert (row["measurement"], row["pairs"]) == ("mse@sigma_f=5,sigma_x=1", 3)
        assert [row[name] for name in ("difference", "low", "high")] == pytest.approx([1.1, 1.1 - half, 1.1 + half])
        assert show(found, "pairs", other, again).data.is_empty()  # both are seeds of one cell


def test_the_point_of_the_measure_comes_first_and_other_points_by_number(tmp_path: Path) -> None:
    campaign = write_campaign(tmp_path, operators=("softmax", "SSA"), seeds=range(2), steps=4, sigma_x=(1,))
    runs = [campaign.line(operator, 0)["trial"] for operator in ("softmax", "SSA")]
    points = [f"sigma_f {point}, sigma_x 1" for point in range(1, 11)]
    with open_view(tmp_path, RUN) as found:
        shown = show(found, "pairs", *runs)
        paired = [each for each in shown.data["measurement"] if each.startswith("mse")]
        assert paired == [f"mse {point}" for point in (points[4], *points[:4], *points[5:])]
        assert paired[0] in shown.answer
        assert set(paired) <= set(show(found, "results", *runs, more="&all=1").data["field"])  # written alike
        listed = [name for name in show(found, "results", *runs).data["field"] if name.startswith("mse")]
        assert [int(name.split()[2].strip(",")) for name in listed] == [*range(1, 11)]


SUBMISSIONS = ("20260921T141320-0a1b2c", "20260922T141320-0a1b2c")


def write_snapshot(layout: Layout, submission: str, version: str, files: Mapping[str, str]) -> None:
    """Write the code of a submission as `ablate run` keeps it."""
    layout.snapshots.mkdir(exist_ok=True)
    held = io.BytesIO()
    with tarfile.open(fileobj=held, mode="w") as tar:
        for name, text in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(text.encode())
            tar.addfile(member, io.BytesIO(text.encode()))
    layout.snapshot_tar(content_key(version)).write_bytes(held.getvalue())
    record = {"snapshot": {"tar": content_key(version)}}
    write_json(layout.submission_record(submission), record, durable="nothing")


def test_the_code_of_two_runs_is_compared_line_by_line(tmp_path: Path) -> None:
    layout = Layout(plant(tmp_path / "runs", ("softmax",), range(4), Planted(lambda _: 1.0)))
    for submission, version in zip(SUBMISSIONS, ("one", "two"), strict=True):
        files = {"user/spec.py": f"a = 1\nname = {version!r}  # <b>\n", "code/grid/same.py": "x\n"}
        write_snapshot(layout, submission, version, files)
    keys = sorted(layout.trial_keys())
    for key, submission in zip(keys, (*SUBMISSIONS, SUBMISSIONS[0]), strict=False):
        write_start(layout, key, 2, submission=submission)
    write_start(layout, keys[3], 2, submission="20260923T141320-0a1b2c")
    with open_view(layout.root, RUN) as found:
        shown = show(found, "code", keys[0], keys[1])
        assert shown.data.rows() == [("user/spec.py", 1, 1)]
        lines = [(line.children, line.className) for line in shown.parts[0].children[0].children[1].children]
        assert ("-name = 'one'  # <b>\n", "taken") in lines
        assert ("+name = 'two'  # <b>\n", "added") in lines
        assert "there is no file" in show(found, "code", keys[0], keys[3]).message.lower()


MINE = """
class Mine(ablate.Score):
    kind: Literal["exponential"] = 'exponential'  # the same word as that of another family
"""


def test_the_code_of_an_operator_is_that_of_its_snapshot_and_the_spec_runs_as_python(tmp_path: Path) -> None:
    operators = {"softmax": softmax(), "ground": principled_ground(), "unknown": softmax().changed(name="unknown")}
    values = {name: [mse(0, dict.fromkeys(range(1, 11), 0.0))] for name in operators}
    rest = {"model": gpt2(layers=1, heads=2, width=8).data(), "training": Training(steps=3).data()}
    store = planted(tmp_path / "runs", operators, values, **dict.fromkeys(operators, rest))
    layout, texts = store.layout, {path.name: path.read_text() for path in Path(stages.__file__).parent.glob("*.py")}
    keys = dict(store.sql("SELECT label, trial FROM grid_trial").rows())
    store.close()
    shutil.rmtree(layout.root / "store")  # it has read these trials as finished
    code = {f"code/variants/stages/{name}": text for name, text in texts.items()}
    write_snapshot(layout, SUBMISSIONS[0], "one", {"user/copy.py": MINE, **code, "user/broken.py": 'kind = "dot" ('})
    other = {"user/mine.py": MINE, "user/gates.py": MINE.replace("Score", "Gate").replace("Mine", "Own")}
    write_snapshot(layout, SUBMISSIONS[1], "two", other)
    for name, submission in (("softmax", SUBMISSIONS[0]), ("ground", SUBMISSIONS[0]), ("unknown", SUBMISSIONS[1])):
        write_start(layout, keys[name], 2, submission=submission)
    with open_view(layout.root, RUN) as found:
        for name in ("softmax", "ground"):
            shown = show(found, "operator", keys[name]).data
            stage_of = {field: getattr(operators[name], field) for field in type(operators[name]).model_fields}
            chosen = {field: type(each) for field, each in stage_of.items() if getattr(each, "kind", "none") != "none"}
            assert dict(shown.select("stage", "source").rows()) == {
                field: getsource(cls).rstrip() for field, cls in chosen.items()
            }
            *_, python = show(found, "spec", keys[name]).parts
            names: dict[str, Any] = {}
            exec(python.children[1].children, names)
            assert names["trial"].operator == operators[name]
        (own,) = show(found, "operator", keys["unknown"]).data.rows()
        assert own[:2] == ("score", "user/mine.py")
