"""The dashboard: a web app over one or more campaigns."""
