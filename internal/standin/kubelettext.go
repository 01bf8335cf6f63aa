package standin

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
)

// ParsePods reads the text form of a KubeletNode. Name is the file's, for errors. A line is one of
//
//	allocatable RESOURCE ID ID ...
//	pod NAMESPACE/NAME
//	pod NAMESPACE/NAME container NAME RESOURCE=ID,ID [RESOURCE=ID ...] [numa=0,1] [pids=1,2] [kind=init] [LOOK ...]
//	pod NAMESPACE/NAME container NAME claim=NAME driver=DRIVER device=DEVICE [pool=POOL] [namespace=NS] [share=ID]
//	process PID cgroup=PATH [LOOK ...]
//
// where LOOK is comm=NAME, nodes=nvidia0,nvidiactl or env=NAME:VALUE, and "#" begins a comment at the start of a line
// or after a space. Lines of the same pod, container or
// resource add up. A resource has a slash, a keyword has none. "numa" applies to the devices on its line,
// "pids" names processes in the container, which kind=init or kind=ephemeral makes one that the kubelet does not list;
// "process" is one outside all pods.
func ParsePods(name string, r io.Reader) (KubeletNode, error) {
	n := KubeletNode{Allocatable: map[string][]string{}}
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 16<<20)
	number := 0
	for lines.Scan() {
		number++
		text := lines.Text()
		if i := strings.Index(" "+text, " #"); i >= 0 {
			text = text[:max(i-1, 0)]
		}
		fields := strings.Fields(text)
		if len(fields) == 0 {
			continue
		}
		var err error
		switch fields[0] {
		case "allocatable":
			err = n.parseAllocatable(fields[1:])
		case "pod":
			err = n.parsePod(fields[1:])
		case "process":
			err = n.parseProcess(fields[1:])
		default:
			err = fmt.Errorf("%q is neither allocatable, pod nor process", fields[0])
		}
		if err != nil {
			return KubeletNode{}, fmt.Errorf("%s:%d: %w", name, number, err)
		}
	}
	if err := lines.Err(); err != nil {
		return KubeletNode{}, fmt.Errorf("%s:%d: %w", name, number+1, err)
	}
	return n, nil
}

func (n *KubeletNode) parseAllocatable(fields []string) error {
	if len(fields) < 2 || !strings.Contains(fields[0], "/") {
		return fmt.Errorf("want: allocatable RESOURCE ID ..., with a resource like nvidia.com/gpu")
	}
	for _, id := range fields[1:] {
		if slices.Contains(n.Allocatable[fields[0]], id) {
			return fmt.Errorf("%s: id %s is there twice", fields[0], id)
		}
		n.Allocatable[fields[0]] = append(n.Allocatable[fields[0]], id)
	}
	return nil
}

func (n *KubeletNode) parsePod(fields []string) error {
	if len(fields) == 0 {
		return fmt.Errorf("want: pod NAMESPACE/NAME container NAME and its devices")
	}
	namespace, name, ok := strings.Cut(fields[0], "/")
	if !ok || namespace == "" || name == "" || strings.Contains(name, "/") {
		return fmt.Errorf("%q is not NAMESPACE/NAME", fields[0])
	}
	i := slices.IndexFunc(n.Pods, func(p KubeletPod) bool { return p.Namespace == namespace && p.Name == name })
	if i < 0 {
		i = len(n.Pods)
		n.Pods = append(n.Pods, KubeletPod{Namespace: namespace, Name: name})
	}
	if len(fields) == 1 {
		return nil
	}
	if len(fields) < 3 || fields[1] != "container" {
		return fmt.Errorf("pod %s: want: container NAME and its devices", fields[0])
	}
	p := &n.Pods[i]
	j := slices.IndexFunc(p.Containers, func(c KubeletContainer) bool { return c.Name == fields[2] })
	if j < 0 {
		j = len(p.Containers)
		p.Containers = append(p.Containers, KubeletContainer{Name: fields[2]})
	}
	if err := p.Containers[j].parse(fields[3:]); err != nil {
		return fmt.Errorf("pod %s container %s: %w", fields[0], fields[2], err)
	}
	return nil
}

func (n *KubeletNode) parseProcess(fields []string) error {
	if len(fields) < 2 {
		return fmt.Errorf("want: process PID cgroup=PATH")
	}
	pid, err := strconv.ParseUint(fields[0], 10, 31)
	if err != nil {
		return fmt.Errorf("process: %q is no number", fields[0])
	}
	p := HostProcess{PID: int(pid)}
	for _, field := range fields[1:] {
		key, value, _ := strings.Cut(field, "=")
		switch ok, err := p.parse(key, value); {
		case err != nil:
			return err
		case ok:
		case key == "cgroup" && strings.HasPrefix(value, "/"):
			p.Cgroup = value
		default:
			return fmt.Errorf("process %d: unknown keyword %q", pid, key)
		}
	}
	if p.Cgroup == "" {
		return fmt.Errorf("process %d: want cgroup=/PATH", pid)
	}
	n.Processes = append(n.Processes, p)
	return nil
}

// parse reads one keyword of a LOOK; ok is false if it is none.
func (l *ProcessDetails) parse(key, value string) (ok bool, err error) {
	switch key {
	case "comm":
		l.Command = value
	case "nodes":
		l.Nodes = append(l.Nodes, strings.Split(value, ",")...)
	case "env":
		name, is, found := strings.Cut(value, ":")
		if !found || name == "" {
			return false, fmt.Errorf("env: %q is not NAME:VALUE", value)
		}
		l.Env = append(l.Env, name+"="+is)
	default:
		return false, nil
	}
	return true, nil
}

func (c *KubeletContainer) parse(fields []string) error {
	var claim KubeletClaim
	var devices []KubeletDevices
	var numa []int64
	keywords := map[string]*string{"claim": &claim.Name, "driver": &claim.Driver, "device": &claim.Device,
		"pool": &claim.Pool, "namespace": &claim.Namespace, "share": &claim.ShareID}
	for _, field := range fields {
		key, value, ok := strings.Cut(field, "=")
		if look, err := c.ProcessDetails.parse(key, value); err != nil {
			return err
		} else if look {
			continue
		}
		switch to := keywords[key]; {
		case !ok || value == "":
			return fmt.Errorf("%q is not KEY=VALUE", field)
		case to != nil && *to != "":
			return fmt.Errorf("%s is there twice", key)
		case to != nil:
			*to = value
		case key == "kind" && (value == "init" || value == "ephemeral"):
			c.Unlisted = true
		case key == "numa", key == "pids":
			for _, v := range strings.Split(value, ",") {
				n, err := strconv.ParseUint(v, 10, 31)
				if err != nil {
					return fmt.Errorf("%s: %q is no number", key, v)
				}
				if key == "numa" {
					numa = append(numa, int64(n))
				} else {
					c.PIDs = append(c.PIDs, int(n))
				}
			}
		case strings.Contains(key, "/"):
			ids := strings.Split(value, ",")
			if slices.Contains(ids, "") {
				return fmt.Errorf("%s: empty id", key)
			}
			devices = append(devices, KubeletDevices{Resource: key, IDs: ids})
		default:
			return fmt.Errorf("unknown keyword %q", key)
		}
	}
	for i := range devices {
		devices[i].NUMA = numa
	}
	c.Devices = append(c.Devices, devices...)
	if claim == (KubeletClaim{}) {
		return nil
	}
	if claim.Name == "" || claim.Driver == "" || claim.Device == "" {
		return fmt.Errorf("a claim needs claim, driver and device")
	}
	c.Claims = append(c.Claims, claim)
	return nil
}
