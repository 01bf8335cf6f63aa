package nvml

import (
	"slices"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
	"github.com/gpu-exporter/gpu-exporter/internal/nvml/direct"
)

const fullSample = 1e4 // of an engine that was busy all the time: sums are in 1/100 percent

// readAccounts reads the accounts of the processes that run, and once more of each that has ended. An ended process whose
// PID is used again is read when it has samples. To a caller in a PID namespace of its own the driver lists no process that
// has ended (gpuacctGetAcctPids_IMPL in src/nvidia/src/kernel/diagnostics/gpu_acct.c of NVIDIA/open-gpu-kernel-modules, R570
// and newer): the sums would lack the processes that began and ended between two reads.
func readAccounts(c *GPU, to *gpu.Fast) nvml.Return {
	if wanted := c.dev.session.library.options.Accounts; c.mig.on || wanted != nil && !wanted() {
		c.accounts = nil
		return nothingToRead
	}
	pids, ret := get(c, callAccountingPids, func() ([]uint32, nvml.Return) {
		return direct.AccountingPIDs(c.handle(), &c.accountBuffer, c.handle().GetAccountingPids)
	})
	if ret != nvml.SUCCESS {
		return ret
	}
	list, listed, before := []gpu.ProcessAccount{}, make(map[uint32]bool, len(pids)), c.accounts
	for _, pid := range pids {
		ended, known := before[pid]
		if listed[pid] = ended; ended && !slices.ContainsFunc(to.Processes.Or(nil),
			func(p gpu.ProcessSample) bool { return p.PID == int(pid) }) {
			continue
		}
		s, ret := get(c, callAccountingStatsV2, func() (nvml.AccountingStats_v2, nvml.Return) {
			return c.handle().GetAccountingStats_v2(pid)
		})
		if ret == nvml.SUCCESS {
			listed[pid] = s.IsRunning == 0
			list = append(list, gpu.ProcessAccount{PID: int(pid), Start: s.StartTime, New: before != nil && !known,
				Busy: float64(s.SumGpuUtil) / fullSample, Memory: float64(s.SumFbUtil) / fullSample})
		} else if ret != nvml.ERROR_NOT_FOUND { // overwritten meanwhile
			return ret
		}
	}
	c.accounts, to.Accounts = listed, gpu.Some(list)
	return nvml.SUCCESS
}
