"""The files of a campaign: layout, atomic writes, shards, records."""
