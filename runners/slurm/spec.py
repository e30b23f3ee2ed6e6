"""Where spec files found these classes before."""

from ablate.runners.backends.slurm.spec import Needs as Needs, Slurm as Slurm
