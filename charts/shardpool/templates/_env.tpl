{{/*
shardpool.env
input: own (YAML list of entries), extra (the user's list). output: the entries, each name once: the user's in place of the chart's.
*/}}
{{- define "shardpool.env" -}}
{{- $extra := dict -}}
{{- range .extra -}}
{{- $_ := set $extra .name . -}}
{{- end -}}
{{- $entries := list -}}
{{- $seen := dict -}}
{{- range fromYamlArray .own -}}
{{- $entries = append $entries (default . (get $extra .name)) -}}
{{- $_ := set $seen .name true -}}
{{- end -}}
{{- range .extra -}}
{{- if not (hasKey $seen .name) -}}
{{- $entries = append $entries . -}}
{{- end -}}
{{- end -}}
{{- toYaml $entries -}}
{{- end -}}

{{/*
shardpool.ownedEnv
input: none. output: JSON of the entries that the chart computes, each with the value that changes it; they cannot be replaced.
*/}}
{{- define "shardpool.ownedEnv" -}}
{{- dict
      "POD_NAME" "" "POD_NAMESPACE" "" "POD_UID" "" "POD_IP" "" "NODE_NAME" ""
      "SHARDPOOL_MODEL" "model.id" "SHARDPOOL_REVISION" "model.revision" "MX_MODEL_REVISION" "model.revision"
      "SHARDPOOL_DTYPE" "model.dtype" "SHARDPOOL_QUANTIZATION" "model.quantization" "SHARDPOOL_CONTENT_DIGEST" "model.contentDigests"
      "SHARDPOOL_LAYOUT" "topology.layout" "SHARDPOOL_WORLD" "topology.world" "SHARDPOOL_LOCAL_RANKS" "topology.world"
      "SHARDPOOL_FIRST_RANK" "" "SHARDPOOL_POD_INDEX" "" "SHARDPOOL_RENDEZVOUS_HOST" ""
      "SHARDPOOL_DIRECTORY" "store.path" "SHARDPOOL_SEED" "seed.type" "SHARDPOOL_PEERS_PATTERN" "" "SHARDPOOL_ENGINE_HEALTH_URL" "engine.healthPath"
      "SHARDPOOL_HTTP_PORT" "ports.metrics" "MX_WORKER_GRPC_PORT" "ports.workerGrpcBase" "MX_METADATA_PORT" "ports.nixlBase"
      "MX_METADATA_BACKEND" "engine.weights" "MX_K8S_SERVICE_PATTERN" "" "MX_WORKER_HOST" ""
      | toJson -}}
{{- end -}}

{{/*
shardpool.podEnv
input: t (track). output: entries of the downward API that say which pod this is.
*/}}
{{- define "shardpool.podEnv" -}}
- name: POD_NAME
  valueFrom: { fieldRef: { fieldPath: metadata.name } }
- name: POD_NAMESPACE
  valueFrom: { fieldRef: { fieldPath: metadata.namespace } }
- name: POD_IP
  valueFrom: { fieldRef: { fieldPath: status.podIP } }
- name: NODE_NAME
  valueFrom: { fieldRef: { fieldPath: spec.nodeName } }
{{- end -}}

{{/*
shardpool.podIndexEnv
input: t (track). output: the entry with the pod's place in its replica, where a replica spans pods of one template.
*/}}
{{- define "shardpool.podIndexEnv" -}}
{{- if eq .top.shape "multiNode" }}
- name: SHARDPOOL_POD_INDEX
  valueFrom: { fieldRef: { fieldPath: "metadata.labels['{{ .top.indexLabel }}']" } }
{{- end }}
{{- end -}}

{{/*
shardpool.replicaEnv
input: t (track). output: the entry with the replica of a perRank pod: the ordinal, the same for the ranks of one replica.
*/}}
{{- define "shardpool.replicaEnv" -}}
{{- if and .top.spans (eq .top.shape "perRank") }}
- name: SHARDPOOL_REPLICA
  valueFrom: { fieldRef: { fieldPath: "metadata.labels['apps.kubernetes.io/pod-index']" } }
{{- end }}
{{- end -}}

