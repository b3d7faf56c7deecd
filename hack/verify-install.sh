#!/usr/bin/env bash
# Fails when manifests/install.yaml is not what the chart gives now, or when a test of the charts fails.
set -o errexit -o nounset -o pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
fresh=$(mktemp)
trap 'rm -f "$fresh"' EXIT
"$root/hack/update-install.sh" "$fresh"
if ! diff -u "$root/manifests/install.yaml" "$fresh"; then
  echo "manifests/install.yaml is not current: run hack/update-install.sh and commit the result"
  exit 1
fi
cd "$root/hack/tools/chart" && go test ./...
