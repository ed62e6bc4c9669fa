{{/*
shardpool.enginePort
input: t (track). output: the port of the engine's HTTP.
*/}}
{{- define "shardpool.enginePort" -}}
{{- $port := int .Values.ports.http -}}
{{- if lt $port 1 -}}
{{- $port = ternary 30000 8000 (eq .Values.engine.kind "sglang") -}}
{{- end -}}
{{- $port -}}
{{- end -}}

{{/*
shardpool.ownedArgs
input: t (track). output: JSON of the engine's arguments that the chart computes, each with the value that changes it.
*/}}
{{- define "shardpool.ownedArgs" -}}
{{- $owned := dict -}}
{{- $load := "engine.weights" -}}
{{- if eq .Values.engine.kind "vllm" -}}
{{- $owned = dict
      "--model" "model.id" "--served-model-name" "model.servedName" "--revision" "model.revision" "--dtype" "model.dtype" "--quantization" "model.quantization" "-q" "model.quantization"
      "--tensor-parallel-size" "topology.tensorParallel" "-tp" "topology.tensorParallel" "--pipeline-parallel-size" "topology.pipelineParallel" "-pp" "topology.pipelineParallel"
      "--data-parallel-size" "topology.dataParallel" "-dp" "topology.dataParallel" "--enable-expert-parallel" "topology.expertParallel.enabled" "-ep" "topology.expertParallel.enabled"
      "--port" "ports.http" "--nnodes" "topology.shape" "-n" "topology.shape" "--node-rank" "topology.shape" "-r" "topology.shape" "--master-addr" "topology.shape" "--master-port" "ports.rendezvous" "--headless" "topology.shape" -}}
{{- else if eq .Values.engine.kind "sglang" -}}
{{- $owned = dict
      "--model-path" "model.id" "--model" "model.id" "--served-model-name" "model.servedName" "--revision" "model.revision" "--dtype" "model.dtype" "--quantization" "model.quantization"
      "--tp-size" "topology.tensorParallel" "--tp" "topology.tensorParallel" "--tensor-parallel-size" "topology.tensorParallel"
      "--pp-size" "topology.pipelineParallel" "--pp" "topology.pipelineParallel" "--pipeline-parallel-size" "topology.pipelineParallel"
      "--ep-size" "topology.expertParallel.enabled" "--ep" "topology.expertParallel.enabled" "--expert-parallel-size" "topology.expertParallel.enabled"
      "--host" "ports.http" "--port" "ports.http" "--nnodes" "topology.shape" "--node-rank" "topology.shape" "--dist-init-addr" "ports.rendezvous" "--nccl-init-addr" "ports.rendezvous"
      "--remote-instance-weight-loader-backend" $load "--modelexpress-config" $load -}}
{{- end -}}
{{- if or (eq .top.weights "modelexpress") .top.sharded -}}
{{- $_ := set $owned "--load-format" (ternary $load "topology.layout" (eq .top.weights "modelexpress")) -}}
{{- end -}}
{{- toJson $owned -}}
{{- end -}}

