"""The check "finished": what the same cells trained longer say, and what curves can say."""

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from synthetic import SUBMISSION, plan_header, plan_lines, publish_grid, write_end, write_start

from ablate.store.analysis.effects import effects
from ablate.store.analysis.finished_check import finished_checks
from ablate.store.analysis.verdicts import verdicts
from ablate.store.files.layout import Layout
from ablate.store.files.shards import ShardBuffer
from ablate.store.store import Store

POINT = {"sigma_f": 5.0, "sigma_x": 1.0}
STEPS = 80
NOISE = (0.0, 0.01, -0.01, 0.004)
Curve = Callable[[int], Mapping[int, float]]
"""The measure by step for a seed."""


def flat(value: float) -> Curve:
    return lambda seed: {STEPS: value + NOISE[seed]}


def falling(value: float, gain: float) -> Curve:
    """It falls by `gain` from three quarters of the training on, and is recorded on both sides of that step."""
    return lambda seed: {step: value + NOISE[seed] + gain * (STEPS - step) / (STEPS / 4) for step in (40, 70, STEPS)}


def campaign(root: Path, curves: Mapping[str, Curve], longer: Mapping[str, str], lost: tuple[str, ...] = ()) -> Path:
    """Record `curves` by label, against softmax, on a linear scale with a band of 0.05; `longer`: of what and what."""
    layout, seeds = Layout(root), range(len(NOISE))
    lines = plan_lines([*curves], seeds, "g", {})
    cells = {line["label"]: line["cell"] for line in lines}
    of = {cells[short]: cells[long] for short, long in longer.items()}
    header = plan_header(lines, "g", {}, [*curves]) | {"longer": {"factor": 2, "of": of, "added": [*of.values()]}}
    header["measure"] = {**header["measure"], "scale": "linear"}
    publish_grid(layout, header, lines)
    buffer = ShardBuffer(layout, submission=SUBMISSION, worker=0)
    for line in lines:
        if (line["label"], line["seed"]) in [(label, 3) for label in lost]:
            continue
        factor = 2 if line["cell"] in of.values() else 1
        write_start(layout, line["trial"], 1)
        for step, value in curves[line["label"]](line["seed"]).items():
            buffer.add("evaluation", (line["trial"], 1, factor * step, "mse", POINT, value, 10, 0.0))
        write_end(layout, line["trial"], 1, step=factor * STEPS)
    buffer.flush()
    return root


def answers(root: Path) -> dict[str, str]:
    with Store.open(root) as store:
        found, rows = finished_checks(store, "g"), verdicts(store, "g")
        assert set(effects(store, "g").effects["level"]) <= {"SSA", "Cog", "2 cells"}
    assert [*found] == rows["cell"].to_list()
    assert set(rows["family"]) == {rows.height}
    return {label: found[cell].answer for cell, label in rows.select("cell", "label").iter_rows()}


SHORT = {"softmax": flat(2.0), "SSA": lambda seed: {STEPS: 1.8 + 2 * NOISE[seed]}, "Cog": flat(2.5)}
BOTH = {"softmax": "softmax 2", "SSA": "SSA 2"}


@pytest.mark.parametrize(
    ("later", "expected"),
    [(-0.21, "yes"), (-0.16, "yes"), (-0.14, "no"), (-0.26, "no"), (0.01, "no")],
    ids=["the same", "by less than the band", "by more", "by more, farther", "another sign"],
)
def test_longer_training_decides(tmp_path: Path, later: float, expected: str) -> None:
    long = {"softmax 2": flat(1.5), "SSA 2": lambda seed: {STEPS: 1.5 + later + 2 * NOISE[seed]}}
    root = campaign(tmp_path, {**SHORT, **long}, BOTH)
    assert answers(root) == {"SSA": expected, "Cog": "unknown"}


def test_inside_the_band_a_sign_is_noise(tmp_path: Path) -> None:
    curves = {**SHORT, "SSA": lambda seed: {STEPS: 2.01 + 2 * NOISE[seed]}}
    long = {"softmax 2": flat(1.5), "SSA 2": lambda seed: {STEPS: 1.49 + 2 * NOISE[seed]}}
    assert answers(campaign(tmp_path, {**curves, **long}, BOTH))["SSA"] == "yes"


@pytest.mark.parametrize("arm", ["softmax 2", "SSA 2"])
def test_while_longer_runs_are_outstanding_nothing_is_known(tmp_path: Path, arm: str) -> None:
    long = {"softmax 2": flat(1.5), "SSA 2": lambda seed: {STEPS: 1.3 + 2 * NOISE[seed]}}
    assert answers(campaign(tmp_path, {**SHORT, **long}, BOTH, lost=(arm,)))["SSA"] == "unknown"


@pytest.mark.parametrize(("gain", "expected"), [(0.25, "no"), (0.15, "unknown"), (0.0, "unknown"), (-0.3, "unknown")])
@pytest.mark.parametrize("arm", ["softmax", "SSA"])
def test_a_curve_can_only_say_no(tmp_path: Path, arm: str, gain: float, expected: str) -> None:
    """The difference is 0.2; between recorded steps the curve is a line."""
    value = {"softmax": 2.0, "SSA": 1.8}
    others = {name: lambda seed, at=at: {40: at + NOISE[seed] * (1 + at), STEPS: at} for name, at in value.items()}
    curves = {**others, arm: falling(value[arm], gain)}
    assert answers(campaign(tmp_path, curves, {}))["SSA"] == expected


def test_a_value_at_the_end_alone_says_nothing(tmp_path: Path) -> None:
    assert set(answers(campaign(tmp_path, SHORT, {})).values()) == {"unknown"}
