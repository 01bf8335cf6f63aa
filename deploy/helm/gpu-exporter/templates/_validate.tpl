{{/*
Contradictory values and old names, each refused with one line. values.schema.json refuses misspelled ones.
*/}}
{{- define "gpu-exporter.validate" -}}
{{- $f := .Values.features -}}
{{- range $old, $new := dict "exporter.lanes" "exporter.pollIntervals" "report.window" "report.period" -}}
{{- $path := splitList "." $old -}}
{{- if hasKey (index $.Values (first $path)) (last $path) -}}
{{- fail (printf "%s was renamed: use %s" $old $new) -}}
{{- end -}}
{{- end -}}
{{- if not .Values.exporter.enabled -}}
{{- if eq (include "gpu-exporter.monitoringKind" .) "ServiceMonitor" -}}
{{- fail "exporter.enabled=false requires monitoring.kind=PodMonitor: the Service of the other DaemonSet has a monitor of its own" -}}
{{- end -}}
{{- if .Values.compat.release -}}
{{- fail "exporter.enabled=false excludes compat.release: the other DaemonSet has /metrics with the names of dcgm-exporter already" -}}
{{- end -}}
{{- end -}}
{{- if not $f.ownership -}}
{{- range $name := list "deviceCheckpoint" "draCheckpoint" "gpuFractioning" "podMetadata" "resourceSlices" -}}
{{- if index $f $name -}}
{{- fail (printf "features.%s requires features.ownership=true: it resolves GPUs of the allocations that the kubelet lists" $name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if and $f.podLabels (not $f.podMetadata) -}}
{{- fail "features.podLabels requires features.podMetadata=true: labels are read from the API server" -}}
{{- end -}}
{{- if and $f.containerVisible (not $f.processes) -}}
{{- fail "features.containerVisible requires features.processes=true: other containers are only visible from the host's PID namespace" -}}
{{- end -}}
{{- if and .Values.exporter.processLimit (not .Values.features.processes) -}}
{{- fail "exporter.processLimit requires features.processes=true: processes are only visible from the host's PID namespace" -}}
{{- end -}}
{{- if and .Values.kubelet.gpuIDResources (not $f.ownership) -}}
{{- fail "kubelet.gpuIDResources requires features.ownership=true" -}}
{{- end -}}
{{- if and .Values.web.configSecret (or .Values.web.tls.secretName .Values.web.basicAuth.users) -}}
{{- fail "web.configSecret excludes web.tls and web.basicAuth: configure both in its web-config.yml" -}}
{{- end -}}
{{- if and (eq .Values.gpu.access "runtimeClass") (not .Values.gpu.runtimeClassName) -}}
{{- fail "gpu.access=runtimeClass requires gpu.runtimeClassName; if the default runtime gives access to the GPUs, set gpu.access=none" -}}
{{- end -}}
{{- if and (eq .Values.gpu.access "claim") $f.ownership (not $f.draCheckpoint) -}}
{{- fail "gpu.access=claim requires features.draCheckpoint=true: the kubelet lists the exporter's own claim like any other, and only the DRA driver's checkpoint shows that it allocates nothing" -}}
{{- end -}}
{{- if and $f.migMonitor (ne .Values.gpu.access "runtimeClass") -}}
{{- fail (printf "features.migMonitor requires gpu.access=runtimeClass: its variable has no effect with %s" .Values.gpu.access) -}}
{{- end -}}
{{- if and .Values.scheduling.priorityClassQuota (not .Values.scheduling.priorityClassName) -}}
{{- fail "scheduling.priorityClassQuota requires scheduling.priorityClassName" -}}
{{- end -}}
{{- if not (or .Values.scheduling.gpuNodeLabels .Values.scheduling.nodeSelector) -}}
{{- fail "scheduling.gpuNodeLabels and scheduling.nodeSelector are both empty: the exporter would run on every node" -}}
{{- end -}}
{{- if and .Values.openshift.scc (not .Values.serviceAccount.create) (not .Values.serviceAccount.name) -}}
{{- fail "openshift.scc would grant its permissions to the service account default: set serviceAccount.name or serviceAccount.create=true" -}}
{{- end -}}
{{- range $name := list "podMetadata" "resourceSlices" -}}
{{- if and (index $f $name) (not $.Values.serviceAccount.create) (not $.Values.serviceAccount.name) -}}
{{- fail (printf "features.%s would grant its permissions to the service account default: set serviceAccount.name or serviceAccount.create=true" $name) -}}
{{- end -}}
{{- end -}}
{{- if and .Values.monitoring.basicAuth (not (include "gpu-exporter.webSecret" .)) -}}
{{- fail "monitoring.basicAuth requires web.basicAuth or web.configSecret: the exporter requires no password" -}}
{{- end -}}
{{- if and .Values.web.basicAuth.users (has (include "gpu-exporter.monitoringKind" .) (list "PodMonitor" "ServiceMonitor")) (not .Values.monitoring.basicAuth) -}}
{{- fail "web.basicAuth requires monitoring.basicAuth: Prometheus would send no password" -}}
{{- end -}}
{{- if and (eq .Values.rules.kind "none") .Values.rules.alerts -}}
{{- fail "rules.alerts has no effect with rules.kind=none" -}}
{{- end -}}
{{- if and (has (include "gpu-exporter.monitoringKind" .) (list "PodMonitor" "ServiceMonitor")) (ne (include "gpu-exporter.rulesKind" .) "none") (not (regexMatch (printf "^(?:%s)$" .Values.rules.job) .Values.monitoring.job)) -}}
{{- fail (printf "monitoring.job=%s does not match rules.job=%s: the alerts would not select the exporter" .Values.monitoring.job .Values.rules.job) -}}
{{- end -}}
{{- if .Values.compat.release -}}
{{- if or (eq .Values.compat.job .Values.monitoring.job) (and (ne (include "gpu-exporter.rulesKind" .) "none") (regexMatch (printf "^(?:%s)$" .Values.rules.job) .Values.compat.job)) -}}
{{- fail (printf "compat.job=%s matches monitoring.job or rules.job: the rules would count /metrics/dcgm as a second exporter" .Values.compat.job) -}}
{{- end -}}
{{- else if or .Values.compat.metricRelabelings .Values.compat.deviceLabels .Values.compat.port (ne .Values.compat.sharedGPUs "one") (not .Values.compat.honorLabels) -}}
{{- fail "compat.honorLabels, compat.metricRelabelings, compat.sharedGPUs, compat.deviceLabels and compat.port require compat.release: dcgm-4.8, dcgm-4.9 or nvidia-smi" -}}
{{- end -}}
{{- $own := list "node-name" "nvml.library" "kubelet" "no-kubelet" "kubelet.socket" "kubelet.max-age" "kubelet.gpu-id-resource" "kubelet.checkpoint" "kubelet.dra-checkpoint" "kubernetes.pods" "no-kubernetes.pods" "kubernetes.resource-slices" "no-kubernetes.resource-slices" "kubernetes.pod-label" "slurm.job-mapping-dir" "containers.visible" "no-containers.visible" "process-limit" "metrics" "metric-allowlist" "metric-denylist" "link-details" "no-link-details" "path.kmsg" "path.host" "poll.fast" "poll.medium" "poll.slow" "poll.kubelet" "log.level" "log.format" "web.listen-address" "web.config.file" "compat" "compat.set" "compat.shared-gpus" "compat.listen-address" "compat.device-label" -}}
{{- range .Values.exporter.extraArgs -}}
{{- $flag := regexReplaceAll "=.*$" (trimPrefix "--" .) "" -}}
{{- if or (has $flag $own) (regexMatch "^(no-)?collector[.]" $flag) -}}
{{- fail (printf "exporter.extraArgs has --%s, which the chart sets from another value" $flag) -}}
{{- end -}}
{{- end -}}
{{- if and .Values.report.enabled (not .Values.report.prometheusURL) -}}
{{- fail "report.enabled requires report.prometheusURL" -}}
{{- end -}}
{{- if and .Values.report.timeZone (semverCompare "<1.27-0" .Capabilities.KubeVersion.Version) -}}
{{- fail "report.timeZone requires Kubernetes 1.27: write report.schedule in the controller's time zone" -}}
{{- end -}}
{{- range .Values.report.extraArgs -}}
{{- $flag := regexReplaceAll "=.*$" (regexReplaceAll "^--?" . "") "" -}}
{{- if has $flag (list "prometheus.url" "from" "format" "out" "o" "quiet" "q") -}}
{{- fail (printf "report.extraArgs has %s, which the chart sets from another value" .) -}}
{{- end -}}
{{- end -}}
{{- if and (or .Values.exporter.enabled .Values.report.enabled) (not .Values.image.repository) -}}
{{- fail "image.repository is empty and no image is published: build one (make image, or docker build -f deploy/Dockerfile), push it to your registry and set image.repository and image.tag" -}}
{{- end -}}
{{- end -}}
