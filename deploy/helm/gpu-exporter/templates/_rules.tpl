{{/*
The rules, with the user's parameters filled in. The expressions have placeholders for parameters ($window, $busy), and
labels and patterns that a cluster may replace.
*/}}

{{/* Replaces job, resource and cluster label in an expression. Takes (list . data expression). */}}
{{- define "gpu-exporter.expr" -}}
{{- $v := (index . 0).Values.rules -}}
{{- $data := index . 1 -}}
{{- $e := index . 2 -}}
{{- $e = replace (printf "=~%q" $data.resource) (printf "=~%q" $v.resource) $e -}}
{{- $e = replace (printf "=~%q" $data.job) (printf "=~%q" $v.job) $e -}}
{{- if ne $v.clusterLabel "cluster" -}}
{{- /* Not the level in the name of a record, cluster:gpu_... */ -}}
{{- $e = regexReplaceAll "\\bcluster\\b([^:]|$)" $e (printf "%s${1}" $v.clusterLabel) -}}
{{- end -}}
{{- $e -}}
{{- end -}}

{{/* A duration in seconds. */}}
{{- define "gpu-exporter.seconds" -}}
{{- $units := dict "ms" 0.001 "s" 1 "m" 60 "h" 3600 "d" 86400 "w" 604800 -}}
{{- $sum := 0.0 -}}
{{- range regexFindAll "[0-9]+(ms|[smhdw])" . -1 -}}
{{- $unit := regexFind "[a-z]+" . -}}
{{- $sum = addf $sum (mulf (float64 (trimSuffix $unit .)) (get $units $unit)) -}}
{{- end -}}
{{- $sum -}}
{{- end -}}

{{- define "gpu-exporter.rules" -}}
{{- $v := .Values.rules -}}
{{- $data := .Files.Get "files/rules.json" | fromJson -}}
{{- $groups := list -}}
{{- if $v.recording -}}
{{- range $data.recording -}}
{{- $rules := list -}}
{{- range .rules -}}
{{- $rules = append $rules (dict "record" .record "expr" (include "gpu-exporter.expr" (list $ $data .expr))) -}}
{{- end -}}
{{- $group := dict "name" .name "rules" $rules -}}
{{- if .interval -}}{{- $_ := set $group "interval" .interval -}}{{- end -}}
{{- $groups = append $groups $group -}}
{{- end -}}
{{- end -}}
{{- $prices := list -}}
{{- range $model, $price := $v.prices -}}
{{- $prices = append $prices (dict "record" "model:gpu_hour_price:info" "expr" (printf "vector(%v)" $price) "labels" (dict "model" $model)) -}}
{{- end -}}
{{- if and $prices $v.recording -}}
{{- $groups = append $groups (dict "name" "gpu-exporter-prices" "rules" $prices) -}}
{{- end -}}
{{- $known := dict -}}
{{- range $data.alerting -}}
{{- $rules := list -}}
{{- range .rules -}}
{{- $_ := set $known .alert true -}}
{{- $own := get $v.alerts .alert | default dict -}}
{{- $expr := .expr -}}
{{- $description := .description -}}
{{- range .parameters -}}
{{- $value := .value -}}
{{- $seconds := .seconds -}}
{{- if hasKey $own .name -}}
{{- $value = get $own .name | toString -}}
{{- if .seconds -}}{{- $seconds = include "gpu-exporter.seconds" $value -}}{{- end -}}
{{- end -}}
{{- if .seconds -}}{{- $expr = replace (printf "$%s_seconds" .name) $seconds $expr -}}{{- end -}}
{{- $expr = replace (printf "$%s" .name) $value $expr -}}
{{- $description = replace (printf "$%s" .name) $value $description -}}
{{- end -}}
{{- if dig "enabled" (not .off) $own -}}
{{- $link := printf "%s%s" (trimSuffix "/" $v.dashboardURL) (replace "$labels.cluster " (printf "$labels.%s " $v.clusterLabel) .link) -}}
{{- $labels := merge (dict "severity" (get $own "severity" | default .severity)) (get $own "labels" | default dict) $v.alertLabels -}}
{{- $description = replace "$labels.cluster " (printf "$labels.%s " $v.clusterLabel) $description -}}
{{- $rule := dict "alert" .alert "expr" (include "gpu-exporter.expr" (list $ $data $expr)) "labels" $labels
      "annotations" (dict "summary" .summary "description" $description "runbook_url" (replace "{alert}" (lower .alert) $v.runbookURL)) -}}
{{- if $v.dashboardURL -}}{{- $_ := set $rule.annotations "dashboard_url" $link -}}{{- end -}}
{{- $for := get $own "for" | default .for -}}
{{- if $for -}}{{- $_ := set $rule "for" $for -}}{{- end -}}
{{- $keep := get $own "keepFiringFor" | default .keepFiringFor -}}
{{- if $keep -}}{{- $_ := set $rule "keep_firing_for" $keep -}}{{- end -}}
{{- $rules = append $rules $rule -}}
{{- end -}}
{{- end -}}
{{- if and $rules $v.alerting -}}
{{- $group := dict "name" .name "rules" $rules -}}
{{- if .interval -}}{{- $_ := set $group "interval" .interval -}}{{- end -}}
{{- $groups = append $groups $group -}}
{{- end -}}
{{- end -}}
{{- range $name, $_ := $v.alerts -}}
{{- if not (hasKey $known $name) -}}
{{- fail (printf "rules.alerts.%s: there is no such alert; docs/alerts.md lists them" $name) -}}
{{- end -}}
{{- end -}}
{{- toYaml (dict "groups" $groups) -}}
{{- end -}}
