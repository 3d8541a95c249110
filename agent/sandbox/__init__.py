"""Programs and parsers that nobody vouches for, run where they can do no harm."""
