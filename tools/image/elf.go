package main

import (
	"debug/buildinfo"
	"debug/elf"
	"fmt"
	"strconv"
	"strings"
)

// program is what a binary tells of itself.
type program struct {
	path, loader string
	libraries    []string
	// glibc is the newest version of the C library of which it takes a symbol, such as 2.34.
	glibc string
	build *buildinfo.BuildInfo
}

// inspect reads a binary, and refuses one that could not work in the image: of another architecture, with a loader that is not there, or
// bound at its start, which ends it where an old driver lacks a newer symbol.
func inspect(path string, m machine) (program, error) {
	p := program{path: path}
	f, err := elf.Open(path)
	if err != nil {
		return p, err
	}
	defer f.Close()
	if want := architecture(m); f.Machine != want {
		return p, fmt.Errorf("%s is for %v, not for %s", path, f.Machine, m.goarch)
	}
	if err := lazy(f); err != nil {
		return p, fmt.Errorf("%s %w: link it with -Wl,-z,lazy", path, err)
	}
	for _, s := range f.Progs {
		if s.Type == elf.PT_INTERP {
			text := make([]byte, s.Filesz)
			if _, err := s.ReadAt(text, 0); err != nil {
				return p, fmt.Errorf("%s: %w", path, err)
			}
			p.loader = strings.TrimRight(string(text), "\x00")
		}
	}
	if !strings.HasSuffix(p.loader, "/"+m.loader) {
		return p, fmt.Errorf("%s wants the loader %q; the image has %s", path, p.loader, m.loader)
	}
	if p.libraries, err = f.ImportedLibraries(); err != nil {
		return p, fmt.Errorf("%s: %w", path, err)
	}
	symbols, err := f.ImportedSymbols()
	if err != nil {
		return p, fmt.Errorf("%s: %w", path, err)
	}
	for _, s := range symbols {
		if v, ok := strings.CutPrefix(s.Version, "GLIBC_"); ok && older(p.glibc, v) {
			p.glibc = v
		}
	}
	if p.build, err = buildinfo.ReadFile(path); err != nil {
		return p, fmt.Errorf("%s: %w", path, err)
	}
	return p, nil
}

// inspectStatic reads a program that stands alone: of the architecture, and with no loader.
func inspectStatic(path string, m machine) (program, error) {
	p := program{path: path}
	if path == "" {
		return p, fmt.Errorf("no --report for %s: build one first", m.goarch)
	}
	f, err := elf.Open(path)
	if err != nil {
		return p, err
	}
	defer f.Close()
	if want := architecture(m); f.Machine != want {
		return p, fmt.Errorf("%s is for %v, not for %s", path, f.Machine, m.goarch)
	}
	for _, s := range f.Progs {
		if s.Type == elf.PT_INTERP {
			return p, fmt.Errorf("%s takes a loader: build it with CGO_ENABLED=0", path)
		}
	}
	if p.build, err = buildinfo.ReadFile(path); err != nil {
		return p, fmt.Errorf("%s: %w", path, err)
	}
	return p, nil
}

func architecture(m machine) elf.Machine {
	return map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}[m.goarch]
}

// lazy refuses a binary whose symbols are all bound when it starts.
func lazy(f *elf.File) error {
	for tag, now := range map[elf.DynTag]uint64{elf.DT_FLAGS: uint64(elf.DF_BIND_NOW), elf.DT_FLAGS_1: uint64(elf.DF_1_NOW)} {
		values, err := f.DynValue(tag)
		if err != nil {
			return err
		}
		for _, v := range values {
			if v&now != 0 {
				return fmt.Errorf("is bound at its start (%v)", tag)
			}
		}
	}
	if values, err := f.DynValue(elf.DT_BIND_NOW); err != nil {
		return err
	} else if len(values) > 0 {
		return fmt.Errorf("is bound at its start (%v)", elf.DT_BIND_NOW)
	}
	return nil
}

// runsOn refuses packages whose C library is older than the binary, or that lack a library.
func (p program) runsOn(packages []debianPackage) error {
	for _, d := range packages {
		if d.name != "libc6" {
			continue
		}
		has, _, _ := strings.Cut(d.version, "-")
		if older(has, p.glibc) {
			return fmt.Errorf("%s takes symbols of glibc %s, and the image has %s: build it on Debian 12", p.path, p.glibc, has)
		}
	}
	for _, l := range p.libraries {
		switch l {
		case "libc.so.6", "libdl.so.2", "libpthread.so.0", "libresolv.so.2", "libm.so.6", "librt.so.1", "libgcc_s.so.1":
		default:
			if !strings.HasPrefix(l, "ld-linux") {
				return fmt.Errorf("%s needs %s, which the image does not have", p.path, l)
			}
		}
	}
	return nil
}

// older compares versions such as 2.4 and 2.34, number by number.
func older(a, b string) bool {
	x, y := strings.Split(a, "."), strings.Split(b, ".")
	for i := range max(len(x), len(y)) {
		var m, n int
		if i < len(x) {
			m, _ = strconv.Atoi(x[i])
		}
		if i < len(y) {
			n, _ = strconv.Atoi(y[i])
		}
		if m != n {
			return m < n
		}
	}
	return false
}
