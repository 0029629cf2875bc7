"""The configuration of a run: read from YAML, checked key by key, with every default filled in.

Whatever is wrong is said at once, with its line and what would be right, before anything is started.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import yaml

ALGORITHMS = ("ppo", "sac")


class ConfigError(Exception):
    """The configuration is wrong: one message a line, each with file, line and key."""


class Key(NamedTuple):
    """One key: what it may be, in words and as a test, and what it is when it is not given (None: it must be)."""

    wanted: str
    fits: Callable[[Any], bool]
    default: Any = None


def whole(default: int | None, least: int = 1) -> Key:
    """Return a key for a whole number."""
    return Key(f"a whole number, at least {least}", lambda value: _is_whole(value) and value >= least, default)


def number(default: float, least: float = 0.0, most: float = float("inf")) -> Key:
    """Return a key for a number from ``least`` to ``most``."""
    upto = "" if most == float("inf") else f", at most {most:g}"
    wanted = f"a number, at least {least:g}{upto}"
    return Key(wanted, lambda value: _is_number(value) and least <= value <= most, default)


def yes_or_no(default: bool) -> Key:
    """Return a key for a switch."""
    return Key("true or false", lambda value: isinstance(value, bool), default)


def one_of(default: str | None, *choices: str) -> Key:
    """Return a key for one of some words."""
    return Key(f"one of {', '.join(choices)}", lambda value: isinstance(value, str) and value in choices, default)


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _are_sizes(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(_is_whole(one) and one > 0 for one in value)


_TEXT = Key("the id of an environment, like Crane-v0", lambda value: isinstance(value, str) and value != "")
_RATE = {"learning_rate": number(3e-4), "schedule": one_of("constant", "constant", "linear")}

#: What a configuration consists of. The section of an algorithm is handed to Stable-Baselines3 under its own names.
KEYS: Mapping[str, Any] = {
    "algorithm": one_of(None, *ALGORITHMS),
    "steps": whole(None),
    "seed": whole(1, least=0),
    "device": one_of("auto", "auto", "cpu", "cuda"),
    "threads": whole(1),  # of torch on the CPU: with networks as small as these, more of them are slower
    "environment": {
        "id": _TEXT,
        "count": whole(1),
        "processes": yes_or_no(False),
    },
    "normalise": {
        "observations": yes_or_no(True),
        "rewards": yes_or_no(True),
        "clip": number(10.0),
    },
    "network": {
        "hidden": Key("a list of layer sizes, like [64, 64]", _are_sizes, [64, 64]),
    },
    "checkpoint": {
        "every_steps": whole(50_000),
        "every_seconds": number(600.0, least=1.0),
        "keep": whole(3),
    },
    "ppo": {
        **_RATE,
        "n_steps": whole(2048, least=2),
        "batch_size": whole(256, least=2),
        "n_epochs": whole(10),
        "gamma": number(0.99, most=1.0),
        "gae_lambda": number(0.95, most=1.0),
        "clip_range": number(0.2),
        "ent_coef": number(0.0),
    },
    "sac": {
        **_RATE,
        "buffer_size": whole(200_000),
        "learning_starts": whole(1000, least=0),
        "batch_size": whole(256, least=2),
        "tau": number(0.005, most=1.0),
        "gamma": number(0.99, most=1.0),
        "train_freq": whole(1),
        "gradient_steps": whole(1),
    },
}


def load(path: Path) -> dict[str, Any]:
    """Read a configuration.

    Args:
        path: the YAML file.

    Returns:
        Every key of `KEYS` with its value; of the algorithms' sections, only the chosen one.

    Raises:
        ConfigError: the file cannot be read, or says something that this project does not understand.
    """
    try:
        tree = yaml.compose(path.read_text(encoding="utf-8"), Loader=yaml.SafeLoader)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}: give the path of a YAML file, as in configs/") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: is not YAML: {error}") from None
    reader = _Reader(path)
    config = reader.section(tree, KEYS, "") if isinstance(tree, yaml.MappingNode) else None
    if config is None:
        raise ConfigError(f"{path}: must be a mapping: begin with `algorithm: ppo`")
    if not reader.problems:
        reader.agree(config)
    if reader.problems:
        raise ConfigError("\n".join(reader.problems))
    return {name: value for name, value in config.items() if name not in ALGORITHMS or name == config["algorithm"]}


def checked(name: str, value: Any) -> Any:
    """Return the value of a key at the top that was given elsewhere.

    Raises:
        ConfigError: it is not what the key must be.
    """
    if not KEYS[name].fits(value):
        raise ConfigError(f"{name}: is {value!r}, and must be {KEYS[name].wanted}")
    return value


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Say in which keys two configurations differ that one run cannot have both of.

    A run may be made longer, write its checkpoints otherwise, and move to another device.
    """
    free = ("steps", "checkpoint", "device", "threads")
    flat = [
        {f"{top}.{key}": value for top in one for key, value in _items(one[top]) if top not in free}
        for one in (old, new)
    ]
    names = [*flat[0], *(name for name in flat[1] if name not in flat[0])]
    pairs = [(name.rstrip("."), flat[0].get(name), flat[1].get(name)) for name in names]
    return [f"{name} was {before}, and is {now}" for name, before, now in pairs if before != now]


