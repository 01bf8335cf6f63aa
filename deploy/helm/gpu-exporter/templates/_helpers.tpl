{{/* Names. */}}
{{- define "gpu-exporter.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "gpu-exporter.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" -}}
{{- else if contains (include "gpu-exporter.name" .) .Release.Name -}}
{{- .Release.Name | trunc 63 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "gpu-exporter.name" .) | trunc 63 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* A name with a suffix, truncated before it so that names stay distinct. Takes (list . suffix). */}}
{{- define "gpu-exporter.named" -}}
{{- $end := index . 1 -}}
{{- printf "%s-%s" (include "gpu-exporter.fullname" (index . 0) | trunc (int (sub 62 (len $end))) | trimSuffix "-") $end -}}
{{- end -}}

{{- define "gpu-exporter.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "gpu-exporter.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "gpu-exporter.selector" -}}
app.kubernetes.io/name: {{ include "gpu-exporter.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "gpu-exporter.labels" -}}
{{ include "gpu-exporter.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "gpu-exporter.image" -}}
{{- if .Values.image.digest -}}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest -}}
{{- else -}}
{{- printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) -}}
{{- end -}}
{{- end -}}

{{/* The values that make the container privileged; empty if it is not. */}}
{{- define "gpu-exporter.privileged" -}}
{{- $why := list -}}
{{- if .Values.features.kernelLog -}}{{- $why = append $why "features.kernelLog" -}}{{- end -}}
{{- if eq .Values.gpu.access "hostDriver" -}}{{- $why = append $why "gpu.access=hostDriver" -}}{{- end -}}
{{- join ", " $why -}}
{{- end -}}

{{/* Whether the container runs as user 0: to read files of root, or to use a capability, which has no effect for other users. */}}
{{- define "gpu-exporter.root" -}}
{{- with .Values -}}
{{- if or .features.ownership .features.kernelLog .features.containerVisible .features.migMonitor (eq .gpu.access "hostDriver") -}}true{{- end -}}
{{- end -}}
{{- end -}}

{{/* The Secret with web-config.yml; empty if there is none. */}}
{{- define "gpu-exporter.webSecret" -}}
{{- if .Values.web.configSecret -}}
{{- .Values.web.configSecret -}}
{{- else if or .Values.web.tls.secretName .Values.web.basicAuth.users -}}
{{- include "gpu-exporter.named" (list . "web") -}}
{{- end -}}
{{- end -}}

{{/* The kind that auto resolves to. */}}
{{- define "gpu-exporter.monitoringKind" -}}
{{- if ne .Values.monitoring.kind "auto" -}}
{{- .Values.monitoring.kind -}}
{{- else if .Capabilities.APIVersions.Has "monitoring.coreos.com/v1/PodMonitor" -}}PodMonitor
{{- else -}}none
{{- end -}}
{{- end -}}

{{- define "gpu-exporter.rulesKind" -}}
{{- if ne .Values.rules.kind "auto" -}}
{{- .Values.rules.kind -}}
{{- else if .Capabilities.APIVersions.Has "monitoring.coreos.com/v1/PrometheusRule" -}}PrometheusRule
{{- else -}}none
{{- end -}}
{{- end -}}

{{/* Four fifths of a quantity of memory, in bytes. Takes memory, and prefix of the value's name. */}}
{{- define "gpu-exporter.memoryLimit" -}}
{{- $units := dict "" 1 "k" 1000 "M" 1000000 "G" 1000000000 "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 -}}
{{- $text := toString .memory -}}
{{- $unit := regexFind "[A-Za-z]*$" $text -}}
{{- if not (hasKey $units $unit) -}}
{{- fail (printf "%sresources.limits.memory must be in Mi or Gi, got %s" .prefix $text) -}}
{{- end -}}
{{- div (mul (int64 (mulf (float64 (trimSuffix $unit $text)) 1000)) (get $units $unit) 4) 5000 -}}
{{- end -}}

{{/* Expressions that are added to the term of every GPU label. */}}
{{- define "gpu-exporter.pause" -}}
{{- if .Values.scheduling.followPause -}}
{{- range $i, $label := .Values.scheduling.pauseLabels -}}
{{- if $i }}
{{ end -}}
- key: {{ $label | quote }}
  operator: NotIn
  values: [paused-for-mig-change, paused-for-driver-upgrade]
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Added capabilities, by feature. */}}
{{- define "gpu-exporter.capabilities" -}}
{{- $add := list -}}
{{- if .Values.features.containerVisible -}}{{- $add = append $add "SYS_PTRACE" -}}{{- end -}}
{{- if .Values.features.migMonitor -}}{{- $add = append $add "SYS_ADMIN" -}}{{- end -}}
{{- toYaml $add -}}
{{- end -}}

{{/*
The flags as environment variables, so that gpu-exporter doctor, run by kubectl exec, has the same. Flags with an empty value
(--path.kmsg=) must be arguments.
*/}}
{{- define "gpu-exporter.flags" -}}
{{- $f := .Values.features -}}
{{- $o := dict "web.listen-address" (printf ":%d" (int .Values.web.port)) "log.level" .Values.exporter.log.level "log.format" .Values.exporter.log.format -}}
{{- range $poll := list "fast" "medium" "slow" -}}
{{- $_ := set $o (printf "poll.%s" $poll) (index $.Values.exporter.pollIntervals $poll) -}}
{{- end -}}
{{- if $f.ownership -}}
{{- $_ := set $o "poll.kubelet" .Values.exporter.pollIntervals.kubelet -}}
{{- $_ := set $o "kubelet.max-age" .Values.kubelet.maxAge -}}
{{- with .Values.kubelet.gpuIDResources -}}{{- $_ := set $o "kubelet.gpu-id-resource" (join "\n" .) -}}{{- end -}}
{{- else -}}
{{- $_ := set $o "kubelet" "false" -}}
{{- end -}}
{{- if $f.deviceCheckpoint -}}{{- $_ := set $o "kubelet.checkpoint" "/var/lib/kubelet/device-plugins/kubelet_internal_checkpoint" -}}{{- end -}}
{{- if $f.draCheckpoint -}}{{- $_ := set $o "kubelet.dra-checkpoint" (printf "/var/lib/kubelet/plugins/%s/checkpoint.json" .Values.kubelet.draDriver) -}}{{- end -}}
{{- if $f.podMetadata -}}{{- $_ := set $o "kubernetes.pods" "true" -}}{{- end -}}
{{- if $f.resourceSlices -}}{{- $_ := set $o "kubernetes.resource-slices" "true" -}}{{- end -}}
{{- if $f.containerVisible -}}{{- $_ := set $o "containers.visible" "true" -}}{{- end -}}
{{- with .Values.metrics -}}
{{- if ne .size "default" -}}{{- $_ := set $o "metrics" .size -}}{{- end -}}
{{- range $group, $on := .groups -}}{{- $_ := set $o (printf "collector.%s" $group) (toString $on) -}}{{- end -}}
{{- with .allowlist -}}{{- $_ := set $o "metric-allowlist" (join "\n" .) -}}{{- end -}}
{{- with .denylist -}}{{- $_ := set $o "metric-denylist" (join "\n" .) -}}{{- end -}}
{{- end -}}
{{- if .Values.exporter.linkDetails -}}{{- $_ := set $o "link-details" "true" -}}{{- end -}}
{{- with .Values.exporter.processLimit -}}{{- $_ := set $o "process-limit" (toString (int .)) -}}{{- end -}}
{{- if $f.containerMemory -}}{{- $_ := set $o "path.host" "/host" -}}{{- end -}}
{{- with $f.slurmJobMapping -}}{{- $_ := set $o "slurm.job-mapping-dir" . -}}{{- end -}}
{{- with $f.podLabels -}}{{- $_ := set $o "kubernetes.pod-label" (join "\n" .) -}}{{- end -}}
{{- if eq .Values.gpu.access "hostDriver" -}}{{- $_ := set $o "nvml.library" (printf "%s/%s" .Values.gpu.hostDriver.mountPath .Values.gpu.hostDriver.library) -}}{{- end -}}
{{- with .Values.compat -}}
{{- if .release -}}{{- $_ := set $o "compat" .release -}}{{- end -}}
{{- if eq .sharedGPUs "copies" -}}{{- $_ := set $o "compat.set" "kubernetes-virtual-gpus=true" -}}{{- end -}}
{{- range .deviceLabels -}}{{- $_ := set $o "compat.set" (join "\n" (compact (list (get $o "compat.set") (printf "label=%s" .)))) -}}{{- end -}}
{{- if .port -}}{{- $_ := set $o "compat.listen-address" (printf ":%d" (int .port)) -}}{{- end -}}
{{- end -}}
{{- if include "gpu-exporter.webSecret" . -}}{{- $_ := set $o "web.config.file" "/etc/gpu-exporter/web/web-config.yml" -}}{{- end -}}
{{- toYaml $o -}}
{{- end -}}
