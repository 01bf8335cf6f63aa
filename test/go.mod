module github.com/gpu-exporter/gpu-exporter/test

go 1.26.0
