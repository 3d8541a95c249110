"""One run: from a task to its trace. Imports point one way; see decisions.md, "Rooms"."""
