package bus

import (
	"os"
	"path/filepath"
	"strings"
)

// Wrapper finds a library that intercepts NVML's memory calls among the mapped files of this process. Two are known:
// that of kai-scheduler/gpu-fractioning (fractioning-manager/nvmlshim at 4ae05eb), a file libnvidia-ml.so.1 that loads the
// driver's library by its version; and HAMi's libvgpu.so, which is preloaded. A driver's own libnvidia-ml.so.1 is a
// symbolic link: its mapping has the name with the version.
func Wrapper(maps, library string) string {
	var plain string
	versioned := false
	for line := range strings.Lines(maps) {
		at := strings.IndexByte(line, '/')
		if at < 0 {
			continue
		}
		path := strings.TrimSuffix(strings.TrimSpace(line[at:]), " (deleted)")
		switch name := path[strings.LastIndexByte(path, '/')+1:]; {
		case name == "libvgpu.so":
			return path
		case name == library:
			plain = path
		case strings.HasPrefix(name, library[:len(library)-1]):
			versioned = true
		}
	}
	if versioned {
		return plain
	}
	return ""
}

// OwnCgroup is the path of this process's cgroup below the mount point of cgroup v2, as NVML expects it.
func OwnCgroup() string {
	text, _ := os.ReadFile("/proc/self/cgroup")
	_, own, _ := strings.Cut(string(text), "0::")
	own, _, _ = strings.Cut(own, "\n")
	return filepath.Join("/sys/fs/cgroup", own)
}
