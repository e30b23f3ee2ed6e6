"""Running it: trials, tasks, training, campaigns, machines and the command `ablate`.

What a spec file needs is imported from here; each name is loaded when it is first used, so that the command answers
`--help` without loading torch.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
