module github.com/gpu-exporter/gpu-exporter

go 1.26.0
