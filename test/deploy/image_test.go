package deploy_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// builtImage makes the image for an architecture, with a version and a time of its own.
func builtImage(t *testing.T, arch, out string) {
	t.Helper()
	for _, args := range [][]string{
		{"make", "binaries", "bin/THIRD_PARTY_NOTICES", "IMAGE_ARCHS=" + arch, "VERSION=v0.0.0-test", "REVISION=0123456789abcdef0123456789abcdef01234567"},
		{"go", "-C", "tools/image", "build", "-o", filepath.Join(root(t), "bin", "mkimage"), "."},
		{filepath.Join(root(t), "bin", "mkimage"), "--version=v0.0.0-test", "--revision=0123456789abcdef0123456789abcdef01234567", "--epoch=1750000000",
			"--binary=" + arch + "=bin/" + arch + "/gpu-exporter", "--report=" + arch + "=bin/" + arch + "/gpu-report", "--out=" + out},
	} {
		cmd := exec.Command(args[0], args[1:]...)
		cmd.Dir = root(t)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", args, err, out)
		}
	}
}

type described struct {
	MediaType, Digest string
	Size              int64
	Annotations       map[string]string
}

// blob reads a blob of the layout and holds it to what is said of it.
func blob(t *testing.T, dir string, d described) []byte {
	t.Helper()
	sum, ok := strings.CutPrefix(d.Digest, "sha256:")
	if !ok {
		t.Fatalf("the digest %q is no SHA-256", d.Digest)
	}
	text := []byte(fileText(t, filepath.Join(dir, "blobs", "sha256", sum)))
	if got := sha256.Sum256(text); hex.EncodeToString(got[:]) != sum || int64(len(text)) != d.Size {
		t.Errorf("blob %s is not what its name and size say", d.Digest)
	}
	return text
}

// laidOut is what a layout says of its one image.
type laidOut struct {
	Name   string // the tag
	Layers []described
	Image  struct {
		Architecture, OS string
		Config           struct {
			User            string
			Entrypoint, Cmd []string
			Env             []string
			ExposedPorts    map[string]any
			Labels          map[string]string
		}
		RootFS struct {
			DiffIDs []string `json:"diff_ids"`
		}
	}
}

// read reads the layout in a folder.
func read(t *testing.T, dir string) (l laidOut) {
	t.Helper()
	var top struct{ Manifests []described }
	decode(t, []byte(fileText(t, filepath.Join(dir, "index.json"))), &top)
	if len(top.Manifests) != 1 {
		t.Fatalf("the index is %+v", top)
	}
	var manifest struct {
		Config described
		Layers []described
	}
	decode(t, blob(t, dir, top.Manifests[0]), &manifest)
	decode(t, blob(t, dir, manifest.Config), &l.Image)
	l.Name, l.Layers = top.Manifests[0].Annotations["org.opencontainers.image.ref.name"], manifest.Layers
	return l
}

func decode(t *testing.T, text []byte, into any) {
	t.Helper()
	if err := json.Unmarshal(text, into); err != nil {
		t.Fatal(err)
	}
}

