# shellcheck shell=bash disable=SC2034
# What the scripts share. Sourced by them with `set -euo pipefail` in force; does nothing by itself.

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
STATE=$ROOT/.buildkit
VENV=$(realpath -m "$ROOT/.venv")

# Root has no rootless Podman: builds run as this user, made by scripts/setup.
SERVICE_USER=${BUILDKIT_SERVICE_USER:-buildkit}
SERVICE_HOME=/var/lib/$SERVICE_USER
SERVICE_COMMENT="buildkit image builder, made by scripts/setup" # how scripts/clean knows that it may remove the user
SERVICE_PID_FILE=$STATE/podman-service.pid
SERVICE_LOG=$STATE/logs/podman-service.log

say() { printf '%s: %s\n' "${0##*/}" "$*" >&2; }

die() {
    say "$1"
    if (($# > 1)); then say "hint: $2"; fi
    exit 1
}

bad_usage() {
    say "unknown arguments: $*"
    say "hint: $0 --help"
    exit 2
}

have() { command -v "$1" >/dev/null 2>&1; }

# usage TEXT ARGUMENT...: print TEXT and stop where the only argument asks for help.
usage() {
    if (($# == 2)) && [[ $2 == -h || $2 == --help ]]; then
        printf '%s\n' "$1"
        exit 0
    fi
}

is_root() { ((EUID == 0)); }

# The user names a Podman of their own: then the scripts neither install nor start one.
own_engine() { [[ -n ${BUILDKIT_PODMAN:-}${CONTAINER_HOST:-} ]]; }

service_user_exists() { id "$SERVICE_USER" >/dev/null 2>&1; }

service_runtime_dir() { printf '/run/user/%s' "$(id -u "$SERVICE_USER")"; }

service_socket() { printf '%s/podman/podman.sock' "$(service_runtime_dir)"; }

# Somebody listens on the socket. The kernel's own list says so at once; a busy service may take long to answer.
service_listens() {
    service_user_exists &&
        awk -v path="$(service_socket)" '$4 == "00010000" && $8 == path { found = 1 } END { exit !found }' /proc/net/unix
}

# The process that scripts/setup of this clone started, if it still runs.
service_pid() {
    local pid
    [[ -s $SERVICE_PID_FILE ]] && pid=$(<"$SERVICE_PID_FILE") &&
        [[ $(tr '\0' ' ' 2>/dev/null <"/proc/$pid/cmdline") == "podman system service "* ]] && printf '%s' "$pid"
}

service_user_runs_something() {
    cat /proc/[0-9]*/status 2>/dev/null | awk -v uid="$(id -u "$SERVICE_USER")" '
        /^State:/ { zombie = ($2 == "Z") }
        /^Uid:/ && $2 == uid && !zombie { found = 1 }
        END { exit !found }'
}

# Replace this (sub)shell by a command of the service user. Nothing of the caller's environment goes along but the
# proxies, and the working directory is / because the clone may lie where that user may not look.
exec_as_service_user() {
    local name keep=()
    for name in http_proxy https_proxy no_proxy HTTP_PROXY HTTPS_PROXY NO_PROXY; do
        if [[ -n ${!name:-} ]]; then keep+=("$name=${!name}"); fi
    done
    cd /
    exec env -i "${keep[@]}" HOME="$SERVICE_HOME" XDG_RUNTIME_DIR="$(service_runtime_dir)" \
        PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
        setpriv --reuid "$SERVICE_USER" --regid "$(id -g "$SERVICE_USER")" --init-groups "$@"
}

# buildkit finds the service of the default user by itself; one of another name must be told.
use_engine() {
    if is_root && ! own_engine && [[ -n ${BUILDKIT_SERVICE_USER:-} ]]; then
        BUILDKIT_PODMAN=unix://$(service_socket)
        export BUILDKIT_PODMAN
    fi
}

buildkit() { (cd "$ROOT" && "$VENV/bin/buildkit" "$@"); }
