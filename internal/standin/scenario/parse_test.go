package scenario

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/must"
)

const minimal = `scenario 1
board b
  Name = "A gpu"
  ring period=100ms entries=10
  model idle_watts=50 busy_watts=250 idle_celsius=30 busy_celsius=70
  MemoryInfo_v2 = total=1GiB reserved=1MiB
  profile 1g number=0 id=19 slices=1 memory=128MiB
  profile 7g number=4 id=0 slices=7 memory=896MiB
gpu 0 board=b
`

func parse(t *testing.T, text string) *Scenario {
	t.Helper()
	s, err := Parse("test.scenario", text, nil)
	must.OK(t, err)
	return s
}

// An error names the line, and says what was expected there.
func TestErrors(t *testing.T) {
	for _, tc := range []struct{ line, want string }{
		{`nonsense`, `expected a statement, or an answer`},
		{`NoSuchKey = 1`, `expected the name of an answer`},
		{`PowerUsage =`, `expected a statement, or an answer`},
		{`PowerUsage = !NO_SUCH_CODE`, `expected one return code`},
		{`PowerUsage = 12 apples`, `expected numbers and variables`},
		{`PowerUsage = 1*t*busy`, `expected one variable`},
		{`PowerUsage = 1e999`, `expected numbers and variables`},
		{`PowerUsage = t mod 0`, `expected a number above 0 after mod`},
		{`Name = unquoted`, `expected one text in quotes`},
		{`Name = "no end`, `expected a closing "`},
		{`Temperature[nose] = 1`, `expected Temperature[gpu|gpu_max]`},
		{`Temperature[gpu = 1`, `expected Temperature[gpu|gpu_max]`},
		{`NvLinkState[0-99] = 1`, `a range below 36`},
		{`FieldValues = 5`, `expected a return code`},
		{`Temperature = 5`, `expected a return code`},
		{`EccMode = current=1`, `expected pending=`},
		{`EccMode = current=1 pending=1 future=1`, `expected options of current=, pending=`},
		{`DriverVersion = "1"`, `after the word system`},
		{`system PowerUsage = 1`, `concerns no gpu`},
		{`system`, `expected system and an answer`},
		{`title`, `expected title and a text`},
		{`symbols R999`, `expected symbols and one of`},
		{`board`, `expected board and a name`},
		{`board b`, `expected board b once`},
		{`ring period=1us`, `at least 1ms`},
		{`ring entries=9999`, `a number from 1 to 1024`},
		{`ring clock=sundial`, `expected epoch or boot`},
		{`model busy_watts=-5`, `from 0 to 1000000`},
		{`profile x memory=lots`, `expected an amount of memory`},
		{`gpu 5`, `expected gpus numbered from 0 in order`},
		{`gpu 1 board=none`, `a board described before`},
		{`gpu 1 pci=somewhere`, `expected a PCI address`},
		{`gpu 1 pci=0000:18:00.0`, `another uuid and PCI address`},
		{`process gpu=0 busy=30%`, `expected option pid=`},
		{`process gpu=7 pid=1`, `the number of a gpu described before`},
		{`process gpu=0 pid=1 busy=130%`, `expected a part of a whole`},
		{`process gpu=0 pid=1 period=1ns`, `at least 1ms`},
		{`process gpu=0 pid=1 from=5s to=5s`, `a time after from=`},
		{`process gpu=0 pid=1 kind=sorcery`, `expected compute, graphics or mps`},
		{`process gpu=0 pid=1 memory=2PiB`, `expected an amount of memory`},
		{`process gpu=0 pid=1 ci=1`, `expected option gi=`},
		{`process gpu=0 pid=1 pid=2`, `expected option pid= once`},
		{`load gpu=0 kind=mps`, `expected options of`},
		{`mig gpu=0 layout="gi=1 profile=9g"`, `a profile of the board`},
		{`mig gpu=0 layout="profile=1g"`, `expected gi=`},
		{`mig gpu=0 layout="gi=1 profile=1g ; gi=1 profile=1g"`, `expected another ci=`},
		{`mig gpu=0 layout="gi=1 profile=1g index=0 ; gi=2 profile=1g index=0"`, `each index once`},
		{`mig gpu=0 layout="gi=99 profile=1g"`, `from 0 to 15`},
		{`at 60s gpu 0 mig apply layout="gi=1 profile=1g"`, `expected mig pending on before`},
		{`at soon gpu 0 lose`, `expected a duration`},
		{`at -5s gpu 0 lose`, `expected a duration`},
		{`at 200000h gpu 0 lose`, `expected a duration`},
		{`at 60s moon rise`, `expected gpu, system or driver`},
		{`at 60s driver dance`, `one of load, unload`},
		{`at 60s gpu 0 lose it`, `expected nothing after lose`},
		{`at 60s gpu 0 explode`, `expected an answer, or one of`},
		{`at 60s gpu 0 hang`, `expected hang and one function`},
		{`at 60s gpu 0 hang NoSuchCall`, `expected a function`},
		{`at 60s gpu 0 delay UtilizationRates`, `expected delay`},
		{`at 60s gpu 0 xid`, `expected a number after xid`},
		{`at 60s gpu 0 xid many`, `expected a number after xid`},
		{`at 60s gpu 0 mig maybe on`, `expected mig pending on`},
		{`include /etc/passwd`, `a path below the scenario's directory`},
		{`include ../outside`, `a path below the scenario's directory`},
		{`include some.scenario`, `there are no files to include`},
		{"title \"a\x00b\"", `expected printable text`},
		{"title \"\xff\"", `expected printable text`},
	} {
		_, err := Parse("test.scenario", minimal+"\n"+tc.line+"\n", nil)
		if err == nil {
			t.Errorf("%s: no error, want %s", tc.line, tc.want)
			continue
		}
		want := fmt.Sprintf("test.scenario:%d: ", strings.Count(minimal, "\n")+2)
		if !strings.HasPrefix(err.Error(), want) || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s:\n got %v\nwant %s... %s", tc.line, err, want, tc.want)
		}
	}
}

