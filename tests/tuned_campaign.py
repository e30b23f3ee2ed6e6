"""A campaign whose rate is a nuisance axis, with another best level for each operator."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from synthetic import Campaign, write_campaign

from ablate.store.files.atomic import write_json

RATES = (0.1, 0.2, 0.3, 0.4, 0.5)
BEST = {"softmax": 0.2, "SSA": 0.4, "Integral": 0.5}
SHIFT = {"softmax": 0.0, "SSA": -0.5, "Integral": 0.0}


def tuned(root: Path, axis: str = "rate", *, matched: bool = False, **how: Any) -> Campaign:
    """Write the campaign; `axis` is tuned, and each of `how` is an argument of `write_campaign`."""

    def effect(axes: Mapping[str, Any]) -> float:
        return SHIFT[axes["operator"]] + 2 * abs(axes["rate"] - BEST[axes["operator"]])

    fixed = {"operators": tuple(SHIFT), "factors": {"rate": RATES}, "seeds": range(6), "noise": 0.02, "steps": 4}
    campaign = write_campaign(root, **{**fixed, "sigma_f": (5,), "sigma_x": (1,), "effect": effect, **how})
    axes = [{**each, **({"tune": True} if each["name"] == axis else {})} for each in campaign.header["axes"]]
    at = {line["cell"]: line["axes"] for line in campaign.lines}
    cells = {(axes["operator"], axes["rate"]): cell for cell, axes in at.items()}
    own = {cell: cells["softmax", rate] for (operator, rate), cell in cells.items() if operator != "softmax"}
    several = {"baselines": own, "matched": [] if axis else ["rate"]} if matched else {}
    write_json(campaign.layout.grid_header("quickstart"), {**campaign.header, "axes": axes, **several})
    return campaign
