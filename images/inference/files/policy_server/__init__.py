"""Serves an exported policy: over shared memory to one control loop, over a Unix socket to everybody else."""