func TestFirstLine(t *testing.T) {
	for _, text := range []string{"", "\n\n", "scenario 2\n", "board b\n", "scenario\n"} {
		if _, err := Parse("x", text, nil); err == nil || !strings.Contains(err.Error(), "expected the first line to be: scenario 1") {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestInclude(t *testing.T) {
	files := fstest.MapFS{
		"boards/b.scenario": {Data: []byte(minimal[:strings.Index(minimal, "gpu 0")])},
		"again.scenario":    {Data: []byte("scenario 1\ninclude again.scenario\n")},
		"bad.scenario":      {Data: []byte("scenario 1\n\nwrong\n")},
	}
	s, err := Parse("main", "scenario 1\ninclude boards/b.scenario\ngpu 0 board=b\n", files)
	must.OK(t, err)
	if a, ok := s.Answer(0, "Name", 0); !ok || a.Text != "A gpu" {
		t.Errorf("Name is %+v, %v", a, ok)
	}
	for _, tc := range []struct{ text, want string }{
		{"scenario 1\ninclude again.scenario\n", "again.scenario:2: expected includes at most"},
		{"scenario 1\ninclude bad.scenario\n", "bad.scenario:3: expected a statement"},
		{"scenario 1\ninclude none.scenario\n", "main:2: expected a readable file"},
		{"scenario 1\ninclude boards/../boards/b.scenario\n", "main:2: expected include and a path below"},
		{"scenario 1\ninclude boards/b.scenario\nName = \"x\"\n", "main:3: expected a board or gpu statement"},
	} {
		if _, err := Parse("main", tc.text, files); err == nil || !strings.HasPrefix(err.Error(), tc.want) {
			t.Errorf("%q: got %v, want %s", tc.text, err, tc.want)
		}
	}
}

func TestValues(t *testing.T) {
	s := parse(t, minimal+`
  Serial = "a \"b\" # c"     # a comment
  Brand = 0x10
  NumaNodeId = 2 KiB
  PowerManagementLimit = 3*t + 2e1*busy - 1.5
  PcieReplayCounter = 10*t mod 25
  Field[193] = -8
  Field[197] = 1.5 type=double
  Field[185,memory] = 7
  NvLinkState[0-2] = 1
  FanSpeed = !NO_PERMISSION
  Field[83] = !UNTOUCHED
  CurrentClocksEventReasons = ones
load gpu=0 busy=50% period=2s
`)
	for _, tc := range []struct {
		key  string
		at   time.Duration
		want string
	}{
		{"Serial", 0, `a "b" # c`},
		{"Brand", 0, "16"},
		{"PowerManagementLimit", 4 * time.Second, "50.5"},
		{"PcieReplayCounter", 6 * time.Second, "10"},
		{"Field[193]", 0, "-8"},
		{"Field[197]", 0, "1.5"},
		{"Field[185,memory]", 0, "7"},
		{"Field[185,2]", 0, "7"},
		{"NvLinkState[2]", 0, "1"},
		{"NvLinkState[3]", 0, "nothing"},
		{"FanSpeed", 0, "!NO_PERMISSION"},
		{"Field[83]", 0, "!UNTOUCHED"},
		{"CurrentClocksEventReasons", 0, "1.8446744073709552e+19"},
		{"PowerUsage", 10 * time.Second, "50000"}, // the last second was idle
		{"PowerUsage", 10*time.Second + 500*time.Millisecond, "150000"},
		{"TotalEnergyConsumption", 10 * time.Second, "1.5e+06"},
	} {
		a, ok := s.Answer(0, tc.key, tc.at)
		got := "nothing"
		switch {
		case ok && a.Code != "":
			got = "!" + a.Code
		case ok && a.Text != "":
			got = a.Text
		case ok:
			got = fmt.Sprint(a.Numbers["value"])
		}
		if got != tc.want {
			t.Errorf("%s at %v is %s, want %s", tc.key, tc.at, got, tc.want)
		}
	}
}

func TestScript(t *testing.T) {
	s := parse(t, minimal+`
process gpu=0 pid=7 memory=10MiB from=5s to=20s
at 10s gpu 0 Temperature[gpu] = 80
at 20s gpu 0 Temperature[gpu] = default
at 10s gpu 0 MemoryInfo_v2 = total=1GiB reserved=1MiB used=5 free=6
at 30s gpu 0 FieldValues = !UNKNOWN
at 40s gpu 0 FieldValues = default
at 30s gpu 0 lose
at 35s gpu 0 restore
at 30s gpu 0 xid 79
at 31s gpu 0 xid 79
`)
	number := func(key, component string, at time.Duration) float64 {
		a, _ := s.Answer(0, key, at)
		return a.Numbers[component]
	}
	if got := number("Temperature[gpu]", "value", 5*time.Second); got != 30 {
		t.Errorf("temperature before is %v", got)
	}
	if got := number("Temperature[gpu]", "value", 10*time.Second); got != 80 {
		t.Errorf("temperature from 10 s is %v", got)
	}
	if got := number("Temperature[gpu]", "value", 20*time.Second); got != 30 {
		t.Errorf("temperature from 20 s is %v", got)
	}
	if used, free := number("MemoryInfo_v2", "used", 6*time.Second), number("MemoryInfo_v2", "free", 6*time.Second); used != 10<<20 ||
		free != 1<<30-11<<20 {
		t.Errorf("memory that follows processes: used %v, free %v", used, free)
	}
	if used := number("MemoryInfo", "used", 6*time.Second); used != 11<<20 {
		t.Errorf("the older call's used is %v, want reserved in it", used)
	}
	if used := number("MemoryInfo_v2", "used", 11*time.Second); used != 5 {
		t.Errorf("memory of the script: used %v", used)
	}
	if a, _ := s.Answer(0, "FieldValues", 35*time.Second); a.Code != "UNKNOWN" {
		t.Errorf("the whole call is %+v", a)
	}
	if a, _ := s.Answer(0, "FieldValues", 45*time.Second); a.Code != "" {
		t.Errorf("the whole call is %+v after default", a)
	}
	truth := s.Truth(0)
	if truth.State(29*time.Second) != "" || truth.State(30*time.Second) != "GPU_IS_LOST" || truth.State(36*time.Second) != "" {
		t.Error("the gpu is not lost from 30 s to 35 s")
	}
	if got := truth.XIDs(0, 30*time.Second)[79]; got != 1 {
		t.Errorf("%d XIDs at 30 s", got)
	}
	if got := truth.XIDs(30*time.Second, time.Hour)[79]; got != 1 {
		t.Errorf("%d XIDs after 30 s", got)
	}
	if len(truth.Processes(4*time.Second)) != 0 || len(truth.Processes(5*time.Second)) != 1 || len(truth.Processes(20*time.Second)) != 0 {
		t.Error("the process does not live from 5 s to 20 s")
	}
}

// What the text of a scenario may be does not matter: no panic, and errors that name a line of a file.
func FuzzParse(f *testing.F) {
	f.Add(minimal)
	f.Add(minimal + "mig gpu=0 layout=\"gi=1 profile=1g start=0 size=1 ; gi=2 profile=1g\"\nat 1s gpu 0 mig pending off\n")
	f.Add(minimal + "process gpu=0 pid=1 busy=30% period=1s\nat 60s gpu 0 xid 79 gi=1\nat 5s gpu 0 PowerUsage = default\n")
	f.Add("scenario 1\ninclude boards/b\nsystem DriverVersion = \"%\"\n")
	files := fstest.MapFS{"boards/b": {Data: []byte("scenario 1\nboard b\nName = \"x\"\n")}}
	named := regexp.MustCompile(`^[^\n]*:[0-9]+: `)
	f.Fuzz(func(t *testing.T, text string) {
		s, err := Parse("fuzz", text, files)
		if err != nil {
			if !named.MatchString(err.Error()) {
				t.Errorf("error without a line: %v", err)
			}
			return
		}
		flat := string(s.Flat())
		for i, line := range strings.Split(strings.TrimSuffix(flat, "\n"), "\n") {
			if line == "" || strings.ContainsFunc(line, func(r rune) bool { return r < ' ' || r > '~' }) {
				t.Errorf("flat line %d is %q", i+1, line)
			}
		}
		for i := range s.GPUs {
			truth := s.Truth(i)
			if b := truth.Busy(0, 2*time.Second); !(b >= 0 && b <= 2.000001*maxMIGDevices) {
				t.Errorf("busy %v of 2 s", b)
			}
			if e := truth.Energy(0, time.Second); e != e || e < 0 && s.GPUs[i].model.busyWatts >= s.GPUs[i].model.idleWatts {
				t.Errorf("energy is %v", e)
			}
		}
	})
}
