"""Training one model: loop, ranks, compilation, cost.

`train` is here because submissions of every release name their entry point `ablate.runners.training:train`.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(__name__, submod_attrs={"loop": ["train"]})
