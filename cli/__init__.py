"""What the entry scripts are made of: arguments, composition, the terminal, and one module for each subcommand."""
