"""Every public name, for editors and type checkers; `__init__.py` imports each when it is first used."""

from ablate.dashboards import *  # noqa: F403  # the stub repeats what each package lists
from ablate.grid import *  # noqa: F403  # the stub repeats what each package lists
from ablate.papers import *  # noqa: F403  # the stub repeats what each package lists
from ablate.runners import *  # noqa: F403  # the stub repeats what each package lists
from ablate.store import *  # noqa: F403  # the stub repeats what each package lists
from ablate.training import *  # noqa: F403  # the stub repeats what each package lists
from ablate.variants import *  # noqa: F403  # the stub repeats what each package lists

ROOMS: tuple[str, ...]
