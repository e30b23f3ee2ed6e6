"""What a run would do, how long it would take and what it could show, before anything is trained."""
