{{/*
shardpool.policyPorts
input: tracks. output: the ports of the ranks as NetworkPolicy ports, each range once.
*/}}
{{- define "shardpool.policyPorts" -}}
{{- $seen := dict -}}
{{- range $t := .tracks -}}
{{- range include "shardpool.rankPorts" $t | fromJsonArray -}}
{{- $line := ternary (printf "- { port: %d }" (int .first)) (printf "- { port: %d, endPort: %d }" (int .first) (int .last)) (eq (int .first) (int .last)) -}}
{{- if not (hasKey $seen $line) }}
{{ $line }}
{{- $_ := set $seen $line true -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/*
shardpool.preflightLabels
input: the root context. output: the labels of the preflight's pod; no Service of the release selects it.
*/}}
{{- define "shardpool.preflightLabels" -}}
app.kubernetes.io/name: {{ .Chart.Name }}-preflight
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{/*
shardpool.preflightEnv
input: t (track). output: the environment of the preflight: certificates and log, the user's entries.
*/}}
{{- define "shardpool.preflightEnv" -}}
{{- $own := printf "%s\n%s" (include "shardpool.tlsEnv" .) (include "shardpool.logEnv" .) -}}
{{- with include "shardpool.env" (dict "own" $own "extra" .Values.runtime.extraEnv) -}}
{{- if ne . "[]" -}}
{{- . -}}
{{- end -}}
{{- end -}}
{{- end -}}
