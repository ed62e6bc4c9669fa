{{/*
shardpool.image
input: image (repository, tag, digest), tag (default), global. output: the reference; a digest wins over a tag.
*/}}
{{- define "shardpool.image" -}}
{{- $repository := .image.repository -}}
{{- if .global.imageRegistry -}}
{{- $first := splitList "/" $repository | first -}}
{{- if or (contains "." $first) (contains ":" $first) (eq $first "localhost") -}}
{{- $repository = trimPrefix (printf "%s/" $first) $repository -}}
{{- end -}}
{{- $repository = printf "%s/%s" (trimSuffix "/" .global.imageRegistry) $repository -}}
{{- end -}}
{{- if .image.digest -}}
{{- printf "%s@%s" $repository .image.digest -}}
{{- else -}}
{{- printf "%s:%s" $repository (default .tag .image.tag) -}}
{{- end -}}
{{- end -}}

{{/*
shardpool.runtimeImage
input: t (track). output: the reference of shardpool's own image.
*/}}
{{- define "shardpool.runtimeImage" -}}
{{- include "shardpool.image" (dict "image" .Values.runtime.image "tag" .root.Chart.AppVersion "global" .Values.global) -}}
{{- end -}}

{{/*
shardpool.engineImage
input: t (track). output: the reference of the engine's image; the kind's own where none is given.
*/}}
{{- define "shardpool.engineImage" -}}
{{- $own := dict "vllm" (list "docker.io/vllm/vllm-openai" "v0.23.0") "sglang" (list "docker.io/lmsysorg/sglang" "v0.5.13.post1") -}}
{{- $default := default (list "" "latest") (get $own .Values.engine.kind) -}}
{{- $image := dict "repository" (default (first $default) .Values.engine.image.repository) "tag" .Values.engine.image.tag "digest" .Values.engine.image.digest -}}
{{- include "shardpool.image" (dict "image" $image "tag" (last $default) "global" .Values.global) -}}
{{- end -}}

{{/*
shardpool.pullSecrets
input: the root context. output: imagePullSecrets of a pod, or nothing.
*/}}
{{- define "shardpool.pullSecrets" -}}
{{- with concat (default list .Values.imagePullSecrets) (default list .Values.global.imagePullSecrets) | uniq -}}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end -}}
{{- end -}}