// The image is what it promises: its files, its user, its entrypoint, and a program that serves metrics with the image's own libraries.
func TestImage(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "image")
	builtImage(t, runtime.GOARCH, dir)
	laid := read(t, dir)
	if laid.Name != "v0.0.0-test" {
		t.Errorf("it is tagged %q", laid.Name)
	}
	image := laid.Image
	c := image.Config
	if image.Architecture != runtime.GOARCH || image.OS != "linux" || c.User != "65534:65534" || !slices.Equal(c.Entrypoint, []string{"/usr/local/bin/gpu-exporter"}) || len(c.Cmd) != 0 {
		t.Errorf("%s/%s as %s runs %v %v", image.OS, image.Architecture, c.User, c.Entrypoint, c.Cmd)
	}
	if _, ok := c.ExposedPorts["10835/tcp"]; !ok {
		t.Errorf("ports %v", c.ExposedPorts)
	}
	for _, e := range c.Env {
		if strings.HasPrefix(e, "NVIDIA_MIG") {
			t.Errorf("%s keeps NVIDIA's runtime from starting a container without CAP_SYS_ADMIN", e)
		}
	}
	for _, want := range []string{"NVIDIA_VISIBLE_DEVICES=all", "NVIDIA_DRIVER_CAPABILITIES=utility"} {
		if !slices.Contains(c.Env, want) {
			t.Errorf("no %s in %v", want, c.Env)
		}
	}
	for label, want := range map[string]string{"version": "v0.0.0-test", "revision": "0123456789abcdef0123456789abcdef01234567", "created": "2025-06-15T15:06:40Z", "licenses": "Apache-2.0"} {
		if got := c.Labels["org.opencontainers.image."+label]; got != want {
			t.Errorf("label %s is %q", label, got)
		}
	}

	// The Dockerfile says the same of its last stage.
	stages := strings.Split(fileText(t, filepath.Join(root(t), "deploy", "Dockerfile")), "\nFROM ")
	last := stages[len(stages)-1]
	for _, want := range []string{"\nENV NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=utility\n", "\nUSER " + c.User + "\n", "\nEXPOSE 10835\n", `\nENTRYPOINT ["` + c.Entrypoint[0] + `"]`} {
		if !strings.Contains(last, strings.ReplaceAll(want, `\n`, "\n")) {
			t.Errorf("the Dockerfile has no %q", want)
		}
	}

	rootfs := filepath.Join(t.TempDir(), "rootfs")
	listing, size := unpackLayers(t, dir, laid.Layers, image.RootFS.DiffIDs, rootfs)
	if runtime.GOARCH == "amd64" {
		compare(t, filepath.Join("testdata", "image-amd64.txt"), listing)
	}
	if size > 21<<20 {
		t.Errorf("the image is %d MiB to pull", size>>20)
	}
	t.Run("runs", func(t *testing.T) { runsFrom(t, rootfs) })
	t.Run("report", func(t *testing.T) {
		for _, name := range []string{"gpu-report", "gpu-exporter"} {
			want := name + ", version v0.0.0-test (branch: , revision: 0123456789abcdef0123456789abcdef01234567)"
			if out := output(t, "", filepath.Join(rootfs, "usr/local/bin", name), "--version"); !strings.HasPrefix(out, want) {
				t.Errorf("%s says %s, and should say %s", name, out, want)
			}
		}
	})
	t.Run("sbom", func(t *testing.T) { listsEverything(t, dir+".spdx.json") })
	t.Run("reproducible", func(t *testing.T) {
		again := filepath.Join(t.TempDir(), "image")
		builtImage(t, runtime.GOARCH, again)
		if a, b := fileText(t, filepath.Join(dir, "index.json")), fileText(t, filepath.Join(again, "index.json")); a != b {
			t.Errorf("made again, the image is another:\n%s\n%s", a, b)
		}
	})
}

// unpackLayers writes the layers' files, and returns their list and what there is to pull.
func unpackLayers(t *testing.T, dir string, layers []described, diffs []string, rootfs string) (listing string, size int64) {
	t.Helper()
	var lines []string
	for i, l := range layers {
		size += l.Size
		z, err := gzip.NewReader(bytes.NewReader(blob(t, dir, l)))
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(z)
		if err != nil {
			t.Fatal(err)
		}
		if sum := sha256.Sum256(text); "sha256:"+hex.EncodeToString(sum[:]) != diffs[i] {
			t.Errorf("layer %d is not what the configuration says", i)
		}
		for r := tar.NewReader(bytes.NewReader(text)); ; {
			h, err := r.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			if h.Uid != 0 || h.Gid != 0 || h.Mode&0o6000 != 0 || h.ModTime.Unix() != 1750000000 {
				t.Errorf("%s belongs to %d:%d, mode %o, of %v", h.Name, h.Uid, h.Gid, h.Mode, h.ModTime)
			}
			for record := range h.PAXRecords {
				if strings.HasPrefix(record, "SCHILY.xattr.") {
					t.Errorf("%s has %s: a file must bring no capability", h.Name, record)
				}
			}
			line := fmt.Sprintf("%s %04o %s", string(h.Typeflag), h.Mode, h.Name)
			path := filepath.Join(rootfs, h.Name)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			switch h.Typeflag {
			case tar.TypeDir:
				err = os.MkdirAll(path, 0o755)
			case tar.TypeSymlink:
				line += " -> " + h.Linkname
				err = os.Symlink(h.Linkname, path)
			case tar.TypeReg:
				var text []byte
				if text, err = io.ReadAll(r); err == nil {
					err = os.WriteFile(path, text, os.FileMode(h.Mode))
				}
			default:
				t.Errorf("%s is of the kind %c", h.Name, h.Typeflag)
			}
			if err != nil {
				t.Fatal(err)
			}
			lines = append(lines, line)
		}
	}
	slices.Sort(lines)
	return strings.Join(slices.Compact(lines), "\n") + "\n", size
}

