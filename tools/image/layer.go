package main

import (
	"archive/tar"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path"
	"slices"
	"strings"
)

// file is one entry of a layer. Everything belongs to root.
type file struct {
	kind byte // as in package tar
	mode int64
	link string
	text []byte
}

// layer is what one layer adds, by path without a leading slash.
type layer map[string]file

func (l layer) folder(p string, mode int64) {
	for p != "." && p != "/" {
		if _, ok := l[p]; ok {
			return
		}
		l[p] = file{kind: tar.TypeDir, mode: mode}
		p, mode = path.Dir(p), 0o755
	}
}

func (l layer) write(p string, mode int64, text []byte) {
	l.folder(path.Dir(p), 0o755)
	l[p] = file{kind: tar.TypeReg, mode: mode, text: text}
}

// dropped are paths of packages that an image has no use for.
var dropped = []string{"usr/share/doc/", "usr/share/man/", "usr/share/info/", "usr/share/lintian/", "usr/share/locale/", "usr/share/common-licenses/", "usr/sbin/update-ca-certificates",
	"etc/ld.so.conf.d/", "usr/share/base-files/", "etc/update-motd.d/", "etc/ca-certificates/", "usr/share/gcc/", "usr/share/gdb/"}

func keep(p, triplet string) bool {
	if ok, _ := path.Match("usr/share/doc/*/copyright", p); ok || strings.HasPrefix(p, "usr/share/common-licenses/") {
		return true
	}
	if strings.HasPrefix(p, "usr/lib/"+triplet+"/gconv/") || strings.HasPrefix(p, "usr/lib/"+triplet+"/audit/") {
		return false
	}
	return !slices.ContainsFunc(dropped, func(d string) bool { return strings.HasPrefix(p+"/", d) })
}

// systemLayer is the packages' files, with /bin, /lib and their like merged into /usr as Debian has them.
func systemLayer(ctx context.Context, packages []debianPackage, m machine) (layer, error) {
	l := layer{}
	for _, p := range packages {
		files, err := unpack(ctx, p)
		if err != nil {
			return nil, err
		}
		for name, f := range files {
			if merged(name) {
				name = "usr/" + name
			}
			if f.kind == tar.TypeDir || !keep(name, m.triplet) {
				continue
			}
			l.folder(path.Dir(name), 0o755)
			l[name] = f
		}
		// What scanners read to know the packages of an image without dpkg.
		text, err := exec.CommandContext(ctx, "dpkg-deb", "--field", p.path).Output()
		if err != nil {
			return nil, fmt.Errorf("dpkg-deb --field %s: %w", p.path, err)
		}
		l.write("var/lib/dpkg/status.d/"+p.name, 0o644, text)
	}
	// The bundle that ca-certificates makes when it is installed.
	const authorities = "usr/share/ca-certificates/mozilla/"
	var bundle bytes.Buffer
	for _, name := range slices.Sorted(maps.Keys(l)) {
		if strings.HasPrefix(name, authorities) {
			bundle.Write(bytes.TrimSpace(l[name].text))
			bundle.WriteByte('\n')
			delete(l, name)
		}
	}
	if bundle.Len() == 0 {
		return nil, errors.New("ca-certificates has no certificates: its layout changed")
	}
	for _, empty := range []string{"usr/share/ca-certificates/mozilla", "usr/share/ca-certificates"} {
		delete(l, empty)
	}
	l.write("etc/ssl/certs/ca-certificates.crt", 0o644, bundle.Bytes())

	for _, d := range []string{"bin", "lib", "lib64", "sbin"} {
		l[d] = file{kind: tar.TypeSymlink, mode: 0o777, link: "usr/" + d}
		l.folder("usr/"+d, 0o755)
	}
	l.write("etc/passwd", 0o644, []byte("root:x:0:0:root:/root:/sbin/nologin\nnobody:x:65534:65534:nobody:/nonexistent:/sbin/nologin\n"))
	l.write("etc/group", 0o644, []byte("root:x:0:\nnogroup:x:65534:\n"))
	l.write("etc/nsswitch.conf", 0o644, []byte("hosts: files dns\n"))
	l.write("etc/ld.so.conf", 0o644, []byte("/usr/local/lib/"+m.triplet+"\n/usr/lib/"+m.triplet+"\n"))
	for _, d := range []string{"dev", "etc", "proc", "run", "sys", "usr/local/lib"} {
		l.folder(d, 0o755)
	}
	l.folder("root", 0o700)
	l["tmp"] = file{kind: tar.TypeDir, mode: 0o1777}
	if l["usr/lib/"+m.triplet+"/libc.so.6"].kind == 0 {
		return nil, fmt.Errorf("libc6 has no libc.so.6 for %s: its layout changed", m.triplet)
	}
	return l, nil
}

// merged tells paths that Debian merged into /usr.
func merged(p string) bool {
	top, _, _ := strings.Cut(p, "/")
	return slices.Contains([]string{"bin", "sbin", "lib", "lib64"}, top)
}

// unpack reads the files of a package.
func unpack(ctx context.Context, p debianPackage) (map[string]file, error) {
	text, err := exec.CommandContext(ctx, "dpkg-deb", "--fsys-tarfile", p.path).Output()
	if err != nil {
		return nil, fmt.Errorf("dpkg-deb --fsys-tarfile %s: %w", p.path, err)
	}
	out := map[string]file{}
	for r := tar.NewReader(bytes.NewReader(text)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", p.path, err)
		}
		name := strings.TrimPrefix(path.Clean(h.Name), "./")
		if name == "." || name == "/" {
			continue
		}
		f := file{kind: h.Typeflag, mode: h.Mode &^ 0o6000, link: h.Linkname}
		switch h.Typeflag {
		case tar.TypeReg:
			if f.text, err = io.ReadAll(r); err != nil {
				return nil, fmt.Errorf("%s: %s: %w", p.path, name, err)
			}
		case tar.TypeDir, tar.TypeSymlink:
		default:
			return nil, fmt.Errorf("%s: %s is of a kind (%c) that no layer should have", p.path, name, h.Typeflag)
		}
		out[name] = f
	}
}

// programLayer is the exporter, the report, their licence and those of what is linked into them.
func programLayer(binary, report string, o options) (layer, error) {
	l := layer{}
	for _, f := range []struct {
		from, to string
		mode     int64
	}{{binary, "usr/local/bin/gpu-exporter", 0o755}, {report, "usr/local/bin/gpu-report", 0o755},
		{o.license, "usr/share/doc/gpu-exporter/copyright", 0o644}, {o.notices, "usr/share/doc/gpu-exporter/THIRD_PARTY_NOTICES", 0o644}} {
		text, err := os.ReadFile(f.from)
		if err != nil {
			return nil, err
		}
		l.write(f.to, f.mode, text)
	}
	return l, nil
}

// tar writes the layer in the order of its paths, all files of one time.
func (l layer) tar(o options) ([]byte, error) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, name := range slices.SortedFunc(maps.Keys(l), cmp.Compare) {
		f := l[name]
		h := &tar.Header{Typeflag: f.kind, Name: name, Mode: f.mode, Linkname: f.link, Size: int64(len(f.text)), ModTime: o.made, Format: tar.FormatPAX}
		if f.kind == tar.TypeDir {
			h.Name += "/"
		}
		if err := w.WriteHeader(h); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		if _, err := w.Write(f.text); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}
