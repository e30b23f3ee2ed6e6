"""Looking at results: one HTML report of a campaign, and the figures it is made of.

`write_report(root, out=None, grid=None) -> Path` is the public interface; `report(store, title, grids) -> str` is the
same page as text. In a notebook there is a function per figure, such as `differences(Campaign("campaigns/mine"))`; all
are in `dashboards.notebook`. Figures live in `dashboards.figures`: data first (a polars frame), drawing second.
"""

from dashboards.notebook import (
    change_by,
    dashboard_figure,
    differences,
    error_by,
    error_map,
    failure_rates,
    learned_numbers,
    main_effects,
    progress,
    training_curves,
)
from dashboards.report.report import report, write_report

__all__ = [
    "change_by",
    "dashboard_figure",
    "differences",
    "error_by",
    "error_map",
    "failure_rates",
    "learned_numbers",
    "main_effects",
    "progress",
    "report",
    "training_curves",
    "write_report",
]
