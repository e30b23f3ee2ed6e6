"""Features of trials, each tried on an experiment of a user's own; docs/own-code.md lists them."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

DOCS = Path(__file__).parents[2] / "docs"

SPEC = """
from typing import Literal

import torch
from ablate import ControlChange, Experiment, Grid, Measure, RowInfo, Run, SpecError, forbid, over


class Net(Experiment):
    kind: Literal["tests_features"] = "tests_features"
    width: int = 4
    act: Literal["tanh", "relu"] = "tanh"
    skip: bool = False
    lr: float = 0.1
    steps: int = 20
    fate: str = "none"

    def parameters(self) -> int:
        return 3 * self.width + 1 + self.skip

    def measures(self):
        return {"loss": [{}], "val_loss": [{}]}

    def row_infos(self):
        return [RowInfo("val_loss", "V²", per="model", title="Validation loss", least=0.0)]

    def controls(self, measure, baseline):
        return [ControlChange("a wider layer", "size", {"width": 5})] if self.skip else []

    def longer(self, factor: int) -> "Net":
        return self.changed(steps=self.steps * factor)

    def check_inputs(self) -> None:
        if self.steps > 1000:
            raise SpecError("there are data for 1000 steps")

    @classmethod
    def warnings(cls, cells):
        return [f"{label} has a width of 2" for label, cell in cells.items() if cell.width == 2]

    def train(self, run: Run) -> None:
        act = {"tanh": torch.nn.Tanh(), "relu": torch.nn.ReLU()}[self.act]
        model = torch.nn.Sequential(torch.nn.Linear(1, self.width), act, torch.nn.Linear(self.width, 1))
        skip = torch.ones((), requires_grad=True)
        optimiser = torch.optim.SGD([*model.parameters(), skip], lr=self.lr)
        inputs = torch.linspace(-1, 1, 32)[:, None]

        def losses(skips):
            return (model(inputs) + skips * skip * inputs - inputs.sin()).square()

        for step in run.steps(self.steps, state={"model": model, "skip": skip, "optimiser": optimiser}):
            loss = losses(self.skip).mean()
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            run.log(loss=loss)
            if self.fate == "raises" and step == 5:
                raise ValueError(f"seed {self.seed} met its fate")
        print("said by the training")
        run.evaluate("val_loss", items={str(at): each.item() for at, each in enumerate(losses(self.skip))})
        if self.skip:
            run.knockout("skip", "val_loss", items={str(at): each.item() for at, each in enumerate(losses(False))})


def on_step(run, step, values):
    with open("heard", "a") as file:
        file.write(f"{run.label} {step}\\n")


