{{/*
What is mounted, where, and from where: all of it read-only. Directories and not files, because the kubelet makes its
socket and its checkpoint anew.
*/}}
{{- define "gpu-exporter.volumes" -}}
{{- $f := .Values.features -}}
{{- $kubelet := trimSuffix "/" .Values.kubelet.root -}}
{{- $out := list -}}
{{- if $f.ownership -}}
{{- $out = append $out (dict "name" "pod-resources" "mountPath" "/var/lib/kubelet/pod-resources" "source" (dict "hostPath" (dict "path" (printf "%s/pod-resources" $kubelet) "type" "Directory"))) -}}
{{- end -}}
{{- if $f.deviceCheckpoint -}}
{{- $out = append $out (dict "name" "device-checkpoint" "mountPath" "/var/lib/kubelet/device-plugins" "source" (dict "hostPath" (dict "path" (printf "%s/device-plugins" $kubelet) "type" "Directory"))) -}}
{{- end -}}
{{- if $f.draCheckpoint -}}
{{- /* Created if missing: on a node without the DRA driver the pod would not start. */ -}}
{{- $out = append $out (dict "name" "dra-checkpoint" "mountPath" (printf "/var/lib/kubelet/plugins/%s" .Values.kubelet.draDriver) "source" (dict "hostPath" (dict "path" (printf "%s/plugins/%s" $kubelet .Values.kubelet.draDriver) "type" "DirectoryOrCreate"))) -}}
{{- end -}}
{{- if $f.gpuFractioning -}}
{{- /* Created if missing, as above: the operator's agent may not have started yet. */ -}}
{{- $out = append $out (dict "name" "gpu-fractioning" "mountPath" "/var/run/gpu-fractioning/map" "source" (dict "hostPath" (dict "path" "/var/run/gpu-fractioning/map" "type" "DirectoryOrCreate"))) -}}
{{- end -}}
{{- if $f.containerMemory -}}
{{- /* Not at /sys/fs/cgroup, where the runtime mounts the container's own. */ -}}
{{- $out = append $out (dict "name" "cgroup" "mountPath" "/host/sys/fs/cgroup" "source" (dict "hostPath" (dict "path" "/sys/fs/cgroup" "type" "Directory"))) -}}
{{- end -}}
{{- if and (or $f.processes $f.containerMemory $f.gpuFractioning) $f.processNames $f.ownership -}}
{{- $out = append $out (dict "name" "pod-logs" "mountPath" "/var/log/pods" "source" (dict "hostPath" (dict "path" "/var/log/pods" "type" "Directory"))) -}}
{{- $out = append $out (dict "name" "container-logs" "mountPath" "/var/log/containers" "source" (dict "hostPath" (dict "path" "/var/log/containers" "type" "Directory"))) -}}
{{- end -}}
{{- with $f.slurmJobMapping -}}
{{- /* Created if missing, as above: not every node runs Slurm. */ -}}
{{- $out = append $out (dict "name" "slurm-jobs" "mountPath" . "source" (dict "hostPath" (dict "path" . "type" "DirectoryOrCreate"))) -}}
{{- end -}}
{{- if $f.kernelLog -}}
{{- $out = append $out (dict "name" "kmsg" "mountPath" "/dev/kmsg" "source" (dict "hostPath" (dict "path" "/dev/kmsg" "type" "CharDevice"))) -}}
{{- end -}}
{{- if eq .Values.gpu.access "hostDriver" -}}
{{- $out = append $out (dict "name" "driver" "mountPath" .Values.gpu.hostDriver.mountPath "source" (dict "hostPath" (dict "path" .Values.gpu.hostDriver.path "type" ""))) -}}
{{- end -}}
{{- with include "gpu-exporter.webSecret" . -}}
{{- $out = append $out (dict "name" "web-config" "mountPath" "/etc/gpu-exporter/web" "source" (dict "secret" (dict "secretName" . "defaultMode" 288))) -}}
{{- end -}}
{{- with .Values.web.tls.secretName -}}
{{- $out = append $out (dict "name" "tls" "mountPath" "/etc/gpu-exporter/tls" "source" (dict "secret" (dict "secretName" . "defaultMode" 288))) -}}
{{- end -}}
{{- toYaml $out -}}
{{- end -}}
