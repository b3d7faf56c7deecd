#!/usr/bin/env bash
# Writes manifests/install.yaml, the chart "berth" as plain objects, to $1 or in place.
set -o errexit -o nounset -o pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
out=${1:-$root/manifests/install.yaml}
new=$(mktemp)
trap 'rm -f "$new"' EXIT
{
  cat <<'TEXT'
# Berth without Helm, for namespace kube-system. Made by hack/update-install.sh from manifests/charts/berth.
# Replace YOUR-CLUSTER by the cluster's name, as in its EC2 tags, and apply on the server's side:
#
#   sed s/YOUR-CLUSTER/prod/ manifests/install.yaml | kubectl apply --server-side -f -
TEXT
  cd "$root/hack/tools/chart"
  go run . -namespace kube-system -set settings.clusterName=YOUR-CLUSTER "$root/manifests/charts/berth" |
    sed 's/app.kubernetes.io\/managed-by: Helm/app.kubernetes.io\/managed-by: kubectl/'
} >"$new"
cp "$new" "$out"
