{{/*
shardpool.podSecurityContext
input: t (track). output: the pods' security context: the restricted profile, the user's over it.
*/}}
{{- define "shardpool.podSecurityContext" -}}
{{- $own := dict "runAsNonRoot" true "runAsUser" 65532 "runAsGroup" 65532 "fsGroup" 65532 "seccompProfile" (dict "type" "RuntimeDefault") -}}
{{- toYaml (mergeOverwrite $own (deepCopy (default dict .Values.podSecurityContext))) -}}
{{- end -}}

{{/*
shardpool.securityContext
input: t (track), own (the user's), readOnly, ipcLock. output: a container's security context: the restricted profile, the user's over it, IPC_LOCK added to the capabilities of both.
*/}}
{{- define "shardpool.securityContext" -}}
{{- $context := dict "allowPrivilegeEscalation" false "capabilities" (dict "drop" (list "ALL")) -}}
{{- if .readOnly -}}
{{- $_ := set $context "readOnlyRootFilesystem" true -}}
{{- end -}}
{{- $context = mergeOverwrite $context (deepCopy (default dict .own)) -}}
{{- if and .ipcLock (eq .t.Values.fabric.memlock "ipcLock") -}}
{{- $_ := set $context.capabilities "add" (append (default list $context.capabilities.add) "IPC_LOCK" | uniq) -}}
{{- end -}}
{{- toYaml $context -}}
{{- end -}}
