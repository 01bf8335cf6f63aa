//go:build arm64image

package deploy_test

import (
	"debug/elf"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The image for arm64, made by a cross compiler, has what this machine's has, and its programs start with its own loader and libraries: make
// check-cross installs what it takes, the compiler and an emulator of the processor.
func TestImageOfArm64(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "image")
	builtImage(t, "arm64", dir)
	laid := read(t, dir)
	image := laid.Image
	if image.Architecture != "arm64" || image.OS != "linux" || image.Config.User != "65534:65534" || strings.Join(image.Config.Entrypoint, " ") != "/usr/local/bin/gpu-exporter" {
		t.Errorf("%+v", image)
	}

	rootfs := filepath.Join(t.TempDir(), "rootfs")
	listing, _ := unpackLayers(t, dir, laid.Layers, image.RootFS.DiffIDs, rootfs)
	here := strings.NewReplacer("x86_64-linux-gnu", "aarch64-linux-gnu", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1")
	inProgram := 0
	for _, line := range strings.Split(here.Replace(fileText(t, filepath.Join("testdata", "image-amd64.txt"))), "\n") {
		if !strings.HasPrefix(line, "0 ") || !strings.Contains(line, "/bin/") && !strings.Contains(line, "/doc/gpu-exporter") {
			continue // the C library's own files are named by processor
		}
		inProgram++
		if !strings.Contains(listing, line+"\n") {
			t.Errorf("it lacks %s", line)
		}
	}
	if inProgram < 2 {
		t.Errorf("%d files to compare", inProgram)
	}
	for _, name := range []string{"gpu-exporter", "gpu-report"} {
		path := filepath.Join(rootfs, "usr/local/bin", name)
		f, err := elf.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		f.Close()
		if f.Machine != elf.EM_AARCH64 {
			t.Errorf("%s is for %v", name, f.Machine)
		}
		if out := output(t, "", "qemu-aarch64", "-L", rootfs, path, "--version"); !strings.Contains(out, name+", version v0.0.0-test") || !strings.Contains(out, "linux/arm64") {
			t.Errorf("%s says %s", name, out)
		}
	}

	address := freeAddress(t)
	cmd := exec.Command("qemu-aarch64", "-L", rootfs, filepath.Join(rootfs, "usr/local/bin/gpu-exporter"), "--no-kubelet", "--node-name=gpu-node-1", "--path.kmsg=", "--web.listen-address="+address)
	page := served(t, cmd, address, "gpu_exporter_source_up{")
	for _, want := range []string{`gpu_exporter_source_up{node="gpu-node-1",source="nvml"} 0`, `version="v0.0.0-test"`} {
		if !strings.Contains(page, want) {
			t.Errorf("the metrics have no %s", want)
		}
	}
}
