{{/*
shardpool.podTemplate
input: t (track), rank (perRank), replica (multiNode StatefulSet), role (LeaderWorkerSet). output: metadata and spec of a pod.
*/}}
{{- define "shardpool.podTemplate" -}}
{{- $t := .t -}}
{{- $v := $t.Values -}}
{{- $top := $t.top -}}
{{- $engine := ne $v.engine.kind "none" -}}
{{- $express := eq $top.weights "modelexpress" -}}
{{- $pod := dict "t" $t "rank" (int .rank) "role" (default "" .role) "head" (include "shardpool.head" .) -}}
metadata:
  labels:
    {{- include "shardpool.podLabels" . | nindent 4 }}
  {{- with include "shardpool.podAnnotations" $t }}
  annotations:
    {{- . | nindent 4 }}
  {{- end }}
spec:
  serviceAccountName: {{ include "shardpool.serviceAccountName" $t.root }}
  automountServiceAccountToken: false
  enableServiceLinks: false
  {{- with include "shardpool.pullSecrets" $t.root }}
  {{- . | nindent 2 }}
  {{- end }}
  securityContext:
    {{- include "shardpool.podSecurityContext" $t | nindent 4 }}
  terminationGracePeriodSeconds: {{ add $v.drain.preStopSeconds $v.drain.shutdownSeconds 10 }}
  {{- if or $engine $v.extraInitContainers }}
  initContainers:
    {{- if $express }}
    - {{ include "shardpool.waitContainer" $pod | nindent 6 | trim }}
    - {{ include "shardpool.gateContainer" $pod | nindent 6 | trim }}
    {{- else if $engine }}
    - {{ include "shardpool.serveContainer" (merge (dict "sidecar" true) $pod) | nindent 6 | trim }}
    {{- end }}
    {{- with $v.extraInitContainers }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- end }}
  containers:
    {{- if $engine }}
    - {{ include "shardpool.engineContainer" $pod | nindent 6 | trim }}
    {{- else }}
    - {{ include "shardpool.serveContainer" $pod | nindent 6 | trim }}
      {{- include "shardpool.preStop" $t | nindent 6 }}
    {{- end }}
    {{- with $v.extraContainers }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  volumes:
    {{- include "shardpool.volumes" $t | trim | nindent 4 }}
  {{- with $v.nodeSelector }}
  nodeSelector:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $v.tolerations }}
  tolerations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $v.affinity }}
  affinity:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $v.topologySpreadConstraints }}
  topologySpreadConstraints:
    {{- range . }}
    {{- $constraint := deepCopy . }}
    {{- if not (hasKey $constraint "labelSelector") }}
    {{- $_ := set $constraint "labelSelector" (dict "matchLabels" (include "shardpool.selectorLabels" $t | fromYaml)) }}
    {{- end }}
    - {{ toYaml $constraint | nindent 6 | trim }}
    {{- end }}
  {{- end }}
  {{- with $v.priorityClassName }}
  priorityClassName: {{ . }}
  {{- end }}
  {{- with $v.runtimeClassName }}
  runtimeClassName: {{ . }}
  {{- end }}
  {{- with $v.schedulerName }}
  schedulerName: {{ . }}
  {{- end }}
{{- end -}}

{{/*
shardpool.head
input: as podTemplate. output: the host where the engine's head is: this pod, or the first pod of its replica.
*/}}
{{- define "shardpool.head" -}}
{{- $top := .t.top -}}
{{- if not $top.spans -}}
127.0.0.1
{{- else if eq $top.shape "perRank" -}}
{{ .t.name }}-rank-0-$(SHARDPOOL_REPLICA).{{ .t.name }}-nodes
{{- else if eq $top.launcher "leaderWorkerSet" -}}
$(LWS_LEADER_ADDRESS)
{{- else -}}
{{ .t.name }}-{{ int .replica }}-0.{{ .t.name }}-nodes
{{- end -}}
{{- end -}}

{{/*
shardpool.podLabels
input: as podTemplate. output: the labels of a pod.
*/}}
{{- define "shardpool.podLabels" -}}
{{ include "shardpool.workloadLabels" . }}
mx.identity: {{ .t.identity | quote }}
{{- with merge dict .t.Values.podLabels .t.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/*
shardpool.workloadLabels
input: as podTemplate. output: the labels that one workload's pods have and no other's; its immutable selector.
*/}}
{{- define "shardpool.workloadLabels" -}}
{{ include "shardpool.selectorLabels" .t }}
{{- if eq .t.top.shape "perRank" }}
mx.rank: {{ int .rank | toString | quote }}
{{- else if hasKey . "replica" }}
mx.replica: {{ int .replica | toString | quote }}
{{- end }}
{{- end -}}