{{/*
shardpool.rankEnv
input: t (track), rank (of a perRank pod). output: entries that say which ranks are in this pod, and where they listen.
*/}}
{{- define "shardpool.rankEnv" -}}
{{- $top := .t.top -}}
- name: SHARDPOOL_WORLD
  value: {{ $top.world | int64 | toString | quote }}
{{- if ne $top.localRanks $top.world }}
- name: SHARDPOOL_LOCAL_RANKS
  value: {{ $top.localRanks | int64 | toString | quote }}
{{- end }}
{{- if eq $top.addresses "perRank" }}
- name: SHARDPOOL_FIRST_RANK
  value: {{ .rank | int64 | toString | quote }}
{{- else if eq $top.addresses "multiNode" }}
{{- include "shardpool.podIndexEnv" .t }}
{{- end }}
- name: MX_WORKER_GRPC_PORT
  value: {{ .t.Values.ports.workerGrpcBase | int64 | toString | quote }}
- name: SHARDPOOL_PEERS_PATTERN
  value: {{ include "shardpool.pattern" (dict "t" .t "suffix" "-peers") | quote }}
{{- end -}}

{{/*
shardpool.modelEnv
input: t (track). output: entries that say which model this is.
*/}}
{{- define "shardpool.modelEnv" -}}
{{- $model := .Values.model -}}
- name: SHARDPOOL_MODEL
  value: {{ $model.id | quote }}
- name: SHARDPOOL_REVISION
  value: {{ $model.revision | quote }}
{{- if $model.allowUnpinned }}
- name: SHARDPOOL_ALLOW_UNPINNED
  value: "true"
{{- end }}
{{- if $model.dtype }}
- name: SHARDPOOL_DTYPE
  value: {{ $model.dtype | quote }}
{{- end }}
{{- if $model.quantization }}
- name: SHARDPOOL_QUANTIZATION
  value: {{ $model.quantization | quote }}
{{- end }}
{{- if $model.contentDigests }}
- name: SHARDPOOL_CONTENT_DIGEST
  value: {{ join "," $model.contentDigests | quote }}
{{- end }}
{{- end -}}

{{/*
shardpool.logEnv
input: t (track). output: entries of the log, where they differ from the runtime's defaults.
*/}}
{{- define "shardpool.logEnv" -}}
{{- if ne .Values.runtime.logLevel "info" }}
- name: SHARDPOOL_LOG_LEVEL
  value: {{ .Values.runtime.logLevel }}
{{- end }}
{{- if ne .Values.runtime.logFormat "text" }}
- name: SHARDPOOL_LOG_FORMAT
  value: {{ .Values.runtime.logFormat }}
{{- end }}
{{- end -}}

{{/*
shardpool.tlsEnv
input: t (track). output: entries of mutual TLS, where a Secret is given.
*/}}
{{- define "shardpool.tlsEnv" -}}
{{- if .Values.runtime.tls.existingSecret }}
- name: SHARDPOOL_TLS_CERT
  value: /etc/shardpool/tls/tls.crt
- name: SHARDPOOL_TLS_KEY
  value: /etc/shardpool/tls/tls.key
- name: SHARDPOOL_TLS_CA
  value: /etc/shardpool/tls/ca.crt
{{- end }}
{{- end -}}

{{/*
shardpool.fabricEnv
input: t (track). output: UCX entries of the container that moves weights: the user's, and its ports where UCX opens any.
*/}}
{{- define "shardpool.fabricEnv" -}}
{{- range $name, $value := .Values.fabric.ucx }}
- name: {{ $name }}
  value: {{ $value | toString | quote }}
{{- end }}
{{- if and (include "shardpool.ucxPorts" .) (not (hasKey .Values.fabric.ucx "UCX_TCP_PORT_RANGE")) }}
- name: UCX_TCP_PORT_RANGE
  value: {{ include "shardpool.ucxPorts" . | quote }}
{{- end }}
{{- end -}}

{{/*
shardpool.ucxPorts
input: t (track). output: the range of ports that UCX listens on, `first-last`, or nothing where UCX is not used.
*/}}
{{- define "shardpool.ucxPorts" -}}
{{- $nixl := or (eq .Values.fabric.mode "rdma") (and (eq .Values.runtime.transport "nixl") (eq .Values.fabric.mode "none")) -}}
{{- if and $nixl (or (ne .Values.runtime.transport "stream") (eq .top.weights "modelexpress")) -}}
{{- $first := int .Values.ports.ucxBase -}}
{{- printf "%d-%d" $first (sub (add $first (mul 16 .top.localRanks)) 1) -}}
{{- end -}}
{{- end -}}

