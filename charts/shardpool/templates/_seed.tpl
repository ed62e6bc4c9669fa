{{/*
shardpool.seedMounted
input: t (track). output: "true" where the seed is a volume of the pod.
*/}}
{{- define "shardpool.seedMounted" -}}
{{- if has .Values.seed.type (list "pvc" "image" "hostPath") -}}true{{- end -}}
{{- end -}}

{{/*
shardpool.seedPath
input: t (track). output: the folder of the model in a mounted seed.
*/}}
{{- define "shardpool.seedPath" -}}
{{- $path := "" -}}
{{- if ne .Values.seed.type "hostPath" -}}
{{- $path = trimAll "/" (get .Values.seed .Values.seed.type).path -}}
{{- end -}}
{{- ternary (printf "/seed/%s" $path) "/seed" (ne $path "") -}}
{{- end -}}

{{/*
shardpool.seedVolume
input: t (track). output: the volume `seed`, without the list's dash. Read-only, so that nothing changes its owner.
*/}}
{{- define "shardpool.seedVolume" -}}
name: seed
{{- if eq .Values.seed.type "pvc" }}
persistentVolumeClaim:
  claimName: {{ .Values.seed.pvc.existingClaim }}
  readOnly: true
{{- else if eq .Values.seed.type "image" }}
image:
  reference: {{ .Values.seed.image.reference }}
  pullPolicy: {{ .Values.seed.image.pullPolicy }}
{{- else }}
hostPath:
  path: {{ .Values.seed.hostPath.path }}
  type: Directory
{{- end }}
{{- end -}}

{{/*
shardpool.seedAddress
input: t (track). output: SHARDPOOL_SEED.
*/}}
{{- define "shardpool.seedAddress" -}}
{{- $seed := .Values.seed -}}
{{- if include "shardpool.seedMounted" . -}}
directory:{{ include "shardpool.seedPath" . }}
{{- else if eq $seed.type "s3" -}}
s3://{{ $seed.s3.bucket }}{{ with trimAll "/" $seed.s3.prefix }}/{{ . }}{{ end }}
{{- else -}}
{{ $seed.type }}
{{- end -}}
{{- end -}}

{{/*
shardpool.seedEnv
input: t (track). output: environment entries that reading the seed takes: endpoint, region, secrets.
*/}}
{{- define "shardpool.seedEnv" -}}
{{- $seed := .Values.seed }}
{{- if and (eq $seed.type "hf") $seed.hf.endpoint }}
- name: HF_ENDPOINT
  value: {{ $seed.hf.endpoint | quote }}
{{- end }}
{{- if and (eq $seed.type "hf") $seed.hf.tokenSecret.name }}
- name: HF_TOKEN
  valueFrom:
    secretKeyRef: { name: {{ $seed.hf.tokenSecret.name }}, key: {{ $seed.hf.tokenSecret.key }} }
{{- end }}
{{- if and (eq $seed.type "s3") $seed.s3.region }}
- name: AWS_REGION
  value: {{ $seed.s3.region | quote }}
{{- end }}
{{- if and (eq $seed.type "s3") $seed.s3.endpoint }}
- name: AWS_ENDPOINT_URL_S3
  value: {{ $seed.s3.endpoint | quote }}
{{- end }}
{{- if and (eq $seed.type "s3") $seed.s3.credentialsSecret.name }}
- name: AWS_ACCESS_KEY_ID
  valueFrom:
    secretKeyRef: { name: {{ $seed.s3.credentialsSecret.name }}, key: {{ $seed.s3.credentialsSecret.accessKeyIdKey }} }
- name: AWS_SECRET_ACCESS_KEY
  valueFrom:
    secretKeyRef: { name: {{ $seed.s3.credentialsSecret.name }}, key: {{ $seed.s3.credentialsSecret.secretAccessKeyKey }} }
{{- end }}
{{- end -}}
