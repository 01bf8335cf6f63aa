package hwcheck

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/histogram"

	"github.com/gpu-exporter/gpu-exporter/internal/must"
	"github.com/gpu-exporter/gpu-exporter/internal/standin"
	"github.com/gpu-exporter/gpu-exporter/internal/standin/scenario"
	"github.com/gpu-exporter/gpu-exporter/internal/testkit"
	"github.com/gpu-exporter/gpu-exporter/test/programs"
)

// TestMain runs the test binary as the two programs that hwcheck starts: itself for direct calls, and the load.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "probe" {
		if err := RunProbe(os.Args[2:], os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if len(os.Args) > 2 && os.Args[1] == "load" {
		simulateLoad(os.Args[2:])
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// simulateLoad logs what the processes of the scenario do, as kernels/load.c would. Its arguments are the Unix time of
// the scenario's start, and those of load.c.
func simulateLoad(args []string) {
	number := func(i int) float64 { v, _ := strconv.ParseFloat(args[i], 64); return v }
	fmt.Println("pid 4000")
	start, mode := number(0), args[1]
	length, every, phase, bytes := 0.1, 0.1, 0.0, 0.0
	switch mode {
	case "spin":
		every, phase = number(4), number(5)
		if d, err := time.ParseDuration(os.Getenv("SPIN_EVERY")); err == nil {
			every = d.Seconds()
		}
		if length = number(3) * every; os.Getenv("SPIN_FULL") != "" {
			length = every
		}
	case "h2d", "d2h", "p2p":
		rate := number(3)
		if v, err := strconv.ParseFloat(os.Getenv("COPY"), 64); err == nil && mode != "p2p" {
			rate = v
		}
		bytes = rate * every
	case "launch":
		fmt.Println("burst 1 1 0")
		time.Sleep(time.Duration(number(2) * float64(time.Second) / 4))
		marker := os.Getenv("MARKER")
		if _, err := os.Stat(marker); err == nil && os.Getenv("SLOW") != "" {
			fmt.Println("launch 50 90 900")
		} else {
			fmt.Println("launch 5.1 8.2 21.5")
		}
		_ = os.WriteFile(marker, nil, 0o644)
		return
	case "fault", "trap":
		fmt.Println("burst 1 1 0")
		at := start + map[string]float64{"fault": 12, "trap": 16}[mode] // as the scenario
		time.Sleep(time.Until(time.UnixMilli(int64(at * 1e3))))
		log, _ := os.OpenFile(os.Getenv("KMSG"), os.O_APPEND|os.O_WRONLY, 0)
		if code := map[string]int{"fault": 31, "trap": 43}[mode]; os.Getenv("MUTE") == "" {
			fmt.Fprintf(log, "3,100,1,-;NVRM: Xid (PCI:0000:18:00): %d, pid=4000, name=load, Ch 00000008\n", code)
		}
		return
	}
	now := float64(time.Now().UnixMilli()) / 1e3
	for at := start + math.Floor((now-start)/every)*every + phase; ; at += every {
		// Ahead of the time, so that no burst is missing where this process is late.
		time.Sleep(time.Until(time.UnixMilli(int64(at * 1e3)).Add(-3 * time.Second)))
		fmt.Printf("burst %.6f %.6f %.0f\n", at, length, bytes)
	}
}

// build builds the exporter once.
var build = sync.OnceValues(func() (root string, err error) {
	if root, err = filepath.Abs(filepath.Join("..", "..", "..")); err == nil {
		err = programs.Build(context.Background(), root, programs.Exporter)
	}
	return root, err
})

// script writes an executable shell script.
func script(t *testing.T, path, text string) {
	t.Helper()
	must.OK(t, os.WriteFile(path, []byte("#!/bin/sh\n"+text), 0o755))
}

// listings are the outputs of nvidia-smi beside --query-gpu, by their first argument.
type listings map[string]string

func h100Listings(t *testing.T) listings {
	return listings{"-q": readFile(t, "testdata", "h100.xml"), "nvlink": readFile(t, "testdata", "nvlink.txt"),
		"pmon": "# gpu         pid   type     sm    mem    enc    dec    jpg    ofa    command \n    0          -    " +
			" -      -      -      -      -      " +
			"-      -    -              \n", "mig": ""}
}

// fakeSmi writes a program that responds as nvidia-smi: values of one GPU to --query-gpu, and listings.
func fakeSmi(t *testing.T, path string, c device, l listings) {
	t.Helper()
	write := func(name string, c device) {
		var lines strings.Builder
		for _, name := range slices.Sorted(maps.Keys(c)) {
			fmt.Fprintf(&lines, "%s\t%s\n", name, c[name])
		}
		must.OK(t, os.WriteFile(name, []byte(lines.String()), 0o644))
	}
	write(path+".answers", c)
	if hot := c["power.draw when hot"]; hot != "" {
		c = maps.Clone(c)
		c["power.draw"] = hot
		write(path+".hot", c)
	}
	for name, text := range l {
		must.OK(t, os.WriteFile(path+"."+name, []byte(text), 0o644))
	}
	script(t, path, `all=1
[ -e "$0.$1" ] && exec /bin/cat "$0.$1"
for a in "$@"; do
  case "$a" in
    --help-query-gpu) exec /usr/bin/awk -F'\t' '{print "\"" $1 "\"\nWhat it is.\n"}' "$0.answers";;
    --id=*) all=;;
    --query-gpu=*) asked="${a#--query-gpu=}";;
  esac
done
answers="$0.answers"
[ -e "$0.hot" ] && [ -e "${0%/*}/marker" ] && answers="$0.hot"
exec /usr/bin/awk -F'\t' -v asked="$asked" -v all="$all" '
  {answer[$1] = $2}
  END {
    n = split(asked, names, ",")
    for (i = 1; i <= n; i++) {
      if (!(names[i] in answer)) { print "Field \"" names[i] "\" is not a valid field to query."; exit 2 }
      header = header (i > 1 ? ", " : "") names[i]
      values = values (i > 1 ? ", " : "") answer[names[i]]
    }
    print header; print values
    if ("second" in answer && all) { gsub(answer["uuid"], answer["second"], values); print values }
  }' "$answers"
`)
}

var spinPeriod = regexp.MustCompile(`pid=4000 .*period=(\w+)`)

// node is a machine with one GPU: a fake driver, and an nvidia-smi that responds with c.
type node struct {
	dir, root string
	flags     []string
	exporter  []string // its flags
}

func newNode(t *testing.T, text string, c device, l listings, loadEnv string) node {
	t.Helper()
	root, err := build()
	must.OK(t, err)
	dir, err := os.MkdirTemp("", "node-")
	must.OK(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	n := node{dir: dir, root: root}
	s, err := scenario.Parse("node.scenario", text, os.DirFS(filepath.Join(root, "testdata", "scenarios")))
	must.OK(t, err)
	library, err := standin.BuildFakeNVML(t.Context(), s.Symbols, dir)
	must.OK(t, err)
	env, control, err := standin.SimulateLive(s, dir)
	must.OK(t, err)
	t.Cleanup(func() { control.Close() })
	begin := float64(control.Time().UnixMicro())/1e6 - control.Now().Seconds()
	trees, err := standin.WriteTrees(dir, s, PodNode(c["uuid"], 4001))
	must.OK(t, err)
	self, err := os.Executable()
	must.OK(t, err)
	fakeSmi(t, filepath.Join(dir, "nvidia-smi"), c, l)
	kmsg, dev := filepath.Join(dir, "kmsg"), filepath.Join(dir, "dev")
	must.OK(t, errors.Join(os.MkdirAll(dev, 0o755), os.WriteFile(filepath.Join(dev, "nvidiactl"), nil, 0o666),
		os.WriteFile(filepath.Join(dev, "nvidia0"), nil, 0o666)))
	env = append(env, "FAKENVML_DEV="+dev)
	for path, mode := range map[string]os.FileMode{kmsg: 0o666, control.Path(): 0o666, dir: 0o755} {
		f, err := os.OpenFile(path, os.O_RDONLY|os.O_CREATE, mode)
		if err == nil {
			err = errors.Join(f.Close(), os.Chmod(path, mode))
		}
		if path != dir && err != nil {
			t.Fatal(err)
		}
	}
	must.OK(t, os.Chmod(dir, 0o755))
	// In the periods of the scenario's process: a burst of another length at an edge would be a difference.
	if m := spinPeriod.FindStringSubmatch(text); m != nil {
		loadEnv += " SPIN_EVERY=" + m[1]
	}
	script(t, filepath.Join(dir, "load"), fmt.Sprintf("export MARKER=%s/marker KMSG=%s %s\nexec %s load %f \"$@\"\n",
		dir, kmsg, loadEnv, self, begin))
	n.flags = []string{"--exporter=" + filepath.Join(root, "bin", "gpu-exporter"),
		"--nvidia-smi=" + filepath.Join(dir, "nvidia-smi"),
		"--out=" + n.report(), "--record=false", "--load=" + filepath.Join(dir, "load"), "--nvml.library=" + library,
		"--kmsg=" + kmsg,
		"--cgroups=" + filepath.Join(dir, "cgroup"), "--host=" + dir, "--polls=500ms,1s,2s", "--under=env " + strings.Join(env, " ")}
	n.exporter = []string{"--", "--path.sysfs=" + trees.Sysfs, "--path.procfs=" + trees.Procfs, "--path.kmsg="}
	return n
}

func (n node) report() string { return filepath.Join(n.dir, "report.md") }

// run runs the whole program.
func (n node) run(t *testing.T, flags ...string) (code int, output, report string) {
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	var out bytes.Buffer
	code = Run(ctx, slices.Concat(n.flags, flags, n.exporter), &out, &out)
	text, err := os.ReadFile(n.report())
	if err != nil {
		t.Errorf("%v\n%s", err, out.String())
	}
	return code, out.String(), string(text)
}

// h100 is an idle H100 as testdata/h100.csv has it: what would move with the load is held, but for what is measured.
//
//go:embed testdata/h100.scenario
var h100 string

// r595 is the same GPU with the first driver that has GPM's sums.
var r595 = strings.NewReplacer("R580", "R595", "580.105.08", "595.45.04").Replace(h100)

// Processes and rates of the stages. Those that share the GPU have samples of 100 ms, as the edges of a short period
// would be seen otherwise.
const (
	busy30  = "process gpu=0 pid=4000 memory=1MiB busy=30% period=100ms dram=20%\n"
	sharing = "  ring period=100ms entries=72\nprocess gpu=0 pid=4001 memory=1GiB busy=60% period=1s\n" +
		"process gpu=0 pid=4002 memory=1GiB busy=20% period=1s phase=700ms\nprocess gpu=0 pid=4003 memory=2GiB " +
		"busy=0%\n"
	copying = "  Field[197] = 28.6e9*t\n  Field[198] = 28.6e9*t\n  Gpm[20] = 27275.1\n  Gpm[21] = 27275.1\n" +
		"  Gpm[255] = 28.6e9*t\n  Gpm[256] = 28.6e9*t\n  Field[138,all] = 2089844*t\n" +
		"gpu 1 board=h100 pci=0000:2a:00.0 minor=1 uuid=GPU-5a0e1101-8c1d-4e6b-9d10-000000000001\n"
	instance = "mig gpu=0 layout=\"gi=7 profile=1g.10gb start=0 size=1 ; gi=8 profile=1g.10gb start=1 size=1\"\n" +
		"process gpu=0 pid=4000 gi=7 memory=1MiB busy=30% period=100ms\n"
	oneLeft = "at 16s gpu 0 mig apply layout=\"gi=8 profile=1g.10gb start=1 size=1\"\n"
	xids    = "at 12s gpu 0 xid 31\nat 16s gpu 0 xid 43\n"
)

// TestStages runs the whole program on the fake driver, some stages at a time. Each stage passes once, and fails with
// what is planted against it: by those names and no other.
func TestStages(t *testing.T) {
	const in, out = "copies to the GPU at 26 GB/s", "copies from the GPU at the maximum"
	const copyStages = in + "," + out + ",copies to a GPU"
	// A driver of which the first version of the fake has the sums, and a GPM that is off by a factor.
	gpm := func(factor float64) string {
		return r595 + strings.ReplaceAll(copying, "27275.1", fmt.Sprint(27275.1*factor))
	}
	offBy := []string{"GPM rate of PCIe, " + out, "GPM rate of PCIe, " + in}
	// Each second one more field is offered: two sweeps differ.
	changing := ""
	for s := range 40 {
		changing += fmt.Sprintf("at %ds gpu 0 Field[%d] = 1\n", s+1, 96+s)
	}
	migListings := listings{"mig": strings.Replace(strings.Replace(readFile(t, "testdata", "instances.txt"),
		"MIG 3g.20gb       9        1          4:4 ", "MIG 1g.10gb      19        8          1:1 ", 1),
		"|   0  MIG 3g.20gb       9        2          0:4     |\n", "", 1), "-mig": ""}
	partitioned := func(c device) { c["mig.mode.current"] = "Enabled" }
	edit := func(l listings, name, old, new string) listings {
		l[name] = strings.Replace(l[name], old, new, 1)
		return l
	}
	hot := func(c device) { c["power.draw when hot"] = "90.00" }
	twoGPUs := func(c device) { c["second"] = "GPU-5a0e1101-8c1d-4e6b-9d10-000000000001" }
	const volatile = "  PersistenceMode = 0\n"
	unkept := func(c device) { c["persistence_mode"] = "Disabled" }
	loaded := func(c device) { c["utilization.gpu"], c["utilization.memory"] = "30", "6" }
	rows := []struct {
		name, only, scenario string
		edit                 func(c device)
		listings             listings
		load                 string   // environment of the load
		private              bool     // the driver works for root with capabilities alone
		power                string   // the file that has the active time of a GPU that may suspend
		references           []string // of the kernel module, in turn
		flags                []string
		want                 []string
		may                  []string // fail too where polls are late
	}{
		{name: "idle", only: "idle", scenario: h100},
		{name: "idle, planted", only: "idle", scenario: h100 + "  Field[83] = 90000*t\n  Gpm[2] = 30\n",
			edit: func(c device) { c["power.limit"] = "650.00" },
			listings: edit(edit(edit(h100Listings(t), "-q", "<total>81559 MiB", "<total>81550 MiB"), "nvlink",
				"Link 4: 26.562 GB/s", "Link 4: <inactive>"),
				"pmon", "          -     -", "       4000     C"),
			want: []string{"SM activity (GPM) is at most busy time, idle", "energy against integrated power, idle",
				"fields of GPU 0",
				"nvidia-smi -q -x of GPU 0", "nvidia-smi nvlink -s", "nvidia-smi pmon -c 1"}},
		{name: "loaded", only: "loaded", scenario: h100 + busy30, edit: loaded},
		{name: "loaded, by hand", only: "loaded", scenario: h100 + busy30, edit: loaded, flags: []string{"--load=manual", "--duty=0.3"}},
		{name: "a duty that is not", only: "loaded", scenario: h100 + busy30, edit: loaded,
			flags: []string{"--load=manual", "--duty=0.4"},
			want:  []string{"busy seconds against a known load"}},
		{name: "another duty", only: "loaded", scenario: h100 + strings.Replace(busy30, "30%", "36%", 1), edit: loaded,
			want: []string{"busy seconds against a known load"}},
		{name: "field values, planted", only: "idle",
			scenario: h100 + "  Field[94] = 150 type=ulonglong\n" +
				"  Field[60] = !UNTOUCHED\n  Field[83,5] = 1e12 - 1e9*t\n" + changing,
			want: []string{"field values: codes and types", "field values: counters", "field values: timestamps",
				"field values: types"}},
		{name: "slow fields", only: "idle",
			scenario: h100 + "at 0s gpu 0 delay FieldValues 60ms\n",
			want:     []string{"field values: latency"}},
		{name: "BAR1", only: "idle",
			scenario: h100 + "  BAR1MemoryInfo = total=262144MiB used=1MiB\n",
			want:     []string{"BAR1 against memory"}},
		{name: "short ring", only: "loaded", edit: loaded, scenario: h100 + "  ring period=200ms entries=5\n" + busy30,
			want: []string{"sample ring: depth"}},
		// The gap is before the period that is watched.
		{name: "a gap in the ring", only: "loaded", edit: func(c device) { c["utilization.gpu"] = "100" },
			scenario: h100 +
				"  Gpm[2] = 99*util\n  ring period=200ms entries=300 idle=stop\n" +
				"process gpu=0 pid=4000 memory=1MiB busy=99.7% period=200s phase=2400ms\n", load: "SPIN_FULL=1",
			want: []string{"sample ring: period"}},
		{name: "utilization", only: "loaded", edit: func(c device) { c["utilization.gpu"] = "60" },
			scenario: h100 + busy30,
			want:     []string{"utilization against nvidia-smi, loaded"}},
		{name: "SM activity", only: "loaded", edit: loaded, scenario: h100 + "  Gpm[2] = 10*util\n" + busy30,
			want: []string{"SM activity (GPM) of a full load"}},
		{name: "a process without a PID", only: "loaded", edit: loaded,
			scenario: h100 + strings.Replace(busy30, "30%", "20%", 1) +
				"load gpu=0 busy=10% period=100ms phase=50ms\n",
			want: []string{"every busy sample of the ring has a PID", "samples of a process: seconds covered"}},
		{name: "means of their own", only: "loaded", edit: loaded,
			scenario: h100 + "  ring period=200ms entries=72 process_mean=own\n" +
				strings.Replace(busy30, "100ms", "800ms", 1),
			want: []string{"samples of a process: seconds covered", "samples of processes at 0.2 to 5 s"}},
		{name: "little load", only: "little load", scenario: h100 + strings.Replace(busy30, "30% period=100ms", "2% period=1s", 1)},
		{name: "truncated samples", only: "little load", scenario: h100 + "  Samples[gpu] = 0\n" +
			strings.Replace(busy30, "30% period=100ms", "2% period=1s", 1),
			want: []string{"sample ring: rounding at 2 % duty"}},
		{name: "shared", only: "shared", scenario: h100 + sharing},
		{name: "shared, planted", only: "shared",
			scenario: h100 + strings.NewReplacer("60%", "50%", "20%", "30%", "2GiB busy=0%",
				"8GiB busy=5% phase=520ms period=1s").Replace(sharing),
			want: []string{"container busy 20 %", "container busy 60 %", "container with memory only",
				"memory of a container"}},
		{name: "hidden", only: "shared", scenario: h100 + sharing + "load gpu=0 busy=10% period=1s phase=900ms\n",
			want: []string{"hidden busy time"},
			may:  []string{"container busy 20 %", "container busy 60 %"}},
		{name: "MPS", only: "mps", scenario: h100 + strings.NewReplacer("memory=", "kind=mps memory=").Replace(sharing),
			flags: []string{"--mps-control=/bin/true"}},
		{name: "copies", only: copyStages, scenario: r595 + copying, edit: twoGPUs, load: "COPY=26e9"},
		{name: "copies, planted", only: copyStages, edit: twoGPUs, load: "COPY=18e9",
			scenario: r595 + strings.NewReplacer("2089844", "1044922").Replace(copying),
			want:     []string{"NVLink sent bytes", "PCIe bytes counted, " + out, "PCIe bytes counted, " + in}},
		{name: "GPM at 0", only: in + "," + out, scenario: gpm(0), load: "COPY=26e9", want: offBy},
		{name: "GPM at half", only: in + "," + out, scenario: gpm(0.5), load: "COPY=26e9", want: offBy},
		{name: "GPM +3 %", only: in + "," + out, scenario: gpm(1.03), load: "COPY=26e9", want: offBy},
		{name: "GPM -10 %", only: in + "," + out, scenario: gpm(0.9), load: "COPY=26e9", want: offBy},
		{name: "sums that disagree", only: in + "," + out, load: "COPY=26e9",
			scenario: r595 + strings.NewReplacer("Gpm[255] = 28.6e9*t", "Gpm[255] = 27.9e6*t", "Gpm[256] = 28.6e9*t",
				"Gpm[256] = 29.4e9*t").Replace(copying),
			want: []string{"GPM sum of PCIe, " + out, "GPM sum of PCIe, " + in}},
		{name: "rings", only: "rings", scenario: h100},
		{name: "a ring of another depth", only: "rings", scenario: h100 + "  ring period=200ms entries=100\n",
			want: []string{"sample rings: samples"}},
		{name: "a ring of another period", only: "rings", scenario: h100 + "  ring period=166667us entries=72\n",
			want: []string{"sample rings: milliseconds"}},
		{name: "cost and users", only: "users,cost", scenario: h100},
		{name: "users, planted", only: "users", scenario: h100, private: true,
			want: []string{"families as uid 0 without capabilities", "families as uid 65534"}},
		{name: "cost, planted", only: "cost", scenario: h100, load: "SLOW=1", edit: hot,
			flags: []string{"--strace=testdata/strace"},
			want: []string{"ioctls per driver call", "launch of an empty kernel, p50", "launch of an empty kernel, p99",
				"launch of an empty kernel, p99.9", "power of the idle GPU"}},
		{name: "let go", only: "let go", scenario: h100},
		{name: "suspended", only: "suspend", scenario: h100, power: "/dev/null"},
		{name: "unopened", only: "suspend", scenario: h100 + volatile, edit: unkept, references: []string{"0"}},
		{name: "opened", only: "suspend", scenario: h100 + volatile, edit: unkept, references: []string{"0", "2"},
			want: []string{"suspended GPU"}},
		{name: "resumed", only: "suspend", scenario: h100, power: "/proc/uptime", want: []string{"suspended GPU"}},
		{name: "MIG", only: "mig", scenario: h100 + instance + oneLeft, listings: migListings, edit: partitioned,
			flags: []string{"--change-mig"}},
		{name: "MIG, planted", only: "mig", scenario: h100 + "  Gpm[20] = !NOT_SUPPORTED\n" + strings.Replace(instance, "30%", "50%", 1),
			listings: migListings, edit: partitioned,
			flags: []string{"--change-mig"},
			want:  []string{"GPM of the whole GPU in MIG mode", "MIG instance busy", "MIG layout changed live"}},
		{name: "XIDs", only: "xid", scenario: h100 + xids, flags: []string{"--cause-xids"}},
		{name: "XIDs, planted", only: "xid", scenario: h100 + strings.Replace(xids, "at 16s gpu 0 xid 43",
			"at 13s gpu 0 xid 31", 1),
			load: "MUTE=1", flags: []string{"--cause-xids"},
			want: []string{"XID 31", "XID 31 in the kernel log", "XID 43", "XID 43 in the kernel log"}},
	}
	planted := map[string]bool{}
	for _, row := range rows {
		for _, name := range row.want {
			name, _, _ = strings.Cut(name, ", idle")
			name, _, _ = strings.Cut(name, ", loaded")
			name, _, _ = strings.Cut(name, ", copies")
			planted[name] = true
		}
	}
	// Rows are in real time, all at once: one that a busy machine disturbs runs again.
	const attempts = 3
	for attempt := 1; len(rows) > 0 && attempt <= attempts; attempt++ {
		var all sync.WaitGroup
		again := make([]string, len(rows))
		for i, row := range rows {
			c := recordedGPU(t, "h100.csv")
			c["count"] = "1"
			if row.edit != nil {
				row.edit(c)
			}
			l := row.listings
			if l == nil {
				l = h100Listings(t)
			}
			n := newNode(t, row.scenario, c, l, row.load)
			if row.power != "" {
				power := filepath.Join(n.dir, "sys/bus/pci/devices/0000:18:00.0/power")
				must.OK(t, errors.Join(os.WriteFile(filepath.Join(power, "control"), []byte("auto"), 0o600),
					os.WriteFile(filepath.Join(power, "runtime_status"), []byte("suspended"), 0o600),
					os.Symlink(row.power, filepath.Join(power, "runtime_active_time"))))
			}
			if len(row.references) > 0 {
				file := filepath.Join(n.dir, "sys/module/nvidia/refcnt")
				set := func(i int) error {
					text := []byte(row.references[i%len(row.references)])
					return errors.Join(os.WriteFile(file+".new", text, 0o600), os.Rename(file+".new", file))
				}
				must.OK(t, errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), set(0)))
				go func() {
					tick := time.NewTicker(time.Second)
					defer tick.Stop()
					for i := 1; ; i++ {
						select {
						case <-t.Context().Done():
							return
						case <-tick.C:
							_ = set(i)
						}
					}
				}()
			}
			if row.private {
				path := filepath.Join(n.dir, "scenario.flat")
				must.OK(t, errors.Join(os.Chmod(path, 0o600), os.Chown(path, 1000, 1000)))
			}
			all.Go(func() {
				code, output, report := n.run(t, append([]string{"--only=" + row.only, "--period=4s"}, row.flags...)...)
				var failed, lines []string
				for line := range strings.Lines(report) {
					if f := strings.Split(line, " | "); len(f) > 4 && (f[3] == finding || f[3] == incomplete) {
						failed, lines = append(failed, strings.TrimPrefix(f[0], "| ")), append(lines, line)
					}
				}
				if len(lines) == 0 {
					lines = append(lines, output)
				}
				slices.Sort(failed)
				failed = slices.DeleteFunc(failed, func(name string) bool { return slices.Contains(row.may, name) })
				if !slices.Equal(failed, row.want) || (code == exitPassed) != (len(row.want) == 0) {
					again[i] = fmt.Sprintf("%s: exit code %d, fails %q, want %q\n%s", row.name, code, failed, row.want,
						strings.Join(lines, ""))
				}
			})
		}
		all.Wait()
		left := rows[:0:0]
		for i, message := range again {
			if message == "" {
				continue
			}
			if left = append(left, rows[i]); attempt == attempts {
				t.Error(message)
			} else {
				t.Logf("attempt %d: %s", attempt, message)
			}
		}
		rows = left
	}
	for _, c := range claims() {
		if c.name, _, _ = strings.Cut(c.name, ", copies"); !planted[c.name] && !slices.Contains(plantedByHand, c.name) {
			t.Errorf("nothing is planted against the claim %q", c.name)
		}
	}
}

func TestRefusals(t *testing.T) {
	dir := t.TempDir()
	smi := func(name, text string) string {
		script(t, filepath.Join(dir, name), text)
		return "--nvidia-smi=" + filepath.Join(dir, name)
	}
	good := smi("good", "echo 'uuid, index, name, driver_version, compute_cap, mig.mode.current'\necho 'GPU-1, 0, A, 1, 8.9, [N/A]'\n")
	for name, row := range map[string]struct {
		flags []string
		want  string
	}{
		"no nvidia-smi": {[]string{"--nvidia-smi=" + filepath.Join(dir, "absent")}, "nvidia-smi not found"},
		"none on PATH":  {[]string{"--nvidia-smi=nvidia-smi-that-nobody-has"}, "nvidia-smi not found"},
		"no GPU":        {[]string{smi("none", "echo No devices were found\nexit 6\n")}, "no GPU to check: "},
		"no driver": {[]string{smi("driver", "echo \"NVIDIA-SMI has failed because it couldn't communicate with the "+
			"NVIDIA "+
			"driver.\"\nexit 9\n")}, "couldn't communicate"},
		"no exporter":   {[]string{good, "--exporter=" + filepath.Join(dir, "absent")}, "`make build`"},
		"no such GPU":   {[]string{good, "--exporter=/bin/true", "--gpu=7"}, "no GPU 7 (--gpu)"},
		"no such stage": {[]string{"--only=heavy"}, "--only: unknown stage \"heavy\""},
		"no such duty":  {[]string{"--duty=30"}, "--duty must be"},
		"no period":     {[]string{"--period=1s"}, "--period must be at least 3s, got 1s"},
		"an argument":   {[]string{"now"}, "unexpected now; flags of the exporter follow --"},
	} {
		t.Run(name, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			if code := Run(t.Context(), row.flags, &stdout, &stderr); code != exitRefused {
				t.Errorf("exit code %d", code)
			}
			if said := stderr.String(); !strings.Contains(said, row.want) || strings.Count(said, "\n") != 1 ||
				stdout.Len() > 0 {
				t.Errorf("%q, %q", said, stdout.String())
			}
		})
	}
}

