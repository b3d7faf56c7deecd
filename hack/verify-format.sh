#!/usr/bin/env bash
# Fails when Go files are not gofmt'ed or go.mod is not tidy.
set -euo pipefail
cd "$(dirname "$0")/.."

unformatted=$(git ls-files '*.go' | xargs gofmt -l)
if [ -n "$unformatted" ]; then
  echo "not gofmt'ed (run gofmt -w on them):" >&2
  echo "$unformatted" >&2
  exit 1
fi
go mod tidy -diff
echo "format and go.mod are current"
