"""Tables for elsewhere: CSV, Parquet, LaTeX and Markdown."""
