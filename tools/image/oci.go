package main

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"time"
)

// The parts of the OCI image format that are written here.
type (
	descriptor struct {
		MediaType   string            `json:"mediaType"`
		Digest      string            `json:"digest"`
		Size        int               `json:"size"`
		Annotations map[string]string `json:"annotations,omitempty"`
		Platform    *platform         `json:"platform,omitempty"`
	}
	platform struct {
		Architecture string `json:"architecture"`
		OS           string `json:"os"`
	}
	index struct {
		SchemaVersion int               `json:"schemaVersion"`
		MediaType     string            `json:"mediaType"`
		Manifests     []descriptor      `json:"manifests"`
		Annotations   map[string]string `json:"annotations,omitempty"`
	}
	manifest struct {
		SchemaVersion int               `json:"schemaVersion"`
		MediaType     string            `json:"mediaType"`
		Config        descriptor        `json:"config"`
		Layers        []descriptor      `json:"layers"`
		Annotations   map[string]string `json:"annotations"`
	}
	image struct {
		Created      time.Time `json:"created"`
		Architecture string    `json:"architecture"`
		OS           string    `json:"os"`
		Config       config    `json:"config"`
		RootFS       struct {
			Type    string   `json:"type"`
			DiffIDs []string `json:"diff_ids"`
		} `json:"rootfs"`
		History []history `json:"history"`
	}
	config struct {
		User         string              `json:"User"`
		ExposedPorts map[string]struct{} `json:"ExposedPorts"`
		Env          []string            `json:"Env"`
		Entrypoint   []string            `json:"Entrypoint"`
		WorkingDir   string              `json:"WorkingDir"`
		Labels       map[string]string   `json:"Labels"`
	}
	history struct {
		Created time.Time `json:"created"`
		Comment string    `json:"comment"`
	}
)

const (
	typeIndex    = "application/vnd.oci.image.index.v1+json"
	typeManifest = "application/vnd.oci.image.manifest.v1+json"
	typeConfig   = "application/vnd.oci.image.config.v1+json"
	typeLayer    = "application/vnd.oci.image.layer.v1.tar+gzip"
)

// layout is a folder in the OCI image layout.
type layout struct {
	dir    string
	images []descriptor
}

func newLayout(dir string) (*layout, error) {
	if err := os.MkdirAll(filepath.Join(dir, "blobs", "sha256"), 0o755); err != nil {
		return nil, err
	}
	return &layout{dir: dir}, os.WriteFile(filepath.Join(dir, "oci-layout"), []byte(`{"imageLayoutVersion":"1.0.0"}`+"\n"), 0o644)
}

func digestOf(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// blob writes a blob and describes it.
func (l *layout) blob(mediaType string, text []byte) (descriptor, error) {
	sum := digestOf(text)
	return descriptor{MediaType: mediaType, Digest: "sha256:" + sum, Size: len(text)}, os.WriteFile(filepath.Join(l.dir, "blobs", "sha256", sum), text, 0o644)
}

func (l *layout) json(mediaType string, v any) (descriptor, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return descriptor{}, err
	}
	return l.blob(mediaType, text)
}

// labels say where the image is from.
func labels(o options) map[string]string {
	return map[string]string{
		"org.opencontainers.image.title":         "gpu-exporter",
		"org.opencontainers.image.description":   "Prometheus exporter of NVIDIA GPUs, joined to the pods that hold them",
		"org.opencontainers.image.source":        "https://github.com/gpu-exporter/gpu-exporter",
		"org.opencontainers.image.documentation": "https://github.com/gpu-exporter/gpu-exporter",
		"org.opencontainers.image.licenses":      "Apache-2.0",
		"org.opencontainers.image.version":       o.version,
		"org.opencontainers.image.revision":      o.revision,
		"org.opencontainers.image.created":       o.made.Format(time.RFC3339),
		"org.opencontainers.image.base.name":     "debian:bookworm",
	}
}

// add writes the image of one architecture.
func (l *layout) add(m machine, o options, layers ...layer) error {
	img := image{Created: o.made, Architecture: m.goarch, OS: "linux"}
	img.Config = config{
		User:         "65534:65534",
		ExposedPorts: map[string]struct{}{"10835/tcp": {}},
		// The NVIDIA runtime reads these; they show the cards and ask for none. NVIDIA_MIG_MONITOR_DEVICES is not among them: without
		// the capability SYS_ADMIN the runtime would refuse to start the container.
		Env:        []string{"PATH=/usr/local/bin:/usr/bin", "SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt", "NVIDIA_VISIBLE_DEVICES=all", "NVIDIA_DRIVER_CAPABILITIES=utility"},
		Entrypoint: []string{"/usr/local/bin/gpu-exporter"},
		WorkingDir: "/",
		Labels:     labels(o),
	}
	img.RootFS.Type = "layers"
	mf := manifest{SchemaVersion: 2, MediaType: typeManifest, Annotations: labels(o)}
	for i, lay := range layers {
		text, err := lay.tar(o)
		if err != nil {
			return err
		}
		var b bytes.Buffer
		z, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
		if err != nil {
			return err
		}
		if _, err := z.Write(text); err != nil {
			return err
		}
		if err := z.Close(); err != nil {
			return err
		}
		d, err := l.blob(typeLayer, b.Bytes())
		if err != nil {
			return err
		}
		mf.Layers = append(mf.Layers, d)
		img.RootFS.DiffIDs = append(img.RootFS.DiffIDs, "sha256:"+digestOf(text))
		img.History = append(img.History, history{o.made, []string{"Debian packages", "gpu-exporter"}[i]})
	}
	var err error
	if mf.Config, err = l.json(typeConfig, img); err != nil {
		return err
	}
	d, err := l.json(typeManifest, mf)
	if err != nil {
		return err
	}
	d.Platform = &platform{m.goarch, "linux"}
	l.images = append(l.images, d)
	return nil
}

// finish writes the index: one entry, by the version's name, that leads to the image or to those of several architectures. It returns the
// digest by which the image is pulled.
func (l *layout) finish(o options) (string, error) {
	top := l.images[0]
	if len(l.images) > 1 {
		var err error
		if top, err = l.json(typeIndex, index{SchemaVersion: 2, MediaType: typeIndex, Manifests: l.images, Annotations: labels(o)}); err != nil {
			return "", err
		}
	}
	top.Annotations = map[string]string{"org.opencontainers.image.ref.name": o.version}
	text, err := json.MarshalIndent(index{SchemaVersion: 2, MediaType: typeIndex, Manifests: []descriptor{top}}, "", "  ")
	if err != nil {
		return "", err
	}
	return top.Digest, os.WriteFile(filepath.Join(l.dir, "index.json"), append(text, '\n'), 0o644)
}
