// Package scenario is the file format in which a node without GPUs is written down: what each NVML call
// returns, what the GPUs are doing, and what happens when. A stand-in driver (testdata/fakenvml) plays
// it, under a clock that a test steps or that runs by itself, and the package computes the truth that a
// reader of that driver should find: busy seconds, energy, XIDs.
//
// A scenario is text, one statement per line. This is most of the language; the boards and scenarios under
// testdata/scenarios show the rest.
//
//	scenario 1                                # version of the format, first
//	title "8 x H100 SXM5, loaded"
//	include boards/h100-sxm.scenario          # never outside the directory of the first file
//	symbols R580                              # R470, R535, R550, R580, R595, R610, R615, R620 or newest: the exported functions
//	system DriverVersion = "580.105.08"       # answers that concern no GPU
//	board h100                                # a template; the lines below belong to it
//	  Name = "NVIDIA H100 80GB HBM3"
//	  MemoryInfo_v2 = total=80GiB reserved=480MiB    # used and free follow the processes
//	  PowerUsage = power                      # a sum of numbers and variables: 345 + 1635*active
//	  Field[185,gpu] = power                  # a value of nvmlDeviceGetFieldValues, with scope
//	  FanSpeed = !NOT_SUPPORTED               # a return code; also what an absent line means
//	  Gpm[2] = 92*util                        # a GPM metric
//	  ring period=166667us entries=72         # the driver's sample ring; order=slot: not in the order of time
//	  model idle_watts=70 busy_watts=650 idle_celsius=34 busy_celsius=62
//	  profile 1g.10gb number=0 id=19 slices=1 memory=9984MiB sms=16 count=7
//	gpu 0 board=h100 pci=0000:53:00.0        # the lines below override the board's
//	  Serial = "1650000000001"
//	process gpu=0 pid=1234 memory=4GiB busy=30% period=1s phase=0s from=0s to=100s
//	load gpu=0-7 busy=50% period=2s          # load whose process is not listed
//	mig gpu=1 layout="gi=1 profile=1g.10gb start=0 size=1 ; gi=2 profile=2g.20gb start=2 size=2"
//	at 60s gpu 0 Temperature[gpu] = 80       # from then on; "= default" takes it back
//	at 60s gpu 0 lose                        # also reset_required, remove; restore ends them all; unbind, bind
//	at 60s gpu 0 hang UtilizationRates       # until restore; also: delay FieldValues 200ms
//	at 60s gpu 0 xid 48                      # also: event 0x8000 data=1
//	at 60s gpu 0 mig pending on              # then: mig apply layout="..."
//	at 60s driver unload                      # also load, mismatch, replace
//
// The variables of a sum are t (seconds since the driver was loaded), busy and membusy (busy seconds
// since then), util and memutil (0 to 1, over the driver's last window), active (1 if that window was
// busy), power and power_instant (mW), energy (mJ), process_memory (bytes of processes) and temperature.
//
// What parses is safe to play: sizes, depths and rates are bounded, and every error names file and line.
package scenario
