"""Files of other programs: tables as CSV, Parquet, LaTeX and Markdown; runs of trackers, written and read."""
