"""A worker task on its node: which rows it takes, how it drives its workers, and why it leaves."""
