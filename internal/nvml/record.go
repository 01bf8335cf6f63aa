package nvml

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
	"github.com/gpu-exporter/gpu-exporter/internal/standin/scenario"
)

// ErrNoCard is wrapped by the error of Record where the driver knows no GPU.
var ErrNoGPU = errors.New("there is no GPU to record")

// RecordOptions are what a recording needs to know.
type RecordOptions struct {
	// Duration is how long GPUs and processes are watched. 0: 10 s.
	Duration time.Duration
	// Program and Date stand at the top of the recording.
	Program string
	Date    time.Time
	// Salt makes the masked names. Nil: random, and kept nowhere.
	Salt []byte
	// Wait lets time pass; it returns early with ctx's error. Nil: real time.
	Wait func(ctx context.Context, d time.Duration) error
}

// watchEvery is how often rings are drained: well before the shortest known is full.
const watchEvery = time.Second

// Record asks every GPU everything that this package ever asks, and returns the answers as a scenario that
// plays: values, return codes, MIG layout, processes, which functions the library has, and for how much of
// RecordOptions.Duration GPUs and processes worked. UUIDs, serial numbers and process ids are masked; the
// text says at its top what it contains.
//
// The answers are raw: nothing is left out because it looks wrong. A GPU that is lost, before or meanwhile,
// is recorded as lost. The error wraps ErrNoCard where the driver knows none, and an error of internal/gpu where
// the driver itself goes away. Nothing else may use the session
// meanwhile; a call that hangs makes Record hang.
func (s *Session) Record(ctx context.Context, o RecordOptions) ([]byte, error) {
	if o.Duration <= 0 {
		o.Duration = 10 * time.Second
	}
	if o.Wait == nil {
		o.Wait = wait
	}
	found, err := s.Scan()
	if err != nil {
		return nil, fmt.Errorf("record: %w", err)
	}
	r := &recorder{session: s, options: o, mask: newMask(o.Salt), draft: &scenario.Draft{}}
	if len(found) == 0 {
		return nil, fmt.Errorf("record: %w: driver %s lists none", ErrNoGPU, s.system.DriverVersion)
	}
	if len(found) > scenario.MaxGPUs {
		r.notes = append(r.notes, fmt.Sprintf("The driver lists %d GPUs; the first %d are here.", len(found), scenario.MaxGPUs))
		found = found[:scenario.MaxGPUs]
	}
	for i, dev := range found {
		r.devs = append(r.devs, &GPURecorder{recorder: r, dev: dev, index: i})
	}
	if err := r.run(ctx); err != nil {
		return nil, fmt.Errorf("record: %w", err)
	}
	r.missing()
	r.head()
	text, err := r.draft.Bytes()
	if err != nil {
		return nil, fmt.Errorf("record: %w; this is a bug of the recorder", err)
	}
	return text, nil
}

// wait lets real time pass.
func wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// recorder is a recording that is being made.
type recorder struct {
	session *Session
	options RecordOptions
	mask    *mask
	draft   *scenario.Draft
	devs    []*GPURecorder
	notes   []string
	// taken are the PCI addresses that the recording uses, bus those that the machine has.
	taken, bus []gpu.PCIAddress
	// field and metric are the highest that a GPU answered.
	field, metric int
	watched       time.Duration
}

// gpuRecorder is the part of one GPU.
type GPURecorder struct {
	*recorder
	dev   *GPU
	index int
	draft scenario.DraftGPU
	gone  nvml.Return // the code that spoke for the whole GPU; SUCCESS: none
	when  time.Duration

	mig          []migRecorded
	gpm          []*gpmLog
	busy, memory ringLog
	work         workLog
	fields       []fieldAnswer
	energy       uint64
	energyCode   nvml.Return
}

