"""Every public name, for editors and type checkers; `ablate.py` imports each when it is first used."""

from dashboards import *  # noqa: F403  # the stub repeats what each package lists
from grid import *  # noqa: F403  # the stub repeats what each package lists
from runners import *  # noqa: F403  # the stub repeats what each package lists
from store import *  # noqa: F403  # the stub repeats what each package lists
from variants import *  # noqa: F403  # the stub repeats what each package lists