// TestExporterThatEnds: an exporter that does not start is a finding, with what it said last.
func TestExporterThatEnds(t *testing.T) {
	dir := t.TempDir()
	c := recordedGPU(t, "h100.csv")
	fakeSmi(t, filepath.Join(dir, "nvidia-smi"), c, nil)
	script(t, filepath.Join(dir, "gpu-exporter"), "echo gpu-exporter: it cannot be >&2\nexit 1\n")
	var out bytes.Buffer
	report := filepath.Join(dir, "report.md")
	code := Run(
		t.Context(),
		[]string{
			"--nvidia-smi=" + filepath.Join(dir, "nvidia-smi"),
			"--exporter=" + filepath.Join(dir, "gpu-exporter"),
			"--out=" + report, "--load=none", "--only=idle",
		},
		&out,
		&out,
	)
	if code != exitFindings || !strings.Contains(out.String(), "it cannot be") {
		t.Errorf("exit code %d:\n%s", code, out.String())
	}
}

// TestRecord: a journal is saved beside the report; an older one is replaced once the new one is complete.
func TestRecord(t *testing.T) {
	dir := t.TempDir()
	exporter, path := filepath.Join(dir, "gpu-exporter"), filepath.Join(dir, "hardware", "gpu.journal")
	const save = "[ \"$1\" = record ] || exit 2\ncase \"$2\" in --output=*) [ -e \"${2#--output=}\" ] && exit 3; " +
		"echo %s > " +
		"\"${2#--output=}\";; esac\n"
	for _, row := range []struct{ script, outcome, detail, content string }{
		{fmt.Sprintf(save, "one"), passed, "gpu.journal", "one\n"},
		{fmt.Sprintf(save, "two"), passed, "gpu.journal", "two\n"},
		{"echo 'the driver is gone' >&2; exit 1\n", incomplete, "the driver is gone", "two\n"},
	} {
		script(t, exporter, row.script)
		if got := (config{exporter: exporter}).record(t.Context(), path); got.Outcome != row.outcome ||
			!strings.Contains(got.Detail, row.detail) {
			t.Errorf("%+v, want %s, %s", got, row.outcome, row.detail)
		}
		if text, err := os.ReadFile(path); string(text) != row.content {
			t.Errorf("%q, %v", text, err)
		}
	}
}

