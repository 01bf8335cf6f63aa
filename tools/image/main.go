// Command image puts the exporter's container image together: an OCI layout made of Debian packages of exact versions and of the
// binary, and its SBOM. It needs apt-get and dpkg-deb, no daemon and no registry. The same inputs give the same bytes.
//
// Push the layout with skopeo copy oci:bin/image:VERSION docker://registry.example.com/gpu-exporter:VERSION, or with any other
// tool that reads OCI layouts.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"time"
)

// machine is an architecture in the words of those who have to agree on it.
type machine struct {
	goarch, debian, triplet, loader string
}

// machines are those for which an image can be made.
var machines = []machine{
	{"amd64", "amd64", "x86_64-linux-gnu", "ld-linux-x86-64.so.2"},
	{"arm64", "arm64", "aarch64-linux-gnu", "ld-linux-aarch64.so.1"},
}

// options are what the image is made from.
type options struct {
	version, revision, license, notices, lock, cache, out string
	// made is the time that every file and the image bear.
	made time.Time
	// binaries and reports are the paths of gpu-exporter and gpu-report, by Go's name of the architecture.
	binaries, reports map[string]string
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintf(os.Stderr, "image: %v\n", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	o := options{binaries: map[string]string{}, reports: map[string]string{}}
	flags := flag.NewFlagSet("image", flag.ContinueOnError)
	flags.StringVar(&o.version, "version", "unknown", "version of the exporter")
	flags.StringVar(&o.revision, "revision", "unknown", "commit of the exporter")
	flags.StringVar(&o.license, "license", "LICENSE", "file of the licence")
	flags.StringVar(&o.notices, "notices", "bin/THIRD_PARTY_NOTICES", "file of the licences of what is linked into the programs")
	flags.StringVar(&o.lock, "lock", "deploy/image.lock", "packages, versions and checksums")
	flags.StringVar(&o.cache, "cache", ".cache/debs", "folder of downloaded packages")
	flags.StringVar(&o.out, "out", "bin/image", "folder of the layout; the SBOM is written beside it")
	epoch := flags.Int64("epoch", 0, "seconds since 1970 that every file bears, such as the commit's time")
	newest := flags.Bool("newest", false, "write the newest versions into the lock file instead of making an image")
	for name, into := range map[string]map[string]string{"binary": o.binaries, "report": o.reports} {
		flags.Func(name, "ARCH=PATH of gpu-"+map[string]string{"binary": "exporter", "report": "report"}[name]+" (repeatable)", func(s string) error {
			arch, path, ok := strings.Cut(s, "=")
			if !ok {
				return errors.New("want ARCH=PATH")
			}
			into[arch] = path
			return nil
		})
	}
	if err := flags.Parse(args); err != nil {
		return err
	}
	o.made = time.Unix(*epoch, 0).UTC()
	if *newest {
		return writeLock(ctx, o)
	}
	if len(o.binaries) == 0 {
		return errors.New("no --binary: build one first")
	}
	return build(ctx, o)
}

// build writes the layout for every binary that was given.
func build(ctx context.Context, o options) error {
	lock, err := readLock(o.lock)
	if err != nil {
		return err
	}
	if err := os.RemoveAll(o.out); err != nil {
		return err
	}
	l, err := newLayout(o.out)
	if err != nil {
		return err
	}
	var boms []bom
	for _, m := range machines {
		binary, ok := o.binaries[m.goarch]
		if !ok {
			continue
		}
		b, err := inspect(binary, m)
		if err != nil {
			return err
		}
		report, err := inspectStatic(o.reports[m.goarch], m)
		if err != nil {
			return err
		}
		packages, err := fetch(ctx, lock, m, o.cache)
		if err != nil {
			return err
		}
		if err := b.runsOn(packages); err != nil {
			return err
		}
		system, err := systemLayer(ctx, packages, m)
		if err != nil {
			return err
		}
		program, err := programLayer(binary, report.path, o)
		if err != nil {
			return err
		}
		if err := l.add(m, o, system, program); err != nil {
			return err
		}
		boms = append(boms, bom{m, b, report, packages})
	}
	if len(boms) != len(o.binaries) {
		return fmt.Errorf("there are binaries for %d architectures, and images for %d of them", len(o.binaries), len(boms))
	}
	digest, err := l.finish(o)
	if err != nil {
		return err
	}
	sbom := filepath.Join(filepath.Dir(o.out), filepath.Base(o.out)+".spdx.json")
	if err := writeSBOM(sbom, o, boms); err != nil {
		return err
	}
	fmt.Printf("%s: %s\n%s\n", o.out, digest, sbom)
	return nil
}
