// The notices of what is linked into the shipped programs.
module github.com/gpu-exporter/gpu-exporter/tools/licences

go 1.26.0
