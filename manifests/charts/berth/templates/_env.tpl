{{- /* One variable, when it has a value: a list of name and value. */ -}}
{{- define "berth.variable" -}}
{{- $value := index . 1 -}}
{{- if not (or (kindIs "invalid" $value) (eq (toString $value) "")) }}
- name: {{ index . 0 }}
  value: {{ toString $value | quote }}
{{- end }}
{{- end }}

{{- /* The environment of berth-scheduler. Every variable here is read by cmd/berth-scheduler/app/settings.go. */ -}}
{{- define "berth.env" -}}
- name: POD_NAMESPACE
  valueFrom:
    fieldRef:
      fieldPath: metadata.namespace
{{- if dig "limits" "memory" "" .Values.controller.resources }}
- name: MEMORY_LIMIT
  valueFrom:
    resourceFieldRef:
      containerName: {{ .Values.controller.containerName }}
      divisor: "0"
      resource: limits.memory
{{- end }}
{{- with .Values.settings }}
{{- include "berth.variable" (list "CLUSTER_NAME" (required "settings.clusterName is required: name the cluster as in its EC2 tags, for example --set settings.clusterName=prod" .clusterName)) }}
{{- include "berth.variable" (list "CLUSTER_ENDPOINT" .clusterEndpoint) }}
{{- include "berth.variable" (list "CLUSTER_CA_BUNDLE" .clusterCABundle) }}
{{- include "berth.variable" (list "INTERRUPTION_QUEUE" .interruptionQueue) }}
{{- include "berth.variable" (list "ISOLATED_VPC" .isolatedVPC) }}
{{- include "berth.variable" (list "VM_MEMORY_OVERHEAD_PERCENT" .vmMemoryOverheadPercent) }}
{{- include "berth.variable" (list "RESERVED_ENIS" .reservedENIs) }}
{{- include "berth.variable" (list "BATCH_IDLE_DURATION" .batchIdleDuration) }}
{{- include "berth.variable" (list "BATCH_MAX_DURATION" .batchMaxDuration) }}
{{- include "berth.variable" (list "PREFERENCE_POLICY" .preferencePolicy) }}
{{- include "berth.variable" (list "MIN_VALUES_POLICY" .minValuesPolicy) }}
{{- include "berth.variable" (list "NODE_CAP" .nodeCap) }}
{{- include "berth.variable" (list "NODE_COST" .nodeCost) }}
{{- end }}
{{- include "berth.variable" (list "FEATURE_GATES" (include "berth.featureGates" .)) }}
{{- include "berth.variable" (list "LOG_LEVEL" .Values.logLevel) }}
{{- include "berth.variable" (list "METRICS_PORT" .Values.controller.metrics.port) }}
{{- include "berth.variable" (list "HEALTH_PROBE_PORT" .Values.controller.healthProbe.port) }}
{{- end }}
