"""The maths: attention operators as points of one space, and the host Transformer they run in.

An operator is one choice per stage of the equation in `ablate.variants.attend`, each choice with its numbers.
Every module below this package but the laws, the Triton kernels and layers of Hugging Face is imported here, so every
choice in it is known by its `kind`.
"""

from importlib import import_module
from pkgutil import walk_packages

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

_LATER = tuple(f"{__name__}.{each}" for each in ("laws.", "paths.triton_", "model.hugging_face_layers"))
for _module in walk_packages(__path__, f"{__name__}."):
    if not _module.name.startswith(_LATER):
        import_module(_module.name)

from ablate.variants.attend import attend  # noqa: E402, F401  # the function, not the module of its name
