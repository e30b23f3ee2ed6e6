"""Running it: trials, tasks, training, campaigns, machines and the command `ablate`.

Spec files import their names from here. Each name is loaded on first use, so that the command answers
`--help` without loading torch.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
