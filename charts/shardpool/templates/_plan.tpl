{{/*
shardpool.plan
input: t (track). output: plan.json: the computed table that `doctor` checks against, a line for each rank.
*/}}
{{- define "shardpool.plan" -}}
{{- $top := .top -}}
{{- $ranks := list -}}
{{- range .ranks -}}
{{- $ranks = append $ranks (printf "{\"rank\": %d, \"service\": %q, \"port\": %d, \"peersService\": %q, \"targetPort\": %d, \"podIndex\": %d}" .rank .service .port .peersService .targetPort .podIndex) -}}
{{- end -}}
{
  "version": 1,
  "release": {{ .root.Release.Name | toJson }},
  "namespace": {{ .root.Release.Namespace | toJson }},
  "shape": {{ $top.shape | toJson }},
  "layout": {{ $top.layout | toJson }},
  "world": {{ $top.world }},
  "localRanks": {{ $top.localRanks }},
  "engine": {
    "kind": {{ .Values.engine.kind | toJson }},
    "weights": {{ $top.weights | toJson }}
    {{- if ne .Values.engine.kind "none" }},
    "tensorParallel": {{ $top.tensorParallel }},
    "pipelineParallel": {{ $top.pipelineParallel }},
    "dataParallel": {{ $top.dataParallel }},
    "expertParallel": {{ $top.expertParallel }},
    "ranks": {{ include "shardpool.coordinates" . | nindent 4 | trim }}
    {{- end }}
  },
  "httpPort": {{ int .Values.ports.metrics }},
  {{- if eq $top.weights "pool" }}
  "identity": {{ include "shardpool.sourceIdentity" . }},
  {{- end }}
  "ranks": [
    {{ join ",\n    " $ranks }}
  ]
}
{{- end -}}
