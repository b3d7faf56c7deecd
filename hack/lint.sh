#!/usr/bin/env bash
# Builds the pinned golangci-lint through the Go module proxy and runs it.
set -euo pipefail
cd "$(dirname "$0")/.."
bin=$PWD/bin/golangci-lint
if [ ! -x "$bin" ]; then
  (cd hack/tools/lint && go build -o "$bin" github.com/golangci/golangci-lint/v2/cmd/golangci-lint)
fi
exec "$bin" run "$@"
