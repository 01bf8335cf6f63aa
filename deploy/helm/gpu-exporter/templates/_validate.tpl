{{/*
Contradictions, each refused with one line. What is merely misspelt is refused by values.schema.json.
*/}}
{{- define "gpu-exporter.validate" -}}
{{- $f := .Values.features -}}
{{- if not $f.ownership -}}
{{- range $name := list "deviceCheckpoint" "draCheckpoint" "podMetadata" -}}
{{- if index $f $name -}}
{{- fail (printf "features.%s contradicts features.ownership=false: it only adds to what the kubelet lists" $name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if and $f.podLabels (not $f.podMetadata) -}}
{{- fail "features.podLabels takes features.podMetadata=true: labels are read at the API server" -}}
{{- end -}}
{{- if and $f.containerVisible (not $f.processes) -}}
{{- fail "features.containerVisible takes features.processes=true: other containers are seen from the host's PID namespace alone" -}}
{{- end -}}
{{- if and .Values.kubelet.honestResources (not $f.ownership) -}}
{{- fail "kubelet.honestResources contradicts features.ownership=false: nobody asks the kubelet" -}}
{{- end -}}
{{- if and .Values.web.configSecret (or .Values.web.tls.secretName .Values.web.basicAuth.users) -}}
{{- fail "web.configSecret contradicts web.tls and web.basicAuth: write both into its web-config.yml" -}}
{{- end -}}
{{- if and (eq .Values.gpu.access "runtimeClass") (not .Values.gpu.runtimeClassName) -}}
{{- fail "gpu.access=runtimeClass takes gpu.runtimeClassName; where the runtime shows the GPUs unasked, say gpu.access=none" -}}
{{- end -}}
{{- if and $f.migMonitor (ne .Values.gpu.access "runtimeClass") -}}
{{- fail (printf "features.migMonitor takes gpu.access=runtimeClass: nobody reads its variable with %s" .Values.gpu.access) -}}
{{- end -}}
{{- if and .Values.scheduling.priorityClassQuota (not .Values.scheduling.priorityClassName) -}}
{{- fail "scheduling.priorityClassQuota takes scheduling.priorityClassName" -}}
{{- end -}}
{{- if not (or .Values.scheduling.gpuNodeLabels .Values.scheduling.nodeSelector) -}}
{{- fail "scheduling.gpuNodeLabels and scheduling.nodeSelector are both empty: the exporter would run on every node" -}}
{{- end -}}
{{- if and .Values.openshift.scc (not .Values.serviceAccount.create) (not .Values.serviceAccount.name) -}}
{{- fail "openshift.scc would give its rights to the service account default: name one, or let the chart create it" -}}
{{- end -}}
{{- if and $f.podMetadata (not .Values.serviceAccount.create) (not .Values.serviceAccount.name) -}}
{{- fail "features.podMetadata would give its rights to the service account default: name one, or let the chart create it" -}}
{{- end -}}
{{- if and .Values.monitoring.basicAuth (not (include "gpu-exporter.webSecret" .)) -}}
{{- fail "monitoring.basicAuth takes web.basicAuth or web.configSecret: the exporter asks for no password" -}}
{{- end -}}
{{- if and .Values.web.basicAuth.users (has (include "gpu-exporter.monitoringKind" .) (list "PodMonitor" "ServiceMonitor")) (not .Values.monitoring.basicAuth) -}}
{{- fail "web.basicAuth takes monitoring.basicAuth: Prometheus would send no password" -}}
{{- end -}}
{{- if and (eq .Values.rules.kind "none") .Values.rules.alerts -}}
{{- fail "rules.alerts contradicts rules.kind=none: there is no alert to turn" -}}
{{- end -}}
{{- if and (has (include "gpu-exporter.monitoringKind" .) (list "PodMonitor" "ServiceMonitor")) (ne (include "gpu-exporter.rulesKind" .) "none") (not (regexMatch (printf "^(?:%s)$" .Values.rules.job) .Values.monitoring.job)) -}}
{{- fail (printf "monitoring.job=%s is no job of rules.job=%s: the alerts would not see the exporter" .Values.monitoring.job .Values.rules.job) -}}
{{- end -}}
{{- if .Values.compat.release -}}
{{- if or (eq .Values.compat.job .Values.monitoring.job) (and (ne (include "gpu-exporter.rulesKind" .) "none") (regexMatch (printf "^(?:%s)$" .Values.rules.job) .Values.compat.job)) -}}
{{- fail (printf "compat.job=%s is the exporter's own job, by monitoring.job or rules.job: the rules would take /metrics/dcgm for a second exporter" .Values.compat.job) -}}
{{- end -}}
{{- else if or .Values.compat.metricRelabelings (not .Values.compat.honorLabels) -}}
{{- fail "compat.honorLabels and compat.metricRelabelings take compat.release: dcgm-4.8 or dcgm-4.9" -}}
{{- end -}}
{{- $own := list "node-name" "nvml.library" "kubelet" "no-kubelet" "kubelet.socket" "kubelet.max-age" "kubelet.honest-resource" "kubelet.checkpoint" "kubelet.dra-checkpoint" "kubernetes.pods" "no-kubernetes.pods" "kubernetes.pod-label" "slurm.job-mapping-dir" "containers.visible" "no-containers.visible" "path.kmsg" "path.pod-logs" "path.container-logs" "poll.fast" "poll.medium" "poll.slow" "poll.kubelet" "log.level" "log.format" "web.listen-address" "web.config.file" "compat" -}}
{{- range .Values.exporter.extraArgs -}}
{{- $flag := regexReplaceAll "=.*$" (trimPrefix "--" .) "" -}}
{{- if has $flag $own -}}
{{- fail (printf "exporter.extraArgs has --%s, which the chart sets itself: use its own value for it" $flag) -}}
{{- end -}}
{{- end -}}
{{- if and .Values.report.enabled (not .Values.report.prometheusURL) -}}
{{- fail "report.enabled takes report.prometheusURL: the server that has the history" -}}
{{- end -}}
{{- if and .Values.report.timeZone (semverCompare "<1.27-0" .Capabilities.KubeVersion.Version) -}}
{{- fail "report.timeZone takes Kubernetes 1.27: write report.schedule in the controller's time" -}}
{{- end -}}
{{- range .Values.report.extraArgs -}}
{{- $flag := regexReplaceAll "=.*$" (regexReplaceAll "^--?" . "") "" -}}
{{- if has $flag (list "prometheus.url" "from" "format" "out" "o" "quiet" "q") -}}
{{- fail (printf "report.extraArgs has %s, which the chart sets itself: use its own value for it" .) -}}
{{- end -}}
{{- end -}}
{{- end -}}
