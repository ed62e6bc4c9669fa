{{/*
shardpool.warnings
input: t (stable track). output: what is allowed but worth a second thought, a line each.
*/}}
{{- define "shardpool.warnings" -}}
{{- $v := .Values -}}
{{- $top := .top -}}
{{- $w := list -}}
{{- if not (regexMatch "^([0-9a-f]{40}|sha256:[0-9a-f]{64})$" $v.model.revision) -}}
{{- $w = append $w (printf "revision %q is not pinned: replicas started at different times may hold different bytes." $v.model.revision) -}}
{{- end -}}
{{- if and (ne (toString $v.rollout.maxSurge | trimSuffix "%") "0") (ne $v.engine.kind "none") $v.engine.gpuResourceName (ne $top.launcher "statefulSet") -}}
{{- $w = append $w (printf "rollout.maxSurge %v: a rollout needs free GPUs (%d a pod), else it waits until its deadline." $v.rollout.maxSurge $top.gpusPerPod) -}}
{{- end -}}
{{- if and $v.podDisruptionBudget.enabled (eq (int $v.replicas) 1) (not $v.autoscaling.enabled) -}}
{{- $w = append $w "one replica with a disruption budget: a node drain still takes the only copy away." -}}
{{- end -}}
{{- if eq (include "shardpool.updateStrategy" .) "OnDelete" | and (eq $top.launcher "statefulSet") -}}
{{- $w = append $w (printf "an upgrade replaces no pod by itself, since the ranks of a replica come up only together. One replica at a time: kubectl delete pod -n %s -l app.kubernetes.io/instance=%s,%s=0" .root.Release.Namespace .root.Release.Name (ternary "apps.kubernetes.io/pod-index" "mx.replica" (eq $top.shape "perRank"))) -}}
{{- end -}}
{{- if eq $v.seed.type "hostPath" -}}
{{- $w = append $w "seed.type hostPath: the restricted and baseline Pod Security profiles refuse these pods." -}}
{{- end -}}
{{- if eq $v.seed.type "image" -}}
{{- $w = append $w "seed.type image: before Kubernetes 1.35 the feature gate ImageVolume must be on." -}}
{{- end -}}
{{- if eq $v.fabric.memlock "ipcLock" -}}
{{- $w = append $w "fabric.memlock ipcLock: the restricted and baseline Pod Security profiles refuse these pods." -}}
{{- end -}}
{{- if and (eq $v.runtime.transport "nixl") (eq $v.fabric.mode "none") (eq $top.weights "pool") -}}
{{- $w = append $w "runtime.transport nixl without RDMA: over tcp whoever reaches a port can read and write the process. Use it on a fenced network only." -}}
{{- end -}}
{{- range $index, $line := $w -}}
{{- if eq $index 0 }}
Warnings:
{{- end }}
  - {{ $line }}
{{- end -}}
{{- end -}}
