"""Looking at results: one HTML report of a campaign, and in a notebook a function per figure."""

from ablate.dashboards.notebook import (
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
from ablate.dashboards.report.report import report, write_report

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
