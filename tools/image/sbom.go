package main

import (
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"regexp"
	"strings"
)

// bom is what one architecture's image is made of.
type bom struct {
	machine         machine
	program, report program
	packages        []debianPackage
}

// The parts of SPDX 2.3 that are written here.
type (
	spdxDocument struct {
		SPDXVersion       string             `json:"spdxVersion"`
		DataLicense       string             `json:"dataLicense"`
		SPDXID            string             `json:"SPDXID"`
		Name              string             `json:"name"`
		DocumentNamespace string             `json:"documentNamespace"`
		CreationInfo      spdxCreation       `json:"creationInfo"`
		Packages          []spdxPackage      `json:"packages"`
		Relationships     []spdxRelationship `json:"relationships"`
	}
	spdxCreation struct {
		Created  string   `json:"created"`
		Creators []string `json:"creators"`
	}
	spdxPackage struct {
		SPDXID           string          `json:"SPDXID"`
		Name             string          `json:"name"`
		VersionInfo      string          `json:"versionInfo"`
		Supplier         string          `json:"supplier,omitempty"`
		DownloadLocation string          `json:"downloadLocation"`
		FilesAnalyzed    bool            `json:"filesAnalyzed"`
		LicenseConcluded string          `json:"licenseConcluded"`
		LicenseDeclared  string          `json:"licenseDeclared"`
		CopyrightText    string          `json:"copyrightText"`
		Checksums        []spdxChecksum  `json:"checksums,omitempty"`
		ExternalRefs     []spdxReference `json:"externalRefs,omitempty"`
	}
	spdxChecksum struct {
		Algorithm     string `json:"algorithm"`
		ChecksumValue string `json:"checksumValue"`
	}
	spdxReference struct {
		ReferenceCategory string `json:"referenceCategory"`
		ReferenceType     string `json:"referenceType"`
		ReferenceLocator  string `json:"referenceLocator"`
	}
	spdxRelationship struct {
		SPDXElementID      string `json:"spdxElementId"`
		RelationshipType   string `json:"relationshipType"`
		RelatedSPDXElement string `json:"relatedSpdxElement"`
	}
)

var notInID = regexp.MustCompile(`[^a-zA-Z0-9.-]+`)

func spdxID(parts ...string) string {
	return "SPDXRef-" + strings.Trim(notInID.ReplaceAllString(strings.Join(parts, "-"), "-"), "-")
}

// writeSBOM lists the Debian packages and the Go modules of every image.
func writeSBOM(path string, o options, boms []bom) error {
	d := spdxDocument{SPDXVersion: "SPDX-2.3", DataLicense: "CC0-1.0", SPDXID: "SPDXRef-DOCUMENT", Name: "gpu-exporter-" + o.version,
		DocumentNamespace: "https://github.com/gpu-exporter/gpu-exporter/sbom/" + url.PathEscape(o.version+"-"+o.revision),
		CreationInfo:      spdxCreation{o.made.Format("2006-01-02T15:04:05Z"), []string{"Organization: gpu-exporter", "Tool: gpu-exporter-tools-image"}}}
	relate := func(from, how, to string) {
		d.Relationships = append(d.Relationships, spdxRelationship{from, how, to})
	}
	// Both programs are of one module: what both link has one version.
	listed := map[string]bool{}
	for _, b := range boms {
		image := spdxID("image", b.machine.goarch)
		d.Packages = append(d.Packages, spdxPackage{SPDXID: image, Name: "gpu-exporter", VersionInfo: o.version, Supplier: "Organization: gpu-exporter",
			DownloadLocation: "NOASSERTION", LicenseConcluded: "NOASSERTION", LicenseDeclared: "Apache-2.0", CopyrightText: "NOASSERTION",
			ExternalRefs: []spdxReference{{"PACKAGE-MANAGER", "purl", "pkg:oci/gpu-exporter?arch=" + b.machine.goarch}}})
		relate("SPDXRef-DOCUMENT", "DESCRIBES", image)
		for _, p := range b.packages {
			id := spdxID("deb", p.name, p.arch)
			d.Packages = append(d.Packages, spdxPackage{SPDXID: id, Name: p.name, VersionInfo: p.version, Supplier: "Organization: Debian",
				DownloadLocation: "NOASSERTION", LicenseConcluded: "NOASSERTION", LicenseDeclared: "NOASSERTION", CopyrightText: "NOASSERTION",
				Checksums:    []spdxChecksum{{"SHA256", p.sum}},
				ExternalRefs: []spdxReference{{"PACKAGE-MANAGER", "purl", fmt.Sprintf("pkg:deb/debian/%s@%s?arch=%s&distro=debian-12", p.name, url.QueryEscape(p.version), p.arch)}}})
			relate(image, "CONTAINS", id)
		}
		for _, p := range []struct {
			name string
			program
		}{{"gpu-exporter", b.program}, {"gpu-report", b.report}} {
			sum, err := sumOf(p.path)
			if err != nil {
				return err
			}
			binary := spdxID("binary", p.name, b.machine.goarch)
			d.Packages = append(d.Packages, spdxPackage{SPDXID: binary, Name: p.name + " binary", VersionInfo: o.version, Supplier: "Organization: gpu-exporter",
				DownloadLocation: "NOASSERTION", LicenseConcluded: "Apache-2.0", LicenseDeclared: "Apache-2.0", CopyrightText: "NOASSERTION", Checksums: []spdxChecksum{{"SHA256", sum}}})
			relate(image, "CONTAINS", binary)
			module := func(path, version string) {
				id := spdxID("go", b.machine.goarch, path)
				if !listed[id] {
					listed[id] = true
					d.Packages = append(d.Packages, spdxPackage{SPDXID: id, Name: path, VersionInfo: version, DownloadLocation: "NOASSERTION", LicenseConcluded: "NOASSERTION",
						LicenseDeclared: "NOASSERTION", CopyrightText: "NOASSERTION", ExternalRefs: []spdxReference{{"PACKAGE-MANAGER", "purl", "pkg:golang/" + path + "@" + url.QueryEscape(version)}}})
				}
				relate(binary, "CONTAINS", id)
			}
			module("stdlib", strings.TrimPrefix(p.build.GoVersion, "go"))
			for _, m := range p.build.Deps {
				if m.Replace != nil {
					m = m.Replace
				}
				module(m.Path, m.Version)
			}
		}
	}
	text, err := json.MarshalIndent(d, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o644)
}
