"""How a run gets from its messages to its next action: one file a strategy."""
