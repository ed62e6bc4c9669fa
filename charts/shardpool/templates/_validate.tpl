{{/*
shardpool.validate
input: root, tracks. output: nothing, or the end of the render with every mistake in one message.
*/}}
{{- define "shardpool.validate" -}}
{{- $out := dict "mistakes" list -}}
{{- range $t := .tracks -}}
{{- $found := dict "mistakes" list -}}
{{- range list "model" "topology" "engine" "ports" "env" "fabric" "store" "seed" "pod" -}}
{{- include (printf "shardpool.validate.%s" .) (dict "t" $t "out" $found) -}}
{{- end -}}
{{- range $found.mistakes -}}
{{- if not (has . $out.mistakes) -}}
{{- $_ := set $out "mistakes" (append $out.mistakes (ternary . (printf "canary: %s" .) (eq $t.track "stable"))) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- include "shardpool.validate.release" (dict "t" (first .tracks) "out" $out) -}}
{{- if $out.mistakes -}}
{{- $lines := list (printf "\nshardpool: %d %s in the values of release %s" (len $out.mistakes) (ternary "mistake" "mistakes" (eq (len $out.mistakes) 1)) .root.Release.Name) -}}
{{- range $index, $mistake := $out.mistakes -}}
{{- $lines = append $lines (printf "%d. %s" (add $index 1) (indent 3 $mistake | trim)) -}}
{{- end -}}
{{- fail (join "\n\n" $lines) -}}
{{- end -}}
{{- end -}}

{{/*
shardpool.mistake
input: out, what (where and why), fix (the corrected YAML). output: appends to out.mistakes.
*/}}
{{- define "shardpool.mistake" -}}
{{- $_ := set .out "mistakes" (append .out.mistakes (printf "%s\n%s" .what (indent 2 .fix))) -}}
{{- end -}}

{{/*
shardpool.validate.model
input: t (track), out. output: appends mistakes of the model's name, revision and digest.
*/}}
{{- define "shardpool.validate.model" -}}
{{- $m := .t.Values.model -}}
{{- if not $m.id -}}
{{- include "shardpool.mistake" (dict "out" .out "what" "model.id is empty: a release is one model. Name it:" "fix" "model:\n  id: Qwen/Qwen2.5-7B-Instruct") -}}
{{- end -}}
{{- if not $m.revision -}}
{{- include "shardpool.mistake" (dict "out" .out "what" "model.revision is empty: replicas must know that they hold the same bytes. Pin a commit:" "fix" "model:\n  revision: <40 hex digits>") -}}
{{- else if and (not $m.allowUnpinned) (not (regexMatch "^([0-9a-f]{40}|sha256:[0-9a-f]{64})$" $m.revision)) -}}
{{- include "shardpool.mistake" (dict "out" .out "what" (printf "model.revision %q is not pinned: it may name other bytes tomorrow. Pin a commit, or allow it:" $m.revision) "fix" "model:\n  revision: <40 hex digits>    # or allowUnpinned: true") -}}
{{- end -}}
{{- $digests := len $m.contentDigests -}}
{{- if and $digests (eq .t.top.weights "modelexpress") -}}
{{- include "shardpool.mistake" (dict "out" .out "what" "model.contentDigests are of a pool's parts, and with engine.weights modelexpress there is no pool. Take them out:" "fix" "model:\n  contentDigests: []") -}}
{{- else if and $digests (ne $digests .t.top.world) -}}
{{- include "shardpool.mistake" (dict "out" .out "what" (printf "model.contentDigests has %d, and this model is in %d. Give one for each part in order:" $digests .t.top.world) "fix" (printf "model:\n  contentDigests:%s" (repeat .t.top.world "\n    - <64 hex digits>"))) -}}
{{- end -}}
{{- end -}}

