{{/*
shardpool.releaseLabels
input: the root context. output: the labels that all pods of the release share; nothing that a user can set.
*/}}
{{- define "shardpool.releaseLabels" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{/*
shardpool.selectorLabels
input: t (track). output: the labels of the track's workloads; they go into immutable selectors.
*/}}
{{- define "shardpool.selectorLabels" -}}
{{ include "shardpool.releaseLabels" .root }}
app.kubernetes.io/component: {{ .component }}
{{- end -}}

{{/*
shardpool.metaLabels
input: the root context. output: the labels of an object beyond those that select: chart, version, the user's.
*/}}
{{- define "shardpool.metaLabels" -}}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/*
shardpool.labels
input: the root context. output: the labels of an object of the release.
*/}}
{{- define "shardpool.labels" -}}
{{ include "shardpool.releaseLabels" . }}
{{ include "shardpool.metaLabels" . }}
{{- end -}}

{{/*
shardpool.trackLabels
input: t (track). output: the labels of an object of one track.
*/}}
{{- define "shardpool.trackLabels" -}}
{{ include "shardpool.selectorLabels" . }}
{{ include "shardpool.metaLabels" .root }}
{{- end -}}

{{/*
shardpool.poolSelector
input: t (track). output: the selector of a rank Service: the identity where it may be there, else the track.
*/}}
{{- define "shardpool.poolSelector" -}}
{{- if .Values.service.identityInSelector -}}
{{ include "shardpool.releaseLabels" .root }}
mx.identity: {{ .identity | quote }}
{{- else -}}
{{ include "shardpool.selectorLabels" . }}
{{- end -}}
{{- end -}}

{{/*
shardpool.rankSelector
input: t (track), rank (its entry in the plan). output: the label that picks the pod of that rank; nothing if every pod has it.
*/}}
{{- define "shardpool.rankSelector" -}}
{{- if eq .t.top.addresses "perRank" -}}
mx.rank: {{ .rank.rank | toString | quote }}
{{- else if eq .t.top.addresses "multiNode" -}}
{{ .t.top.indexLabel }}: {{ .rank.podIndex | toString | quote }}
{{- end -}}
{{- end -}}
