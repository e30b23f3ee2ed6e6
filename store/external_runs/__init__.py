"""Results of training loops that this program does not run, as the same files that its own workers write."""
