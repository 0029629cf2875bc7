"""The Click commands, one module a theme; `buildkit.py` loads a module when its command is called."""