{{/*
shardpool.podAnnotations
input: t (track). output: the annotations of a pod: the engine as kubectl's container, the mesh's exclusions, the user's.
*/}}
{{- define "shardpool.podAnnotations" -}}
{{- $own := dict -}}
{{- if ne .Values.engine.kind "none" -}}
{{- $_ := set $own "kubectl.kubernetes.io/default-container" "engine" -}}
{{- end -}}
{{- if eq .Values.fabric.mesh "exclude" -}}
{{- $ranges := list -}}
{{- $ports := list -}}
{{- range include "shardpool.rankPorts" . | fromJsonArray -}}
{{- $ranges = append $ranges (ternary (printf "%d" (int .first)) (printf "%d-%d" (int .first) (int .last)) (eq (int .first) (int .last))) -}}
{{- range untilStep (int .first) (add 1 (int .last) | int) 1 -}}
{{- $ports = append $ports (toString .) -}}
{{- end -}}
{{- end -}}
{{- $_ := set $own "config.linkerd.io/skip-inbound-ports" (join "," $ranges) -}}
{{- $_ := set $own "config.linkerd.io/skip-outbound-ports" (join "," $ranges) -}}
{{- $_ := set $own "traffic.sidecar.istio.io/excludeInboundPorts" (join "," $ports) -}}
{{- $_ := set $own "traffic.sidecar.istio.io/excludeOutboundPorts" (join "," $ports) -}}
{{- end -}}
{{- with mergeOverwrite $own (deepCopy (default dict .Values.podAnnotations)) -}}
{{- toYaml . -}}
{{- end -}}
{{- end -}}

{{/*
shardpool.rankPorts
input: t (track). output: JSON list of the ranges that pods of the release use among themselves: name, first, last.
*/}}
{{- define "shardpool.rankPorts" -}}
{{- $more := sub .top.localRanks 1 -}}
{{- $grpc := int .Values.ports.workerGrpcBase -}}
{{- $ranges := list (dict "name" "gRPC" "first" $grpc "last" (add $grpc $more)) -}}
{{- if eq .top.weights "modelexpress" -}}
{{- $nixl := int .Values.ports.nixlBase -}}
{{- $ranges = append $ranges (dict "name" "NIXL" "first" $nixl "last" (add $nixl $more)) -}}
{{- end -}}
{{- with include "shardpool.ucxPorts" . -}}
{{- $ends := splitList "-" . -}}
{{- $ranges = append $ranges (dict "name" "UCX" "first" (first $ends | int) "last" (last $ends | int)) -}}
{{- end -}}
{{- toJson $ranges -}}
{{- end -}}

{{/*
shardpool.serveContainer
input: t (track), rank, sidecar. output: the container that fills the directory and serves it, without the list's dash.
*/}}
{{- define "shardpool.serveContainer" }}
{{- $v := .t.Values -}}
name: shardpool
image: {{ include "shardpool.runtimeImage" .t }}
imagePullPolicy: {{ $v.runtime.image.pullPolicy }}
args: [serve]
{{- if .sidecar }}
restartPolicy: Always
{{- end }}
env:
  {{- include "shardpool.env" (dict "own" (include "shardpool.serveEnv" .) "extra" $v.runtime.extraEnv) | nindent 2 }}
{{- with $v.runtime.extraEnvFrom }}
envFrom:
  {{- toYaml . | nindent 2 }}
{{- end }}
ports:
  {{- include "shardpool.grpcPorts" . | trim | nindent 2 }}
  - { name: metrics, containerPort: {{ int $v.ports.metrics }} }
{{- include "shardpool.metricsProbes" (dict "t" .t "startup" true) | nindent 0 }}
resources:
  {{- include "shardpool.runtimeResources" .t | nindent 2 }}
securityContext:
  {{- include "shardpool.securityContext" (dict "t" .t "own" $v.securityContext "readOnly" true "ipcLock" true) | nindent 2 }}
volumeMounts:
  - { name: store, mountPath: {{ $v.store.path }} }
  - { name: tmp, mountPath: /tmp }
  {{- if include "shardpool.seedMounted" .t }}
  - { name: seed, mountPath: /seed, readOnly: true }
  {{- end }}
  {{- if $v.runtime.tls.existingSecret }}
  - { name: tls, mountPath: /etc/shardpool/tls, readOnly: true }
  {{- end }}
  {{- with $v.runtime.extraVolumeMounts }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end -}}

