"""Dash's components without their types, which cannot say attributes such as `aria-label`."""

from typing import Any, Final

import dash_ag_grid  # type: ignore[import-untyped]
from dash import dcc as _dcc
from dash import html as _html

Component = Any

html: Final[Any] = _html
dcc: Final[Any] = _dcc
AgGrid: Final[Any] = dash_ag_grid.AgGrid
