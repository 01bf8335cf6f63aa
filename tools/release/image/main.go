// Command image makes the image of the last stage of deploy/Dockerfile without a container runtime: it adds the files
// that the stage copies, already built, to its base image, and writes an OCI layout for all architectures. Equal inputs
// give equal bytes.
//
//	image --version=v1.2.3 --revision=COMMIT --epoch=SECONDS [--base=REFERENCE] [--out=bin/image] ARCH...
package main

import (
	"archive/tar"
	"bytes"
	"cmp"
	"flag"
	"io"
	"log"
	"os"
	"path"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/moby/buildkit/frontend/dockerfile/instructions"
	"github.com/moby/buildkit/frontend/dockerfile/parser"
)

var (
	version  = flag.String("version", "unknown", "version and tag of the image")
	revision = flag.String("revision", "unknown", "git commit")
	epoch    = flag.Int64("epoch", 0, "time of the image and its files, in seconds of Unix time")
	base     = flag.String("base", "", "base image, or the directory of an OCI layout; scratch is the empty one; empty: the Dockerfile's")
	runAs    = flag.String("user", "65534:65534", "user and group")
	check    = flag.Bool("check", false, "only look whether the base image is there")
	out      = flag.String("out", "bin/image", "directory of the OCI layout")
)

func must[T any](v T, err error) T {
	if err != nil {
		log.Fatalf("image: %v", err)
	}
	return v
}

func main() {
	flag.Parse()
	parsed := must(parser.Parse(bytes.NewReader(must(os.ReadFile("deploy/Dockerfile")))))
	stages, _, err := instructions.Parse(parsed.AST, nil)
	stage := must(stages, err)[len(stages)-1]
	*base = cmp.Or(*base, stage.BaseName)
	index := v1.ImageIndex(empty.Index)
	for _, arch := range flag.Args() {
		platform := v1.Platform{OS: "linux", Architecture: arch}
		image := empty.Image
		if local, err := layout.FromPath(*base); err == nil {
			manifests := must(must(local.ImageIndex()).IndexManifest()).Manifests
			image = must(local.Image(manifests[0].Digest))
		} else if *base != "scratch" {
			image, err = remote.Image(must(name.ParseReference(*base)), remote.WithPlatform(platform))
			if err != nil {
				log.Fatalf("image: base image %s: %v; BASE= names another", *base, err)
			}
		}
		if !*check {
			index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: build(image, arch, stage.Commands),
				Descriptor: v1.Descriptor{Platform: &platform}})
		}
	}
	if *check {
		return
	}
	must(0, os.RemoveAll(*out))
	dir := must(layout.Write(*out, empty.Index))
	must(0, dir.AppendIndex(index, layout.WithAnnotations(
		map[string]string{"org.opencontainers.image.ref.name": *version})))
}

// build applies the instructions of a stage to its base image.
func build(image v1.Image, arch string, commands []instructions.Command) v1.Image {
	file := must(image.ConfigFile()).DeepCopy()
	file.OS, file.Architecture, file.Created = "linux", arch, v1.Time{Time: time.Unix(*epoch, 0).UTC()}
	config := &file.Config
	config.ExposedPorts, config.Labels = map[string]struct{}{}, map[string]string{}
	args := strings.NewReplacer("$VERSION", *version, "$REVISION", *revision, "$RUN_AS", *runAs)
	var files bytes.Buffer
	w := tar.NewWriter(&files)
	for _, c := range commands {
		switch c := c.(type) {
		case *instructions.ArgCommand:
		case *instructions.EnvCommand:
			for _, e := range c.Env {
				config.Env = append(config.Env, e.String())
			}
		case *instructions.LabelCommand:
			for _, l := range c.Labels {
				config.Labels[l.Key] = args.Replace(l.Value)
			}
		case *instructions.UserCommand:
			config.User = args.Replace(c.User)
		case *instructions.ExposeCommand:
			for _, p := range c.Ports {
				config.ExposedPorts[p+"/tcp"] = struct{}{}
			}
		case *instructions.EntrypointCommand:
			config.Entrypoint, config.Cmd = c.CmdLine, nil
		case *instructions.CopyCommand:
			for _, source := range c.SourcePaths {
				add(w, arch, strings.TrimPrefix(source, "/src/"), c.DestPath)
			}
		default:
			log.Fatalf("image: %s is not supported in the last stage of the Dockerfile", c.Name())
		}
	}
	must(0, w.Close())
	open := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(files.Bytes())), nil }
	layer := must(tarball.LayerFromOpener(open))
	return must(mutate.AppendLayers(must(mutate.ConfigFile(image, file)), layer))
}

// add adds one file. What the build stage leaves in bin is here in bin/ARCH, or in bin where it is the same for all.
func add(w *tar.Writer, arch, from, to string) {
	if strings.HasSuffix(to, "/") {
		to += path.Base(from)
	}
	if built := path.Join("bin", arch, path.Base(from)); strings.HasPrefix(from, "bin/") {
		if _, err := os.Stat(built); err == nil {
			from = built
		}
	}
	text, info := must(os.ReadFile(from)), must(os.Stat(from))
	must(0, w.WriteHeader(&tar.Header{
		Name: strings.TrimPrefix(to, "/"), Mode: 0o644 | int64(info.Mode()&0o111), Size: int64(len(text)),
		ModTime: time.Unix(*epoch, 0)}))
	must(w.Write(text))
}