// TestLoad: the log of a load is clipped to the period; a load that exits is an error with its last line. load.c runs
// against a CUDA driver that sleeps for as long as the kernel would.
func TestLoad(t *testing.T) {
	l := &load{child: &testkit.Child{}, bursts: []burst{{9.5, 1, 10}, {11, 0.3, 0}, {12, 0.3, 6}, {13.9, 0.3, 3}}}
	// 0.5 + 0.3 + 0.3 + 0.1 s; 5 + 0 + 6 + 1
	if busy, bytes := l.did(10, 14); math.Abs(busy-1.2) > 1e-6 || math.Abs(bytes-12) > 1e-6 {
		t.Errorf("%v s, %v bytes", busy, bytes)
	}
	dir := t.TempDir()
	program, err := loadProgram(t.Context(), loadAuto, dir)
	must.OK(t, err)
	if _, err := startLoad(program, []string{"GPU-1"}, nil, "", "spin", "1", "0.3", "1", "0"); err == nil ||
		!strings.Contains(err.Error(), "libcuda.so.1: cannot open shared object file") {
		t.Errorf("without a driver: %v", err)
	}
	if out, err := exec.Command("cc", "-shared", "-fPIC", "-o", filepath.Join(dir, "libcuda.so.1"),
		"testdata/libcuda.c").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	env := []string{"LD_LIBRARY_PATH=" + dir}
	for _, row := range []struct {
		args  []string
		busy  float64 // seconds of the first burst, 0 for any
		bytes float64
		want  string // the end of the error of one that exits by itself
	}{
		{args: []string{"spin", "9", "0.2", "0.5", "0"}, busy: 0.1},
		{args: []string{"memory", "9", "2147483648"}, bytes: 2 << 30},
		{args: []string{"h2d", "9", "1e9"}, bytes: 64 << 20},
		{args: []string{"d2h", "9", "1e9"}, bytes: 64 << 20},
		{args: []string{"p2p", "9", "1e9"}, bytes: 64 << 20},
		{args: []string{"launch", "9"}},
		{args: []string{"fault", "9"}},
		{args: []string{"trap", "9"}},
		{args: []string{"fly", "9"}, want: "usage: load MODE SECONDS [ARGUMENT...]"},
	} {
		l, err := startLoad(program, []string{"GPU-1"}, env, "", row.args...)
		if row.want != "" || err != nil {
			if row.want == "" || !strings.HasSuffix(fmt.Sprint(err), row.want) {
				t.Errorf("%v: %v, want %q", row.args, err, row.want)
			}
			continue
		}
		l.mu.Lock()
		if b := l.bursts[0]; l.pid == 0 || b.bytes != row.bytes || b.length < row.busy {
			t.Errorf("%v: pid %d, %+v", row.args, l.pid, b)
		}
		l.mu.Unlock()
		if l.stop(); l.exited() == nil {
			t.Errorf("%v does not stop", row.args)
		}
	}
	l, err = startLoad(program, []string{"GPU-1"}, env, "", "launch", "0.2")
	must.OK(t, err)
	<-l.logged
	if len(l.launches) != 3 || l.launches[0] <= 0 || l.launches[2] < l.launches[0] {
		t.Errorf("launches: %v", l.launches)
	}
}

