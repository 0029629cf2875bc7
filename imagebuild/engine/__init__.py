"""The outside world: Podman, the registry, the host; each behind one small class."""
