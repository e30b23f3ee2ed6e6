"""Every public name, for editors and type checkers; `ablate.py` imports each when it is first used."""

from dashboards import *
from grid import *
from runners import *
from store import *
from variants import *
