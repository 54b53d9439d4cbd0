# shellcheck shell=bash
# Sourced: a run of tests or of the demo owns what it makes, so that nothing of it stays when it is killed.
#
# A run has a directory, in which it keeps its containerds, its control planes and all temporary files (TMPDIR), a cgroup
# (UNDERSTUDY_RUN_CGROUP), and a mark, UNDERSTUDY_RUN, in the environment of all that it starts. It is written down in $runs
# with the process that owns it. A keeper waits for that process; when it has ended, however it did, the keeper ends what the
# run has left. A run also begins by ending what is left of runs whose keeper has been killed, too. Nothing is found by its
# name, and nothing of a live run is touched.

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

# A kubelet sets these for the machine.
machine_settings="vm/overcommit_memory vm/panic_on_oom kernel/panic kernel/panic_on_oops kernel/keys/root_maxkeys kernel/keys/root_maxbytes"
# And keeps things in these, whatever its root directory.
machine_paths="/var/lib/kubelet /var/log/containers /var/log/pods /run/mount"

# Notes in the run's directory how the machine is, so that its end puts it back.
remember_machine() {
  local name path
  mkdir "$work/machine"
  for name in $machine_settings; do
    mkdir -p "$work/machine/${name%/*}"
    cat "/proc/sys/$name" >"$work/machine/$name" 2>/dev/null || rm -f "$work/machine/$name"
  done
  for path in $machine_paths; do
    [ ! -e "$path" ] || touch "$work/machine/had${path//\//-}"
  done
}

restore_machine() { # directory of the run
  local name path
  for name in $machine_settings; do
    [ ! -f "$1/machine/$name" ] || [ "$(cat "$1/machine/$name")" = "$(cat "/proc/sys/$name")" ] ||
      cat "$1/machine/$name" >"/proc/sys/$name" || true
  done
  find /var/log/containers -maxdepth 1 -type l -lname "$1/*" -delete 2>/dev/null || true
  for path in $machine_paths; do
    if [ -f "$1/machine/had${path//\//-}" ] || [ ! -d "$path" ]; then continue; fi
    rm -f "$path"/device-plugins/{kubelet.sock,kubelet_internal_checkpoint} "$path/pod-resources/kubelet.sock"
    find "$path" -depth -type d -empty -delete
  done
}

# Ends all that a run has made; what has been ended already costs nothing.
end_owned() { # run, directory
  local dir mount file
  # Only what a run can be called: a file that was cut short names nothing.
  [[ $1 =~ ^understudy[a-z-]*\.[A-Za-z0-9]+$ && $2 = /tmp/$1 ]] || return 0
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
    umount -n -l "$(printf '%b' "$mount")" 2>/dev/null || true
  done
  remove_cgroups "/$1"
  if [ -d "$2/machine" ]; then restore_machine "$2"; fi
  if grep -qF " $2/" /proc/self/mounts; then say "still mounted below $2"; else rm -rf "$2"; fi
}

forget_run() { # run
  rm -f "$runs/$1"
  rmdir $runs 2>/dev/null || true
}

# Makes a run of this process: sets `work` to its directory.
begin_run() { # name
  local file run dir
  work=$(mktemp -d "/tmp/$1.XXXXXX")
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
  # Whole or not at all.
  echo "$$ $(began_at $$) $work" >"$work/owner"
  mv "$work/owner" "$runs/$UNDERSTUDY_RUN"
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
    wait "$keeper" 2>/dev/null || true
  else
    rm -rf "$work"
  fi
}
