# Programs that are built from published Go modules; sourced by the scripts that build them, after common.sh.
# shellcheck shell=bash
# shellcheck disable=SC2034,SC2154 # what the scripts use, and what common.sh sets

kubernetes_version=v1.36.2
kubernetes_stamp="-X k8s.io/component-base/version.gitVersion=$kubernetes_version -X k8s.io/component-base/version.gitMajor=1"
kubernetes_stamp+=" -X k8s.io/component-base/version.gitMinor=36 -X k8s.io/client-go/pkg/version.gitVersion=$kubernetes_version"

# Builds programs into the cache directory.
go_build() { # module of modules/, CGO_ENABLED, tags, linker flags, packages...
  local module=$1 cgo=$2 tags=$3 flags=$4
  shift 4
  say "building ${*##*/} in $cache"
  mkdir -p "$cache"
  # Built beside and renamed: an interrupted build leaves no half program.
  rm -rf "$cache/building-$module"
  mkdir "$cache/building-$module"
  (cd "$env_dir/modules/$module" &&
    CGO_ENABLED=$cgo go build -tags "$tags" -ldflags "-s -w $flags" -o "$cache/building-$module/" "$@" >&2)
  mv -f "$cache/building-$module"/* "$cache/"
  rmdir "$cache/building-$module"
}
