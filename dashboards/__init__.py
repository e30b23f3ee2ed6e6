"""Looking at results: one HTML report of a campaign, and the figures it is made of.

`write_report(root, out=None, grid=None) -> Path` is the public interface; `report(store, title, grids) -> str` is the
same page as text. Figures live in `dashboards.figures`: data first (a polars frame), drawing second.
"""

from dashboards.report import report, write_report

__all__ = ["report", "write_report"]
