package deploy_test

import (
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/gpu-exporter/gpu-exporter/internal/must"
	"github.com/gpu-exporter/gpu-exporter/test/servers"
)

// The exporter calls symbols of a library that is absent when it is linked and may be older than its header. Whatever a
// distribution's compiler adds, the build binds them lazily and runs with a driver that lacks most of the newer ones.
func TestBinaryIsBoundLazily(t *testing.T) {
	gcc, err := exec.LookPath("gcc")
	must.OK(t, err)
	// As on Ubuntu, Fedora and others: these options precede the user's.
	hardened := t.TempDir()
	called := filepath.Join(hardened, "called")
	script := "#!/bin/sh\necho \"$@\" >>" + called + "\nexec " + gcc + ` -Wl,-z,now -Wl,-z,relro -fstack-protector-strong "$@"` + "\n"
	must.OK(t, os.WriteFile(filepath.Join(hardened, "gcc"), []byte(script), 0o755))
	// A version that no other build has: one that was linked before would be taken for this one.
	cmd := exec.Command(filepath.Join(root(t), "deploy", "build"), runtime.GOARCH)
	cmd.Env = append(os.Environ(), "PATH="+hardened+":"+os.Getenv("PATH"), "VERSION=hardened"+strings.ReplaceAll(hardened, "/", "-"))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if !strings.Contains(must.Read(t, called), "-Wl,-z,lazy") {
		t.Fatal("it was linked by another compiler")
	}
	binary := filepath.Join(root(t), "bin", runtime.GOARCH, "gpu-exporter")

	f, err := elf.Open(binary)
	must.OK(t, err)
	defer f.Close()
	for tag, now := range map[elf.DynTag]uint64{elf.DT_FLAGS: uint64(elf.DF_BIND_NOW), elf.DT_FLAGS_1: uint64(elf.DF_1_NOW),
		elf.DT_BIND_NOW: ^uint64(0)} {
		values, err := f.DynValue(tag)
		must.OK(t, err)
		for _, v := range values {
			if v&now != 0 || tag == elf.DT_BIND_NOW {
				t.Errorf("it is bound at start: %v %#x", tag, v)
			}
		}
	}
	if libraries, err := f.ImportedLibraries(); err != nil || fmt.Sprint(libraries) != "[libc.so.6]" {
		t.Errorf("it links %v: %v", libraries, err)
	}
	symbols, err := f.ImportedSymbols()
	must.OK(t, err)
	ofDriver := 0
	for _, s := range symbols {
		if strings.HasPrefix(s.Name, "nvml") {
			ofDriver++
		}
		// The oldest C library that the packages and docs/upgrading.md promise.
		if v, ok := strings.CutPrefix(s.Version, "GLIBC_2."); ok {
			var minor int
			if _, err := fmt.Sscan(v, &minor); err != nil || minor > 34 {
				t.Errorf("%s is of glibc 2.%s; 2.34 is promised", s.Name, v)
			}
		}
	}
	if ofDriver < 100 {
		t.Errorf("it links %d symbols of the driver's library", ofDriver)
	}

	_, standin := built(t)
	address := servers.Address(t)
	start := exec.Command(standin, "--scenario=testdata/scenarios/rtx-2080ti-idle.scenario", "--quiet", "--", binary, "--no-kubelet",
		"--node-name=gpu-node-1", "--web.listen-address="+address)
	start.Dir = root(t)
	page := served(t, start, address, "gpu_temperature_celsius{")
	for _, want := range []string{`driver_version="470.256.02"`, "gpu_temperature_celsius{",
		`gpu_exporter_source_up{node="gpu-node-1",source="nvml"} 1`} {
		if !strings.Contains(page, want) {
			t.Errorf("with an old driver the metrics have no %s", want)
		}
	}
}

// built builds the exporter and the stand-in of its node.
func built(t *testing.T) (exporter, standin string) {
	t.Helper()
	return servers.Build(t, servers.Exporter), servers.Build(t, servers.Standin)
}

// served runs a command and returns its metrics once they contain a text.
func served(t *testing.T, cmd *exec.Cmd, address, wanted string) (page string) {
	t.Helper()
	servers.Run(t, cmd)
	servers.Until(t, "the metrics contain "+wanted, func() (err error) {
		if page, err = servers.Fetch("http://" + address + "/metrics"); err == nil && !strings.Contains(page, wanted) {
			err = errors.New("they do not")
		}
		return err
	})
	return page
}
