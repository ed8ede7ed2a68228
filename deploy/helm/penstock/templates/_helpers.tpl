{{- define "penstock.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "penstock.fullname" -}}
{{- $name := include "penstock.name" . }}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" }}
{{- else if contains $name .Release.Name }}
{{- .Release.Name | trunc 50 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name $name | trunc 50 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- define "penstock.selector" -}}
app.kubernetes.io/name: {{ include "penstock.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "penstock.labels" -}}
{{ include "penstock.selector" . }}
app.kubernetes.io/version: {{ .Values.image.tag | default .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "penstock.scheme" -}}
{{ ternary "HTTPS" "HTTP" .Values.tls.enabled }}
{{- end }}

{{- /* The name of the ConfigMap with the model repository, one of ours or one that is there. */}}
{{- define "penstock.modelFiles" -}}
{{ .Values.models.configMap.name | default (printf "%s-models" (include "penstock.fullname" .)) }}
{{- end }}

{{- /* Keys of ConfigMaps have no slashes. */}}
{{- define "penstock.modelFileKey" -}}
{{ . | replace "/" "__" }}
{{- end }}

{{- define "penstock.serviceAccount" -}}
{{- if .Values.serviceAccount.create }}
{{- .Values.serviceAccount.name | default (include "penstock.fullname" .) }}
{{- else }}
{{- .Values.serviceAccount.name | default "default" }}
{{- end }}
{{- end }}

{{- define "penstock.gracePeriod" -}}
{{- if .Values.terminationGracePeriodSeconds }}
{{- .Values.terminationGracePeriodSeconds | int }}
{{- else }}
{{- add (.Values.preStopSeconds | int) (.Values.server.exitTimeoutSeconds | int) 10 }}
{{- end }}
{{- end }}

{{- define "penstock.probe" -}}
httpGet:
  path: {{ .path }}
  port: http
  scheme: {{ include "penstock.scheme" .root }}
  {{- with .root.Values.probes.headers }}
  httpHeaders: {{ toYaml . | nindent 4 }}
  {{- end }}
{{ toYaml .settings }}
{{- end }}

{{- /* Metrics have no TLS and no secrets: only who is named may read them from elsewhere. */}}
{{- define "penstock.metricsAddress" -}}
{{- if .Values.security.metricsAddress }}
{{- .Values.security.metricsAddress }}
{{- else if or (ne .Values.monitor.kind "none") .Values.networkPolicy.metrics }}
{{- "0.0.0.0" }}
{{- else }}
{{- "127.0.0.1" }}
{{- end }}
{{- end }}

{{- define "penstock.secretVariables" -}}
{{- range $at, $restriction := .Values.security.restrictions }}
- name: RESTRICTION_{{ $at }}
  valueFrom:
    secretKeyRef:
      name: {{ $restriction.secretName }}
      key: {{ $restriction.secretKey }}
{{- end }}
{{- end }}

{{- define "penstock.securityArguments" -}}
{{- with .Values.security }}
- --grpc-reflection={{ .reflection }}
- {{ printf "--metrics-address=%s" (include "penstock.metricsAddress" $) | quote }}
{{- if .secure }}
{{- if not (or $.Values.tls.enabled .restrictions $.Values.access.secretName) }}
{{- fail "security.secure needs tls.enabled or security.restrictions or access.secretName" }}
{{- end }}
- --secure
- --http-address=0.0.0.0
- --grpc-address=0.0.0.0
{{- end }}
{{- if $.Values.access.secretName }}
- --access-policy=/etc/penstock/access/policy.toml
{{- end }}
{{- range $at, $restriction := .restrictions }}
{{- $groups := $restriction.groups | default $.Values.security.groups | join "," }}
{{- range list "http-restricted-api" "grpc-restricted-protocol" }}
- {{ printf "--%s=%s:%s=$RESTRICTION_%d" . $groups $restriction.header $at | quote }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{- define "penstock.arguments" -}}
{{- if eq .Values.models.source "url" }}
- --model-repository={{ required "models.url is needed" .Values.models.url }}
{{- else }}
- --model-repository={{ .Values.models.path }}
{{- end }}
- --model-control-mode={{ .Values.server.modelControlMode }}
{{- range .Values.server.loadModels }}
- --load-model={{ . }}
{{- end }}
- --http-port={{ .Values.ports.http }}
- --grpc-port={{ .Values.ports.grpc }}
- --metrics-port={{ .Values.ports.metrics }}
- --exit-timeout-secs={{ .Values.server.exitTimeoutSeconds | int }}
{{- include "penstock.securityArguments" . }}
{{- if .Values.tls.enabled }}
{{- range list "http" "grpc" }}
- --{{ . }}-use-ssl=true
- --{{ . }}-server-cert=/etc/penstock/tls/tls.crt
- --{{ . }}-server-key=/etc/penstock/tls/tls.key
{{- end }}
{{- if .Values.tls.grpcClientCertificates }}
- --grpc-use-ssl-mutual=true
- --grpc-root-cert=/etc/penstock/tls/ca.crt
{{- end }}
{{- end }}
{{- range .Values.server.extraArgs }}
- {{ . | quote }}
{{- end }}
{{- end }}
