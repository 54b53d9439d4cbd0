# shellcheck shell=bash
# Sourced by the scripts beside it: strict mode, how they speak, and the names they share.

set -euo pipefail

env_dir=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
repo=$(cd "$env_dir/../.." && pwd)
cache=${UNDERSTUDY_CACHE:-${HOME:-/root}/.cache/understudy/bin}

pause_image=understudy.dev/pause:1
demo_image=understudy.dev/demo:1

# A private containerd lives in a directory of its own; what must be short or known to others is kept here.
instances=/run/understudy

# The caller's own header comment is its usage text.
usage() { sed -n '2,/^[^#]/{/^#/!d;s/^# \{0,1\}//;p}' "$0"; }

# Whoever reads may have gone, as with `make run 2>&1 | head`.
say() { printf '%s\n' "$*" >&2 2>/dev/null || true; }
die() {
  printf '%s: %s\n' "${0##*/}" "$*" >&2
  exit 1
}

# A zombie has ended, though its parent may be slow to notice.
lives() { # pid
  local stat
  stat=$(cat "/proc/$1/stat" 2>/dev/null) && [[ ${stat##*) } != [ZX]* ]]
}

# Sends the signal to a process of ours and waits for its end, at most so many tenths of a second.
end_process() { # pid, signal, tenths
  local tenths=$3
  kill "-$2" "$1" 2>/dev/null || return 0
  while [ "$tenths" -gt 0 ] && lives "$1"; do
    sleep 0.1
    tenths=$((tenths - 1))
  done
}

# Where the plugins are on Debian and where upstream's packages put them.
cni_plugin_dir() {
  local dir
  for dir in /usr/lib/cni /opt/cni/bin; do
    if [ -x "$dir/bridge" ] && [ -x "$dir/host-local" ]; then
      echo "$dir"
      return
    fi
  done
  return 1
}

# busybox must be static: it is the only program in the demo image.
static_busybox() {
  local file
  for file in /bin/busybox /usr/bin/busybox; do
    if [ -x "$file" ] && ! { ldd "$file" 2>/dev/null | grep -q '=>'; }; then
      echo "$file"
      return
    fi
  done
  return 1
}

unmount_below() { # directory; exit code 1: something is still mounted there
  local mount
  for _ in 1 2 3 4 5; do
    awk -v d="$1/" 'index($2, d) == 1 {print $2}' /proc/self/mounts | sort -r | while read -r mount; do
      umount -n -l "$(printf '%b' "$mount")" 2>/dev/null || true
    done
    grep -qF " $1/" /proc/self/mounts || return 0
  done
  say "still mounted below $1"
  return 1
}

cgroup_version() {
  if [ -f /sys/fs/cgroup/cgroup.controllers ]; then echo 2; else echo 1; fi
}

# The root of each cgroup hierarchy that containers use.
cgroup_roots() {
  if [ "$(cgroup_version)" = 2 ]; then
    echo /sys/fs/cgroup
  else
    find /sys/fs/cgroup -mindepth 1 -maxdepth 1 -type d
  fi
}

make_cgroups() { # path from the root of every hierarchy
  local root file controllers
  for root in $(cgroup_roots); do
    mkdir -p "$root$1"
    if [ "$(cgroup_version)" = 2 ]; then
      controllers=$(sed 's/[^ ]*/+&/g' "$root$1/cgroup.controllers")
      echo "$controllers" >"$root$1/cgroup.subtree_control" || true
      continue
    fi
    # A new cpuset is empty, and then takes no process.
    for file in cpuset.cpus cpuset.mems; do
      if [ -f "$root/$file" ]; then cat "$root/$file" >"$root$1/$file"; fi
    done
  done
}

# Ends what still runs in them, too.
remove_cgroups() { # path from the root of every hierarchy
  local root pid
  for root in $(cgroup_roots); do
    [ -d "$root$1" ] || continue
    for _ in $(seq 50); do
      for pid in $(find "$root$1" -name cgroup.procs -exec cat {} + 2>/dev/null | sort -u); do
        [ "$pid" = 0 ] || kill -KILL "$pid" 2>/dev/null || true
      done
      find "$root$1" -depth -type d -exec rmdir {} + 2>/dev/null || true
      [ -d "$root$1" ] || break
      sleep 0.1
    done
  done
}

# ---- cargo ----

rust_version=1.95
sccache_version=0.16.0

# Under sudo, cargo and its tools are the user's own: they are in his PATH only, and root should not own what they build.
user_home=${HOME:-/root}
if [ "$(id -u)" = 0 ] && [ -n "${SUDO_USER-}" ] && [ "$SUDO_USER" != root ]; then
  user_home=$(getent passwd "$SUDO_USER" | cut -d: -f6)
fi
tools=${UNDERSTUDY_CACHE:-$user_home/.cache/understudy/bin}

as_user() { # command...
  if [ "$(id -u)" = 0 ] && [ -n "${SUDO_USER-}" ] && [ "$SUDO_USER" != root ]; then
    runuser -u "$SUDO_USER" -- env HOME="$user_home" PATH="$user_home/.cargo/bin:$PATH:$tools" "$@"
  else
    PATH=$PATH:$tools command "$@"
  fi
}

cargo() { as_user cargo "$@"; }

need_cargo() {
  local version
  version=$(cd "$repo" && cargo --version 2>/dev/null | cut -d' ' -f2) || true
  [ -n "$version" ] || die "needs Rust $rust_version or later. To get it: https://rustup.rs, or
  curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs | sh"
  [ "$(printf '%s\n' "$version" $rust_version | sort -V | head -n 1)" = $rust_version ] ||
    die "needs Rust $rust_version or later, and cargo here is $version. With rustup: rustup update stable"
}

need_compiler() {
  command -v cc >/dev/null ||
    die "needs a C compiler to link with: $env_dir/install-runtime --build installs it, or apt-get install gcc libc6-dev"
}

target_dir() {
  (cd "$repo" && cargo metadata --no-deps --format-version 1) | sed 's/.*"target_directory":"\([^"]*\)".*/\1/'
}

# pip of python3, or of an environment made for this where Debian has python3-venv alone.
pip_install() { # directory for it, arguments...
  local work=$1 pip=(python3 -m pip)
  shift
  if ! as_user "${pip[@]}" --version >/dev/null 2>&1; then
    as_user python3 -m venv "$work/venv" >/dev/null 2>&1 || return 1
    pip=("$work/venv/bin/pip")
  fi
  as_user "${pip[@]}" install --quiet --disable-pip-version-check --no-deps --only-binary :all: "$@" >/dev/null 2>&1
}

# Gets a tool that is missing into the user's cache: ready-built from PyPI, else, if it is a crate, built. Exit code 1 when it
# cannot be had.
have_tool() { # name, version, package of PyPI, crate
  # shellcheck disable=SC2016 # the inner shell expands it
  ! as_user bash -c 'command -v "$1" >/dev/null' - "$1" || return 0
  local work well=
  work=$(as_user mktemp -d "${TMPDIR:-/tmp}/understudy-tool.XXXXXX")
  if pip_install "$work" --target "$work" "$3==$2"; then
    well=1
  elif [ -n "${4-}" ]; then
    say "building $1 $2"
    if as_user env CARGO_TARGET_DIR="$work/target" cargo install --quiet --locked --version "$2" --root "$work" "$4"; then
      well=1
    fi
  fi
  if [ -n "$well" ]; then
    as_user mkdir -p "$tools"
    as_user install -m 755 "$work/bin/$1" "$tools/"
  fi
  rm -rf "$work"
  [ -n "$well" ]
}

# A compiler's cache for what this script builds, unless the caller has one: crates of others are compiled once for all clones of
# this repository. The crates of this repository, which the cache would seldom find, go to the compiler itself. The cache's server
# is this script's own, and ends with it.
compiler_cache=
start_compiler_cache() {
  [ -z "${RUSTC_WRAPPER-}${CARGO_BUILD_RUSTC_WRAPPER-}" ] || return 0
  have_tool sccache "$sccache_version" sccache || return 0
  compiler_cache=$(as_user mktemp -d "${TMPDIR:-/tmp}/understudy-sccache.XXXXXX")
  export SCCACHE_SERVER_UDS=$compiler_cache/socket SCCACHE_IDLE_TIMEOUT=600 SCCACHE_CACHE_SIZE=${SCCACHE_CACHE_SIZE:-4G}
  if as_user sccache --start-server >/dev/null 2>&1; then
    local program wrapper=$compiler_cache/rustc
    # shellcheck disable=SC2016 # the inner shell expands it
    program=$(as_user bash -c 'command -v sccache') || return 0
    # Cargo names the directory of the crate; that of each crate of this repository has the repository's path. The cache's keys
    # hold every variable of cargo's own, so that the wrapper is named by rustc's.
    #
    # What a crate of others includes from its build script is compiled from a copy whose path is the same for every clone:
    # that path is part of the crate, and with it of the key of each crate above it. The name has cargo's hash of the crate, its
    # features and the compiler. A copy with another content is left alone.
    { echo '#!/bin/sh' && cat; } <<EOF | as_user tee "$wrapper" >/dev/null
case "\$CARGO_MANIFEST_DIR" in "$repo"/*) exec "\$@" ;; esac
case "\${OUT_DIR-}" in
  /*/build/*/out)
    unit=\${OUT_DIR%/out}
    kept="${tools%/*}/out/\${unit##*/}"
    if [ ! -d "\$kept" ] && mkdir -p "\${kept%/*}" && made=\$(mktemp -d "\$kept.XXXXXX"); then
      cp -a "\$OUT_DIR/." "\$made" && mv -T "\$made" "\$kept" 2>/dev/null || rm -rf "\$made"
    fi
    if diff -rq "\$OUT_DIR" "\$kept" >/dev/null 2>&1; then export OUT_DIR="\$kept"; fi
    ;;
esac
exec "$program" "\$@"
EOF
    as_user chmod 755 "$wrapper"
    export RUSTC_WRAPPER=$wrapper
  fi
}

# The server of a cache of the caller's is started now, before anything of a run is: it stays when the run ends.
keep_callers_cache() {
  local wrapper=${RUSTC_WRAPPER-${CARGO_BUILD_RUSTC_WRAPPER-}}
  if [ "${wrapper##*/}" = sccache ]; then as_user "$wrapper" --start-server >/dev/null 2>&1 || true; fi
}

stop_compiler_cache() {
  [ -n "$compiler_cache" ] || return 0
  as_user sccache --stop-server >/dev/null 2>&1 || true
  rm -rf "$compiler_cache"
}
