{{/*
shardpool.bytes
input: a quantity ("16Gi", "1.5G", 1000). output: its bytes, as digits.
*/}}
{{- define "shardpool.bytes" -}}
{{- $text := toString . -}}
{{- $unit := regexFind "[A-Za-z]+$" $text -}}
{{- $number := trimSuffix $unit $text | float64 -}}
{{- $powers := dict "" 1 "k" 1000 "M" 1000000 "G" 1000000000 "T" 1000000000000
      "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 "Ti" 1099511627776 -}}
{{- mulf $number (get $powers $unit | default 1) | ceil | int64 -}}
{{- end -}}

{{/*
shardpool.mebibytes
input: bytes. output: the quantity, rounded up to whole Mi.
*/}}
{{- define "shardpool.mebibytes" -}}
{{- $count := div (add (int64 .) 1048575) 1048576 -}}
{{- ternary (printf "%dMi" $count) (printf "%dGi" (div $count 1024)) (gt (mod $count 1024) 0) -}}
{{- end -}}

{{/*
shardpool.directory
input: t (track). output: the model directory, the same path in every pod and container.
*/}}
{{- define "shardpool.directory" -}}
{{- printf "%s/%s" (trimSuffix "/" .Values.store.path) .Values.model.id -}}
{{- end -}}

{{/*
shardpool.storeSize
input: t (track). output: the size limit of the store, or nothing where none is known: what a pod holds of the model and a twentieth.
*/}}
{{- define "shardpool.storeSize" -}}
{{- if .Values.store.sizeLimit -}}
{{- .Values.store.sizeLimit -}}
{{- else if .Values.model.size -}}
{{- $bytes := include "shardpool.bytes" .Values.model.size | int64 -}}
{{- $share := ternary (div (mul $bytes .top.localRanks) .top.world) $bytes .top.sharded -}}
{{- include "shardpool.mebibytes" (div (mul $share 21) 20) -}}
{{- end -}}
{{- end -}}

{{/*
shardpool.storeVolume
input: t (track). output: the volume `store`, without the list's dash.
*/}}
{{- define "shardpool.storeVolume" -}}
{{- $size := include "shardpool.storeSize" . -}}
name: store
{{- if .Values.store.storageClassName }}
ephemeral:
  volumeClaimTemplate:
    spec:
      accessModes: [ReadWriteOnce]
      storageClassName: {{ .Values.store.storageClassName }}
      resources:
        requests:
          storage: {{ $size }}
{{- else if eq .Values.store.medium "Memory" }}
emptyDir:
  medium: Memory
  sizeLimit: {{ $size }}
{{- else if $size }}
emptyDir:
  sizeLimit: {{ $size }}
{{- else }}
emptyDir: {}
{{- end }}
{{- end -}}

{{/*
shardpool.shmSize
input: t (track). output: the size of /dev/shm: as given, or 4Gi a GPU of the pod.
*/}}
{{- define "shardpool.shmSize" -}}
{{- default (printf "%dGi" (mul 4 .top.gpusPerPod)) .Values.engine.shmSize -}}
{{- end -}}

{{/*
shardpool.runtimeResources
input: t (track). output: resources of the container that fills the store: the user's over what ranks and a Memory store need.
*/}}
{{- define "shardpool.runtimeResources" -}}
{{- $store := 0 -}}
{{- if eq .Values.store.medium "Memory" -}}
{{- $store = include "shardpool.bytes" (include "shardpool.storeSize" .) | int64 -}}
{{- end -}}
{{- $requests := dict "cpu" (include "shardpool.cores" (mul 250 .top.localRanks)) "memory" (include "shardpool.mebibytes" (add $store (mul 268435456 .top.localRanks))) -}}
{{- $limits := dict -}}
{{- if $store -}}
{{- $_ := set $limits "memory" (include "shardpool.mebibytes" (add $store (mul 1073741824 .top.localRanks))) -}}
{{- end -}}
{{- include "shardpool.fabricResources" (dict "t" . "resources" $limits "mover" "pool") -}}
{{- include "shardpool.resources" (dict "requests" $requests "limits" $limits "own" .Values.runtime.resources) -}}
{{- end -}}

{{/*
shardpool.resources
input: requests, limits (computed), own (the user's). output: resources, or nothing; what is computed gives way where the user's limit or request is all that may hold.
*/}}
{{- define "shardpool.resources" -}}
{{- $own := default dict .own -}}
{{- $requests := .requests -}}
{{- range $name, $_ := default dict $own.limits -}}
{{- $requests = omit $requests $name -}}
{{- end -}}
{{- $limits := .limits -}}
{{- $asked := get (default dict $own.requests) "memory" -}}
{{- if and $asked (hasKey $limits "memory") (gt (include "shardpool.bytes" $asked | int64) (include "shardpool.bytes" $limits.memory | int64)) -}}
{{- $limits = set (deepCopy $limits) "memory" $asked -}}
{{- end -}}
{{- $merged := mergeOverwrite (dict "requests" $requests "limits" $limits) (deepCopy $own) -}}
{{- range list "requests" "limits" -}}
{{- if not (get $merged .) -}}
{{- $_ := unset $merged . -}}
{{- end -}}
{{- end -}}
{{- if $merged -}}
{{- toYaml $merged -}}
{{- end -}}
{{- end -}}

{{/*
shardpool.cores
input: thousandths of a core. output: the quantity as the API server writes it back.
*/}}
{{- define "shardpool.cores" -}}
{{- ternary (printf "%dm" (int .)) (printf "%d" (div . 1000)) (gt (mod . 1000) 0) -}}
{{- end -}}

{{/*
shardpool.fabricResources
input: t (track), resources, mover (`pool` or `modelexpress`). output: sets the fabric's devices in resources if that one moves the weights.
*/}}
{{- define "shardpool.fabricResources" -}}
{{- $fabric := .t.Values.fabric -}}
{{- if and (ne $fabric.mode "none") (eq .t.top.weights .mover) -}}
{{- $count := int $fabric.count -}}
{{- if lt $count 1 -}}
{{- $count = .t.top.localRanks -}}
{{- end -}}
{{- $_ := set .resources $fabric.resourceName (toString $count) -}}
{{- end -}}
{{- end -}}
