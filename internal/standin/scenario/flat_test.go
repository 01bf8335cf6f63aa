package scenario

import "testing"

// The flat form is what the stand-in driver reads, so a change here is a change there.
func TestFlat(t *testing.T) {
	s := parse(t, `scenario 1
system DriverVersion = "580 %"
board b
  Temperature[gpu] = 30 + 5*util mod 200
  Field[185,memory] = -3 type=int
  NumFans = !NOT_SUPPORTED
  profile 1g number=0 id=19 slices=1 memory=128MiB sms=14 count=7
gpu 0 board=b uuid=GPU-1 pci=0001:1a:02.0 minor=3
  ring period=100ms entries=20 clock=boot
process gpu=0 pid=5 kind=mps memory=4KiB busy=25% period=2s phase=1s from=3s to=9s gi=1 ci=2 dram=10%
mig gpu=0 layout="gi=1 ci=2 profile=1g start=4 size=2 index=6 uuid=MIG-x"
at 5s gpu 0 lose
at 5s gpu 0 hang FieldValues
at 6s system delay Init 2ms
at 7s gpu 0 xid 79
at 8s driver unload
`)
	want := `fakenvml 1
gpu GPU-1 1 26 2 3 100000000 20 20 1 0 0 0 0 1000000000 0 0 0 0
profile 0 1g 0 19 1 128 14 7 0 0 0 0 0
demand 0 5 2 1 2 4096 500000000 2000000000 1000000000 3000000000 9000000000 0.10000000000000001 1
layout 0 0 0 1 1
layout 0 0 1 1 1
device 0 6 1 2 0 4 2 1 MIG-x
fault 0 5000000000 lose
stall 0 5000000000 FieldValues -1
answer -1 0 DriverVersion 0 0 1 s:580%20%25
answer 0 0 Temperature[0] 0 3 1 e:30*1,5*util;200
answer 0 0 Field[185,2] 0 5 1 i:18446744073709551613
answer 0 0 NumFans 3 0 0
answer 0 0 UtilizationRates 0 3 2 e:100*util e:100*memutil
stall -1 6000000000 Init 2000000
event 0 7000000000 8 79 4294967295 4294967295
driver 8000000000 unload
`
	if got := string(s.Flat()); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