{{/*
shardpool.serveEnv
input: t (track), rank. output: the environment of `shardpool serve`.
*/}}
{{- define "shardpool.serveEnv" -}}
{{- $v := .t.Values -}}
{{ include "shardpool.podEnv" .t }}
{{ include "shardpool.modelEnv" .t }}
- name: SHARDPOOL_LAYOUT
  value: {{ .t.top.layout }}
{{ include "shardpool.rankEnv" . }}
- name: SHARDPOOL_HTTP_PORT
  value: {{ .t.Values.ports.metrics | int64 | toString | quote }}
- name: SHARDPOOL_DIRECTORY
  value: {{ include "shardpool.directory" .t | quote }}
- name: SHARDPOOL_SEED
  value: {{ include "shardpool.seedAddress" .t | quote }}
{{- include "shardpool.seedEnv" .t }}
{{- if gt (int $v.seed.concurrency) 0 }}
- name: SHARDPOOL_SEED_CONCURRENCY
  value: {{ $v.seed.concurrency | int64 | toString | quote }}
{{- end }}
{{- if gt (int $v.seed.readers) 0 }}
- name: SHARDPOOL_SEED_READERS
  value: {{ $v.seed.readers | int64 | toString | quote }}
{{- end }}
{{- if $v.discovery.peers }}
- name: SHARDPOOL_DISCOVERY
  value: static
- name: SHARDPOOL_PEERS
  value: {{ prepend $v.discovery.peers (printf "%s:{port}" (include "shardpool.pattern" (dict "t" .t "suffix" "-peers"))) | join "," | quote }}
{{- end }}
- name: SHARDPOOL_WAIT_FOR_PEERS_SECONDS
  value: {{ $v.seed.waitForPeersSeconds | int64 | toString | quote }}
- name: SHARDPOOL_DEADLINE_SECONDS
  value: {{ $v.probes.startup.budgetSeconds | int64 | toString | quote }}
- name: SHARDPOOL_DRAIN_SECONDS
  value: {{ $v.drain.shutdownSeconds | int64 | toString | quote }}
{{- if ne $v.runtime.transport "auto" }}
- name: SHARDPOOL_TRANSPORT
  value: {{ $v.runtime.transport }}
{{- end }}
{{- if gt (int64 $v.runtime.egressLimitMbps) 0 }}
- name: SHARDPOOL_EGRESS_LIMIT_MBPS
  value: {{ $v.runtime.egressLimitMbps | int64 | toString | quote }}
{{- end }}
{{- if gt (int $v.runtime.maxReaders) 0 }}
- name: SHARDPOOL_MAX_READERS
  value: {{ $v.runtime.maxReaders | int64 | toString | quote }}
{{- end }}
{{- include "shardpool.tlsEnv" .t }}
{{- include "shardpool.fabricEnv" .t }}
{{- include "shardpool.logEnv" .t }}
{{- end -}}

{{/*
shardpool.waitEnv
input: t (track), rank. output: the environment of `shardpool wait`.
*/}}
{{- define "shardpool.waitEnv" -}}
{{ include "shardpool.podEnv" .t }}
{{ include "shardpool.rankEnv" . }}
- name: SHARDPOOL_WAIT_FOR_PEERS_SECONDS
  value: {{ .t.Values.seed.waitForPeersSeconds | int64 | toString | quote }}
{{- include "shardpool.logEnv" .t }}
{{- end -}}

{{/*
shardpool.gateEnv
input: t (track), rank, head. output: the environment of `shardpool gate`.
*/}}
{{- define "shardpool.gateEnv" -}}
{{ include "shardpool.podEnv" .t }}
{{ include "shardpool.rankEnv" . }}
{{- include "shardpool.replicaEnv" .t }}
- name: SHARDPOOL_HTTP_PORT
  value: {{ .t.Values.ports.metrics | int64 | toString | quote }}
- name: SHARDPOOL_ENGINE_HEALTH_URL
  value: {{ printf "http://%s:%s%s" .head (include "shardpool.enginePort" .t) .t.Values.engine.healthPath | quote }}
{{- include "shardpool.logEnv" .t }}
{{- end -}}
