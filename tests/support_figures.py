"""A figure that a test has measured, for the last lines of a run: `record_property(FIGURE, text)`."""

FIGURE = "figure"
