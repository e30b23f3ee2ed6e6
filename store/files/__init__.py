"""The files of a campaign: layout, atomic writes, shards, records.

Everything that touches the disk raises EnvironmentProblem, with a remedy, if the file system refuses.
"""
