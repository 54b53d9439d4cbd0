# shellcheck shell=bash
# Sourced: a run of tests or of the demo owns what it makes, so that nothing of it stays when it is killed.
#
# A run has a directory, in which it keeps its containerds, its control planes and all temporary files (TMPDIR), a cgroup
# (UNDERSTUDY_RUN_CGROUP), and a mark, UNDERSTUDY_RUN, in the environment of all that it starts. It is written down in $runs
# with the process that owns it. A keeper waits for that process; when it has ended, however it did, the keeper ends what the
# run has left. A run also begins by ending what is left of runs whose keeper has been killed, too. Nothing is found by its
# name, and nothing of a live run is touched: what cannot be told counts as alive.

if [ "$(id -u)" = 0 ]; then runs=/run/understudy-runs; else runs=/tmp/understudy-runs-$(id -u); fi
# Another directory, for tests of this file.
runs=${UNDERSTUDY_RUNS:-$runs}

# Sets `began` to when a process began, in ticks since the boot: a number that a later process of the same ID does not have.
# Exit code 1: there is none; one that has ended, and that its parent has not been told of, is none. 2: it cannot be told.
began_at() { # pid
  local stat='' fields
  began=''
  IFS= read -rd '' stat 2>/dev/null <"/proc/$1/stat" || true
  read -ra fields <<<"${stat##*) }" || true
  if [ ${#fields[@]} -gt 19 ]; then
    began=${fields[19]}
    [[ ${fields[0]} != [ZX] ]] || return 1
  elif [ -d "/proc/$1" ]; then
    return 2
  else
    return 1
  fi
}

# The process that a file begins with, as "pid began". Exit code 0: it lives, 1: it has ended, 2: it cannot be told.
owner_lives() { # file
  local pid='' noted='' began code=0
  read -r pid noted _ 2>/dev/null <"$1" || true
  [ -n "$noted" ] || return 2
  began_at "$pid" || code=$?
  if [ $code = 0 ] && [ "$began" != "$noted" ]; then code=1; fi
  return $code
}

owner_has_ended() { # file
  local code=0
  owner_lives "$1" || code=$?
  [ $code = 1 ]
}

# The processes that have inherited the mark.
marked() { # run
  { grep -lzxF "UNDERSTUDY_RUN=$1" /proc/[0-9]*/environ 2>/dev/null || true; } | cut -d/ -f3
}

end_marked() { # run
  local pid
  for _ in $(seq 50); do
    for pid in $(marked "$1"); do kill -KILL "$pid" 2>/dev/null || true; done
    [ -n "$(marked "$1")" ] || return 0
    sleep 0.1
  done
  say "still there of the run $1: $(marked "$1" | tr '\n' ' ')"
  return 1
}

# A kubelet sets these for the machine.
machine_settings="vm/overcommit_memory vm/panic_on_oom kernel/panic kernel/panic_on_oops kernel/keys/root_maxkeys kernel/keys/root_maxbytes"
# And keeps things in these, whatever its root directory.
machine_paths="/var/lib/kubelet /var/log/containers /var/log/pods /run/mount"

# Notes how the machine is, before the first of the runs that change it, so that the end of the last one puts it back.
remember_machine() { (flock 7 && remember_machine_alone) 7<"$runs"; }

remember_machine_alone() {
  local name path
  touch "$work/changes-machine"
  [ ! -d "$runs/.machine" ] || return 0
  mkdir "$runs/.machine"
  for name in $machine_settings; do
    mkdir -p "$runs/.machine/${name%/*}"
    cat "/proc/sys/$name" >"$runs/.machine/$name" 2>/dev/null || rm -f "$runs/.machine/$name"
  done
  for path in $machine_paths; do
    [ ! -e "$path" ] || touch "$runs/.machine/had${path//\//-}"
  done
}

# Some time after the end (late), a kubelet of the machine's own may have come: what lies in its directories stays.
restore_machine() { (flock 7 && restore_machine_alone "$1") 7<"$runs"; } # directory of the run

restore_machine_alone() {
  local name path file dir
  find /var/log/containers -maxdepth 1 -type l -lname "$1/*" -delete 2>/dev/null || true
  rm -f "$1/changes-machine"
  for file in "$runs"/understudy*; do
    read -r _ _ dir 2>/dev/null <"$file" || continue
    [ ! -e "$dir/changes-machine" ] || return 0
  done
  for name in $machine_settings; do
    [ ! -f "$runs/.machine/$name" ] || [ "$(cat "$runs/.machine/$name")" = "$(cat "/proc/sys/$name")" ] ||
      cat "$runs/.machine/$name" >"/proc/sys/$name" || true
  done
  for path in $machine_paths; do
    if [ -f "$runs/.machine/had${path//\//-}" ] || [ ! -d "$path" ] || [ -n "${late-}" ]; then continue; fi
    rm -f "$path"/device-plugins/{kubelet.sock,kubelet_internal_checkpoint} "$path/pod-resources/kubelet.sock"
    find "$path" -depth -type d -empty -delete || true
  done
  rm -rf "$runs/.machine"
}

# Ends all that a run has made; what has been ended already costs nothing. Exit code 1: some of it is still there.
end_owned() { # run, directory
  local dir file code=0
  # Only what a run can be called: a file that was cut short names nothing.
  [[ $1 =~ ^understudy[a-z-]*\.[A-Za-z0-9]+$ && $2 = /tmp/$1 ]] || return 0
  # A lane is a shell, which has what its parent had for an environment.
  for file in "$2"/lanes/*.group; do
    if [ -f "$file" ] && owner_lives "$file"; then kill -KILL -- "-$(cut -d' ' -f1 "$file")" 2>/dev/null || true; fi
  done
  # Suites go on without the script that started them, and kubelets without their suite: they come first. A containerd and its
  # shims have the mark, too; `down` below removes what they leave.
  end_marked "$1" || code=1
  for dir in "$2"/*/; do
    if [ -e "$dir/.understudy-containerd" ]; then "$env_dir/containerd" down "$dir" || code=1; fi
    if [ -e "$dir/.understudy-control-plane" ]; then "$env_dir/control-plane" down "$dir" || code=1; fi
  done
  remove_cgroups "/$1" || code=1
  if [ -e "$2/changes-machine" ]; then restore_machine "$2" || code=1; fi
  # Not through a mount: what is there is not the run's.
  unmount_below "$2" || return 1
  rm -rf "$2" || code=1
  return $code
}

forget_run() { # run
  rm -f "$runs/$1"
  rmdir "$runs" 2>/dev/null || true
}

# Ends what a run has left whose owner has ended; whoever comes first does it.
end_dead() { # file of the run
  local run=${1##*/} dir
  [ -f "$1" ] || return 0
  # A failure here is this run's, and no reason for another one not to begin.
  # shellcheck disable=SC2094 # nothing is written
  (
    flock 8
    [ -f "$1" ] && owner_has_ended "$1" || exit 0
    read -r _ _ dir <"$1"
    say "ending what the killed run $run has left"
    end_owned "$run" "$dir" && forget_run "$run"
  ) 8<"$1" || say "something is left of the killed run $run"
}

# Writes the run down, whole or not at all. The directory goes with the last run.
register_run() {
  local began
  began_at $$
  for _ in 1 2 3 4 5 6 7 8; do
    mkdir -m 755 "$runs" 2>/dev/null || true
    [ -O "$runs" ] || die "$runs belongs to another user"
    if { echo "$$ $began $work" >"$runs/.$UNDERSTUDY_RUN" && mv "$runs/.$UNDERSTUDY_RUN" "$runs/$UNDERSTUDY_RUN"; } 2>/dev/null; then
      return
    fi
  done
  rm -rf "$work"
  die "$runs takes no file"
}

# Makes a run of this process: sets `work` to its directory.
begin_run() { # name
  local file
  work=$(mktemp -d "/tmp/$1.XXXXXX")
  export UNDERSTUDY_RUN=${work##*/} TMPDIR=$work/tmp
  mkdir "$TMPDIR"
  # Under sudo cargo runs as the user.
  chmod 711 "$work"
  chmod 1777 "$TMPDIR"
  register_run
  # The mark is not the keeper's, nor is anything that the caller waits for.
  env -u UNDERSTUDY_RUN setsid bash "$env_dir/keeper" "$UNDERSTUDY_RUN" </dev/null >/dev/null 2>&1 &
  keeper=$!
  for file in "$runs"/understudy*; do
    if owner_has_ended "$file"; then late=1 end_dead "$file"; fi
  done
  if [ "$(id -u)" = 0 ] && make_cgroups "/$UNDERSTUDY_RUN" 2>/dev/null; then
    export UNDERSTUDY_RUN_CGROUP=/$UNDERSTUDY_RUN
  fi
}

# Exit code 1: some of it is still there.
end_run() {
  local run=$UNDERSTUDY_RUN code=0
  # What is started from here on is no part of it.
  unset UNDERSTUDY_RUN
  end_owned "$run" "$work" || code=1
  # The keeper ends when it sees it.
  forget_run "$run"
  wait "$keeper" 2>/dev/null || true
  return $code
}