{{/*
shardpool.engineArgs
input: t (track), rank (perRank), head, role (leader, worker or ""). output: YAML list of the engine's arguments.
*/}}
{{- define "shardpool.engineArgs" -}}
{{- $t := .t -}}
{{- $top := $t.top -}}
{{- $v := $t.Values -}}
{{- $express := eq $top.weights "modelexpress" -}}
{{- $model := include "shardpool.directory" $t -}}
{{- if $express -}}
{{- $model = $v.model.id -}}
{{- if include "shardpool.seedMounted" $t -}}
{{- $model = include "shardpool.seedPath" $t -}}
{{- end -}}
{{- end -}}
{{- $args := list -}}
{{- if eq $v.engine.kind "vllm" -}}
{{- $args = list (printf "--model=%s" $model) (printf "--served-model-name=%s" (default $v.model.id $v.model.servedName)) -}}
{{- if $express -}}
{{- $args = append $args "--load-format=modelexpress" -}}
{{- else if $top.sharded -}}
{{- $args = append $args "--load-format=sharded_state" -}}
{{- end -}}
{{- $args = append $args (printf "--tensor-parallel-size=%d" $top.tensorParallel) -}}
{{- if gt $top.pipelineParallel 1 -}}
{{- $args = append $args (printf "--pipeline-parallel-size=%d" $top.pipelineParallel) -}}
{{- end -}}
{{- if gt $top.dataParallel 1 -}}
{{- $args = append $args (printf "--data-parallel-size=%d" $top.dataParallel) -}}
{{- end -}}
{{- if $v.topology.expertParallel.enabled -}}
{{- $args = append $args "--enable-expert-parallel" -}}
{{- end -}}
{{- else if eq $v.engine.kind "sglang" -}}
{{- $args = list (printf "--model-path=%s" $model) (printf "--served-model-name=%s" (default $v.model.id $v.model.servedName)) -}}
{{- if $express -}}
{{- $args = concat $args (list "--load-format=remote_instance" "--remote-instance-weight-loader-backend=modelexpress" "--modelexpress-config={\"transport\": \"nixl\"}") -}}
{{- else if $top.sharded -}}
{{- $args = append $args "--load-format=sharded_state" -}}
{{- end -}}
{{- $args = append $args (printf "--tp-size=%d" $top.tensorParallel) -}}
{{- if gt $top.pipelineParallel 1 -}}
{{- $args = append $args (printf "--pp-size=%d" $top.pipelineParallel) -}}
{{- end -}}
{{- if $v.topology.expertParallel.enabled -}}
{{- $args = append $args (printf "--ep-size=%d" $top.expertParallel) -}}
{{- end -}}
{{- end -}}
{{- if ne $v.engine.kind "custom" -}}
{{- if and $express (eq $v.seed.type "hf") -}}
{{- $args = append $args (printf "--revision=%s" $v.model.revision) -}}
{{- end -}}
{{- if $v.model.dtype -}}
{{- $args = append $args (printf "--dtype=%s" $v.model.dtype) -}}
{{- end -}}
{{- if $v.model.quantization -}}
{{- $args = append $args (printf "--quantization=%s" $v.model.quantization) -}}
{{- end -}}
{{- if eq $v.engine.kind "sglang" -}}
{{- $args = append $args "--host=0.0.0.0" -}}
{{- end -}}
{{- $args = append $args (printf "--port=%s" (include "shardpool.enginePort" $t)) -}}
{{- if $top.spans -}}
{{- $node := "$(SHARDPOOL_POD_INDEX)" -}}
{{- if eq $top.shape "perRank" -}}
{{- $node = toString .rank -}}
{{- end -}}
{{- $args = concat $args (list (printf "--nnodes=%d" $top.podsPerReplica) (printf "--node-rank=%s" $node)) -}}
{{- if eq $v.engine.kind "vllm" -}}
{{- $args = concat $args (list "--master-addr=$(SHARDPOOL_RENDEZVOUS_HOST)" (printf "--master-port=%d" (int $v.ports.rendezvous))) -}}
{{- if or (eq .role "worker") (and (eq $top.shape "perRank") (gt (int .rank) 0)) -}}
{{- $args = append $args "--headless" -}}
{{- end -}}
{{- else -}}
{{- $args = append $args (printf "--dist-init-addr=$(SHARDPOOL_RENDEZVOUS_HOST):%d" (int $v.ports.rendezvous)) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- toYaml (concat $args (default list $v.engine.extraArgs)) -}}
{{- end -}}

{{/*
shardpool.engineCommand
input: t (track). output: YAML list of the engine's command, or nothing for the image's own.
*/}}
{{- define "shardpool.engineCommand" -}}
{{- $command := default list .Values.engine.command -}}
{{- if and (not $command) (eq .Values.engine.kind "sglang") -}}
{{- $command = list "python3" "-m" "sglang.launch_server" -}}
{{- end -}}
{{- /* a StatefulSet has one template for its head and the others, and only the head serves HTTP */ -}}
{{- if and .top.spans (eq .Values.engine.kind "vllm") (eq .top.shape "multiNode") (eq .top.launcher "statefulSet") -}}
{{- $script := "[ \"$SHARDPOOL_POD_INDEX\" = 0 ] || set -- \"$@\" --headless; exec \"$@\"" -}}
{{- $command = concat (list "/bin/sh" "-c" $script "sh") (default (list "vllm" "serve") $command) -}}
{{- end -}}
{{- if $command -}}
{{- toYaml $command -}}
{{- end -}}
{{- end -}}

{{/*
shardpool.engineEnv
input: t (track), rank, head. output: the environment of the engine's container.
*/}}
{{- define "shardpool.engineEnv" -}}
{{- $t := .t -}}
{{- $v := $t.Values -}}
{{- $express := eq $t.top.weights "modelexpress" -}}
{{- if $express -}}
{{ include "shardpool.podEnv" $t }}
- name: POD_UID
  valueFrom: { fieldRef: { fieldPath: metadata.uid } }
{{- end }}
{{- include "shardpool.podIndexEnv" $t }}
{{- include "shardpool.replicaEnv" $t }}
{{- if $t.top.spans }}
- name: SHARDPOOL_RENDEZVOUS_HOST
  value: {{ .head | quote }}
{{- end }}
{{- if not $express }}
- name: SHARDPOOL_DIRECTORY
  value: {{ include "shardpool.directory" $t | quote }}
{{- end }}
- name: HOME
  value: /home/engine
{{- if not $express }}
- name: HF_HUB_OFFLINE
  value: "1"
{{- end }}
{{- if $express }}
- name: MX_METADATA_BACKEND
  value: k8s-service
