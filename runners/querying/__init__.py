"""Asking a campaign's store in SQL: one query, or a prompt for many."""