{{/*
shardpool.validate.topology
input: t (track), out. output: appends mistakes of world, parallel sizes, GPUs per pod, layout.
*/}}
{{- define "shardpool.validate.topology" -}}
{{- $v := .t.Values.topology -}}
{{- $top := .t.top -}}
{{- $engine := .t.Values.engine -}}
{{- $product := mul $top.tensorParallel $top.pipelineParallel $top.dataParallel -}}
{{- if ne (int $product) $top.engineWorld -}}
{{- include "shardpool.mistake" (dict "out" .out
      "what" (printf "topology.world is %d, but tensorParallel %d x pipelineParallel %d x dataParallel %d is %d. State one of them:" $top.engineWorld $top.tensorParallel $top.pipelineParallel $top.dataParallel (int $product))
      "fix" (printf "topology:\n  world: %d" (int $product))) -}}
{{- end -}}
{{- if eq $v.shape "multiNode" -}}
{{- if lt (int $v.gpusPerPod) 1 -}}
{{- include "shardpool.mistake" (dict "out" .out "what" "topology.gpusPerPod is missing: in multiNode it says how many ranks each pod has:" "fix" "topology:\n  gpusPerPod: 8") -}}
{{- else if mod $top.engineWorld $top.gpusPerPod -}}
{{- include "shardpool.mistake" (dict "out" .out
      "what" (printf "topology.gpusPerPod %d does not divide the world of %d: every pod of a replica has as many ranks. Change one:" $top.gpusPerPod $top.engineWorld)
      "fix" (printf "topology:\n  world: %d\n  gpusPerPod: %d" (mul $top.gpusPerPod (add1 (div $top.engineWorld $top.gpusPerPod))) $top.gpusPerPod)) -}}
{{- end -}}
{{- else if and (gt (int $v.gpusPerPod) 0) (ne (int $v.gpusPerPod) $top.gpusPerPod) -}}
{{- if eq $v.shape "perPod" -}}
{{- include "shardpool.mistake" (dict "out" .out
      "what" (printf "topology.gpusPerPod is %d, but in perPod a pod has every rank, and the world is %d. Make them equal, or let a replica span pods:" (int $v.gpusPerPod) $top.engineWorld)
      "fix" (printf "topology:\n  shape: multiNode\n  world: %d\n  gpusPerPod: %d" $top.engineWorld (int $v.gpusPerPod))) -}}
{{- else -}}
{{- include "shardpool.mistake" (dict "out" .out
      "what" (printf "topology.gpusPerPod is %d, but in perRank a pod has one rank. Leave it out, or give pods several:" (int $v.gpusPerPod))
      "fix" (printf "topology:\n  shape: multiNode\n  gpusPerPod: %d" (int $v.gpusPerPod))) -}}
{{- end -}}
{{- end -}}
{{- $gpus := get (default dict (default dict $engine.resources).limits) $engine.gpuResourceName -}}
{{- if and (ne $engine.kind "none") $gpus (ne (toString $gpus) (toString $top.gpusPerPod)) -}}
{{- include "shardpool.mistake" (dict "out" .out
      "what" (printf "engine.resources.limits asks for %v of %s, but a pod has %d %s. Leave it to the chart:" $gpus $engine.gpuResourceName $top.gpusPerPod (ternary "rank" "ranks" (eq $top.gpusPerPod 1)))
      "fix" (printf "topology:\n  shape: %s\n  world: %d\nengine:\n  resources: {}" $v.shape $top.engineWorld)) -}}
{{- end -}}
{{- if and (eq $top.addresses "perPod") (gt $top.world 100) -}}
{{- include "shardpool.mistake" (dict "out" .out
      "what" (printf "%d ranks need %d ports in one Service, which takes 100. Cut the directory into fewer parts, or let a replica span pods:" $top.world $top.world)
      "fix" "topology:\n  shape: multiNode\n  gpusPerPod: 8") -}}
{{- end -}}
{{- if and (eq $top.weights "modelexpress") (ne $v.layout "auto") -}}
{{- include "shardpool.mistake" (dict "out" .out "what" (printf "topology.layout %s is for a pool: with engine.weights modelexpress the ranks are the engine's own. Leave it out:" $v.layout) "fix" "topology:\n  layout: auto") -}}
{{- else if and (gt (int $v.parts) 1) (ne $top.layout "striped") -}}
{{- include "shardpool.mistake" (dict "out" .out "what" (printf "topology.parts is %d, but only a striped directory has parts, and the layout is %s. Change one:" (int $v.parts) $top.layout) "fix" (printf "topology:\n  layout: striped\n  parts: %d" (int $v.parts))) -}}
{{- end -}}
{{- $known := has $engine.kind (list "vllm" "sglang") -}}
{{- if and $known (eq $v.shape "perRank") $top.spans (eq (mul $top.tensorParallel $top.pipelineParallel) 1) (not $v.expertParallel.enabled) -}}
{{- include "shardpool.mistake" (dict "out" .out
      "what" (printf "topology: %d pods of one GPU with tensorParallel 1 form no group; every one would be rank 0. Those are replicas:" $top.engineWorld)
      "fix" (printf "topology:\n  shape: perPod\n  world: 1\nreplicas: %d" (mul $top.engineWorld (int .t.Values.replicas)))) -}}
{{- end -}}
{{- if and (eq $engine.kind "sglang") (gt $top.dataParallel 1) -}}
{{- include "shardpool.mistake" (dict "out" .out
      "what" "topology.dataParallel: SGLang's data parallelism is inside its tensor-parallel group (or is whole replicas). Say it so:"
      "fix" (printf "topology:\n  tensorParallel: %d\n  dataParallel: 1\nengine:\n  extraArgs: [--enable-dp-attention, --dp-size=%d]" (mul $top.tensorParallel $top.dataParallel) $top.dataParallel)) -}}
{{- end -}}
{{- end -}}