- name: MX_K8S_SERVICE_PATTERN
  value: {{ include "shardpool.expressPattern" $t | quote }}
- name: MX_WORKER_GRPC_PORT
  value: {{ $v.ports.workerGrpcBase | int64 | toString | quote }}
- name: MX_METADATA_PORT
  value: {{ $v.ports.nixlBase | int64 | toString | quote }}
- name: MX_WORKER_HOST
  value: $(POD_IP)
- name: MX_MODEL_REVISION
  value: {{ $v.model.revision | quote }}
- name: MX_ARTIFACT_READY_URL
  value: {{ printf "http://127.0.0.1:%s%s" (include "shardpool.enginePort" $t) $v.engine.healthPath | quote }}
{{- if ne $v.fabric.mode "none" }}
- name: MX_NIXL_BACKEND
  value: {{ ternary "LIBFABRIC" "UCX" (eq $v.fabric.mode "efa") }}
{{- end }}
{{- if $v.fabric.nicPin }}
- name: MX_RDMA_NIC_PIN
  value: auto
{{- end }}
{{- if eq $v.fabric.mode "rdma" }}
{{- range $name, $value := dict "UCX_RNDV_SCHEME" "get_zcopy" "UCX_RNDV_THRESH" "0" }}
{{- if not (hasKey $v.fabric.ucx $name) }}
- name: {{ $name }}
  value: {{ $value | quote }}
{{- end }}
{{- end }}
{{- end }}
{{- if eq $v.engine.kind "vllm" }}
- name: VLLM_RPC_TIMEOUT
  value: {{ mul 1000 (int64 $v.probes.startup.budgetSeconds) | toString | quote }}
{{- end }}
{{- include "shardpool.seedEnv" $t }}
{{- include "shardpool.fabricEnv" $t }}
{{- end }}
{{- end -}}

{{/*
shardpool.expressPattern
input: t (track). output: MX_K8S_SERVICE_PATTERN. Without a port ModelExpress adds base + global rank.
*/}}
{{- define "shardpool.expressPattern" -}}
{{- include "shardpool.pattern" (dict "t" . "suffix" "") -}}
{{- if eq .top.addresses "perRank" -}}
:{{ int .Values.ports.workerGrpcBase }}
{{- end -}}
{{- end -}}

{{/*
shardpool.engineProbe
input: t (track), rank, role. output: what a probe of the engine does, or nothing where it serves no HTTP.
*/}}
{{- define "shardpool.engineProbe" -}}
{{- $v := .t.Values -}}
{{- $path := $v.engine.healthPath -}}
{{- $top := .t.top -}}
{{- $known := has $v.engine.kind (list "vllm" "sglang") -}}
{{- if and $path (not (and $known $top.spans (or (eq .role "worker") (and (eq $top.shape "perRank") (gt (int .rank) 0))))) -}}
{{- if and $known $top.spans (eq $top.shape "multiNode") (eq $top.launcher "statefulSet") -}}
exec:
  command:
    - /bin/sh
    - -c
    - '[ "$SHARDPOOL_POD_INDEX" != 0 ] || exec python3 -c "import urllib.request as u; u.urlopen(''http://127.0.0.1:{{ include "shardpool.enginePort" .t }}{{ $path }}'', timeout={{ int $v.probes.liveness.timeoutSeconds }})"'
{{- else -}}
httpGet: { path: {{ $path }}, port: http }
{{- end -}}
{{- end -}}
{{- end -}}

{{/*
shardpool.engineResources
input: t (track). output: the user's resources with the GPUs, and the fabric's devices where the engine moves the weights.
*/}}
{{- define "shardpool.engineResources" -}}
{{- $limits := dict -}}
{{- if .Values.engine.gpuResourceName -}}
{{- $_ := set $limits .Values.engine.gpuResourceName (toString .top.gpusPerPod) -}}
{{- end -}}
{{- include "shardpool.fabricResources" (dict "t" . "resources" $limits "mover" "modelexpress") -}}
{{- include "shardpool.resources" (dict "requests" dict "limits" $limits "own" .Values.engine.resources) -}}
{{- end -}}
