// Command standin simulates a node with GPUs for the exporter: it builds a driver library that follows a scenario,
// serves the kubelet's API, lays out the files of the host that the exporter reads, and runs the exporter on all of
// it. `standin fleet` simulates many nodes without an exporter.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/cmdline"
	"github.com/gpu-exporter/gpu-exporter/internal/standin"
	"github.com/gpu-exporter/gpu-exporter/internal/standin/scenario"
	"github.com/gpu-exporter/gpu-exporter/internal/testkit"
)

type config struct {
	scenario, pods string
	length         time.Duration
	quiet, driver  bool
	command        []string

	observer // off without a database
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	start := runNode
	args := os.Args[1:]
	if len(args) > 0 && args[0] == "fleet" {
		start, args = runFleet, args[1:]
	}
	err := start(ctx, args, os.Stdout, os.Stderr)
	switch {
	case err == nil, errors.Is(err, cmdline.ErrPrinted):
	case errors.As(err, &misused{}):
		fmt.Fprintf(os.Stderr, "standin: %v\n", err)
		os.Exit(2)
	default:
		fmt.Fprintf(os.Stderr, "standin: %v\n", err)
		os.Exit(1)
	}
}

// runNode simulates one node.
func runNode(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	var c config
	app := cmdline.New(&cmdline.About{Name: "standin", Text: "Simulates a node with GPUs and runs a command on it, usually gpu-exporter.",
		Commands: [][2]string{{"fleet", "simulates many nodes: pages to scrape"}}, ExitCodes: exitCodes()}, stdout, stderr)
	app.Flag("scenario", "Scenario of the driver.").Required().StringVar(&c.scenario)
	app.Flag("pods", "The pods that the kubelet lists.").StringVar(&c.pods)
	app.Flag("for", "Stop after this time; 0: at Ctrl-C.").Default("0s").DurationVar(&c.length)
	app.Flag("quiet", "Print nothing but the output of the command.").BoolVar(&c.quiet)
	app.Flag("driver", "Whether the node has a driver; --no-driver is one where it was not installed yet.").Default(
		"true").BoolVar(&c.driver)
	app.Flag("database", "Start a database with a page to look at, listening here (such as 127.0.0.1:8428), that scrapes the "+
		"command and a simulated fleet; empty starts none.").StringVar(&c.database)
	app.Flag("rules", "Where the evaluator of the rules listens.").Default("127.0.0.1:8880").StringVar(&c.rules)
	app.Flag("fleet", "Where the simulated fleet listens.").Default("127.0.0.1:10836").StringVar(&c.fleet)
	app.Flag("history", "Length of the fleet's history in the database; 0 disables it.").Default("6h").DurationVar(&c.history)
	app.Arg("command", "Command to run; flags for the simulated node are added to it.").Required().StringsVar(&c.command)
	if err := app.Parse(args); err != nil {
		return misused{err}
	}
	return run(ctx, c, stdout, stderr)
}

func run(ctx context.Context, c config, stdout, stderr io.Writer) (err error) {
	dir, err := os.MkdirTemp("", "gpu-exporter-standin-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	n, err := newNode(ctx, c, dir)
	if err != nil {
		return err
	}
	defer n.control.Close()

	ctx, stop := context.WithCancel(ctx)
	defer stop()
	if c.length > 0 {
		ctx, stop = context.WithTimeout(ctx, c.length)
		defer stop()
	}
	// The kubelet outlives the exporter, as on a node.
	kubeletCtx, kubeletStop := context.WithCancel(context.WithoutCancel(ctx))
	served := make(chan error, 1)
	go func() { served <- n.kubelet.Serve(kubeletCtx, n.socket) }()
	defer func() {
		kubeletStop()
		err = errors.Join(err, ignoreCancel(<-served))
	}()

	args := append(c.command[1:], n.flags...)
	if !slices.ContainsFunc(args, func(a string) bool { return strings.HasPrefix(a, "--path.kmsg=") }) {
		args = append(args, "--path.kmsg=") // this machine's kernel log has the XIDs of other GPUs
	}
	cmd := exec.CommandContext(ctx, c.command[0], args...)
	cmd.Env = append(os.Environ(), n.env...)
	cmd.Stdout, cmd.Stderr = stdout, stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 5 * time.Second
	// Pdeathsig is sent when the thread that started a child ends, not the process.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	// A Ctrl-C in a terminal signals the whole group; the exporter gets its signal from here, once.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("cannot start %s: %w", c.command[0], err)
	}
	var beside sync.WaitGroup
	beside.Go(func() {
		if !c.quiet {
			introduce(ctx, stdout, n.title, address(c.command))
		}
		if c.database == "" {
			return
		}
		if err := c.observe(ctx, dir, address(c.command), stdout); err != nil {
			fmt.Fprintf(stderr, "standin: without database and rules: %v\nstandin: the exporter goes on.\n", err)
		}
	})
	err = cmd.Wait()
	wanted := ctx.Err() != nil
	stop()
	beside.Wait()
	if wanted && (err == nil || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)) {
		err = nil
		if !c.quiet {
			fmt.Fprintln(stdout, "stopped.")
		}
	}
	return err
}