{{/*
shardpool.validate.engine
input: t (track), out. output: appends mistakes of the engine's image, weights and arguments.
*/}}
{{- define "shardpool.validate.engine" -}}
{{- $out := .out -}}
{{- $v := .t.Values -}}
{{- $e := $v.engine -}}
{{- if and (eq $e.kind "none") (eq $e.weights "modelexpress") -}}
{{- include "shardpool.mistake" (dict "out" .out "what" "engine.weights modelexpress needs an engine that brings ModelExpress's loader, and engine.kind is none. Choose one:" "fix" "engine:\n  kind: vllm\n  weights: modelexpress") -}}
{{- end -}}
{{- if and (not $e.image.repository) (eq $e.kind "custom") -}}
{{- include "shardpool.mistake" (dict "out" .out "what" "engine.image.repository is empty: a custom engine has no image of its own kind. Name it:" "fix" "engine:\n  image:\n    repository: registry.example/engine\n    tag: \"1.0\"") -}}
{{- else if and (not $e.image.repository) (eq .t.top.weights "modelexpress") -}}
{{- include "shardpool.mistake" (dict "out" .out "what" (printf "engine.image.repository is empty: the %s image does not contain the modelexpress package. Name one that does:" $e.kind) "fix" "engine:\n  image:\n    repository: registry.example/engine-modelexpress\n    tag: \"1.0\"") -}}
{{- end -}}
{{- $owned := include "shardpool.ownedArgs" .t | fromJson -}}
{{- range $e.extraArgs -}}
{{- $name := toString . | splitList "=" | first | splitList " " | first -}}
{{- $flag := ternary (replace "_" "-" $name) $name (hasPrefix "--" $name) -}}
{{- if hasKey $owned $flag -}}
{{- include "shardpool.mistake" (dict "out" $out "what" (printf "engine.extraArgs has %s, which the chart computes from %s. Take it out, and set:" $name (get $owned $flag)) "fix" (include "shardpool.path" (get $owned $flag))) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/*
shardpool.path
input: the dotted name of a value. output: the YAML that sets it.
*/}}
{{- define "shardpool.path" -}}
{{- $lines := list -}}
{{- range $depth, $key := splitList "." . -}}
{{- $lines = append $lines (printf "%s%s:" (repeat $depth "  ") $key) -}}
{{- end -}}
{{- join "\n" $lines }} ...
{{- end -}}

