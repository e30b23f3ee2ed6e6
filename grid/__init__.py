"""Specs, keys, axes and grids: pure data that says what to run. Needs pydantic only.

    Grid(name="scores", base=Trial(...), axes=[over("operator.score", [Exponential(), SSA()])], seeds=range(5))

A `Spec` is a frozen value with a content key, a `Choice` a family of specs told apart by `kind`. A `Grid` changes a
base trial along axes; `grid.trials()` yields its trials in execution order. Errors are `SpecError`.

Names are imported at first use, so that `ablate.grid.errors` alone does not load pydantic.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