{{/*
shardpool.waitContainer
input: t (track), rank. output: the init container that holds a ModelExpress engine back until a peer is ready.
*/}}
{{- define "shardpool.waitContainer" }}
{{- $v := .t.Values -}}
name: wait
image: {{ include "shardpool.runtimeImage" .t }}
imagePullPolicy: {{ $v.runtime.image.pullPolicy }}
args: [wait]
env:
  {{- include "shardpool.env" (dict "own" (include "shardpool.waitEnv" .) "extra" $v.runtime.extraEnv) | nindent 2 }}
{{- with $v.runtime.extraEnvFrom }}
envFrom:
  {{- toYaml . | nindent 2 }}
{{- end }}
resources:
  {{- include "shardpool.gateResources" .t | nindent 2 }}
securityContext:
  {{- include "shardpool.securityContext" (dict "t" .t "own" $v.securityContext "readOnly" true "ipcLock" false) | nindent 2 }}
{{- end -}}

{{/*
shardpool.gateContainer
input: t (track), rank, head. output: the sidecar that is ready when a ModelExpress engine is healthy and every local rank has published.
*/}}
{{- define "shardpool.gateContainer" }}
{{- $v := .t.Values -}}
name: gate
image: {{ include "shardpool.runtimeImage" .t }}
imagePullPolicy: {{ $v.runtime.image.pullPolicy }}
args: [gate]
restartPolicy: Always
env:
  {{- include "shardpool.env" (dict "own" (include "shardpool.gateEnv" .) "extra" $v.runtime.extraEnv) | nindent 2 }}
{{- with $v.runtime.extraEnvFrom }}
envFrom:
  {{- toYaml . | nindent 2 }}
{{- end }}
ports:
  - { name: metrics, containerPort: {{ int $v.ports.metrics }} }
{{- include "shardpool.metricsProbes" (dict "t" .t "startup" false) | nindent 0 }}
resources:
  {{- include "shardpool.gateResources" .t | nindent 2 }}
securityContext:
  {{- include "shardpool.securityContext" (dict "t" .t "own" $v.securityContext "readOnly" true "ipcLock" false) | nindent 2 }}
{{- end -}}

{{/*
shardpool.engineContainer
input: t (track), rank, head, role. output: the engine's container, without the list's dash.
*/}}
{{- define "shardpool.engineContainer" }}
{{- $t := .t -}}
{{- $v := $t.Values -}}
{{- $express := eq $t.top.weights "modelexpress" -}}
name: engine
image: {{ include "shardpool.engineImage" $t }}
imagePullPolicy: {{ $v.engine.image.pullPolicy }}
{{- with include "shardpool.engineCommand" $t }}
command:
  {{- . | nindent 2 }}
{{- end }}
{{- with include "shardpool.engineArgs" . | fromYamlArray }}
args:
  {{- toYaml . | nindent 2 }}
{{- end }}
env:
  {{- include "shardpool.env" (dict "own" (include "shardpool.engineEnv" .) "extra" $v.engine.extraEnv) | nindent 2 }}
{{- with $v.engine.extraEnvFrom }}
envFrom:
  {{- toYaml . | nindent 2 }}
{{- end }}
ports:
  - { name: http, containerPort: {{ include "shardpool.enginePort" $t }} }
  {{- if $express }}
  {{- include "shardpool.grpcPorts" . | trim | nindent 2 }}
  {{- end }}
{{- with include "shardpool.engineProbe" . }}
startupProbe:
  {{- . | nindent 2 }}
  periodSeconds: {{ int $v.probes.startup.periodSeconds }}
  timeoutSeconds: {{ int $v.probes.liveness.timeoutSeconds }}
  failureThreshold: {{ include "shardpool.attempts" (list $v.probes.startup.budgetSeconds $v.probes.startup.periodSeconds) }}
{{- if not $express }}
readinessProbe:
  {{- . | nindent 2 }}
  periodSeconds: {{ int $v.probes.readiness.periodSeconds }}
  timeoutSeconds: {{ int $v.probes.readiness.timeoutSeconds }}
  failureThreshold: {{ int $v.probes.readiness.failureThreshold }}
{{- end }}
livenessProbe:
  {{- . | nindent 2 }}
  periodSeconds: {{ int $v.probes.liveness.periodSeconds }}
  timeoutSeconds: {{ int $v.probes.liveness.timeoutSeconds }}
  failureThreshold: {{ int $v.probes.liveness.failureThreshold }}
{{- end }}
{{- if $v.engine.lifecycle }}
lifecycle:
  {{- toYaml $v.engine.lifecycle | nindent 2 }}
{{- else }}
{{ include "shardpool.preStop" $t }}
{{- end }}
{{- with include "shardpool.engineResources" $t }}
resources:
  {{- . | nindent 2 }}
{{- end }}
securityContext:
  {{- include "shardpool.securityContext" (dict "t" $t "own" $v.engine.securityContext "readOnly" false "ipcLock" $express) | nindent 2 }}