{{/*
shardpool.validate.ports
input: t (track), out. output: appends overlapping and too large ranges of ports.
*/}}
{{- define "shardpool.validate.ports" -}}
{{- $out := .out -}}
{{- $v := .t.Values -}}
{{- $top := .t.top -}}
{{- $keys := dict "gRPC" "ports.workerGrpcBase" "NIXL" "ports.nixlBase" "UCX" "ports.ucxBase" -}}
{{- $ranges := list -}}
{{- range include "shardpool.rankPorts" .t | fromJsonArray -}}
{{- $ranges = append $ranges (dict "key" (get $keys .name) "first" (int .first) "last" (int .last)) -}}
{{- end -}}
{{- $ranges = append $ranges (dict "key" "ports.metrics" "first" (int $v.ports.metrics) "last" (int $v.ports.metrics)) -}}
{{- if ne $v.engine.kind "none" -}}
{{- $http := include "shardpool.enginePort" .t | int -}}
{{- $ranges = append $ranges (dict "key" "ports.http" "first" $http "last" $http) -}}
{{- if $top.spans -}}
{{- $ranges = append $ranges (dict "key" "ports.rendezvous" "first" (int $v.ports.rendezvous) "last" (int $v.ports.rendezvous)) -}}
{{- end -}}
{{- end -}}
{{- $previous := "" -}}
{{- range default list $v.engine.extraArgs -}}
{{- $pair := splitList "=" (toString .) -}}
{{- $rpc := "" -}}
{{- if eq $previous "--data-parallel-rpc-port" -}}
{{- $rpc = toString . -}}
{{- else if and (eq (first $pair) "--data-parallel-rpc-port") (eq (len $pair) 2) -}}
{{- $rpc = last $pair -}}
{{- end -}}
{{- if $rpc -}}
{{- $ranges = append $ranges (dict "key" "--data-parallel-rpc-port in engine.extraArgs" "first" (int $rpc) "last" (int $rpc)) -}}
{{- end -}}
{{- $previous = toString . -}}
{{- end -}}
{{- range $index, $a := $ranges -}}
{{- if or (gt $a.last 65535) (lt $a.first 1) -}}
{{- include "shardpool.mistake" (dict "out" $out "what" (printf "%s: ports %d to %d do not fit between 1 and 65535. Lower it:" $a.key $a.first $a.last) "fix" (printf "%s%d" (include "shardpool.path" $a.key | trimSuffix "...") (sub 65535 (sub $a.last $a.first)))) -}}
{{- end -}}
{{- range $b := slice $ranges (add1 $index | int) -}}
{{- if and (le $a.first $b.last) (le $b.first $a.last) -}}
{{- $free := add1 $b.last | int -}}
{{- range until 10 -}}
{{- range $other := without $ranges $a -}}
{{- if and (le $free $other.last) (le $other.first (add $free (sub $a.last $a.first))) -}}
{{- $free = add1 $other.last | int -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- include "shardpool.mistake" (dict "out" $out "what" (printf "%s (%s) and %s (%s) overlap. Move one, for example:" $a.key (include "shardpool.range" $a) $b.key (include "shardpool.range" $b))
      "fix" (printf "%s%d" (include "shardpool.path" $a.key | trimSuffix "...") $free)) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/*
shardpool.range
input: first, last. output: the range for people.
*/}}
{{- define "shardpool.range" -}}
{{- ternary (printf "%d" (int .first)) (printf "%d to %d" (int .first) (int .last)) (eq (int .first) (int .last)) -}}
{{- end -}}