measure = Measure(name="val_loss", rope=0.05)
grid = Grid(
    name="net",
    base=Net(),
    axes=[over("act", ["tanh", "relu"]), over("lr", [0.1, 0.01, 0.3], tune=True), over("width", [2, 4])],
    rules=[forbid(lambda t: t.width == 2 and t.act == "relu", reason="too narrow")],
    seeds=range(2),
    baseline={"act": "tanh"},
    measure=measure,
)
skip = Grid(
    name="skip", base=Net(), axes=[over("skip", [False, True])], seeds=range(3), baseline={"skip": False},
    measure=measure, controls="auto", longer=2,
)
bad = Grid(name="bad", base=Net(), axes=[over("fate", ["none", "raises"])], seeds=range(2), measure=measure)
"""

Ablate = Callable[..., Any]
Feature = Callable[[Ablate, Path], None]
FEATURES: dict[str, Feature] = {}


def feature(title: str) -> Callable[[Feature], Feature]:
    """List a check under the words of the documentation."""

    def add(check: Feature) -> Feature:
        FEATURES[title] = check
        return check

    return add


@pytest.fixture(scope="module")
def campaign(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the spec and a campaign of it."""
    from ablate.runners.cli.app import execute

    folder = tmp_path_factory.mktemp("features")
    (folder / "spec.py").write_text(SPEC, encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert execute(["run", "spec.py", "--grid", "net", "--workers", "2"]) == 0
        for _ in range(2):  # then those that are trained longer
            assert execute(["run", "spec.py", "--grid", "skip", "--workers", "1", "--campaign", "campaigns/skip"]) == 0
        assert execute(["run", "spec.py", "--grid", "bad", "--workers", "1", "--campaign", "campaigns/bad"]) == 4
    return folder


@feature("axes, rules, overrides and nuisance axes; `ablate plan` with parameters")
def _(ablate: Ablate, _folder: Path) -> None:
    plan = json.loads(ablate("plan", "spec.py", "steps=30", "--grid", "net", "--json").out)["data"]
    assert len(plan["cells"]) == 9
    assert {cell["parameters"] for cell in plan["cells"]} == {7, 13}
    assert sum(rule["count"] for rule in plan["grids"][0]["rules"]) == 3


@feature("time by `ablate plan --calibrate`")
def _(ablate: Ablate, _folder: Path) -> None:
    estimate = json.loads(ablate("plan", "spec.py", "steps=40", "--grid", "net", "--calibrate", "--json").out)["data"]
    assert estimate["estimate"]["trial_s"] > 0


@feature("`ablate status`, and a second `ablate run`, which trains only what is missing")
def _(ablate: Ablate, _folder: Path) -> None:
    assert "18 were done before" in ablate("run", "spec.py", "--grid", "net").err
    assert "net: 18 of 18 trials done" in ablate("status", "--campaign", "campaigns/spec").out


@feature("verdicts, with their checks, at the best level of nuisance axes")
def _(ablate: Ablate, _folder: Path) -> None:
    rows = json.loads(ablate("table", "--campaign", "campaigns/spec", "--json").out)["data"]
    (row,) = [row for row in rows if row["pairs"]]
    assert row["pairs"] == 2
    assert row["value"] != row["baseline_value"]


@feature("the checks *on*, *control* and *finished*, by `run.knockout`, `controls` and `longer`")
def _(ablate: Ablate, _folder: Path) -> None:
    (row,) = json.loads(ablate("table", "--campaign", "campaigns/skip", "--json").out)["data"]
    assert (row["verdict"], row["on"]) == ("better", "yes")
    assert {row["control"], row["finished"]} <= {"yes", "no"}


@feature("findings of `warnings` in a plan, and titles and units of `row_infos`")
def _(ablate: Ablate, _folder: Path) -> None:
    plan = ablate("plan", "spec.py", "--grid", "net").out
    assert plan.count("has a width of 2") == 3
    (header,) = json.loads(ablate("plan", "spec.py", "--grid", "net", "--json").out)["data"]["grids"]
    assert header["rows"]["val_loss"] == {"title": "Validation loss", "unit": "V²", "least": 0.0}


@feature("a measure that `measures` lacks, and inputs that `check_inputs` misses, before anything is trained")
def _(ablate: Ablate, folder: Path) -> None:
    other = SPEC.replace('Measure(name="val_loss"', 'Measure(name="val_los"').replace("tests_features", "tests_wrong")
    (folder / "wrong.py").write_text(other, encoding="utf-8")
    assert "did you mean 'val_loss'" in ablate("plan", "wrong.py", code=2).err
    assert "data for 1000 steps" in ablate("plan", "spec.py", "steps=2000", "--grid", "bad", code=2).out
    assert "nothing was trained" in ablate("run", "spec.py", "steps=2000", "--grid", "bad", code=2).err


@feature("failure groups, `ablate logs` and `ablate retry`")
def _(ablate: Ablate, _folder: Path) -> None:
    groups = json.loads(ablate("status", "--failures", "--campaign", "campaigns/bad", "--json").out)["data"]
    (group,) = groups["failures"]
    assert (group["n"], group["message"].startswith("ValueError: seed ")) == (2, True)
    assert "met its fate" in ablate("logs", "fate=raises", "seed=1", "--campaign", "campaigns/bad").out
    assert ablate("retry", "fate=raises", "--campaign", "campaigns/bad", code=4).err.count("met its fate") == 2


@feature("`on_step` and `on_evaluation` of the spec file")
def _(_ablate: Ablate, folder: Path) -> None:
    heard = (folder / "heard").read_text(encoding="utf-8").splitlines()
    assert sum(line.endswith(" 20") for line in heard) >= 18


@feature("`ablate repro`, bit for bit on the CPU")
def _(ablate: Ablate, _folder: Path) -> None:
    key = json.loads(ablate("plan", "spec.py", "--grid", "net", "--json").out)["data"]["trials"][0]["key"]
    assert ablate("repro", key, "--campaign", "campaigns/spec").out == "equal: 54 values\n"


@feature("stale code by your own class and modules")
def _(ablate: Ablate, folder: Path) -> None:
    try:
        (folder / "spec.py").write_text(SPEC.replace("lr=self.lr)", "lr=2 * self.lr)"), encoding="utf-8")
        counts = json.loads(ablate("plan", "spec.py", "--grid", "net", "--json").out)["data"]["counts"]
    finally:
        (folder / "spec.py").write_text(SPEC, encoding="utf-8")
    assert counts["other_code"] == 18


@feature("`ablate compare`, `curves`, `pareto` and `effects`; tags and notes")
def _(ablate: Ablate, _folder: Path) -> None:
    of = ("--campaign", "campaigns/skip")
    (cost,) = json.loads(ablate("sql", "SELECT sum(steps) AS n FROM v_cost WHERE train_s > 0", *of, "--json").out)[
        "data"
    ]
    assert cost["n"] == 3 * 3 * 20 + 2 * 3 * 40
    assert "val_loss" in ablate("compare", "skip=true", "skip=false", "seed=1", *of).out
    for command in (("curves", "loss", "--by", "steps"), ("pareto", "--cost", "train_s"), ("effects",)):
        assert "skip" in ablate(*command, *of).out
    ablate("tag", "skip=true", "+good", *of)
    ablate("note", "skip=true", "it may skip", *of)
    notes = json.loads(ablate("sql", "SELECT DISTINCT note FROM note", *of, "--json").out)["data"]
    assert notes == [{"note": "it may skip"}]


@feature("`ablate prove`")
def _(ablate: Ablate, _folder: Path) -> None:
    assert "tests_features" in ablate("prove", "spec.py").out


@feature("reports, pages, SQL and exports")
def _(ablate: Ablate, folder: Path) -> None:
    ablate("report", "--campaign", "campaigns/spec", "--out", "report.html")
    assert (folder / "report.html").stat().st_size > 10_000
    said = ablate(
        "sql", "SELECT count(*) AS n FROM v_metric WHERE name = 'loss'", "--campaign", "campaigns/spec", "--json"
    )
    assert json.loads(said.out)["data"] == [{"n": 360}]


@pytest.mark.parametrize("title", FEATURES)
def test_a_feature_of_trials_works_for_an_experiment(
    title: str, campaign: Path, ablate: Ablate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(campaign)
    FEATURES[title](ablate, campaign)


def test_the_documentation_lists_the_features() -> None:
    page = (DOCS / "own-code.md").read_text(encoding="utf-8")
    _, _, rest = page.partition("## Works as for built-in trials\n")
    listed = [line.removeprefix("- ") for line in rest.partition("\n## ")[0].splitlines() if line.startswith("- ")]
    assert listed == [*FEATURES, *ELSEWHERE]


ELSEWHERE = (
    "Ctrl-C, killed workers and lost nodes; SLURM",  # test_experiments.py, cluster/test_own_training.py
    "several GPUs",  # test_experiment_ranks.py
    "budgets of hours on a cluster, and `execution.stall`",  # test_slurm_node.py, test_stall.py: of every experiment
)
