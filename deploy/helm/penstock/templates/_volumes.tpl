{{- define "penstock.modelVolume" -}}
{{- $models := .Values.models }}
{{- if eq $models.source "pvc" }}
- name: models
  persistentVolumeClaim:
    claimName: {{ required "models.pvc.claimName is needed" $models.pvc.claimName }}
    readOnly: {{ $models.readOnly }}
{{- else if eq $models.source "hostPath" }}
- name: models
  hostPath:
    path: {{ required "models.hostPath is needed" $models.hostPath }}
    type: Directory
{{- else if eq $models.source "emptyDir" }}
- name: models
  emptyDir: {{ toYaml $models.emptyDir | nindent 4 }}
{{- else if eq $models.source "configMap" }}
- name: models
  configMap:
    name: {{ include "penstock.modelFiles" . }}
    items:
    {{- if $models.configMap.name }}
      {{- toYaml (required "models.configMap.items is needed" $models.configMap.items) | nindent 6 }}
    {{- else }}
    {{- range $path, $_ := required "models.configMap.files is needed" $models.configMap.files }}
      - key: {{ include "penstock.modelFileKey" $path }}
        path: {{ $path }}
    {{- end }}
    {{- end }}
{{- end }}
{{- end }}

{{- define "penstock.volumes" -}}
{{- include "penstock.modelVolume" . }}
- name: shm
  emptyDir:
    medium: Memory
    sizeLimit: {{ .Values.shm.sizeLimit }}
- name: tmp
  emptyDir: {{ toYaml .Values.scratch.tmp | nindent 4 }}
- name: home
  emptyDir: {{ toYaml .Values.scratch.cache | nindent 4 }}
{{- if .Values.tls.enabled }}
- name: tls
  secret:
    secretName: {{ required "tls.secretName is needed" .Values.tls.secretName }}
    # Readable for the server's group (fsGroup) only.
    defaultMode: 0440
{{- end }}
{{- with .Values.access.secretName }}
- name: access
  secret:
    secretName: {{ . }}
    defaultMode: 0440
{{- end }}
{{- with .Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "penstock.mounts" -}}
{{- if not (has .Values.models.source (list "image" "url")) }}
- name: models
  mountPath: {{ .Values.models.path }}
  readOnly: {{ .Values.models.readOnly }}
  {{- if and (eq .Values.models.source "pvc") .Values.models.pvc.subPath }}
  subPath: {{ .Values.models.pvc.subPath }}
  {{- end }}
{{- end }}
- name: shm
  mountPath: /dev/shm
- name: tmp
  mountPath: /tmp
- name: home
  mountPath: {{ .Values.scratch.home }}
{{- if .Values.tls.enabled }}
- name: tls
  mountPath: /etc/penstock/tls
  readOnly: true
{{- end }}
{{- if .Values.access.secretName }}
- name: access
  mountPath: /etc/penstock/access
  readOnly: true
{{- end }}
{{- with .Values.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end }}