{{/*
shardpool.validate.env
input: t (track), out. output: appends environment names that the chart computes, or that stand twice.
*/}}
{{- define "shardpool.validate.env" -}}
{{- $out := .out -}}
{{- $owned := include "shardpool.ownedEnv" .t | fromJson -}}
{{- range $where := list "runtime" "engine" -}}
{{- $seen := dict -}}
{{- range (get $.t.Values $where).extraEnv -}}
{{- if hasKey $owned .name -}}
{{- $key := get $owned .name -}}
{{- if $key -}}
{{- include "shardpool.mistake" (dict "out" $out "what" (printf "%s.extraEnv has %s, which the chart computes from %s. Take it out, and set:" $where .name $key) "fix" (include "shardpool.path" $key)) -}}
{{- else -}}
{{- include "shardpool.mistake" (dict "out" $out "what" (printf "%s.extraEnv has %s, which the chart computes for each pod. Take it out:" $where .name) "fix" (printf "%s:\n  extraEnv: []" $where)) -}}
{{- end -}}
{{- end -}}
{{- if hasKey $seen .name -}}
{{- include "shardpool.mistake" (dict "out" $out "what" (printf "%s.extraEnv has %s twice; server-side apply takes a name once. Keep one:" $where .name) "fix" (printf "%s:\n  extraEnv:\n    - name: %s" $where .name)) -}}
{{- end -}}
{{- $_ := set $seen .name true -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/*
shardpool.validate.fabric
input: t (track), out. output: appends mistakes of the fabric and of locked memory.
*/}}
{{- define "shardpool.validate.fabric" -}}
{{- $f := .t.Values.fabric -}}
{{- if and (ne $f.mode "none") (not $f.resourceName) -}}
{{- include "shardpool.mistake" (dict "out" .out "what" (printf "fabric.mode %s needs the name under which the device plugin offers the devices:" $f.mode) "fix" (printf "fabric:\n  mode: %s\n  resourceName: %s" $f.mode (ternary "vpc.amazonaws.com/efa" "rdma/ib" (eq $f.mode "efa")))) -}}
{{- end -}}
{{- if eq $f.memlock "ipcLock" -}}
{{- $pod := include "shardpool.podSecurityContext" .t | fromYaml -}}
{{- if or $pod.runAsNonRoot (ne (int $pod.runAsUser) 0) -}}
{{- include "shardpool.mistake" (dict "out" .out "what" "fabric.memlock ipcLock has no effect for a non-root user, and these pods run as one. Raise the node's memlock limit and keep the restricted profile (memlock: runtime), or run as root:" "fix" "fabric:\n  memlock: ipcLock\npodSecurityContext:\n  runAsNonRoot: false\n  runAsUser: 0") -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/*
shardpool.validate.store
input: t (track), out. output: appends mistakes of sizes: a tmpfs counts against the memory limit of the container that writes it.
*/}}
{{- define "shardpool.validate.store" -}}
{{- $v := .t.Values -}}
{{- $size := include "shardpool.storeSize" .t -}}
{{- $pool := eq .t.top.weights "pool" -}}
{{- if and $pool (eq $v.store.medium "Memory") -}}
{{- if not $size -}}
{{- include "shardpool.mistake" (dict "out" .out "what" "store.medium Memory needs a size; without one a model can fill the node's memory. State the model's:" "fix" "model:\n  size: 16Gi") -}}
{{- else -}}
{{- $limit := get (default dict (default dict $v.runtime.resources).limits) "memory" -}}
{{- if and $limit (ge (include "shardpool.bytes" $size | int64) (include "shardpool.bytes" $limit | int64)) -}}
{{- include "shardpool.mistake" (dict "out" .out "what" (printf "store (Memory, %s) fills the memory limit of shardpool's container, %v. Leave the limit to the chart, or raise it:" $size $limit)
      "fix" (printf "runtime:\n  resources:\n    limits:\n      memory: %s" (include "shardpool.mebibytes" (add (include "shardpool.bytes" $size | int64) (mul 1073741824 .t.top.localRanks))))) -}}
{{- end -}}
{{- end -}}
{{- if $v.store.storageClassName -}}
{{- include "shardpool.mistake" (dict "out" .out "what" "store.storageClassName is for a store on disk, and store.medium is Memory. Choose one:" "fix" (printf "store:\n  medium: Disk\n  storageClassName: %s" $v.store.storageClassName)) -}}
{{- end -}}
{{- else if and $pool $v.store.storageClassName (not $size) -}}
{{- include "shardpool.mistake" (dict "out" .out "what" "store.storageClassName makes a claim, which needs a size. State the model's:" "fix" "model:\n  size: 16Gi") -}}
{{- end -}}
{{- $limit := get (default dict (default dict $v.engine.resources).limits) "memory" -}}
{{- if and (ne $v.engine.kind "none") $limit -}}
{{- $shm := include "shardpool.shmSize" .t -}}
{{- if ge (include "shardpool.bytes" $shm | int64) (include "shardpool.bytes" $limit | int64) -}}
{{- include "shardpool.mistake" (dict "out" .out "what" (printf "/dev/shm (%s) fills the memory limit of the engine's container, %v. Raise the limit, or shrink it:" $shm $limit)
      "fix" (printf "engine:\n  shmSize: %s" (include "shardpool.mebibytes" (div (include "shardpool.bytes" $limit | int64) 4)))) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/*
shardpool.validate.seed
input: t (track), out. output: appends mistakes of the seed: nothing to load from, missing names, a claim that one node holds.
*/}}
{{- define "shardpool.validate.seed" -}}
{{- $s := .t.Values.seed -}}
{{- $top := .t.top -}}
{{- $known := has .t.Values.engine.kind (list "vllm" "sglang") -}}
{{- if eq $s.type "none" -}}
{{- if and (eq $top.weights "pool") (not .t.Values.discovery.peers) -}}
{{- include "shardpool.mistake" (dict "out" .out "what" "seed.type none: the first replica has nothing to load from. Name a seed, or sources outside this release:" "fix" "seed:\n  type: hf\n# or\ndiscovery:\n  peers: [other-release-peers:6555]") -}}
{{- else if and (eq $top.weights "modelexpress") $known -}}
{{- include "shardpool.mistake" (dict "out" .out "what" "seed.type none: the first engine has nothing to load from. Name a seed that it can read itself:" "fix" "seed:\n  type: hf") -}}
{{- end -}}
{{- else if eq $s.type "pvc" -}}
{{- if not $s.pvc.existingClaim -}}
{{- include "shardpool.mistake" (dict "out" .out "what" "seed.pvc.existingClaim is empty. Name the claim that holds the model:" "fix" "seed:\n  type: pvc\n  pvc:\n    existingClaim: models") -}}
{{- end -}}
{{- $pods := mul (int .t.Values.replicas) $top.podsPerReplica -}}
{{- if .t.root.Values.autoscaling.enabled -}}
{{- $pods = mul (int .t.root.Values.autoscaling.maxReplicas) $top.podsPerReplica -}}
{{- end -}}
{{- if and (hasPrefix "ReadWriteOnce" $s.pvc.accessMode) (gt $pods 1) -}}
{{- include "shardpool.mistake" (dict "out" .out "what" (printf "seed.pvc: a %s claim is mounted by one %s, and %d pods read it. Use a claim that several can mount:" $s.pvc.accessMode (ternary "node" "pod" (eq $s.pvc.accessMode "ReadWriteOnce")) $pods) "fix" "seed:\n  pvc:\n    accessMode: ReadOnlyMany") -}}
{{- end -}}
{{- else if and (eq $s.type "s3") (not $s.s3.bucket) -}}
{{- include "shardpool.mistake" (dict "out" .out "what" "seed.s3.bucket is empty. Name the bucket that holds the model:" "fix" "seed:\n  type: s3\n  s3:\n    bucket: models") -}}
{{- else if and (eq $s.type "image") (not $s.image.reference) -}}
{{- include "shardpool.mistake" (dict "out" .out "what" "seed.image.reference is empty. Name the image that holds the model:" "fix" "seed:\n  type: image\n  image:\n    reference: registry.example/models/qwen:1") -}}
{{- else if and (eq $s.type "hostPath") (not $s.hostPath.path) -}}
{{- include "shardpool.mistake" (dict "out" .out "what" "seed.hostPath.path is empty. Name the folder that holds the model on every node:" "fix" "seed:\n  type: hostPath\n  hostPath:\n    path: /srv/models/qwen") -}}
{{- end -}}
{{- if and (eq $s.type "s3") (eq $top.weights "modelexpress") -}}
{{- include "shardpool.mistake" (dict "out" .out "what" "seed.type s3: with engine.weights modelexpress the engine itself loads, from the hub or a mounted folder. Let the pool load:" "fix" "engine:\n  weights: pool") -}}
{{- end -}}
{{- end -}}

