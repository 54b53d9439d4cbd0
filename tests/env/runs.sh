# shellcheck shell=bash
# Sourced: a run of tests owns what it makes, so that nothing of it stays when it is killed.
#
# A run has a directory, in which it keeps its containerds, its control planes and all temporary files (TMPDIR), a cgroup
# (UNDERSTUDY_RUN_CGROUP), and a mark, UNDERSTUDY_RUN, in the environment of all that it starts. It is written down in $runs with the process that owns it. A keeper
# waits for that process; when it has ended, however it did, the keeper ends what the run has left. A run also begins by ending
# what is left of runs whose keeper has been killed, too. Nothing is found by its name, and nothing of a live run is touched.

runs=/run/understudy-runs

# When a process began, in ticks since the boot: a number that a later process of the same ID does not have. One that has
# ended, and that its parent has not been told of, is none.
began_at() { # pid
  local stat fields
  stat=$(cat "/proc/$1/stat" 2>/dev/null) || return 1
  read -ra fields <<<"${stat##*) }"
  [[ ${fields[0]} != [ZX] ]] || return 1
  echo "${fields[19]}"
}

# Whether the process that a file begins with, as "pid began", still lives.
owner_lives() { # file
  local pid began
  read -r pid began _ <"$1" 2>/dev/null && [ "$(began_at "$pid")" = "$began" ]
}

# The processes that have inherited the mark.
marked() { # run
  local file
  for file in /proc/[0-9]*/environ; do
    if tr '\0' '\n' <"$file" 2>/dev/null | grep -qxF "UNDERSTUDY_RUN=$1"; then
      file=${file%/environ}
      echo "${file#/proc/}"
    fi
  done 2>/dev/null
}

end_marked() { # run
  local pid
  for _ in $(seq 50); do
    for pid in $(marked "$1"); do kill -KILL "$pid" 2>/dev/null || true; done
    [ -n "$(marked "$1")" ] || return 0
    sleep 0.1
  done
  say "still there of the run $1: $(marked "$1" | tr '\n' ' ')"
}

# Ends all that a run has made; what has been ended already costs nothing.
end_owned() { # run, directory
  local dir mount file
  # A lane is a shell, which has what its parent had for an environment.
  for file in "$2"/lanes/*.group; do
    if [ -f "$file" ] && owner_lives "$file"; then kill -KILL -- "-$(cut -d' ' -f1 "$file")" 2>/dev/null || true; fi
  done
  # Suites go on without the script that started them, and kubelets without their suite: they come first. A containerd and its
  # shims have the mark, too; `down` below removes what they leave.
  end_marked "$1"
  for dir in "$2"/*/; do
    if [ -e "$dir/.understudy-containerd" ]; then "$env_dir/containerd" down "$dir" || true; fi
    if [ -e "$dir/.understudy-control-plane" ]; then "$env_dir/control-plane" down "$dir" || true; fi
  done
  awk -v d="$2/" 'index($2, d) == 1 {print $2}' /proc/self/mounts | sort -r | while read -r mount; do
    umount -n -l "$mount" 2>/dev/null || true
  done
  remove_cgroups "/$1"
  if grep -qF " $2/" /proc/self/mounts; then say "still mounted below $2"; else rm -rf "$2"; fi
}

forget_run() { # run
  rm -f "$runs/$1"
  rmdir $runs 2>/dev/null || true
}

# Makes a run of this process: sets `work` to its directory.
begin_run() {
  local file run dir
  work=$(mktemp -d /tmp/understudy-test.XXXXXX)
  export UNDERSTUDY_RUN=${work##*/} TMPDIR=$work/tmp
  mkdir "$TMPDIR"
  # Under sudo cargo runs as the user.
  chmod 711 "$work"
  chmod 1777 "$TMPDIR"
  keeper=''
  [ "$(id -u)" = 0 ] || return 0
  mkdir -p $runs
  for file in $runs/*; do
    if [ -f "$file" ] && ! owner_lives "$file"; then
      run=${file##*/}
      read -r _ _ dir <"$file"
      say "ending what the killed run $run has left"
      end_owned "$run" "$dir"
      forget_run "$run"
    fi
  done
  echo "$$ $(began_at $$) $work" >"$runs/$UNDERSTUDY_RUN"
  if make_cgroups "/$UNDERSTUDY_RUN" 2>/dev/null; then export UNDERSTUDY_RUN_CGROUP=/$UNDERSTUDY_RUN; fi
  # The mark is not the keeper's, nor is anything that the caller waits for.
  env -u UNDERSTUDY_RUN setsid bash "$env_dir/keeper" "$UNDERSTUDY_RUN" </dev/null >/dev/null 2>&1 &
  keeper=$!
}

end_run() {
  local run=$UNDERSTUDY_RUN
  # What is started from here on is no part of it.
  unset UNDERSTUDY_RUN
  if [ -n "$keeper" ]; then
    end_owned "$run" "$work"
    forget_run "$run"
    kill "$keeper" 2>/dev/null || true
  else
    rm -rf "$work"
  fi
}
