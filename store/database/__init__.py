"""The DuckDB database: schema, connections, views."""
