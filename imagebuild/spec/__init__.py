"""What is wanted: the matrix, the site, the facts and the lock."""
