# shellcheck shell=bash
# Sourced by run-tests: what the tests of a run came to, and the second look at those that failed.
#
# Each lane has files in $work/lanes: LANE.results ("suite passed failed skipped" a line), LANE.failed (a failed test a line,
# as `failed_test` writes it) and LANE.broken (why a run is red whatever its tests came to).

# A failed test is run twice more, alone, when nothing else runs any more. If it passes both times it is flaky: a defect that
# the run tells of and that refuses nobody's work, unless there are more than three.
flaky_max=3
# With more than this many failures something is broken, and none is run again.
again_max=12

flaky=()
red=()

fail() { # why
  echo "$1" >>"$work/lanes/$lane.broken"
}

count() { # suite, passed, failed, skipped
  echo "$@" >>"$work/lanes/$lane.results"
}

# The failed tests of a report of cargo-nextest, as "id TAB name TAB what it said", and its counts into the lane's results.
read_report() { # report, file for the counts
  awk -v counts="$2" '
    function plain(text) {
      gsub(/&lt;/, "<", text); gsub(/&gt;/, ">", text); gsub(/&quot;/, "\"", text); gsub(/&apos;/, "\047", text)
      gsub(/&#10;|&#xA;|\t/, " ", text); gsub(/&amp;/, "\\&", text)
      return text
    }
    function value(name, rest) {
      if (!match($0, " " name "=\"")) return ""
      rest = substr($0, RSTART + RLENGTH)
      sub(/".*/, "", rest)
      return plain(rest)
    }
    function finish() {
      if (failing == "") return
      failed++
      print failing "\t" substr(said, 1, 400)
      failing = ""
    }
    /<testcase / { finish(); tests++; current = value("classname") "\t" value("name") }
    /<(failure|error)[ >]/ && failing == "" {
      failing = current
      said = value("type") ":"
      telling = !/\/>/
      sub(/.*<(failure|error)[^>]*>/, "")
    }
    /^stack backtrace:/ || /<\/(failure|error)>/ { telling = 0 }
    telling && NF { said = said " " plain($0) }
    /<\/testcase>/ { finish(); telling = 0 }
    END { finish(); print "nextest", tests - failed, failed + 0, 0 >counts }' "$1"
}

# The same of what a suite of libtest-mimic has printed, without the id. Its list of names comes after their sections.
read_output() { # suite, output, file for the counts
  awk -v suite="$1" -v counts="$3" '
    /^failures:$/ { delete names; number = 0; section = ""; next }
    /^---- .* ----$/ { section = substr($0, 6, length($0) - 10); next }
    /^    [^ ]/ { names[++number] = substr($0, 5) }
    section != "" && NF && length(said[section]) < 400 { gsub(/\t/, " "); said[section] = said[section] substr($0, 1, 400) " " }
    /^test result: / {
      for (i = 2; i <= NF; i++) {
        if ($i ~ /^passed/) passed += $(i - 1)
        if ($i ~ /^failed/) { now = $(i - 1); failed += now }
        if ($i ~ /^ignored/) ignored += $(i - 1)
      }
      # The last of them: what a test said may look like a name, too.
      if (now > 0) for (i = number - now + 1; i <= number; i++) print names[i] "\t" substr(said[names[i]], 1, 400)
      number = 0; section = ""
    }
    END { print suite, passed + 0, failed + 0, ignored + 0 >counts }' "$2"
}

# Notes a failed test. No field may be empty: what there is none of is -.
failed_test() { # kind (unit or suite), suite or id, name, what it ran on, files with its environment, what it said
  printf '%s\t%s\t%s\t%s\t%s\t%s\n' "$@" >>"$work/lanes/$lane.failed"
}

is_invariant() { # suite or id, name
  local suite=${1##*::} name=${2##*::}
  grep -qxF "$suite $name" "$env_dir/invariants"
}

# How a user runs it once more with the same seeds.
replay() { # kind, suite or id, name
  if [ "$1" = unit ]; then
    echo "PROPTEST_RNG_SEED=$PROPTEST_RNG_SEED cargo nextest run -E 'binary_id(=$2) and test(=$3)'"
  else
    echo "UNDERSTUDY_SEED=$UNDERSTUDY_SEED UNDERSTUDY_SUITES=$2 UNDERSTUDY_ONLY=$3 make test"
  fi
}

# Judges every failed test; nothing else may run.
second_look() {
  local kind suite name what files said title passes number
  cat "$work"/lanes/*.failed >"$work/failed" 2>/dev/null || return 0
  number=$(wc -l <"$work/failed")
  while IFS=$'\t' read -r kind suite name what files said <&3; do
    title="$suite::$name on $what"
    [ "$kind" = suite ] || title="$suite::$name"
    passes=0
    if is_invariant "$suite" "$name"; then
      say "not run again, since it must never fail: $title"
    elif [[ $said == *"the kubelet has ended"* ]]; then
      say "not run again, since its kubelet has ended by itself: $title"
    elif [ "$number" -gt $again_max ]; then
      say "not run again, since $number tests have failed: $title"
    else
      for _ in 1 2; do
        say "== again, alone: $title"
        again "$kind" "$suite" "$name" "$files" || break
        passes=$((passes + 1))
      done
    fi
    if [ $passes = 2 ]; then
      flaky+=("FLAKY $title, seed $UNDERSTUDY_SEED: $said")
    else
      red+=("FAILED: $title: $said"$'\n'"  replay: $(replay "$kind" "$suite" "$name")")
    fi
  done 3<"$work/failed"
}

results() { # prints: results, passed, failed, skipped
  { cat "$work"/lanes/*.results 2>/dev/null || true; } | awk '
    { passed += $2; failed += $3; skipped += $4 }
    END { print "results", passed + 0, failed + 0, skipped + 0 }'
}

# Writes the last lines; exit code 1 when the run is red.
sum_up() {
  local reason broken_number=0
  for reason in "${reasons[@]}"; do say "skipped: $reason"; done
  for reason in "${red[@]}"; do say "$reason"; done
  while read -r reason; do
    say "FAILED: $reason"
    broken_number=$((broken_number + 1))
  done < <(cat "$work"/lanes/*.broken 2>/dev/null)
  if [ "$(results | awk '{print $3}')" != $((${#flaky[@]} + ${#red[@]})) ]; then
    say "FAILED: not every failed test was told of"
    broken_number=$((broken_number + 1))
  fi
  if [ "$(results)" = "results 0 0 0" ]; then
    say "FAILED: no test has been run"
    broken_number=$((broken_number + 1))
  fi
  if [ ${#flaky[@]} -gt $flaky_max ]; then
    say "FAILED: ${#flaky[@]} tests are flaky, and at most $flaky_max may be"
    broken_number=$((broken_number + 1))
  fi
  {
    for reason in "${flaky[@]}"; do echo "$reason"; done
    results | awk -v flaky=${#flaky[@]} '
      { printf "total: %d passed, %d failed, %d skipped\n", $2 + flaky, $3 - flaky, $4 }'
  } >"$work/total"
  [ ${#red[@]} = 0 ] && [ $broken_number = 0 ]
}
