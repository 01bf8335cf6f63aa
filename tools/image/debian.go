package main

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// suites are where the packages come from. They need no trusted key: each package's checksum is in the lock file.
const suites = `deb [trusted=yes] http://deb.debian.org/debian bookworm main
deb [trusted=yes] http://deb.debian.org/debian bookworm-updates main
deb [trusted=yes] http://deb.debian.org/debian-security bookworm-security main
`

// wanted are the packages of the image: the C library, for the driver's library is loaded at run time and linked against it, what that
// depends on, the names of the system, and the authorities that the world trusts.
var wanted = []string{"base-files", "ca-certificates", "gcc-12-base", "libc6", "libgcc-s1"}

// debianPackage is one line of the lock file, and the file once it is fetched.
type debianPackage struct {
	name, version, arch, sum string
	path                     string
}

func readLock(path string) ([]debianPackage, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var out []debianPackage
	lines := bufio.NewScanner(f)
	for n := 1; lines.Scan(); n++ {
		text, _, _ := strings.Cut(lines.Text(), "#")
		fields := strings.Fields(text)
		switch len(fields) {
		case 0:
		case 4:
			out = append(out, debianPackage{name: fields[0], version: fields[1], arch: fields[2], sum: fields[3]})
		default:
			return nil, fmt.Errorf("%s:%d: want NAME VERSION ARCH SHA256", path, n)
		}
	}
	return out, lines.Err()
}

// apt runs apt with a world of its own, so that the machine's sources and packages change nothing.
func apt(ctx context.Context, world, arch, dir, program string, args ...string) (string, error) {
	sources := filepath.Join(world, "sources.list")
	for _, d := range []string{"state/lists/partial", "cache/archives/partial"} {
		if err := os.MkdirAll(filepath.Join(world, d), 0o755); err != nil {
			return "", err
		}
	}
	for path, text := range map[string]string{sources: suites, filepath.Join(world, "status"): ""} {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			return "", err
		}
	}
	options := []string{"-o", "Dir::Etc::sourcelist=" + sources, "-o", "Dir::Etc::sourceparts=/dev/null", "-o", "Dir::State=" + world + "/state",
		"-o", "Dir::State::status=" + world + "/status", "-o", "Dir::Cache=" + world + "/cache", "-o", "APT::Architecture=" + arch, "-o", "APT::Architectures::=" + arch,
		"-o", "Acquire::Languages=none", "-o", "APT::Sandbox::User=", "-q"}
	cmd := exec.CommandContext(ctx, program, append(options, args...)...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w\n%s", program, strings.Join(args, " "), err, out)
	}
	return string(out), nil
}

// fetch returns the machine's packages as files, from the folder of downloads or from Debian's mirror.
func fetch(ctx context.Context, lock []debianPackage, m machine, cache string) ([]debianPackage, error) {
	cache, err := filepath.Abs(cache)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return nil, err
	}
	var out []debianPackage
	updated := false
	world, err := os.MkdirTemp("", "gpu-exporter-apt-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(world)
	for _, p := range lock {
		if p.arch != m.debian {
			continue
		}
		p.path = filepath.Join(cache, p.name+"_"+p.arch+"_"+p.sum[:16]+".deb")
		if sum, err := sumOf(p.path); err != nil || sum != p.sum {
			if !updated {
				if _, err := apt(ctx, world, m.debian, cache, "apt-get", "update"); err != nil {
					return nil, err
				}
				updated = true
			}
			if err := download(ctx, world, m, p); err != nil {
				return nil, fmt.Errorf("%w\nwhere Debian has a newer version by now: make image-lock", err)
			}
		}
		out = append(out, p)
	}
	for _, name := range wanted {
		if !slices.ContainsFunc(out, func(p debianPackage) bool { return p.name == name }) {
			return nil, fmt.Errorf("the lock file has no %s for %s", name, m.debian)
		}
	}
	return out, nil
}

func download(ctx context.Context, world string, m machine, p debianPackage) error {
	dir, err := os.MkdirTemp(world, "deb-")
	if err != nil {
		return err
	}
	if _, err := apt(ctx, world, m.debian, dir, "apt-get", "download", p.name+"="+p.version); err != nil {
		return err
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.deb"))
	if err != nil {
		return err
	}
	if len(files) != 1 {
		return fmt.Errorf("apt-get download %s left %d files", p.name, len(files))
	}
	sum, err := sumOf(files[0])
	if err != nil {
		return err
	}
	if sum != p.sum {
		return fmt.Errorf("%s %s has the checksum %s, and the lock file says %s", p.name, p.version, sum, p.sum)
	}
	text, err := os.ReadFile(files[0])
	if err != nil {
		return err
	}
	return os.WriteFile(p.path, text, 0o644)
}

func sumOf(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// writeLock asks Debian for the newest versions.
func writeLock(ctx context.Context, o options) error {
	var b strings.Builder
	b.WriteString("# The Debian packages of the image: name, version, architecture, SHA-256. Written by make image-lock.\n")
	for _, m := range machines {
		world, err := os.MkdirTemp("", "gpu-exporter-apt-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(world)
		if _, err := apt(ctx, world, m.debian, world, "apt-get", "update"); err != nil {
			return err
		}
		for _, name := range wanted {
			text, err := apt(ctx, world, m.debian, world, "apt-cache", "show", "--no-all-versions", name)
			if err != nil {
				return err
			}
			fields := control(text)
			if fields["Version"] == "" || len(fields["SHA256"]) != 64 {
				return fmt.Errorf("apt-cache show %s has no version and checksum:\n%s", name, text)
			}
			fmt.Fprintf(&b, "%s %s %s %s\n", name, fields["Version"], m.debian, fields["SHA256"])
		}
	}
	return os.WriteFile(o.lock, []byte(b.String()), 0o644)
}

// control reads the fields of a package's description that stand on one line.
func control(text string) map[string]string {
	out := map[string]string{}
	for _, line := range strings.Split(text, "\n") {
		if name, value, ok := strings.Cut(line, ": "); ok && !strings.HasPrefix(line, " ") && out[name] == "" {
			out[name] = value
		}
	}
	return out
}