// plantedByHand are the claims that no scenario can break: the exporter's own sums and polls.
var plantedByHand = []string{"time observed", "reads of the sample rings", "MPS clients", "sample ring: a longer buffer",
	"PCIe bytes exported", "closed on SIGUSR1", "opened on SIGUSR2"}

// TestClaimsByHand plants what no scenario can.
func TestClaimsByHand(t *testing.T) {
	page := func(at, busy, observed, inside, outside, reads float64) *scrape {
		s := parseText(t, fmt.Sprintf(`gpu_last_read_timestamp_seconds{uuid="GPU-1",poll="fast"} %g
gpu_device_up{uuid="GPU-1"} 1
gpu_busy_seconds_total{uuid="GPU-1"} %g
gpu_observed_seconds_total{uuid="GPU-1"} %g
gpu_container_busy_seconds_total{uuid="GPU-1",pod="a"} %g
gpu_unattributed_busy_seconds_total{uuid="GPU-1",reason="mps"} %g
gpu_pcie_receive_bytes_total{uuid="GPU-1"} %g
`, at, busy, observed, inside, outside, 1e9*math.Floor(at)))
		s.calls["nvmlDeviceGetSamples"] = &histogram.FloatHistogram{Count: reads}
		return s
	}
	ring := make([]ringSample, 72)
	const to = "copies to the GPU at 5 GB/s"
	for _, row := range []struct {
		stage string
		after *scrape
		long  int
		want  string
	}{
		{stageMPS, page(10, 8, 10, 7, 1, 0), 0, ""},
		{stageMPS, page(10, 8, 10, 7, 0.5, 0), 0, "MPS clients"},
		{stageIdle, page(10, 0, 10, 0, 0, 60), 0, ""},
		{stageIdle, page(10, 0, 10, 0, 0, 80), 0, "reads of the sample rings"},
		{stageIdle, page(10, 0, 8.5, 0, 0, 60), 0, "time observed"},
		{stageRings, page(10, 0, 10, 0, 0, 60), 72, ""},
		{stageRings, page(10, 0, 10, 0, 0, 60), 1, "sample ring: a longer buffer"},
		{stageLetGo, page(10, 0, 10, 0, 0, 60), 1, ""},
		{stageLetGo, page(10, 0, 10, 0, 0, 60), 6, "closed on SIGUSR1, opened on SIGUSR2"},
		{to, page(10, 0, 10, 0, 0, 60), 0, ""},
		{to, page(10.06, 0, 10, 0, 0, 60), 0, "PCIe bytes exported, " + to},
	} {
		p := &period{stage: row.stage, uuid: "GPU-1", before: page(0, 0, 0, 0, 0, 0), after: row.after, fast: 0.5,
			probe:   &probed{Rings: map[string][]ringSample{"GPU": ring}, Long: ring[:row.long]},
			watched: &pcieWatch{}, noted: map[string]float64{"closed after": float64(row.long), "read after": float64(row.long)}}
		for i := range uint64(31) { // 1 GB/s in 32 bits
			p.watched.At = append(p.watched.At, 0.4*float64(i)-1)
			p.watched.Raw = append(p.watched.Raw, [2]uint64{4e8 * i % overflow, 4e8 * i % overflow})
		}
		p.watched.count()
		var failed []string
		for _, c := range claims() {
			if base, _, _ := strings.Cut(c.name, ", copies"); slices.Contains(plantedByHand, base) &&
				(c.stage == row.stage || c.stage == "" && (c.applies == nil || c.applies(p))) &&
				c.check(p).Outcome == finding {
				failed = append(failed, c.name)
			}
		}
		if got := strings.Join(failed, ", "); got != row.want {
			t.Errorf("%s: fails %q, want %q", row.stage, got, row.want)
		}
	}
}

