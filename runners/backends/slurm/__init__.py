"""Running on a SLURM cluster: what is asked for, submission, the worker on a node, and what the scheduler says."""
