#!/usr/bin/env bash
# Runs the long random tests and writes date, commit, command and figures of each to hack/results.
# BOUND_CLUSTERS sets how many clusters the last one takes, some 15 s each.
set -euo pipefail
cd "$(dirname "$0")/.."
mkdir -p hack/results

# record FILE TITLE PACKAGE TEST [FLAG...]: runs one test; its logged lines are the figures.
record() {
  local file="hack/results/$1.md" title="$2" package="$3" test="$4"
  shift 4
  local command=(go test -count=1 -timeout 3h -v -run "^$test\$" "$package" "$@")
  local log status=0
  log=$(mktemp)
  "${command[@]}" >"$log" 2>&1 || status=$?
  {
    echo "# $title"
    echo
    echo "- date: $(date -u +%Y-%m-%dT%H:%MZ)"
    echo "- commit: $(git rev-parse --short HEAD)$(git diff --quiet HEAD || echo ' with changes')"
    echo "- command: \`${command[*]}\`"
    echo "- result: $([ $status = 0 ] && echo passed || echo "failed ($status)")"
    echo
    sed -n 's/^ *[a-z_]*_test\.go:[0-9]*: \(..*\)/\1/p' "$log" | sed '/^ *$/d'
  } >"$file"
  cat "$file"
  if [ $status != 0 ]; then
    tail -n 100 "$log"
  fi
  rm -f "$log"
  return $status
}

record random-clusters "Random clusters: algebra, filters and checker" ./provisioner/testing/agree TestRandomClusters -clusters 10000
record brute-force "Tiny clusters: nothing left pending, and price over the optimum" ./provisioner/testing/brute TestNothingLeftPending -tiny 10000
record planned-and-bound "Random clusters: planned pods and where they are bound" ./cmd/berth-local TestPlannedPodsAreBoundWhereTheyWerePlanned -bound-clusters "${BOUND_CLUSTERS:-300}"