volumeMounts:
  {{- if not $express }}
  - { name: store, mountPath: {{ $v.store.path }}, readOnly: true }
  {{- else if include "shardpool.seedMounted" $t }}
  - { name: seed, mountPath: /seed, readOnly: true }
  {{- end }}
  - { name: home, mountPath: /home/engine }
  - { name: shm, mountPath: /dev/shm }
  {{- with $v.engine.extraVolumeMounts }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end -}}

{{/*
shardpool.grpcPorts
input: t (track), rank. output: the container's ports of its ranks; named by global rank where that is the same in every pod of the template.
*/}}
{{- define "shardpool.grpcPorts" -}}
{{- $t := .t -}}
{{- $rank := int .rank -}}
{{- range $local := until $t.top.localRanks }}
{{- $name := printf "rank-%d" $local -}}
{{- if eq $t.top.addresses "perRank" -}}
{{- $name = printf "rank-%d" $rank -}}
{{- else if eq $t.top.addresses "multiNode" -}}
{{- $name = printf "local-%d" $local -}}
{{- end }}
- { name: {{ $name }}, containerPort: {{ add (int $t.Values.ports.workerGrpcBase) $local }} }
{{- end }}
{{- end -}}

{{/*
shardpool.attempts
input: list of seconds and period. output: how many periods cover the seconds.
*/}}
{{- define "shardpool.attempts" -}}
{{- $period := last . | int -}}
{{- max 1 (div (add (first . | int) (sub $period 1)) $period) -}}
{{- end -}}

{{/*
shardpool.metricsProbes
input: t (track), startup. output: probes of shardpool's HTTP. The runtime ends a load by its own deadline a minute before the startup probe would.
*/}}
{{- define "shardpool.metricsProbes" -}}
{{- $probes := .t.Values.probes -}}
{{- if .startup -}}
startupProbe:
  httpGet: { path: /readyz, port: metrics }
  periodSeconds: {{ int $probes.startup.periodSeconds }}
  timeoutSeconds: {{ int $probes.readiness.timeoutSeconds }}
  failureThreshold: {{ include "shardpool.attempts" (list (add (int $probes.startup.budgetSeconds) 60) $probes.startup.periodSeconds) }}
{{ end -}}
readinessProbe:
  httpGet: { path: /readyz, port: metrics }
  periodSeconds: {{ int $probes.readiness.periodSeconds }}
  timeoutSeconds: {{ int $probes.readiness.timeoutSeconds }}
  failureThreshold: {{ int $probes.readiness.failureThreshold }}
livenessProbe:
  httpGet: { path: /livez, port: metrics }
  periodSeconds: {{ int $probes.liveness.periodSeconds }}
  timeoutSeconds: {{ int $probes.liveness.timeoutSeconds }}
  failureThreshold: {{ int $probes.liveness.failureThreshold }}
{{- end -}}

{{/*
shardpool.preStop
input: t (track). output: the pause before SIGTERM, or nothing where it is 0.
*/}}
{{- define "shardpool.preStop" -}}
{{- if gt (int .Values.drain.preStopSeconds) 0 -}}
lifecycle:
  preStop: { sleep: { seconds: {{ int .Values.drain.preStopSeconds }} } }
{{- end -}}
{{- end -}}

{{/*
shardpool.gateResources
input: t (track). output: resources of gate and wait, which move no bytes: the user's over small requests.
*/}}
{{- define "shardpool.gateResources" -}}
{{- include "shardpool.resources" (dict "requests" (dict "cpu" "50m" "memory" "128Mi") "limits" dict "own" .Values.runtime.resources) -}}
{{- end -}}

{{/*
shardpool.volumes
input: t (track). output: the volumes of a pod.
*/}}
{{- define "shardpool.volumes" -}}
{{- $v := .Values -}}
{{- $engine := ne $v.engine.kind "none" -}}
{{- $express := eq .top.weights "modelexpress" -}}
{{- if not $express }}
- {{ include "shardpool.storeVolume" . | nindent 2 | trim }}
- { name: tmp, emptyDir: {} }
{{- end }}
{{- if include "shardpool.seedMounted" . }}
- {{ include "shardpool.seedVolume" . | nindent 2 | trim }}
{{- end }}
{{- if $engine }}
- { name: home, emptyDir: {} }
- { name: shm, emptyDir: { medium: Memory, sizeLimit: {{ include "shardpool.shmSize" . }} } }
{{- end }}
{{- if and (not $express) $v.runtime.tls.existingSecret }}
- { name: tls, secret: { secretName: {{ $v.runtime.tls.existingSecret }} } }
{{- end }}
{{- with $v.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}
