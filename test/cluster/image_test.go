package cluster_test

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

const (
	// boxImage runs the pods and, as the sandbox, their namespaces.
	boxImage = "registry.example.com/box:1"
	// docsImage is the image of the commands in docs/install.md.
	docsImage = "registry.example.com/gpu-exporter:0.1.0"
	// driverDir has the files of the node's simulated driver, in containers of the runtime nvidia.
	driverDir = "/fakenvml"
)

// libraries are what the exporter is linked against; the image of a release has them from its base.
var libraries = []string{"/lib64/ld-linux-x86-64.so.2", "/lib/x86_64-linux-gnu/libc.so.6", "/lib/x86_64-linux-gnu/libdl.so.2",
	"/lib/x86_64-linux-gnu/libpthread.so.0", "/lib/x86_64-linux-gnu/libm.so.6", "/lib/x86_64-linux-gnu/librt.so.1",
	"/lib/x86_64-linux-gnu/libresolv.so.2"}

// ociLayout writes an image of one layer as an OCI layout.
func ociLayout(t *testing.T, dir, ref string, files map[string]string, config map[string]any) {
	t.Helper()
	var layer bytes.Buffer
	w := tar.NewWriter(&layer)
	for _, d := range []string{"tmp", "proc", "dev", "sys", "etc"} {
		noErr(t, w.WriteHeader(&tar.Header{Name: d, Typeflag: tar.TypeDir, Mode: 0o777}))
	}
	for name, source := range files {
		text, err := os.ReadFile(source)
		noErr(t, err)
		noErr(t, w.WriteHeader(&tar.Header{Name: strings.TrimPrefix(name, "/"), Mode: 0o755, Size: int64(len(text))}))
		if _, err := w.Write(text); err != nil {
			t.Fatal(err)
		}
	}
	noErr(t, w.Close())
	blobs := filepath.Join(dir, "blobs", "sha256")
	noErr(t, os.MkdirAll(blobs, 0o755))
	blob := func(media string, content []byte) map[string]any {
		sum := sha256.Sum256(content)
		digest := hex.EncodeToString(sum[:])
		noErr(t, os.WriteFile(filepath.Join(blobs, digest), content, 0o644))
		return map[string]any{"mediaType": media, "digest": "sha256:" + digest, "size": len(content)}
	}
	encode := func(v any) []byte {
		text, err := json.Marshal(v)
		noErr(t, err)
		return text
	}
	const media = "application/vnd.oci.image."
	data := blob(media+"layer.v1.tar", layer.Bytes())
	manifest := blob(media+"manifest.v1+json", encode(map[string]any{"schemaVersion": 2, "mediaType": media + "manifest.v1+json",
		"config": blob(media+"config.v1+json", encode(map[string]any{"os": "linux", "architecture": "amd64", "config": config,
			"rootfs": map[string]any{"type": "layers", "diff_ids": []any{data["digest"]}}})),
		"layers": []any{data}}))
	manifest["annotations"] = map[string]any{"io.containerd.image.name": ref, "org.opencontainers.image.ref.name": ref}
	manifest["platform"] = map[string]any{"os": "linux", "architecture": "amd64"}
	write(t, dir, "index.json", string(encode(map[string]any{"schemaVersion": 2, "manifests": []any{manifest}})))
	write(t, dir, "oci-layout", `{"imageLayoutVersion":"1.0.0"}`)
}

// images builds the image of the pods and ours, as deploy/image makes it on a base with the C library of this machine, and returns
// the archives to import.
func images(t *testing.T, dir string) []string {
	t.Helper()
	files := map[string]string{"bin/busybox": "/bin/busybox", "bin/sh": "/bin/busybox", "bin/sleep": "/bin/busybox"}
	for _, l := range libraries {
		files[l] = l
	}
	box, their, ours, root := filepath.Join(dir, "box"), filepath.Join(dir, "their"), filepath.Join(dir, "ours"), filepath.Join(dir, "root")
	ociLayout(t, box, boxImage, files, map[string]any{"Entrypoint": []string{"/bin/sleep", "1000000"},
		"Env": []string{"PATH=/usr/local/bin:/bin", "FAKENVML_SCENARIO=" + driverDir + "/scenario.flat",
			"FAKENVML_CONTROL=" + driverDir + "/scenario.control", "FAKENVML_DEV=" + driverDir + "/dev"}})
	ociLayout(t, their, theirImage, files, map[string]any{"Entrypoint": []string{"/bin/busybox", "httpd", "-f", "-p", "9400", "-h",
		driverDir + "/theirs"}})
	cmd := exec.Command("bash", "-c", "deploy/build && deploy/notices && "+
		"go -C tools/release build -trimpath -o ../../bin/mkimage ./image && "+
		"bin/mkimage --version="+docsImage+" --base="+box+" --out="+ours+" amd64 && "+
		"bin/mkimage --version="+rootImage+" --user=0:0 --base="+box+" --out="+root+" amd64")
	cmd.Dir = repository()
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build our image: %v\n%s", err, out)
	}
	var out []string
	for _, layout := range []string{box, their, ours, root} {
		must(t, "tar", "-C", layout, "-cf", layout+".tar", ".")
		out = append(out, layout+".tar")
	}
	return out
}

