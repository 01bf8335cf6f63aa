// Package links is the table of NVML's fields of single links.
package links

import (
	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// maxC2CLinks is how many C2C links the profiling metrics of NVML number (NVML_GPM_METRIC_C2C_LINK13_…).
const maxC2CLinks = 14

// Field is one value of a link. The link is the scope of Field. With More, each link has a field of its own: six from Field
// on, the others from More on. Unit is the bytes of one where the value is not in bytes.
type Field struct {
	Kind               gpu.LinkKind
	Value              string
	Field, More, Links uint32
	Unit               uint64
}

// Fields are the values of single links, and the errors of the PCIe link, by nvml.h. Of one value several fields may be
// offered: the first that is counts.
var Fields = []Field{
	{Kind: gpu.LinkNVLink, Value: gpu.LinkTransmit, Field: nvml.FI_DEV_NVLINK_COUNT_XMIT_BYTES, Links: nvml.NVLINK_MAX_LINKS},
	{Kind: gpu.LinkNVLink, Value: gpu.LinkReceive, Field: nvml.FI_DEV_NVLINK_COUNT_RCV_BYTES, Links: nvml.NVLINK_MAX_LINKS},
	{Kind: gpu.LinkNVLink, Value: gpu.LinkTransmit, Field: nvml.FI_DEV_NVLINK_THROUGHPUT_DATA_TX, Links: nvml.NVLINK_MAX_LINKS, Unit: 1024},
	{Kind: gpu.LinkNVLink, Value: gpu.LinkReceive, Field: nvml.FI_DEV_NVLINK_THROUGHPUT_DATA_RX, Links: nvml.NVLINK_MAX_LINKS, Unit: 1024},
	{Kind: gpu.LinkNVLink, Value: string(gpu.NVLinkCRCFlit), Field: nvml.FI_DEV_NVLINK_ERROR_DL_CRC, Links: nvml.NVLINK_MAX_LINKS},
	{Kind: gpu.LinkNVLink, Value: string(gpu.NVLinkReplay), Field: nvml.FI_DEV_NVLINK_ERROR_DL_REPLAY, Links: nvml.NVLINK_MAX_LINKS},
	{Kind: gpu.LinkNVLink, Value: string(gpu.NVLinkRecovery), Field: nvml.FI_DEV_NVLINK_ERROR_DL_RECOVERY, Links: nvml.NVLINK_MAX_LINKS},
	{Kind: gpu.LinkNVLink, Value: string(gpu.NVLinkRecovery), Field: nvml.FI_DEV_NVLINK_COUNT_LINK_RECOVERY_EVENTS,
		Links: nvml.NVLINK_MAX_LINKS},
	{Kind: gpu.LinkNVLink, Value: string(gpu.NVLinkSymbol), Field: nvml.FI_DEV_NVLINK_COUNT_SYMBOL_ERRORS, Links: nvml.NVLINK_MAX_LINKS},
	{Kind: gpu.LinkNVLink, Value: string(gpu.NVLinkCRCFlit), Field: nvml.FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_L0,
		More: nvml.FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_L6, Links: 12},
	{Kind: gpu.LinkNVLink, Value: string(gpu.NVLinkCRCData), Field: nvml.FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_L0,
		More: nvml.FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_L6, Links: 12},
	{Kind: gpu.LinkNVLink, Value: string(gpu.NVLinkReplay), Field: nvml.FI_DEV_NVLINK_REPLAY_ERROR_COUNT_L0,
		More: nvml.FI_DEV_NVLINK_REPLAY_ERROR_COUNT_L6, Links: 12},
	{Kind: gpu.LinkNVLink, Value: string(gpu.NVLinkRecovery), Field: nvml.FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_L0,
		More: nvml.FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_L6, Links: 12},
	{Kind: gpu.LinkC2C, Value: gpu.LinkUp, Field: nvml.FI_DEV_C2C_LINK_GET_STATUS, Links: maxC2CLinks},
	{Kind: gpu.LinkC2C, Value: "crc", Field: nvml.FI_DEV_C2C_LINK_ERROR_INTR, Links: maxC2CLinks},
	{Kind: gpu.LinkC2C, Value: "replay", Field: nvml.FI_DEV_C2C_LINK_ERROR_REPLAY, Links: maxC2CLinks},
	{Kind: gpu.LinkC2C, Value: "replay_back_to_back", Field: nvml.FI_DEV_C2C_LINK_ERROR_REPLAY_B2B, Links: maxC2CLinks},
	{Kind: gpu.LinkPCIe, Value: "recovery", Field: nvml.FI_DEV_PCIE_L0_TO_RECOVERY_COUNTER, Links: 1},
	{Kind: gpu.LinkPCIe, Value: "correctable", Field: nvml.FI_DEV_PCIE_COUNT_CORRECTABLE_ERRORS, Links: 1},
	{Kind: gpu.LinkPCIe, Value: "nak_received", Field: nvml.FI_DEV_PCIE_COUNT_NAKS_RECEIVED, Links: 1},
	{Kind: gpu.LinkPCIe, Value: "receiver", Field: nvml.FI_DEV_PCIE_COUNT_RECEIVER_ERROR, Links: 1},
	{Kind: gpu.LinkPCIe, Value: "bad_tlp", Field: nvml.FI_DEV_PCIE_COUNT_BAD_TLP, Links: 1},
	{Kind: gpu.LinkPCIe, Value: "nak_sent", Field: nvml.FI_DEV_PCIE_COUNT_NAKS_SENT, Links: 1},
	{Kind: gpu.LinkPCIe, Value: "bad_dllp", Field: nvml.FI_DEV_PCIE_COUNT_BAD_DLLP, Links: 1},
	{Kind: gpu.LinkPCIe, Value: "non_fatal", Field: nvml.FI_DEV_PCIE_COUNT_NON_FATAL_ERROR, Links: 1},
	{Kind: gpu.LinkPCIe, Value: "fatal", Field: nvml.FI_DEV_PCIE_COUNT_FATAL_ERROR, Links: 1},
	{Kind: gpu.LinkPCIe, Value: "unsupported_request", Field: nvml.FI_DEV_PCIE_COUNT_UNSUPPORTED_REQ, Links: 1},
	{Kind: gpu.LinkPCIe, Value: "lcrc", Field: nvml.FI_DEV_PCIE_COUNT_LCRC_ERROR, Links: 1},
	{Kind: gpu.LinkPCIe, Value: "lane", Field: nvml.FI_DEV_PCIE_COUNT_LANE_ERROR, Links: 1},
}