// runsFrom starts the image's program with the image's loader and libraries, against the stand-in for a node, and asks it for its metrics.
func runsFrom(t *testing.T, rootfs string) {
	_, standin := programs(t)
	loaders, err := filepath.Glob(filepath.Join(rootfs, "usr", "lib", "*-linux-gnu", "ld-linux-*"))
	if err != nil || len(loaders) != 1 {
		t.Fatalf("loaders: %v %v", loaders, err)
	}
	address := freeAddress(t)
	cmd := onNode(t, standin, nil, loaders[0], "--inhibit-cache", "--library-path", filepath.Dir(loaders[0]), filepath.Join(rootfs, "usr/local/bin/gpu-exporter"), "--web.listen-address="+address)
	page := served(t, cmd, address, "gpu_busy_seconds_total{")
	for _, want := range []string{"gpu_busy_seconds_total{", `node="gpu-node-1"`, `gpu_exporter_source_up{node="gpu-node-1",source="nvml"} 1`} {
		if !strings.Contains(page, want) {
			t.Errorf("the metrics have no %s", want)
		}
	}
	maps := fileText(t, fmt.Sprintf("/proc/%d/maps", child(t, cmd.Process.Pid)))
	if !strings.Contains(maps, rootfs+"/usr/lib/") || strings.Contains(maps, " /usr/lib/") || strings.Contains(maps, " /lib/") {
		t.Errorf("it runs with libraries of this machine:\n%s", maps)
	}
}

// child is the process that another started.
func child(t *testing.T, pid int) int {
	t.Helper()
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range tasks {
		var of int
		if _, err := fmt.Sscan(fileText(t, path), &of); err == nil {
			return of
		}
	}
	t.Fatalf("process %d has no child", pid)
	return 0
}

// listsEverything holds the SBOM to the lock file and to the binary's own list of modules.
func listsEverything(t *testing.T, path string) {
	var d struct {
		SPDXVersion string
		Packages    []struct {
			SPDXID, Name, VersionInfo string
			ExternalRefs              []struct{ ReferenceLocator string }
		}
		Relationships []struct{ SpdxElementId, RelatedSpdxElement string }
	}
	decode(t, []byte(fileText(t, path)), &d)
	ids := map[string]bool{"SPDXRef-DOCUMENT": true}
	var listed []string
	for _, p := range d.Packages {
		if ids[p.SPDXID] {
			t.Errorf("%s is listed twice", p.SPDXID)
		}
		ids[p.SPDXID] = true
		listed = append(listed, p.Name+" "+p.VersionInfo)
	}
	for _, r := range d.Relationships {
		if !ids[r.SpdxElementId] || !ids[r.RelatedSpdxElement] {
			t.Errorf("a relationship of %s and %s, which are not both listed", r.SpdxElementId, r.RelatedSpdxElement)
		}
	}
	for _, line := range strings.Split(fileText(t, filepath.Join(root(t), "deploy", "image.lock")), "\n") {
		if f := strings.Fields(line); len(f) == 4 && f[0] != "#" && f[2] == runtime.GOARCH && !slices.Contains(listed, f[0]+" "+f[1]) {
			t.Errorf("the SBOM lacks %s %s", f[0], f[1])
		}
	}
	bin := filepath.Join(root(t), "bin", runtime.GOARCH)
	out, err := exec.Command("go", "version", "-m", filepath.Join(bin, "gpu-exporter"), filepath.Join(bin, "gpu-report")).Output()
	if err != nil {
		t.Fatal(err)
	}
	modules := 0
	for _, line := range strings.Split(string(out), "\n") {
		if f := strings.Fields(line); len(f) >= 3 && f[0] == "dep" {
			modules++
			if !slices.Contains(listed, f[1]+" "+f[2]) {
				t.Errorf("the SBOM lacks %s %s", f[1], f[2])
			}
		}
	}
	if d.SPDXVersion != "SPDX-2.3" || modules < 20 {
		t.Errorf("%s with %d modules", d.SPDXVersion, modules)
	}
}

// A binary that is bound when it starts would end where an old driver lacks a newer symbol: it makes no image.
func TestImageRefusesEagerBinding(t *testing.T) {
	builtImage(t, runtime.GOARCH, filepath.Join(t.TempDir(), "image"))
	source := filepath.Join(t.TempDir(), "eager.c")
	if err := os.WriteFile(source, []byte("int main(void) { return 0; }\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	eager := filepath.Join(t.TempDir(), "eager")
	if out, err := exec.Command("gcc", "-Wl,-z,now", "-o", eager, source).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	cmd := exec.Command(filepath.Join(root(t), "bin", "mkimage"), "--binary="+runtime.GOARCH+"="+eager, "--out="+filepath.Join(t.TempDir(), "image"))
	cmd.Dir = root(t)
	if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "is bound at its start") {
		t.Errorf("%v: %s", err, out)
	}
}