// run asks before, watches, and asks after.
func (r *recorder) run(ctx context.Context) error {
	r.readBus()
	for _, c := range r.devs {
		c.begin()
	}
	for r.watched < r.options.Duration {
		step := min(watchEvery, r.options.Duration-r.watched)
		if err := r.options.Wait(ctx, step); err != nil {
			return err
		}
		r.watched += step
		for _, c := range r.devs {
			c.watch()
		}
	}
	for _, c := range r.devs {
		c.end()
	}
	for _, c := range r.devs {
		if err := whole(c.gone); err != nil && !errors.Is(err, gpu.ErrLost) && !errors.Is(err, gpu.ErrResetRequired) {
			return fmt.Errorf("%w (%s)", err, codeName(c.gone)) // of the driver, not of the GPU
		}
		r.draft.GPUs = append(r.draft.GPUs, c.draft)
	}
	return nil
}

// see notes a code that speaks for the whole GPU, and passes it on.
func (r *GPURecorder) see(ret nvml.Return) nvml.Return {
	if whole(ret) != nil && r.gone == nvml.SUCCESS {
		r.gone, r.when = ret, r.watched
	}
	return ret
}

// lost reports whether the GPU, or the driver, has gone.
func (r *GPURecorder) lost() bool { return r.gone != nvml.SUCCESS }

// set writes an answer down: the value, or the code where the call did not succeed. What was asked after the
// GPU had gone tells nothing.
func (r *GPURecorder) set(key string, v scenario.Value, ret nvml.Return, index ...int64) {
	if whole(r.see(ret)) != nil {
		return
	}
	if ret != nvml.SUCCESS {
		v = scenario.Code(codeName(ret))
	}
	r.draft.Answers.Set(key, v, index...)
}

// system writes the code of a call that concerns no GPU.
func (r *recorder) system(key string, v scenario.Value, ret nvml.Return) {
	if ret != nvml.SUCCESS {
		v = scenario.Code(codeName(ret))
	}
	r.draft.System.Set(key, v)
}

// say adds a statement, note a sentence at the top of the file.
func (r *GPURecorder) say(statement string) {
	r.draft.Statements = append(r.draft.Statements, statement)
}
func (r *GPURecorder) note(text string) {
	text = fmt.Sprintf("GPU %d: %s", r.index, text)
	if !slices.Contains(r.notes, text) {
		r.notes = append(r.notes, text)
	}
}

// begin asks who the GPU is, and takes the first of all that is measured between two moments.
func (r *GPURecorder) begin() {
	id := r.dev.Identity()
	r.draft.Board = id.Model
	if id.PCI == "" {
		id.PCI = r.guessAddress()
	}
	r.draft.Options = append(r.draft.Options, "pci="+string(id.PCI))
	r.taken = append(r.taken, id.PCI)
	if uuid := r.mask.uuid(string(id.UUID)); uuid != "" && id.UUID != gpu.UUID(id.PCI) && len(uuid) < 80 {
		r.draft.Options = append(r.draft.Options, "uuid="+uuid)
	}
	if minor, ok := id.Minor.Get(); ok && minor >= 0 && minor <= 255 {
		r.draft.Options = append(r.draft.Options, fmt.Sprintf("minor=%d", minor))
	}
	if r.dev.dev == nil { // not even its handle could be had
		r.gone = r.handleCode()
		r.note("the driver gave no handle of it (" + codeName(r.gone) + ").")
		return
	}
	r.dev.asking = true
	r.askIdentity(id)
	for _, q := range questions() {
		if r.lost() {
			return
		}
		v, ret := q.ask(r.dev)
		r.set(q.key, v, ret, q.index...)
	}
	if r.lost() {
		return
	}
	r.askFans()
	r.askFabric()
	r.recordMIG()
	r.fields, _ = r.readAllFields()
	r.energy, r.energyCode = get(r.dev, callTotalEnergy, r.dev.handle().GetTotalEnergyConsumption)
	r.beginGPM()
	r.watch()
}

// handleCode asks once more why there is no handle.
func (r *GPURecorder) handleCode() nvml.Return {
	_, ret := get(r.session, callHandleByIndex, func() (nvml.Device, nvml.Return) { return r.session.nvml.DeviceGetHandleByIndex(r.index) })
	if whole(ret) == nil && ret != nvml.SUCCESS {
		r.draft.Answers.Set("Handle", scenario.Code(codeName(ret)))
	}
	return ret
}

