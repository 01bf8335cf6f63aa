// Command licences gathers the licences of what is linked into programs: the modules that the binaries themselves name, and the Go
// library. Their texts are taken from the module cache. A licence that it does not know, or a module without one, is an error: somebody
// has to look at it.
//
//	licences [--notices=FILE] [--page=FILE] BINARY...
package main

import (
	"bytes"
	"cmp"
	"context"
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintf(os.Stderr, "licences: %v\n", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("licences", flag.ContinueOnError)
	notices := flags.String("notices", "", "file to write all texts to")
	list := flags.String("page", "", "file to write the modules and the names of their licences to, as a page of the documentation")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() == 0 {
		return errors.New("no binary is named")
	}
	modules, err := linked(ctx, flags.Args())
	if err != nil {
		return err
	}
	if *notices != "" {
		if err := os.WriteFile(*notices, texts(modules), 0o644); err != nil {
			return err
		}
	}
	if *list != "" {
		return os.WriteFile(*list, page(modules), 0o644)
	}
	return nil
}

// module is one that is linked, with the texts that have to go with it.
type module struct {
	path, version string
	programs      []string
	licences      []string
	files         []licenceFile
}

type licenceFile struct{ name, text string }

// linked are the modules of all binaries by path, the Go library first.
func linked(ctx context.Context, binaries []string) ([]module, error) {
	byPath := map[string]*module{}
	golang := module{path: "Go standard library"}
	for _, b := range binaries {
		info, err := buildinfo.ReadFile(b)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", b, err)
		}
		name := filepath.Base(b)
		golang.version = info.GoVersion
		golang.programs = append(golang.programs, name)
		for _, d := range info.Deps {
			if d.Replace != nil {
				d = d.Replace
			}
			m := byPath[d.Path]
			if m == nil {
				m = &module{path: d.Path, version: d.Version}
				byPath[d.Path] = m
			}
			if m.version != d.Version {
				return nil, fmt.Errorf("%s is linked in %s and in %s: build the programs anew", d.Path, m.version, d.Version)
			}
			m.programs = append(m.programs, name)
		}
	}
	root, err := goEnv(ctx, "GOROOT")
	if err != nil {
		return nil, err
	}
	if golang.files, err = licenceFiles(root, false); err != nil {
		return nil, err
	}
	out := []module{golang}
	for _, path := range slices.Sorted(maps.Keys(byPath)) {
		m := *byPath[path]
		dir, err := cached(ctx, m.path+"@"+m.version)
		if err != nil {
			return nil, err
		}
		if m.files, err = licenceFiles(dir, true); err != nil {
			return nil, err
		}
		out = append(out, m)
	}
	for i := range out {
		slices.Sort(out[i].programs)
		if err := out[i].classify(); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func goEnv(ctx context.Context, name string) (string, error) {
	text, err := exec.CommandContext(ctx, "go", "env", name).Output()
	if err != nil {
		return "", fmt.Errorf("go env %s: %w", name, err)
	}
	return strings.TrimSpace(string(text)), nil
}

// cached is the folder of a module in the module cache, downloaded if it is not there.
func cached(ctx context.Context, name string) (string, error) {
	text, err := exec.CommandContext(ctx, "go", "mod", "download", "-json", name).Output()
	var answer struct{ Dir, Error string }
	if json.Unmarshal(text, &answer) != nil || answer.Dir == "" {
		return "", fmt.Errorf("go mod download %s: %s: %w", name, answer.Error, cmp.Or(err, errors.New("no folder")))
	}
	return answer.Dir, nil
}

var isLicence = regexp.MustCompile(`(?i)^(licen[cs]e|copying|notice|patents)([-.].*)?$`)

// licenceFiles are a module's licences and notices; those of folders below are of code that it took from others.
func licenceFiles(dir string, deep bool) ([]licenceFile, error) {
	var out []licenceFile
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if path != dir && (!deep || slices.Contains([]string{"testdata", "examples", "example", ".git", "node_modules"}, d.Name())) {
				return filepath.SkipDir
			}
			return nil
		}
		if !isLicence.MatchString(d.Name()) || filepath.Ext(d.Name()) == ".go" {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		out = append(out, licenceFile{filepath.ToSlash(name), strings.ReplaceAll(string(text), "\r\n", "\n")})
		return nil
	})
	return out, err
}

// signs are sentences by which a licence is known; all of a row have to stand in the text.
var signs = []struct {
	name  string
	signs []string
}{
	{"Apache-2.0", []string{"Apache License", "Version 2.0"}},
	{"MPL-2.0", []string{"Mozilla Public License", "2.0"}},
	{"BSD-3-Clause", []string{"Redistribution and use in source and binary forms", "either the name"}},
	{"BSD-2-Clause", []string{"Redistribution and use in source and binary forms"}},
	{"MIT", []string{"Permission is hereby granted, free of charge"}},
	{"ISC", []string{"Permission to use, copy, modify, and", "distribute this software for any"}},
	{"GPL", []string{"GNU GENERAL PUBLIC LICENSE"}},
	{"LGPL", []string{"GNU LESSER GENERAL PUBLIC LICENSE"}},
}

// refused are licences whose terms the programs, as they are linked and shipped, would not meet.
var refused = []string{"GPL", "LGPL"}

func (m *module) classify() error {
	for _, f := range m.files {
		if base := strings.ToLower(filepath.Base(f.name)); strings.HasPrefix(base, "notice") || strings.HasPrefix(base, "patents") {
			continue
		}
		text := strings.Join(strings.Fields(f.text), " ")
		found := ""
		for _, s := range signs {
			if !slices.ContainsFunc(s.signs, func(sign string) bool { return !strings.Contains(text, sign) }) {
				found = s.name
				break
			}
		}
		if found == "" {
			return fmt.Errorf("%s@%s: nobody knows the licence in %s", m.path, m.version, f.name)
		}
		if slices.Contains(refused, found) {
			return fmt.Errorf("%s@%s: %s is under the %s", m.path, m.version, f.name, found)
		}
		if !slices.Contains(m.licences, found) {
			m.licences = append(m.licences, found)
		}
	}
	if len(m.licences) == 0 {
		return fmt.Errorf("%s@%s has no licence", m.path, m.version)
	}
	slices.Sort(m.licences)
	return nil
}

// page lists the modules without versions, so that an upgrade does not change it.
func page(modules []module) []byte {
	var b bytes.Buffer
	b.WriteString(`# Licences

Written by make licences from the binaries; a test compares it. gpu-exporter and gpu-report are licensed under the Apache License 2.0
([LICENSE](../LICENSE)). These are linked into them. The texts are in THIRD_PARTY_NOTICES, which the image, the packages and every release contain.

| module | licences | linked into |
|---|---|---|
`)
	for _, m := range modules {
		fmt.Fprintf(&b, "| %s | %s | %s |\n", m.path, strings.Join(m.licences, ", "), strings.Join(m.programs, ", "))
	}
	return b.Bytes()
}

// texts are all licences and notices one after the other.
func texts(modules []module) []byte {
	var b bytes.Buffer
	b.WriteString("gpu-exporter and gpu-report are licensed under the Apache License 2.0. They contain the following, under the licences that follow.\n")
	for _, m := range modules {
		for _, f := range m.files {
			line := strings.Repeat("=", 100)
			fmt.Fprintf(&b, "\n%s\n%s %s, %s\n%s\n\n%s\n", line, m.path, m.version, f.name, line, strings.TrimSpace(f.text))
		}
	}
	return b.Bytes()
}
