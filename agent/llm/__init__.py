"""The only door to a model."""
