package account

import (
	"slices"
	"strconv"
	"strings"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// With MPS, processes of several containers share one context. Since Volta its clients have entries of their own in the
// driver's lists, and its server has one beside them that is not a use of the GPU. Before Volta the server stands for
// all its clients, and their shares are not reported.
//
// A process chooses its own name, so the name alone proves nothing: see isServer. A process that pretends to be a
// server hides its own use and never shifts it to another container: its activity is unattributed with a reason.

// findServers finds the MPS servers on a GPU, before the modes are settled.
func (l *Ledger) findServers(c *device, users Users) {
	c.servers = c.servers[:0]
	list := c.list()
	for i := range list {
		if who := users.of(list[i].PID); who.MPS && l.isServer(c, users, &list[i]) {
			c.servers = append(c.servers, server{list[i].PID, &list[i], who.Reason == gpu.UnattributedHost})
		}
	}
	c.everMPS = c.everMPS || len(c.servers) > 0
}

// isServer reports whether a process with the server's name is accepted as one. It is not
//   - if it is itself a client;
//   - if the GPU is allocated to its container: then it is the container's own server, or pretends;
//   - unless clients of other containers are on its part of the GPU. Before Volta no client is ever listed.
func (l *Ledger) isServer(c *device, users Users, proc *gpu.Process) bool {
	if isClient(proc) {
		return false
	}
	own := users.of(proc.PID)
	if r := l.rows[rowKey{c.id.UUID, own.Container}]; own.Reason == "" && r != nil && r.isAllocated {
		return false
	}
	if hidesClients(c.id) {
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
	return slices.Contains(proc.Kinds, gpu.ProcessMPS)
}

// hidesClients reports whether MPS shows one process for all its clients on a GPU: before Volta (compute capability
// 7.0). A GPU of unknown capability is treated as a newer one, on which a server is accepted only if it has clients.
func hidesClients(id gpu.Identity) bool {
	major, _, _ := strings.Cut(id.ComputeCapability, ".")
	n, err := strconv.Atoi(major)
	return err == nil && n < 7
}

// user returns the owner of a process on a GPU. A server's own activity is the driver's; where it stands for its
// clients, it is theirs in unknown shares.
func (c *device) user(users Users, pid int) User {
	who := users.of(pid)
	who.MPS = false
	for i := range c.servers {
		if c.servers[i].pid == pid {
			if hidesClients(c.id) {
				return User{Reason: gpu.UnattributedMPS}
			}
			return User{Reason: gpu.UnattributedDriver}
		}
	}
	return who
}

// mpsServers reports whether an MPS server is on a part, and whether one of them is in a container (untrusted).
func (c *device) mpsServers(p *part) (served, untrusted bool) {
	for _, s := range c.servers {
		if c.on(p, s.entry) {
			served, untrusted = true, untrusted || !s.trusted
		}
	}
	return served, untrusted
}

// who is the owner of a process under its account's name.
func (l *Ledger) who(c *device, users Users, pid int) User {
	u := c.user(users, pid)
	if u.Reason == "" {
		u.Container = l.named(c.id.UUID, u.Container)
	}
	return u
}
