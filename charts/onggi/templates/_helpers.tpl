{{- define "onggi.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if contains $name .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "onggi.webhook" -}}{{ include "onggi.fullname" . }}-webhook{{- end -}}
{{- define "onggi.operator" -}}{{ include "onggi.fullname" . }}-operator{{- end -}}
{{- define "onggi.tlsSecret" -}}{{ include "onggi.fullname" . }}-tls{{- end -}}

{{- define "onggi.revisions" -}}{{ include "onggi.fullname" . }}-revisions{{- end -}}

{{- define "onggi.labels" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- /* Never change these: a Deployment's selector cannot be changed. */ -}}
{{- define "onggi.selector" -}}
app.kubernetes.io/name: {{ .root.Chart.Name }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end -}}

{{- define "onggi.image" -}}
{{ .image.repository }}:{{ default .root.Chart.AppVersion .image.tag }}
{{- end -}}

{{- /* What webhook and operator have in common: where they are and what they serve with. */ -}}
{{- define "onggi.env" -}}
- name: ONGGI_RELEASE_NAMESPACE
  value: {{ .Release.Namespace | quote }}
- name: ONGGI_TLS_SECRET
  value: {{ include "onggi.tlsSecret" . | quote }}
- name: ONGGI_WEBHOOK_SERVICE
  value: {{ include "onggi.webhook" . | quote }}
- name: ONGGI_OPERATOR_SERVICE
  value: {{ include "onggi.operator" . | quote }}
{{- end -}}

{{- /* Pod Security `restricted`, and a root that nothing is written to. */ -}}
{{- define "onggi.podSecurity" -}}
runAsNonRoot: true
seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{- define "onggi.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end -}}

{{- define "onggi.probes" -}}
livenessProbe:
  httpGet: {path: /healthz, port: health}
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 6
readinessProbe:
  httpGet: {path: /readyz, port: health}
  periodSeconds: 2
  timeoutSeconds: 2
{{- end -}}

{{- /* What a Prometheus without its operator goes by. */ -}}
{{- define "onggi.scrape" -}}
{{- if .Values.monitoring.annotations }}
prometheus.io/scrape: "true"
prometheus.io/port: "8080"
prometheus.io/path: /metrics
{{- end }}
{{- end -}}

{{- define "onggi.monitoringLabels" -}}
{{- merge (dict) (include "onggi.labels" . | fromYaml) .Values.monitoring.labels | toYaml -}}
{{- end -}}