// askIdentity records what names the GPU: the address, the UUID, the serial number.
func (r *GPURecorder) askIdentity(id gpu.Identity) {
	pci, ret := get(r.dev, callPciInfo, r.dev.handle().GetPciInfo)
	r.set("PciInfo", scenario.Numbers(fmt.Sprintf("0x%08x", pci.PciDeviceId), fmt.Sprintf("0x%08x", pci.PciSubSystemId)), ret)
	if _, ret := get(r.dev, callUUID, r.dev.handle().GetUUID); ret != nvml.SUCCESS {
		r.set("UUID", scenario.Value{}, ret)
	}
	if _, ret := get(r.dev, callMinorNumber, r.dev.handle().GetMinorNumber); ret != nvml.SUCCESS {
		r.set("MinorNumber", scenario.Value{}, ret)
	}
	serial, ret := get(r.dev, callSerial, r.dev.handle().GetSerial)
	r.set("Serial", scenario.Text(r.mask.serial(serial)), ret)
	if node, ok := id.NUMANode.Get(); ok && node >= 0 {
		r.set("NumaNodeId", scenario.Numbers(scenario.Integer(node)), nvml.SUCCESS)
	}
}

// askFans asks every fan, and the first also where the driver does not tell how many there are.
func (r *GPURecorder) askFans() {
	n, ret := get(r.dev, callNumFans, r.dev.handle().GetNumFans)
	r.set("NumFans", scenario.Numbers(scenario.Integer(n)), ret)
	const most = 16 // that a scenario has room for
	for fan := range max(1, min(n, most)) {
		percent, ret := get(r.dev, callFanSpeed, func() (uint32, nvml.Return) { return r.dev.handle().GetFanSpeed_v2(fan) })
		r.set("FanSpeed_v2", scenario.Numbers(scenario.Integer(percent)), ret, int64(fan))
	}
}

// askFabric asks with the newest structure first, as the poll groups do.
func (r *GPURecorder) askFabric() {
	info, ret := get(r.dev, callFabric, func() (nvml.GpuFabricInfo_v3, nvml.Return) { return r.dev.handle().GetGpuFabricInfoV().V3() })
	numbers := []string{scenario.Integer(info.State), scenario.Integer(info.Status), scenario.Integer(info.CliqueId),
		fmt.Sprintf("0x%x", info.HealthMask), scenario.Integer(info.HealthSummary)}
	if ret == nvml.ERROR_ARGUMENT_VERSION_MISMATCH || ret == nvml.ERROR_INVALID_ARGUMENT {
		var older nvml.GpuFabricInfo_v2
		older, ret = get(r.dev, callFabric, func() (nvml.GpuFabricInfo_v2, nvml.Return) { return r.dev.handle().GetGpuFabricInfoV().V2() })
		numbers = []string{scenario.Integer(older.State), scenario.Integer(older.Status), scenario.Integer(older.CliqueId),
			fmt.Sprintf("0x%x", older.HealthMask), "0"}
	}
	if ret != nvml.SUCCESS {
		r.set("GpuFabricInfoV", scenario.Value{}, ret)
		return
	}
	r.set("GpuFabricInfo", scenario.Numbers(numbers...), ret)
}

// end takes the second of all that is measured between two moments, and writes everything down.
func (r *GPURecorder) end() {
	if !r.lost() {
		r.recordFields(r.fields, r.watched)
		r.recordEnergy()
		r.recordTemperature()
		r.recordActivity(r.watched)
		r.endGPM()
		r.recordMemory()
		list := r.readHeld()
		shares := r.GPUShares(list)
		dram := r.dram()
		if len(r.mig) > 0 {
			shares, dram = r.instanceShares(list), 0.4
			r.instanceRest(list)
		}
		r.demands(list, shares, dram)
	}
	switch r.gone {
	case nvml.SUCCESS:
	case nvml.ERROR_GPU_IS_LOST:
		r.say(fmt.Sprintf("at %v gpu %d lose", r.when, r.index))
	case nvml.ERROR_RESET_REQUIRED:
		r.say(fmt.Sprintf("at %v gpu %d reset_required", r.when, r.index))
	}
}

