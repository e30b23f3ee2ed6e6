"""Training attention: the experiment `Trial` with its tasks, data, loop, optimisers, probes and evaluations.

Each name is loaded on first use, so that the command answers `--help` without loading torch.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