def _items(value: Any) -> list[tuple[str, Any]]:
    return list(value.items()) if isinstance(value, Mapping) else [("", value)]


class _Reader:
    """Walks through the tree of a YAML file and notes every problem."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.problems: list[str] = []
        self.lines: dict[str, int] = {}

    def problem(self, line: int, key: str, message: str) -> None:
        """Note that a key is wrong."""
        where = f"{self.path}:{line}" if line else str(self.path)
        self.problems.append(f"{where}: {key}: {message}")

    def section(self, node: yaml.Node, keys: Mapping[str, Any], above: str) -> dict[str, Any]:
        """Return a section with its defaults."""
        found: dict[str, Any] = {}
        for key_node, value_node in node.value:
            name, line = str(key_node.value), key_node.start_mark.line + 1
            full = above + name
            self.lines[full] = line
            if name in found:
                self.problem(line, full, "is there twice: leave one")
            elif name not in keys:
                self.problem(line, full, f"no such key; {_meant(name, keys)}")
            else:
                found[name] = self._value(value_node, keys[name], full, line)
        for name, key in keys.items():
            if name not in found:
                found[name] = self._default(key, above + name, above)
        return {name: found[name] for name in keys}

    def _value(self, node: yaml.Node, key: Any, full: str, line: int) -> Any:
        if not isinstance(key, Key):
            if isinstance(node, yaml.MappingNode):
                return self.section(node, key, f"{full}.")
            self.problem(line, full, f"must be a section with {', '.join(key)}")
            return None
        value = _plain(node)
        if "number" in key.wanted and isinstance(value, str):
            value = _as_number(value)  # YAML 1.1 takes 3e-4 for text
        if not key.fits(value):
            self.problem(line, full, f"is {value!r}, and must be {key.wanted}")
        return value

    def _default(self, key: Any, full: str, above: str) -> Any:
        if not isinstance(key, Key):
            return {name: self._default(inner, f"{full}.{name}", f"{full}.") for name, inner in key.items()}
        if key.default is None:
            self.problem(self.lines.get(above[:-1], 0), full, f"is missing, and must be {key.wanted}")
        return key.default

    def agree(self, config: Mapping[str, Any]) -> None:
        """Note what is right by itself, and wrong together."""
        chosen = config["algorithm"]
        for other in ALGORITHMS:
            if other != chosen and other in self.lines:
                self.problem(self.lines[other], other, f"is not used with algorithm: {chosen}; remove the section")
        if chosen == "ppo":
            rollout = config["ppo"]["n_steps"] * config["environment"]["count"]
            if rollout % config["ppo"]["batch_size"]:
                sizes = "n_steps x environment.count"
                message = f"must divide {sizes} = {rollout}, or PPO learns from an odd rest"
                self.problem(self.lines.get("ppo.batch_size", 0), "ppo.batch_size", message)


def _plain(node: yaml.Node) -> Any:
    """Return the value of a node as YAML reads it."""
    loader = yaml.SafeLoader("")
    try:
        return loader.construct_object(node, deep=True)
    except yaml.YAMLError:
        return str(node.value)
    finally:
        loader.dispose()


def _as_number(text: str) -> Any:
    try:
        return float(text)
    except ValueError:
        return text


def _meant(name: str, keys: Mapping[str, Any]) -> str:
    near = difflib.get_close_matches(name, keys, 1)
    return f"did you mean {near[0]}?" if near else f"there are {', '.join(keys)}"
