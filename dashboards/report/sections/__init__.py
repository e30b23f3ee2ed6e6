"""The parts of a report, each a function from a subject to HTML."""
