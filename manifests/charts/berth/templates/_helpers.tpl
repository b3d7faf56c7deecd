{{- define "berth.name" -}}
{{ .Values.nameOverride | default .Chart.Name | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "berth.fullname" -}}
{{- $name := .Values.nameOverride | default .Chart.Name -}}
{{- if .Values.fullnameOverride -}}
{{ .Values.fullnameOverride | trunc 63 | trimSuffix "-" }}
{{- else if contains $name .Release.Name -}}
{{ .Release.Name | trunc 63 | trimSuffix "-" }}
{{- else -}}
{{ printf "%s-%s" .Release.Name $name | trunc 63 | trimSuffix "-" }}
{{- end -}}
{{- end }}

{{- define "berth.selectorLabels" -}}
app.kubernetes.io/name: {{ include "berth.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "berth.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{ include "berth.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- with .Values.additionalLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- /* metadata of an object: a list of the scope, the name, and the namespace or "". */ -}}
{{- define "berth.metadata" -}}
{{- $root := index . 0 -}}
name: {{ index . 1 }}
{{- with index . 2 }}
namespace: {{ . }}
{{- end }}
labels:
  {{- include "berth.labels" $root | nindent 2 }}
{{- with $root.Values.additionalAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "berth.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{ .Values.serviceAccount.name | default (include "berth.fullname" .) }}
{{- else -}}
{{ .Values.serviceAccount.name | default "default" }}
{{- end -}}
{{- end }}

{{- define "berth.subjects" -}}
- kind: ServiceAccount
  name: {{ include "berth.serviceAccountName" . }}
  namespace: {{ .Release.Namespace }}
{{- end }}

{{- define "berth.image" -}}
{{- $image := .Values.controller.image -}}
{{ $image.repository }}:{{ $image.tag | default .Chart.AppVersion }}
{{- with $image.digest }}@{{ . }}{{ end }}
{{- end }}

{{- /* The shipped KubeSchedulerConfiguration with the lease's namespace, the profile's name and the plugin's arguments. */ -}}
{{- define "berth.schedulerConfiguration" -}}
{{- if .Values.scheduler.configuration -}}
{{ .Values.scheduler.configuration }}
{{- else -}}
{{- $c := .Files.Get "files/scheduler.yaml" | fromYaml -}}
{{- $_ := set $c.leaderElection "resourceNamespace" .Release.Namespace -}}
{{- $profile := index $c.profiles 0 -}}
{{- $_ := set $profile "schedulerName" .Values.scheduler.name -}}
{{- $plugin := index $profile.pluginConfig 0 -}}
{{- $_ := set $plugin "args" (mergeOverwrite (dict) $plugin.args .Values.scheduler.args) -}}
{{ toYaml $c }}
{{- end -}}
{{- end }}

{{- define "berth.featureGates" -}}
{{- $gates := list -}}
{{- range $name, $on := .Values.settings.featureGates -}}
{{- $gates = append $gates (printf "%s%s=%t" (substr 0 1 $name | upper) (substr 1 -1 $name) $on) -}}
{{- end -}}
{{ join "," $gates }}
{{- end }}

{{- /* Values that Karpenter's chart has, that are accepted so that its values files can be used, and that do nothing here. */ -}}
{{- define "berth.ignored" -}}
{{- $found := list -}}
{{- range $name := list "eksControlPlane" "enableZonalShift" "disableDryRun" "disableClusterStateObservability" "amiRefreshInterval" "subnetRefreshInterval" "ignoreDRARequests" "awsFeatureGates" -}}
{{- if hasKey $.Values.settings $name }}{{ $found = append $found (printf "settings.%s" $name) }}{{ end -}}
{{- end -}}
{{- range $name := list "staticCapacity" "capacityBuffer" -}}
{{- if index $.Values.settings.featureGates $name }}{{ $found = append $found (printf "settings.featureGates.%s" $name) }}{{ end -}}
{{- end -}}
{{- range $name := list "logOutputPaths" "logErrorOutputPaths" -}}
{{- if hasKey $.Values $name }}{{ $found = append $found $name }}{{ end -}}
{{- end -}}
{{ join ", " $found }}
{{- end }}
