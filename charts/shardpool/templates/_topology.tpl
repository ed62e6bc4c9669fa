{{/*
shardpool.topology
input: values, out. output: sets in out: shape, layout, world, localRanks, ... as this file ends; wrong values give harmless numbers.
*/}}
{{- define "shardpool.topology" -}}
{{- $v := .values.topology -}}
{{- $pp := max 1 (int $v.pipelineParallel) -}}
{{- $dp := max 1 (int $v.dataParallel) -}}
{{- $tp := int $v.tensorParallel -}}
{{- $world := int $v.world -}}
{{- if lt $tp 1 -}}
{{- $tp = max 1 (div (max 1 $world) (mul $pp $dp)) -}}
{{- end -}}
{{- if lt $world 1 -}}
{{- $world = mul $tp $pp $dp -}}
{{- end -}}
{{- $gpus := $world -}}
{{- if eq $v.shape "perRank" -}}
{{- $gpus = 1 -}}
{{- else if eq $v.shape "multiNode" -}}
{{- $gpus = max 1 (int $v.gpusPerPod) -}}
{{- end -}}
{{- $pods := max 1 (div (add $world (sub $gpus 1)) $gpus) -}}
{{- $engine := .values.engine.kind -}}
{{- $weights := ternary "pool" .values.engine.weights (eq $engine "none") -}}
{{- $parts := max 1 (ternary (int $v.parts) $gpus (gt (int $v.parts) 0)) -}}
{{- $layout := $v.layout -}}
{{- if eq $weights "modelexpress" -}}
{{- $layout = "sharded" -}}
{{- else if eq $layout "auto" -}}
{{- $layout = ternary "sharded" (ternary "striped" "whole" (gt $parts 1)) (and (eq $v.shape "perRank") (gt $world 1)) -}}
{{- end -}}
{{- /* sharded parts are the engine's ranks; the others are parts of a directory that every pod holds */ -}}
{{- $sharded := eq $layout "sharded" -}}
{{- if eq $layout "whole" -}}
{{- $parts = 1 -}}
{{- end -}}
{{- $poolWorld := ternary $world $parts $sharded -}}
{{- $local := ternary $gpus $parts $sharded -}}
{{- $statefulSet := or (eq $v.shape "perRank") (and (eq $v.shape "multiNode") (eq $v.launcher "statefulSet")) -}}
{{- $_ := set .out "shape" $v.shape -}}
{{- $_ := set .out "layout" $layout -}}
{{- $_ := set .out "sharded" $sharded -}}
{{- $_ := set .out "weights" $weights -}}
{{- $_ := set .out "addresses" (ternary $v.shape "perPod" $sharded) -}}
{{- $_ := set .out "engineWorld" (int $world) -}}
{{- $_ := set .out "world" (int $poolWorld) -}}
{{- $_ := set .out "localRanks" (int $local) -}}
{{- $_ := set .out "gpusPerPod" (int $gpus) -}}
{{- $_ := set .out "podsPerReplica" (int $pods) -}}
{{- $_ := set .out "tensorParallel" (int $tp) -}}
{{- $_ := set .out "pipelineParallel" (int $pp) -}}
{{- $_ := set .out "dataParallel" (int $dp) -}}
{{- $_ := set .out "expertParallel" (ternary (mul $tp $dp | int) 1 $v.expertParallel.enabled) -}}
{{- $_ := set .out "launcher" (ternary "statefulSet" (ternary "deployment" "leaderWorkerSet" (eq $v.shape "perPod")) $statefulSet) -}}
{{- $_ := set .out "spans" (gt (int $pods) 1) -}}
{{- $_ := set .out "indexLabel" (ternary "leaderworkerset.sigs.k8s.io/worker-index" "apps.kubernetes.io/pod-index" (and (eq $v.shape "multiNode") (eq $v.launcher "leaderWorkerSet"))) -}}
{{- end -}}

{{/*
shardpool.ranks
input: t (track). output: sets t.ranks, the plan's table: rank, Services, ports and pod of every part.
*/}}
{{- define "shardpool.ranks" -}}
{{- $t := . -}}
{{- $base := int $t.Values.ports.workerGrpcBase -}}
{{- $ranks := list -}}
{{- range $rank := until $t.top.world -}}
{{- $suffix := ternary "" (printf "-rank-%d" $rank) (eq $t.top.addresses "perPod") -}}
{{- $port := add $base (mod $rank $t.top.localRanks) | int -}}
{{- $entry := dict
      "rank" $rank
      "service" (printf "%s%s" $t.name $suffix)
      "peersService" (printf "%s%s-peers" $t.name $suffix)
      "port" $port
      "targetPort" $port
      "podIndex" (ternary (div $rank $t.top.localRanks | int) 0 (eq $t.top.addresses "multiNode")) -}}
{{- $ranks = append $ranks $entry -}}
{{- end -}}
{{- $_ := set $t "ranks" $ranks -}}
{{- end -}}

{{/*
shardpool.services
input: t (track). output: sets t.services, the rank Services: suffix, the plan's entries behind it.
*/}}
{{- define "shardpool.services" -}}
{{- $t := . -}}
{{- $services := list -}}
{{- if eq $t.top.addresses "perPod" -}}
{{- $services = list (dict "suffix" "" "ranks" $t.ranks) -}}
{{- else -}}
{{- range $t.ranks -}}
{{- $services = append $services (dict "suffix" (printf "-rank-%d" .rank) "ranks" (list .)) -}}
{{- end -}}
{{- end -}}
{{- $_ := set $t "services" $services -}}
{{- end -}}

{{/*
shardpool.pattern
input: t (track), suffix ("" or "-peers"). output: the name of a rank's Service with `{rank}` in it where there is one for each.
*/}}
{{- define "shardpool.pattern" -}}
{{- printf "%s%s%s" .t.name (ternary "" "-rank-{rank}" (eq .t.top.addresses "perPod")) .suffix -}}
{{- end -}}

{{/*
shardpool.coordinates
input: t (track). output: JSON list of the engine's ranks with their place in each kind of parallelism; rank = ep * tp_size + tp.
*/}}
{{- define "shardpool.coordinates" -}}
{{- $top := .top -}}
{{- $lines := list -}}
{{- range $rank := until $top.engineWorld -}}
{{- $outer := div $rank $top.tensorParallel -}}
{{- $entry := dict "rank" $rank "podIndex" (div $rank $top.gpusPerPod) "tp" (mod $rank $top.tensorParallel) -}}
{{- if gt $top.expertParallel 1 -}}
{{- $_ := set $entry "ep" $outer -}}
{{- end -}}
{{- if gt $top.pipelineParallel 1 -}}
{{- $_ := set $entry "pp" (mod $outer $top.pipelineParallel) -}}
{{- end -}}
{{- if gt $top.dataParallel 1 -}}
{{- $_ := set $entry "dp" (div $outer $top.pipelineParallel) -}}
{{- end -}}
{{- $lines = append $lines ($entry | toJson) -}}
{{- end -}}
[
  {{ join ",\n  " $lines }}
]
{{- end -}}