func (r *GPURecorder) recordEnergy() {
	energy, ret := get(r.dev, callTotalEnergy, r.dev.handle().GetTotalEnergyConsumption)
	v := scenario.Numbers(scenario.Integer(energy))
	if sum, grew := growing(r.energy, energy, r.watched); grew && r.energyCode == nvml.SUCCESS {
		v = scenario.Numbers(sum)
	}
	r.set("TotalEnergyConsumption", v, ret)
}

// recordTemperature asks by the new call and the old, which a scenario answers from one line, and for the
// margin in the same moment: their sum is what limits are derived from.
func (r *GPURecorder) recordTemperature() {
	margin, ret := get(r.dev, callMarginTemperature, r.dev.handle().GetMarginTemperature)
	r.set("MarginTemperature", scenario.Numbers(scenario.Integer(margin.MarginTemperature)), ret)
	var sensor = int64(nvml.TEMPERATURE_GPU)
	newer, newerRet := get(r.dev, callTemperatureV, func() (nvml.Temperature, nvml.Return) { return r.dev.handle().GetTemperatureV().V1() })
	older, olderRet := get(r.dev, callTemperature, func() (uint32, nvml.Return) { return r.dev.handle().GetTemperature(nvml.TEMPERATURE_GPU) })
	if newerRet != nvml.SUCCESS {
		r.set("TemperatureV", scenario.Value{}, newerRet)
		r.set("Temperature", scenario.Numbers(scenario.Integer(older)), olderRet, sensor)
		return
	}
	r.set("Temperature", scenario.Numbers(scenario.Integer(newer.Temperature)), newerRet, sensor)
	if olderRet != nvml.SUCCESS {
		r.set("Temperature", scenario.Value{}, olderRet)
	}
}

// recordMemory writes the memory as lines of the script: on a GPU's own lines used and free would follow the
// processes.
func (r *GPURecorder) recordMemory() {
	if m, ret := get(r.dev, callMemoryInfoV2, r.dev.handle().GetMemoryInfo_v2); r.see(ret) == nvml.SUCCESS {
		r.say(fmt.Sprintf("at 0s gpu %d MemoryInfo_v2 = total=%d used=%d free=%d reserved=%d", r.index, m.Total, m.Used, m.Free, m.Reserved))
	} else {
		r.set("MemoryInfo_v2", scenario.Value{}, ret)
	}
	if m, ret := get(r.dev, callMemoryInfo, r.dev.handle().GetMemoryInfo); r.see(ret) == nvml.SUCCESS {
		r.say(fmt.Sprintf("at 0s gpu %d MemoryInfo = total=%d used=%d free=%d", r.index, m.Total, m.Used, m.Free))
	} else {
		r.set("MemoryInfo", scenario.Value{}, ret)
	}
	if m, ret := get(r.dev, callBAR1, r.dev.handle().GetBAR1MemoryInfo); r.see(ret) == nvml.SUCCESS {
		r.say(fmt.Sprintf("at 0s gpu %d BAR1MemoryInfo = total=%d used=%d free=%d", r.index, m.Bar1Total, m.Bar1Used, m.Bar1Free))
	} else {
		r.set("BAR1MemoryInfo", scenario.Value{}, ret)
	}
}

// readBus lists the addresses of the GPUs that the PCI bus has, those apart which were taken from the driver
// on purpose.
func (r *recorder) readBus() {
	found, err := r.session.library.Expected()
	if err != nil {
		r.notes = append(r.notes, "The PCI bus could not be read, so GPUs that the driver does not know are not here.")
		return
	}
	for _, e := range found {
		if !e.Detached {
			r.bus = append(r.bus, e.PCI)
		}
	}
	for _, c := range r.devs {
		if pci := c.dev.Identity().PCI; pci != "" {
			r.taken = append(r.taken, pci)
		}
	}
}

