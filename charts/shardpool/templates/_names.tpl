{{/*
shardpool.fullname
input: the root context. output: the name of the release's objects, at most 52 characters.
*/}}
{{- define "shardpool.fullname" -}}
{{- $part := default .Chart.Name .Values.nameOverride -}}
{{- $name := .Release.Name -}}
{{- if .Values.fullnameOverride -}}
{{- $name = .Values.fullnameOverride -}}
{{- else if not (contains $part .Release.Name) -}}
{{- $name = printf "%s-%s" .Release.Name $part -}}
{{- end -}}
{{- include "shardpool.cut" (dict "name" $name "limit" 52) -}}
{{- end -}}

{{/*
shardpool.cut
input: name, limit. output: the name; one that is too long is cut and told apart by a digest.
*/}}
{{- define "shardpool.cut" -}}
{{- $limit := int .limit -}}
{{- if gt (len .name) $limit -}}
{{- printf "%s-%s" (trunc (sub $limit 6 | int) .name | trimSuffix "-") (sha256sum .name | trunc 5) -}}
{{- else -}}
{{- .name -}}
{{- end -}}
{{- end -}}

{{/*
shardpool.trackName
input: t (track). output: the name of the track's objects: 52 characters, 40 where ranks are numbered (a StatefulSet's hash label must fit 63).
*/}}
{{- define "shardpool.trackName" -}}
{{- $full := include "shardpool.fullname" .root -}}
{{- $name := ternary $full (printf "%s-%s" $full .track) (eq .track "stable") -}}
{{- include "shardpool.cut" (dict "name" $name "limit" (ternary 52 40 (eq .top.shape "perPod"))) -}}
{{- end -}}

{{/*
shardpool.serviceAccountName
input: the root context. output: the ServiceAccount of the pods.
*/}}
{{- define "shardpool.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "shardpool.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}
