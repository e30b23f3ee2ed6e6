"""Names of `ablate.runners.backends.slurm` before it moved: jobs that wait in a queue and spec files have them."""
