"""What things in a registry are called: references, and the tags that buildkit gives to images.

Every tag that buildkit writes is made here and checked here, so that an illegal or ambiguous one is
refused before any work starts. Nothing in this module talks to a network.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, NoReturn

import semver
from docker_image.digest import InvalidDigest
from docker_image.reference import InvalidReference
from docker_image.reference import Reference as ParsedReference
from docker_image.regexp import ImageRegexps

from imagebuild.errors import InputError, Problem

Channel = Literal["prod", "staging"]
CHANNELS: tuple[Channel, ...] = ("prod", "staging")

ADDRESS_DIGITS = 16
COMMIT_DIGITS = 12
LEDGER_REPOSITORY = "releases"

_ROW = re.compile(r"[a-z0-9]+(?:[._-][a-z0-9]+)*")
# Endings that belong to the tags made below: a row that had one would share a tag with another row.
_RESERVED = re.compile(r"-(?:in-[0-9a-f]{16}|g[0-9a-f]{7,}|prod|staging|\d+\.\d+\.\d+.*)$")
_COMMIT = re.compile(r"[0-9a-f]{7,64}")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


@dataclass(frozen=True, order=True)
class Repository:
    """A place in one registry that holds the manifests of one kind of image."""

    registry: str
    path: str

    def __str__(self) -> str:
        return f"{self.registry}/{self.path}"

    def tagged(self, tag: str) -> Reference:
        """The reference to what `tag` names here."""
        return Reference(self, tag=check_tag(tag))

    def at(self, digest: str) -> Reference:
        """The reference to the manifest with this digest here."""
        return Reference(self, digest=check_digest(digest))


@dataclass(frozen=True)
class Reference:
    """A manifest by name: by digest where `digest` is given, else by tag, else by the tag `latest`."""

    repository: Repository
    tag: str = ""
    digest: str = ""

    @property
    def target(self) -> str:
        """What a registry is asked for: the digest if there is one (it cannot move), else the tag."""
        return self.digest or self.tag or "latest"

    def __str__(self) -> str:
        tag = f":{self.tag}" if self.tag else ""
        digest = f"@{self.digest}" if self.digest else ""
        return f"{self.repository}{tag}{digest}"


def parse_reference(text: str) -> Reference:
    """Read an image reference as Docker and Podman do: `ubuntu` is `docker.io/library/ubuntu`.

    Raises:
        InputError: the text is not a legal reference.
    """
    # The library's patterns end in `$`, which lets a final newline through.
    if text != text.strip():
        _refuse(f"image reference {text!r} has white space around it", rule="reference")
    try:
        parsed = ParsedReference.parse_normalized_named(text)
    except (InvalidReference, InvalidDigest) as error:
        hint = "a reference looks like registry.example.com:5000/project/stage:tag or .../stage@sha256:<64 hex digits>"
        _refuse(f"{text!r} is not an image reference: {error}", hint=hint, rule="reference")
    repository = Repository(parsed.domain(), parsed.path())
    return Reference(repository, tag=parsed["tag"] or "", digest=parsed["digest"] or "")


def stage_repository(registry: str, project: str, stage: str) -> Repository:
    """Where the images of a stage live: `<registry>/<project>/<stage>`."""
    return parse_reference(f"{registry}/{project}/{stage}").repository


def ledger_repository(registry: str, project: str) -> Repository:
    """Where the ledger of a project lives: `<registry>/<project>/releases`."""
    return stage_repository(registry, project, LEDGER_REPOSITORY)


def check_tag(tag: str) -> str:
    """Return `tag` if the OCI grammar allows it; raise `InputError` if not."""
    if not ImageRegexps.TAG_REGEXP.fullmatch(tag):
        hint = "a tag has at most 128 letters, digits, '_', '.' and '-', and begins with none of '.' and '-'"
        _refuse(f"{tag!r} is not a legal tag", hint=hint, rule="tag")
    return tag


def check_digest(digest: str) -> str:
    """Return `digest` if it is a whole SHA-256 digest; raise `InputError` if not."""
    if not _DIGEST.fullmatch(digest):
        _refuse(f"{digest!r} is not a digest (sha256: and 64 lowercase hex digits)", rule="digest")
    return digest


def check_row(row: str) -> str:
    """Return `row` if it can begin a tag without being taken for the tag of another row."""
    if not _ROW.fullmatch(row):
        hint = "use lowercase letters and digits, joined by single '-', '_' or '.'"
        _refuse(f"row name {row!r} cannot be part of a tag", hint=hint, rule="row-name")
    if ending := _RESERVED.search(row):
        hint = (
            "endings such as -prod, -staging, -1.2.3, -g<commit> and -in-<digest> belong to tags that buildkit writes"
        )
        _refuse(f"row name {row!r} ends in {ending.group()!r}, like a tag of row {row[: ending.start()]!r}", hint=hint)
    return row


def check_version(version: str) -> semver.Version:
    """Read a release version: semver without build metadata, as `+` is not legal in a tag.

    Raises:
        InputError: not semver, or with build metadata, or with a pre-release that reads like a channel.
    """
    try:
        parsed = semver.Version.parse(version)
    except ValueError:
        _refuse(f"version {version!r} is not semver", hint="write it as in 1.4.0 or 2.0.0-rc.1", rule="version")
    if parsed.build:
        hint = f"drop '+{parsed.build}': the row already says which platform it is"
        _refuse(f"version {version!r} has build metadata, and '+' is not legal in a tag", hint=hint, rule="version")
    if any(f"-{parsed.prerelease}".endswith(f"-{channel}") for channel in CHANNELS):
        hint = f"{' and '.join(CHANNELS)} are channels; promotion adds them to the tag"
        _refuse(f"version {version!r} ends like the tag of a channel", hint=hint, rule="version")
    return parsed


def address_tag(row: str, inputs_digest: str) -> str:
    """The tag that only the build of exactly these inputs writes: `<row>-in-<first 16 hex digits>`."""
    hexadecimal = check_digest(inputs_digest).removeprefix("sha256:")
    return check_tag(f"{check_row(row)}-in-{hexadecimal[:ADDRESS_DIGITS]}")


def version_tag(row: str, version: str) -> str:
    """The tag of a version's newest candidate: `<row>-<version>`."""
    return check_tag(f"{check_row(row)}-{check_version(version)}")


def commit_tag(row: str, commit: str) -> str:
    """The tag of what a commit built: `<row>-g<first 12 hex digits of the commit>`."""
    if not _COMMIT.fullmatch(commit):
        _refuse(f"{commit!r} is not a commit", hint="give at least 7 hex digits of its hash", rule="commit")
    return check_tag(f"{check_row(row)}-g{commit[:COMMIT_DIGITS]}")


def newest_tag(row: str) -> str:
    """The tag of the newest image from the default branch: `<row>`."""
    return check_tag(check_row(row))


def release_tag(row: str, version: str, channel: Channel = "prod") -> str:
    """The tag of a release, which never moves: `<row>-<version>-prod`."""
    return check_tag(f"{version_tag(row, version)}-{channel}")


def channel_tag(row: str, channel: Channel = "prod") -> str:
    """The alias that promote and rollback move: `<row>-prod`, `<row>-staging`."""
    return check_tag(f"{check_row(row)}-{channel}")


def _refuse(message: str, *, hint: str = "", rule: str = "") -> NoReturn:
    raise InputError(Problem(message, hint=hint, rule=rule))
