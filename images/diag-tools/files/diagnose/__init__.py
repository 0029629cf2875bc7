"""What is in this container and on the machine under it, on one page; with Python's standard library alone."""
