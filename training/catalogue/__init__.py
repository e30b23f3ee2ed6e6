"""Facts about operators, tasks, evaluations and probes, collected from the code."""
