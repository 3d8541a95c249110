"""Pure functions from facts to messages. Nothing here reads or writes anything."""
