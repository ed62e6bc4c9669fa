{{/*
shardpool.progressDeadline
input: t (track). output: seconds after which a rollout counts as stuck: pulling images, filling the directory, starting the engine, ending the old pod.
*/}}
{{- define "shardpool.progressDeadline" -}}
{{- $v := .Values -}}
{{- $budget := int $v.probes.startup.budgetSeconds -}}
{{- $starts := ternary 1 2 (or (eq $v.engine.kind "none") (eq .top.weights "modelexpress")) -}}
{{- add 600 (mul $budget $starts) $v.drain.preStopSeconds $v.drain.shutdownSeconds 10 -}}
{{- end -}}

{{/*
shardpool.updateStrategy
input: t (track). output: updateStrategy of a StatefulSet. An engine's ranks come up only together, which a rolling update cannot do.
*/}}
{{- define "shardpool.updateStrategy" -}}
{{- if ne .Values.rollout.strategy "auto" -}}
{{- .Values.rollout.strategy -}}
{{- else -}}
{{- ternary "OnDelete" "RollingUpdate" (and .top.spans (ne .Values.engine.kind "none")) -}}
{{- end -}}
{{- end -}}

{{/*
shardpool.statefulSetSpec
input: t (track), replicas, and as podTemplate. output: the spec of a StatefulSet.
*/}}
{{- define "shardpool.statefulSetSpec" -}}
replicas: {{ .replicas }}
serviceName: {{ .t.name }}-nodes
podManagementPolicy: Parallel
updateStrategy:
  type: {{ include "shardpool.updateStrategy" .t }}
selector:
  matchLabels:
    {{- include "shardpool.workloadLabels" . | nindent 4 }}
template:
  {{- include "shardpool.podTemplate" . | nindent 2 }}
{{- end -}}