// simulate starts the simulated driver of the node: 8 H100, GPU 5 partitioned, with UUIDs that no other node has.
func (n *node) simulate(t *testing.T) {
	t.Helper()
	scenarios := filepath.Join(n.dir, "scenarios")
	must(t, "cp", "-r", filepath.Join(repository(), "testdata", "scenarios"), scenarios)
	idle, err := os.ReadFile(filepath.Join(scenarios, "8xh100-idle.scenario"))
	noErr(t, err)
	text := strings.ReplaceAll(string(idle), "GPU-5a0e", fmt.Sprintf("GPU-5a%de", n.index))
	n.gpus = inventory{uuid: map[int]string{}, mig: map[string]string{}}
	for line := range strings.Lines(text) {
		var i int
		if at := strings.Index(line, "uuid="); at > 0 {
			if _, err := fmt.Sscanf(line, "gpu %d", &i); err == nil {
				n.gpus.uuid[i] = strings.Fields(line[at+len("uuid="):])[0]
			}
		}
	}
	// Device nodes as the driver makes them; nothing opens them.
	must(t, "bash", "-euc", `mkdir "$0"/dev; for i in {0..7}; do mknod "$0/dev/nvidia$i" c 195 "$i"; done`, n.dir)
	if len(n.gpus.uuid) != 8 {
		t.Fatalf("the scenario has %d GPUs", len(n.gpus.uuid))
	}
	text += "\nmig gpu=5 layout=\""
	for i, slice := range []struct {
		profile          string
		gi, start, slots int
	}{{"3g.40gb", 1, 4, 4}, {"2g.20gb", 5, 0, 2}, {"1g.10gb", 7, 2, 1}, {"1g.10gb", 9, 3, 1}} {
		uuid := fmt.Sprintf("MIG-5a%de300%d-1d11-5a01-8b00-0000000005%02d", n.index, i, n.index)
		n.gpus.mig[uuid] = slice.profile
		text += fmt.Sprintf("gi=%d profile=%s start=%d size=%d uuid=%s ; ", slice.gi, slice.profile, slice.start, slice.slots, uuid)
	}
	text = strings.TrimSuffix(text, " ; ") + "\"\n"
	if n.index == 1 {
		for i, p := range sharing { // not at the same time: with phases of a second
			sleep, err := start(n.dir, "sleep", "1000000")
			noErr(t, err)
			t.Cleanup(sleep.stop)
			pid := sleep.cmd.Process.Pid
			n.sharing = append(n.sharing, pid)
			text += fmt.Sprintf("process gpu=4 pid=%d memory=%dGiB busy=%d%% period=2s phase=%ds\n", pid, p.memory, p.busy, i)
		}
	}
	file := write(t, scenarios, "node.scenario", text)

	// The command gets the flags of a simulated node; the library's directory has what the library reads.
	at := filepath.Join(n.dir, "driver")
	p, err := start(n.dir, "env", "TMPDIR="+n.dir, built(t, ".", "./cmd/standin", "standin"), "--quiet", "--scenario="+file, "--",
		"sh", "-c",
		`for a; do echo "$a"; done | sed -n s/^--nvml.library=//p >"$0.new"; mv "$0.new" "$0"; exec sleep 1000000`, at)
	noErr(t, err)
	t.Cleanup(p.stop)
	eventually(t, "the simulated driver of "+n.name, func() error {
		text, err := os.ReadFile(at)
		if err != nil {
			return fmt.Errorf("%w\n%s", err, p.output())
		}
		n.library = strings.TrimSpace(string(text))
		return nil
	})
}
