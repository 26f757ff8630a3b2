{{/* The names of objects begin with the release's name. */}}
{{- define "granary.name" -}}
{{ printf "%s-%s" .root.Release.Name .part | trunc 52 | trimSuffix "-" }}
{{- end }}

{{- define "granary.serviceAccount" -}}
{{ .Values.serviceAccount.name | default .Release.Name }}
{{- end }}

{{- define "granary.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- define "granary.labels" -}}
app.kubernetes.io/name: granary
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .part }}
{{- end }}

{{- define "granary.objectLabels" -}}
{{ include "granary.labels" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ .root.Chart.Name }}-{{ .root.Chart.Version }}
{{- end }}

{{/* Where mounts find the node's server. */}}
{{- define "granary.socket" -}}
/run/granary/{{ if .Values.server.fuse }}fuse{{ else }}nbd.sock{{ end }}
{{- end }}

{{/* Environment and credentials of a container. */}}
{{- define "granary.environment" -}}
{{- range $key, $value := .Values.env }}
- {name: {{ $key }}, value: {{ $value | quote }}}
{{- end }}
{{- end }}

{{- define "granary.credentials" -}}
{{- with .Values.credentialsSecret }}
envFrom:
  - secretRef: {name: {{ . }}, optional: true}
{{- end }}
{{- end }}

{{/* A container without any privilege. */}}
{{- define "granary.confined" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{/* granary.conf in a container. */}}
{{- define "granary.confMount" -}}
- {name: conf, mountPath: /etc/granary.conf, subPath: granary.conf, readOnly: true}
{{- end }}

{{- define "granary.confVolume" -}}
- name: conf
  configMap: {name: {{ include "granary.name" (dict "root" . "part" "conf") }}}
{{- end }}

{{/* What files/dataset.sh reads. */}}
{{- define "granary.datasetEnvironment" -}}
- {name: IMAGE, value: {{ .set.image | quote }}}
- {name: TAG, value: {{ .set.tag | default "current" | quote }}}
- {name: NODES, value: {{ (.set.warm | default dict).nodes | default 1 | quote }}}
- {name: PARTS, value: {{ (.set.build | default dict).parts | default 1 | quote }}}
- {name: TMPDIR, value: /scratch}
- name: JOB_ID
  valueFrom:
    fieldRef: {fieldPath: "metadata.labels['batch.kubernetes.io/controller-uid']"}
{{- include "granary.environment" .root }}
{{- end }}

{{- define "granary.pullSecrets" -}}
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
{{- range . }}
  - name: {{ . }}
{{- end }}
{{- end }}
{{- end }}
