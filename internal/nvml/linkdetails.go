package nvml

import (
	"slices"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
	"github.com/gpu-exporter/gpu-exporter/internal/nvml/links"
)

// linkEntry is one value of one link in a batch, by its place in links.Fields.
type linkEntry struct {
	row  int
	link uint32
}

// readLinks reads the links in one batch. Entries that are not offered are left out until everything is tried again.
func readLinks(c *GPU, to *gpu.Medium) nvml.Return {
	if !c.dev.session.library.options.Links {
		return nothingToRead
	}
	if c.linkEntries == nil {
		for i, f := range links.Fields {
			for link := range f.Links {
				c.linkEntries = append(c.linkEntries, linkEntry{i, link})
			}
		}
	}
	if len(c.linkEntries) == 0 {
		return nvml.ERROR_NOT_SUPPORTED
	}
	batch := make([]nvml.FieldValue, len(c.linkEntries))
	for i, e := range c.linkEntries {
		f := links.Fields[e.row]
		switch {
		case f.More == 0:
			batch[i] = nvml.FieldValue{FieldId: f.Field, ScopeId: e.link}
		case e.link < 6:
			batch[i].FieldId = f.Field + e.link
		default:
			batch[i].FieldId = f.More + e.link - 6
		}
	}
	if ret := c.fieldValues(batch); ret != nvml.SUCCESS {
		return ret
	}
	offered := c.linkEntries[:0]
	for i, e := range c.linkEntries {
		code := nvml.Return(batch[i].NvmlReturn)
		if whole(code) != nil {
			return code
		}
		if notOffered(code) || code == nvml.ERROR_INVALID_ARGUMENT || code == nvml.ERROR_NO_PERMISSION {
			continue
		}
		offered = append(offered, e)
		n, ok := value{kind: nvml.ValueType(batch[i].ValueType), raw: batch[i].Value}.count()
		f := links.Fields[e.row]
		if code == nvml.SUCCESS && batch[i].Timestamp != 0 && ok && !slices.ContainsFunc(to.Links, func(l gpu.Link) bool {
			return l.Kind == f.Kind && l.Value == f.Value && l.Index == int(e.link)
		}) {
			to.Links = append(to.Links, gpu.Link{Kind: f.Kind, Index: int(e.link), Value: f.Value, N: n * max(1, f.Unit)})
		}
	}
	c.linkEntries = offered
	return nvml.SUCCESS
}
