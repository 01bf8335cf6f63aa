package nvml

import (
	"slices"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// maxC2CLinks is how many C2C links the profiling metrics of NVML number (NVML_GPM_METRIC_C2C_LINK13_…).
const maxC2CLinks = 14

// linkFields are the values of single links, and the errors of the PCIe link, by nvml.h. Of one value several fields may
// be offered: the first that is counts.
var linkFields = []struct {
	kind  gpu.LinkKind
	value string
	// The link is the scope of field. With more, each link has a field of its own: six from field on, the others from more
	// on.
	field, more, links uint32
	unit               uint64
}{
	{kind: gpu.LinkNVLink, value: gpu.LinkTransmit, field: nvml.FI_DEV_NVLINK_COUNT_XMIT_BYTES, links: nvml.NVLINK_MAX_LINKS},
	{kind: gpu.LinkNVLink, value: gpu.LinkReceive, field: nvml.FI_DEV_NVLINK_COUNT_RCV_BYTES, links: nvml.NVLINK_MAX_LINKS},
	{kind: gpu.LinkNVLink, value: gpu.LinkTransmit, field: nvml.FI_DEV_NVLINK_THROUGHPUT_DATA_TX, links: nvml.NVLINK_MAX_LINKS, unit: 1024},
	{kind: gpu.LinkNVLink, value: gpu.LinkReceive, field: nvml.FI_DEV_NVLINK_THROUGHPUT_DATA_RX, links: nvml.NVLINK_MAX_LINKS, unit: 1024},
	{kind: gpu.LinkNVLink, value: string(gpu.NVLinkCRCFlit), field: nvml.FI_DEV_NVLINK_ERROR_DL_CRC, links: nvml.NVLINK_MAX_LINKS},
	{kind: gpu.LinkNVLink, value: string(gpu.NVLinkReplay), field: nvml.FI_DEV_NVLINK_ERROR_DL_REPLAY, links: nvml.NVLINK_MAX_LINKS},
	{kind: gpu.LinkNVLink, value: string(gpu.NVLinkRecovery), field: nvml.FI_DEV_NVLINK_ERROR_DL_RECOVERY, links: nvml.NVLINK_MAX_LINKS},
	{kind: gpu.LinkNVLink, value: string(gpu.NVLinkRecovery), field: nvml.FI_DEV_NVLINK_COUNT_LINK_RECOVERY_EVENTS,
		links: nvml.NVLINK_MAX_LINKS},
	{kind: gpu.LinkNVLink, value: string(gpu.NVLinkSymbol), field: nvml.FI_DEV_NVLINK_COUNT_SYMBOL_ERRORS, links: nvml.NVLINK_MAX_LINKS},
	{kind: gpu.LinkNVLink, value: string(gpu.NVLinkCRCFlit), field: nvml.FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_L0,
		more: nvml.FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_L6, links: 12},
	{kind: gpu.LinkNVLink, value: string(gpu.NVLinkCRCData), field: nvml.FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_L0,
		more: nvml.FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_L6, links: 12},
	{kind: gpu.LinkNVLink, value: string(gpu.NVLinkReplay), field: nvml.FI_DEV_NVLINK_REPLAY_ERROR_COUNT_L0,
		more: nvml.FI_DEV_NVLINK_REPLAY_ERROR_COUNT_L6, links: 12},
	{kind: gpu.LinkNVLink, value: string(gpu.NVLinkRecovery), field: nvml.FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_L0,
		more: nvml.FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_L6, links: 12},
	{kind: gpu.LinkC2C, value: gpu.LinkUp, field: nvml.FI_DEV_C2C_LINK_GET_STATUS, links: maxC2CLinks},
	{kind: gpu.LinkC2C, value: "crc", field: nvml.FI_DEV_C2C_LINK_ERROR_INTR, links: maxC2CLinks},
	{kind: gpu.LinkC2C, value: "replay", field: nvml.FI_DEV_C2C_LINK_ERROR_REPLAY, links: maxC2CLinks},
	{kind: gpu.LinkC2C, value: "replay_back_to_back", field: nvml.FI_DEV_C2C_LINK_ERROR_REPLAY_B2B, links: maxC2CLinks},
	{kind: gpu.LinkPCIe, value: "recovery", field: nvml.FI_DEV_PCIE_L0_TO_RECOVERY_COUNTER, links: 1},
	{kind: gpu.LinkPCIe, value: "correctable", field: nvml.FI_DEV_PCIE_COUNT_CORRECTABLE_ERRORS, links: 1},
	{kind: gpu.LinkPCIe, value: "nak_received", field: nvml.FI_DEV_PCIE_COUNT_NAKS_RECEIVED, links: 1},
	{kind: gpu.LinkPCIe, value: "receiver", field: nvml.FI_DEV_PCIE_COUNT_RECEIVER_ERROR, links: 1},
	{kind: gpu.LinkPCIe, value: "bad_tlp", field: nvml.FI_DEV_PCIE_COUNT_BAD_TLP, links: 1},
	{kind: gpu.LinkPCIe, value: "nak_sent", field: nvml.FI_DEV_PCIE_COUNT_NAKS_SENT, links: 1},
	{kind: gpu.LinkPCIe, value: "bad_dllp", field: nvml.FI_DEV_PCIE_COUNT_BAD_DLLP, links: 1},
	{kind: gpu.LinkPCIe, value: "non_fatal", field: nvml.FI_DEV_PCIE_COUNT_NON_FATAL_ERROR, links: 1},
	{kind: gpu.LinkPCIe, value: "fatal", field: nvml.FI_DEV_PCIE_COUNT_FATAL_ERROR, links: 1},
	{kind: gpu.LinkPCIe, value: "unsupported_request", field: nvml.FI_DEV_PCIE_COUNT_UNSUPPORTED_REQ, links: 1},
	{kind: gpu.LinkPCIe, value: "lcrc", field: nvml.FI_DEV_PCIE_COUNT_LCRC_ERROR, links: 1},
	{kind: gpu.LinkPCIe, value: "lane", field: nvml.FI_DEV_PCIE_COUNT_LANE_ERROR, links: 1},
}

// linkEntry is one value of one link in a batch, by its place in linkFields.
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
		for i, f := range linkFields {
			for link := range f.links {
				c.linkEntries = append(c.linkEntries, linkEntry{i, link})
			}
		}
	}
	if len(c.linkEntries) == 0 {
		return nvml.ERROR_NOT_SUPPORTED
	}
	batch := make([]nvml.FieldValue, len(c.linkEntries))
	for i, e := range c.linkEntries {
		f := linkFields[e.row]
		switch {
		case f.more == 0:
			batch[i] = nvml.FieldValue{FieldId: f.field, ScopeId: e.link}
		case e.link < 6:
			batch[i].FieldId = f.field + e.link
		default:
			batch[i].FieldId = f.more + e.link - 6
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
		f := linkFields[e.row]
		if code == nvml.SUCCESS && batch[i].Timestamp != 0 && ok && !slices.ContainsFunc(to.Links, func(l gpu.Link) bool {
			return l.Kind == f.kind && l.Value == f.value && l.Index == int(e.link)
		}) {
			to.Links = append(to.Links, gpu.Link{Kind: f.kind, Index: int(e.link), Value: f.value, N: n * max(1, f.unit)})
		}
	}
	c.linkEntries = offered
	return nvml.SUCCESS
}