// guessAddress returns an address for a GPU that could not tell its own: the first of the bus that no other
// GPU has, or one that no machine has.
func (r *GPURecorder) guessAddress() gpu.PCIAddress {
	r.note("it did not tell its PCI address; the one here is a guess.")
	for _, pci := range r.bus {
		if !slices.Contains(r.taken, pci) {
			return pci
		}
	}
	return gpu.NewPCIAddress(0xffff, uint32(r.index), 0, 0)
}

// missing adds the GPUs that the PCI bus has and the driver does not know.
func (r *recorder) missing() {
	for _, pci := range r.bus {
		index := len(r.draft.GPUs)
		if slices.Contains(r.taken, pci) || index >= scenario.MaxGPUs {
			continue
		}
		r.notes = append(r.notes, fmt.Sprintf("GPU %d is on the PCI bus; the driver does not list it.", index))
		r.draft.GPUs = append(r.draft.GPUs, scenario.DraftGPU{Options: []string{"pci=" + string(pci)},
			Statements: []string{fmt.Sprintf("at 0s gpu %d remove", index)}})
	}
}

// head writes what concerns the whole file.
func (r *recorder) head() {
	system := r.session.system
	r.draft.System.Set("DriverVersion", scenario.Text(system.DriverVersion))
	version, ret := get(r.session, callNVMLVersion, r.session.nvml.SystemGetNVMLVersion)
	r.system("NVMLVersion", scenario.Text(version), ret)
	cuda, ret := get(r.session, callCUDAVersion, r.session.nvml.SystemGetCudaDriverVersion)
	r.system("CudaDriverVersion", scenario.Numbers(scenario.Integer(cuda)), ret)
	for id, key := range map[callID]string{callEventSetCreate: "EventSetCreate", callEventSetWait: "EventSetWait"} {
		if !r.session.offers.have[id] {
			r.system(key, scenario.Value{}, nvml.ERROR_FUNCTION_NOT_FOUND)
		}
	}
	exports, done := r.session.library.exported()
	defer done()
	r.draft.Symbols = nearestSet(exports, system.DriverVersion, r.field, r.metric)
	r.draft.Title = fmt.Sprintf("Recorded: %s, driver %s", r.models(), system.DriverVersion)

	program := r.options.Program
	if program == "" {
		program = "gpu-exporter"
	}
	date := ""
	if !r.options.Date.IsZero() {
		date = " on " + r.options.Date.UTC().Format("2006-01-02 at 15:04 UTC")
	}
	r.draft.Comment = []string{
		fmt.Sprintf("What the NVIDIA driver of one node answered, recorded by %s%s over %v.", program, date, r.watched),
		"Contains: the names and versions of GPUs, boards, firmware and driver; what every call of the exporter returned, value or return code; " +
			"the MIG layout; the processes on the GPUs with the memory that they held; and for how much of the time GPUs and processes worked.",
		"Masked: the UUIDs of GPUs and MIG devices and the serial numbers of boards are replaced by others of the same shape, the same one " +
			"wherever the original was the same. The key of it was random and is kept nowhere, so nothing leads back. Process ids are numbered " +
			"anew, from " + fmt.Sprint(firstPID) + ".",
		"Left as they were: PCI addresses (alike on all nodes of a kind, and no secret), product names, part numbers and versions.",
		"Not in here at all: the name of the host, names of processes, users, pods and containers, addresses of the network.",
		"How to read it: values are those of the moment. A counter of work goes on at the rate at which it grew. busy= is the mean of the " +
			"recording, in time slices of one second. An answer of FUNCTION_NOT_FOUND is a function that the driver's library does not have.",
	}
	if len(r.notes) > 0 {
		r.draft.Comment = append(r.draft.Comment, strings.Join(r.notes, " "))
	}
}

// models counts the GPUs by their product names.
func (r *recorder) models() string {
	var names []string
	count := map[string]int{}
	for _, c := range r.devs {
		name := c.dev.Identity().Model
		if name == "" {
			name = "a GPU without a name"
		}
		if count[name] == 0 {
			names = append(names, name)
		}
		count[name]++
	}
	for i, name := range names {
		names[i] = fmt.Sprintf("%d x %s", count[name], name)
	}
	return strings.Join(names, ", ")
}
