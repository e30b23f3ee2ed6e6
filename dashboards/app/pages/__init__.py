"""The pages of the app, in the order of its navigation."""

from dashboards.app.page import AppPage
from dashboards.app.pages.attention import ATTENTION
from dashboards.app.pages.compare import COMPARE
from dashboards.app.pages.curves import CURVES
from dashboards.app.pages.diff import DIFF
from dashboards.app.pages.factors import FACTORS
from dashboards.app.pages.mechanism import MECHANISM
from dashboards.app.pages.operators import OPERATORS
from dashboards.app.pages.overview import OVERVIEW
from dashboards.app.pages.paper_results import PUBLISHED
from dashboards.app.pages.run import RUN
from dashboards.app.pages.runs import RUNS
from dashboards.app.pages.sql import SQL
from dashboards.app.pages.trade_offs import TRADE_OFFS

PAGES: tuple[AppPage, ...] = (
    OVERVIEW,
    RUNS,
    CURVES,
    FACTORS,
    COMPARE,
    TRADE_OFFS,
    MECHANISM,
    ATTENTION,
    PUBLISHED,
    OPERATORS,
    SQL,
    RUN,
    DIFF,
)
