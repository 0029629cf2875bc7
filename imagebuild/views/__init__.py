"""Showing it: the console, GitLab, reports, the doctor."""
