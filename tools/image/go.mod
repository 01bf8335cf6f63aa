// The program that puts the container image together, without a daemon and without a registry.
module github.com/gpu-exporter/gpu-exporter/tools/image

go 1.26.0
