{{/*
shardpool.servicePorts
input: t (track), ranks (plan entries behind the Service). output: its ports, named by global rank.
*/}}
{{- define "shardpool.servicePorts" -}}
{{- $t := .t -}}
{{- range .ranks }}
- name: rank-{{ .rank }}
  port: {{ .port }}
  targetPort: {{ .targetPort }}
{{- $global := add (int $t.Values.ports.workerGrpcBase) .rank | int }}
{{- if and (eq $t.top.addresses "multiNode") (eq $t.top.weights "modelexpress") (ne $global .port) }}
# the port that ModelExpress dials: base + global rank
- name: mx-{{ .rank }}
  port: {{ $global }}
  targetPort: {{ .targetPort }}
{{- end }}
{{- end }}
{{- end -}}