{{/*
shardpool.validate.pod
input: t (track), out. output: appends names that stand twice in a pod after merging, and labels that select.
*/}}
{{- define "shardpool.validate.pod" -}}
{{- $out := .out -}}
{{- $v := .t.Values -}}
{{- $lists := list
      (dict "where" "extraVolumes" "key" "name" "own" (list "store" "tmp" "seed" "home" "shm" "tls") "items" $v.extraVolumes)
      (dict "where" "extraContainers and extraInitContainers" "key" "name" "own" (list "shardpool" "engine" "gate" "wait") "items" (concat (default list $v.extraContainers) (default list $v.extraInitContainers)))
      (dict "where" "runtime.extraVolumeMounts" "key" "mountPath" "own" (list $v.store.path "/tmp" "/seed" "/etc/shardpool/tls") "items" $v.runtime.extraVolumeMounts)
      (dict "where" "engine.extraVolumeMounts" "key" "mountPath" "own" (list $v.store.path "/seed" "/home/engine" "/dev/shm") "items" $v.engine.extraVolumeMounts) -}}
{{- range $lists -}}
{{- $list := . -}}
{{- $seen := dict -}}
{{- range .items -}}
{{- $name := get . $list.key -}}
{{- if has $name $list.own -}}
{{- include "shardpool.mistake" (dict "out" $out "what" (printf "%s: %s %s is the chart's own. Choose another:" $list.where $list.key $name) "fix" (printf "- %s: %s-own" $list.key $name)) -}}
{{- else if hasKey $seen $name -}}
{{- include "shardpool.mistake" (dict "out" $out "what" (printf "%s: %s %s stands twice. Keep one:" $list.where $list.key $name) "fix" (printf "- %s: %s" $list.key $name)) -}}
{{- end -}}
{{- $_ := set $seen $name true -}}
{{- end -}}
{{- end -}}
{{- $reserved := list "app.kubernetes.io/name" "app.kubernetes.io/instance" "app.kubernetes.io/component" "app.kubernetes.io/version" "app.kubernetes.io/managed-by" "helm.sh/chart" "mx.rank" "mx.replica" "mx.identity" -}}
{{- range $where := list "commonLabels" "podLabels" -}}
{{- range $key, $_ := get $v $where -}}
{{- if has $key $reserved -}}
{{- include "shardpool.mistake" (dict "out" $out "what" (printf "%s has %s, by which the chart finds its pods. Use a label of your own:" $where $key) "fix" (printf "%s:\n  example.com/%s: ..." $where (last (splitList "/" $key)))) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- range $key, $_ := $v.podLabels -}}
{{- if hasKey $v.commonLabels $key -}}
{{- include "shardpool.mistake" (dict "out" $out "what" (printf "podLabels and commonLabels both have %s. Keep it in one:" $key) "fix" (printf "commonLabels:\n  %s: ..." $key)) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/*
shardpool.validate.release
input: t (stable track), out. output: appends mistakes of what a release has once: names, rollout, autoscaling.
*/}}
{{- define "shardpool.validate.release" -}}
{{- $v := .t.Values -}}
{{- if not (regexMatch "^[a-z]" (include "shardpool.fullname" .t.root)) -}}
{{- include "shardpool.mistake" (dict "out" .out "what" (printf "the name %q does not start with a letter, as a Service's must. Give another:" (include "shardpool.fullname" .t.root)) "fix" (printf "fullnameOverride: m-%s" (include "shardpool.fullname" .t.root))) -}}
{{- end -}}
{{- if and (eq (toString $v.rollout.maxSurge | trimSuffix "%") "0") (eq (toString $v.rollout.maxUnavailable | trimSuffix "%") "0") -}}
{{- include "shardpool.mistake" (dict "out" .out "what" "rollout.maxSurge and rollout.maxUnavailable are both 0: no pod could ever be replaced. Allow one:" "fix" "rollout:\n  maxSurge: 0\n  maxUnavailable: 1") -}}
{{- end -}}
{{- if $v.autoscaling.enabled -}}
{{- if eq .t.top.launcher "statefulSet" -}}
{{- include "shardpool.mistake" (dict "out" .out "what" (printf "autoscaling scales one workload, and %s by StatefulSets has several. Turn it off, or:" .t.top.shape)
      "fix" (ternary "topology:\n  shape: perPod" "topology:\n  launcher: leaderWorkerSet" (eq .t.top.shape "perRank"))) -}}
{{- end -}}
{{- if gt (int $v.autoscaling.minReplicas) (int $v.autoscaling.maxReplicas) -}}
{{- include "shardpool.mistake" (dict "out" .out "what" (printf "autoscaling.minReplicas %d is above maxReplicas %d. Swap them:" (int $v.autoscaling.minReplicas) (int $v.autoscaling.maxReplicas)) "fix" (printf "autoscaling:\n  minReplicas: %d\n  maxReplicas: %d" (int $v.autoscaling.maxReplicas) (int $v.autoscaling.minReplicas))) -}}
{{- end -}}
{{- end -}}
{{- end -}}