// node is a simulated node.
type node struct {
	title   string
	control *scenario.Control
	kubelet *standin.Kubelet
	socket  string // of the kubelet
	flags   []string
	env     []string
}

// newNode lays out a node in a directory. Nothing of it runs yet.
func newNode(ctx context.Context, c config, dir string) (*node, error) {
	s, err := scenario.Load(c.scenario)
	if err != nil {
		return nil, misused{fmt.Errorf("--scenario: %w", err)}
	}
	var listed standin.KubeletNode
	if c.pods != "" {
		f, err := os.Open(c.pods)
		if err != nil {
			return nil, misused{fmt.Errorf("--pods: %w", err)}
		}
		defer f.Close()
		if listed, err = standin.ParsePods(c.pods, f); err != nil {
			return nil, misused{fmt.Errorf("--pods: %w", err)}
		}
	}
	n := &node{title: s.Title, kubelet: standin.NewKubelet(), socket: filepath.Join(dir, "pod-resources", "kubelet.sock")}
	n.kubelet.SetNode(listed)
	if err := os.Mkdir(filepath.Dir(n.socket), 0o755); err != nil {
		return nil, err
	}
	library, err := standin.BuildFakeNVML(ctx, s.Symbols, dir)
	if err != nil {
		return nil, err
	}
	if !c.driver {
		library = filepath.Join(dir, "not-installed", "libnvidia-ml.so.1")
	}
	if _, err := standin.WriteTrees(dir, s, listed); err != nil {
		return nil, err
	}
	n.flags = []string{"--nvml.library=" + library, "--kubelet.socket=" + n.socket, "--path.host=" + dir}
	n.env, n.control, err = standin.SimulateLive(s, dir)
	return n, err
}

func ignoreCancel(err error) error {
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// address is where the exporter will listen.
func address(command []string) string {
	for _, a := range command {
		if v, ok := strings.CutPrefix(a, "--web.listen-address="); ok {
			if strings.HasPrefix(v, ":") {
				return "127.0.0.1" + v
			}
			return v
		}
	}
	return "127.0.0.1:10835"
}

// introduce waits until the exporter has data, and prints where it is.
func introduce(ctx context.Context, out io.Writer, title, address string) {
	base := "http://" + address
	for ctx.Err() == nil {
		if page, err := (testkit.Client{}).Fetch(ctx, base+"/metrics"); err == nil {
			if lines := excerpt(page); lines != nil {
				fmt.Fprintf(out, "\n%s\n\n  page     %s/\n  metrics  %s/metrics\n\n", title, base, base)
				for _, l := range lines {
					fmt.Fprintf(out, "  %s\n", l)
				}
				fmt.Fprintf(out, "\nCtrl-C stops it.\n\n")
				return
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(250 * time.Millisecond):
		}
	}
}

// shown are the families of which the demo prints lines, and how many.
var shown = []struct {
	family string
	lines  int
}{
	{"gpu_utilization_ratio", 2}, {"gpu_power_watts", 1}, {"gpu_memory_used_bytes", 1}, {"gpu_busy_seconds_total", 1},
	{"gpu_container_allocation_ratio", 3}, {"gpu_container_busy_seconds_total", 2},
}

// width is that of the lines of the excerpt: those of a terminal have 80 columns.
const width = 78

// longLabels are left out: the page has them.
var longLabels = regexp.MustCompile(`,?\b(?:uuid|node|model|resource|source|UUID|pci_bus_id|attribution)="[^"]*"`)

// excerpt returns some lines of a page that are not 0, rounded and cut to the width; nil until every shown family has one.
func excerpt(page string) []string {
	left := map[string]int{}
	for _, s := range shown {
		left[s.family] = s.lines
	}
	found := map[string]bool{}
	var lines []string
	for line := range strings.Lines(page) {
		family, _, ok := strings.Cut(line, "{")
		at := strings.LastIndexByte(line, ' ')
		value, err := strconv.ParseFloat(strings.TrimSpace(line[at+1:]), 64)
		if !ok || err != nil || left[family] == 0 || value == 0 {
			continue
		}
		left[family]--
		found[family] = true
		name := strings.Replace(longLabels.ReplaceAllString(line[:at], ""), "{,", "{", 1)
		number := strconv.FormatFloat(math.Round(value*1000)/1000, 'f', -1, 64)
		if limit := width - len(number) - 1; len(name) > limit {
			name = name[:limit-4] + "...}"
		}
		lines = append(lines, name+" "+number)
	}
	if len(found) < len(shown) {
		return nil
	}
	return lines
}
