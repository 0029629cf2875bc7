"""The outside world: Podman, the registry, the host; each behind one small class."""

import sys

# httpx has a command line of its own and, to offer it, imports rich and pygments wherever they are installed: a
# twentieth of a second in every call, for what nothing here uses. It copes with the module's absence.
sys.modules.setdefault("httpx._main", None)  # type: ignore[arg-type]