// TestListings reads the captures, and what is not in them.
func TestListings(t *testing.T) {
	if got := parseNVLink(readFile(t, "testdata", "nvlink.txt")); got["GPU-5a0e1100-8c1d-4e6b-9d10-000000000000"] != [2]int{18, 0} {
		t.Errorf("%v", got)
	}
	if got := parseInstances(readFile(t, "testdata", "instances.txt")); !slices.Equal(got["0"],
		[]string{"1 3g.20gb 4:4", "2 3g.20gb 0:4"}) {
		t.Errorf("%q", got)
	}
	pmon := readFile(t, "testdata", "pmon.txt")
	if got := parsePmon(pmon)["0"]; got["compute"] != 3 || got["graphics"] != 0 {
		t.Errorf("%v", got)
	}
	if got := parsePmon(strings.Replace(pmon, "    C ", "  C+G ", 1))["0"]; got["compute"] != 3 ||
		got["graphics"] != 1 {
		t.Errorf("%v", got)
	}
	if got := parsePmon(strings.Replace(pmon, "    C ", "  M+C ", 1)); len(got) != 0 {
		t.Errorf("%v", got)
	}
	if devices, err := parseXML(readFile(t, "testdata", "h100.xml")); err != nil || len(devices) != 1 ||
		len(devices[0]) != len(xmlFields) {
		t.Errorf("%v, %v", devices, err)
	}
	if _, err := parseXML("No devices were found\n"); err == nil {
		t.Error("no error without a GPU")
	}
	names := map[string]bool{}
	for _, f := range allFields(t) {
		names[f.Field] = true
	}
	for path, name := range xmlFields {
		if !names[name] {
			t.Errorf("%s: there is no field %s", path, name)
		}
	}
	if got := parseStrace("100.00    1.000000           1      4711           ioctl\n"); got != 4711 {
		t.Error(got)
	}
}
