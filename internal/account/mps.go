package account

import (
	"strconv"
	"strings"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// MPS lets processes of several containers share one context. Since Volta its clients have entries of their own in
// the driver's lists, and its server has one beside them that is nobody's use of the GPU. Before Volta the server
// stands for all its clients, and nothing tells their parts.
//
// What a process calls itself is its own to choose, so that the name alone excuses nobody: see serverOf. Whoever
// borrows it hides his own use, and never gives it to another: what such a process does goes to reasons.

// server is a process of MPS's server that was found on a GPU.
type server struct {
	pid   int
	entry *gpu.Process
	// trusted is true of a process outside containers, which no container can pretend to be.
	trusted bool
}

// findServers finds the servers of MPS on a GPU. It is asked for before modes are settled.
func (l *Ledger) findServers(c *dev, users Users) {
	c.servers = c.servers[:0]
	list := c.list()
	for i := range list {
		if who := users.of(list[i].PID); who.MPS && l.isServer(c, users, &list[i]) {
			c.servers = append(c.servers, server{list[i].PID, &list[i], who.Reason == gpu.UnattributedHost})
		}
	}
	c.everServed = c.everServed || len(c.servers) > 0
}

// isServer reports whether a process that bears the server's name is believed to be one. It is not
//   - if it is itself a client;
//   - if its container holds the GPU: then it is the container's own server, or pretends;
//   - unless there are clients of others on its part of the GPU. Before Volta no client is ever listed.
func (l *Ledger) isServer(c *dev, users Users, proc *gpu.Process) bool {
	if isClient(proc) {
		return false
	}
	own := users.of(proc.PID)
	if r := l.rows[rowKey{c.id.UUID, own.Container}]; own.Reason == "" && r != nil && r.holds {
		return false
	}
	if collapses(c.id) {
		return true
	}
	list := c.list()
	for i := range list {
		q := &list[i]
		if isClient(q) && q.GI == proc.GI {
			if who := users.of(q.PID); who.Container != own.Container || who.Reason != own.Reason {
				return true
			}
		}
	}
	return false
}

func isClient(proc *gpu.Process) bool {
	for _, k := range proc.Kinds {
		if k == gpu.ProcessMPS {
			return true
		}
	}
	return false
}

// collapses reports whether MPS shows one process for all its clients on a GPU: before Volta, which is compute
// capability 7.0. A GPU that does not tell is taken for a newer one, on which a server needs clients to be believed.
func collapses(id gpu.Identity) bool {
	major, _, _ := strings.Cut(id.ComputeCapability, ".")
	n, err := strconv.Atoi(major)
	return err == nil && n < 7
}

// user returns the user of a process on a GPU. A server's own is the driver's; where it stands for its clients, it
// is theirs, and nobody knows whose.
func (c *dev) user(users Users, pid int) User {
	who := users.of(pid)
	who.MPS = false
	for i := range c.servers {
		if c.servers[i].pid == pid {
			if collapses(c.id) {
				return User{Reason: gpu.UnattributedMPS}
			}
			return User{Reason: gpu.UnattributedDriver}
		}
	}
	return who
}

// serves reports whether a server is on a part; doubtful, whether one of them lies in a container.
func (c *dev) serves(p *part) (served, doubtful bool) {
	for _, s := range c.servers {
		if c.on(p, s.entry) {
			served, doubtful = true, doubtful || !s.trusted
		}
	}
	return served, doubtful
}
