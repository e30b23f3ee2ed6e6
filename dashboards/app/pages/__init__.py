"""The pages of the app, in the order of its navigation."""

from dashboards.app.page import Page
from dashboards.app.pages.compare import COMPARE
from dashboards.app.pages.curves import CURVES

PAGES: tuple[Page, ...] = (COMPARE, CURVES)
