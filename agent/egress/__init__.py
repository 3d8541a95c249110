"""The one way by which a tool fetches anything from a network."""
