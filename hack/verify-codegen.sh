#!/usr/bin/env bash
# Fails when a generated file is not what hack/update-codegen.sh makes now. Works on a copy; the tree
# stays as it is.
set -o errexit -o nounset -o pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
cd "$root"

checked=(provisioner/api provisioner/generated manifests/crds)
mkdir -p "$copy/provisioner" "$copy/manifests"
cp go.mod go.sum "$copy/"
cp -r hack "$copy/hack"
for path in "${checked[@]}"; do cp -r "$path" "$copy/$path"; done

"$copy/hack/update-codegen.sh" >"$copy/log" 2>&1 || { cat "$copy/log"; echo "generators failed"; exit 1; }

status=0
for path in "${checked[@]}"; do diff -ruN "$path" "$copy/$path" || status=1; done
if [ "$status" -ne 0 ]; then
  echo "generated files are not current: run make generate and commit the result"
fi
exit "$status"
