"""From files to the database."""
