"""The library behind the `buildkit` command: what is wanted, what must exist, and making it so."""
