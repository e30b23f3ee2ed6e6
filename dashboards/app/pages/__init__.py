"""The pages of the app, in the order of its navigation."""

from ablate.dashboards.app.page import AppPage
from ablate.dashboards.app.pages.compare import COMPARE
from ablate.dashboards.app.pages.curves import CURVES
from ablate.dashboards.app.pages.factors import FACTORS
from ablate.dashboards.app.pages.mechanism import MECHANISM
from ablate.dashboards.app.pages.overview import OVERVIEW
from ablate.dashboards.app.pages.paper_results import PUBLISHED
from ablate.dashboards.app.pages.run import RUN
from ablate.dashboards.app.pages.runs import RUNS
from ablate.dashboards.app.pages.sql import SQL

PAGES: tuple[AppPage, ...] = (
    OVERVIEW,
    RUNS,
    CURVES,
    FACTORS,
    COMPARE,
    MECHANISM,
    PUBLISHED,
    SQL,
    RUN,
)
