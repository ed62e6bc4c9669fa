{{/*
shardpool.tracks
input: root, out. output: sets out.tracks, a context for the stable workload and one for the canary; stops at mistakes in the values.
*/}}
{{- define "shardpool.tracks" -}}
{{- $root := .root -}}
{{- $tracks := list -}}
{{- $names := ternary (list "stable" "canary") (list "stable") $root.Values.canary.enabled -}}
{{- range $track := $names -}}
{{- $values := $root.Values -}}
{{- if eq $track "canary" -}}
{{- $own := $root.Values.canary -}}
{{- $values = mergeOverwrite (deepCopy $root.Values) (deepCopy (dict "replicas" $own.replicas "model" $own.model "runtime" $own.runtime "engine" $own.engine "seed" $own.seed)) -}}
{{- end -}}
{{- $top := dict -}}
{{- include "shardpool.topology" (dict "values" $values "out" $top) -}}
{{- $t := dict "root" $root "Values" $values "track" $track "component" (ternary "pool" "canary" (eq $track "stable")) "top" $top -}}
{{- $_ := set $t "name" (include "shardpool.trackName" $t) -}}
{{- $tracks = append $tracks $t -}}
{{- end -}}
{{- include "shardpool.validate" (dict "root" $root "tracks" $tracks) -}}
{{- range $t := $tracks -}}
{{- include "shardpool.ranks" $t -}}
{{- include "shardpool.services" $t -}}
{{- include "shardpool.identity" $t -}}
{{- end -}}
{{- $_ := set .out "tracks" $tracks -}}
{{- end -}}

{{/*
shardpool.identity
input: t (track). output: sets t.identity, the hash8 of everything that tells two pools apart.
*/}}
{{- define "shardpool.identity" -}}
{{- $top := .top -}}
{{- $facts := dict "model" .Values.model.id "revision" .Values.model.revision "dtype" .Values.model.dtype "quantization" .Values.model.quantization
      "layout" $top.layout "world" $top.world "localRanks" $top.localRanks "addresses" $top.addresses -}}
{{- if eq $top.weights "modelexpress" -}}
{{- /* the engine's versions are part of ModelExpress's identity, and only its image knows them */ -}}
{{- $_ := set $facts "engine" (list .Values.engine.kind (include "shardpool.engineImage" .) $top.tensorParallel $top.pipelineParallel $top.dataParallel $top.expertParallel) -}}
{{- end -}}
{{- $_ := set . "identity" (toJson $facts | sha256sum | trunc 8) -}}
{{- end -}}

{{/*
shardpool.sourceIdentity
input: t (track). output: JSON of the pool's SourceIdentity, which `doctor` checks against the live one.
*/}}
{{- define "shardpool.sourceIdentity" -}}
{{- $version := "shardpool/1" -}}
{{- range .Values.runtime.extraEnv -}}
{{- if eq .name "MX_VERSION" -}}
{{- $version = .value -}}
{{- end -}}
{{- end -}}
{{- dict "mx_version" $version "mx_source_type" 0 "model_name" .Values.model.id "backend_framework" 0
      "tensor_parallel_size" .top.world "pipeline_parallel_size" 1 "expert_parallel_size" 0
      "dtype" .Values.model.dtype "quantization" .Values.model.quantization "revision" .Values.model.revision
      "extra_parameters" (dict "shardpool_layout" .top.layout) | toJson -}}
{{- end -}}
