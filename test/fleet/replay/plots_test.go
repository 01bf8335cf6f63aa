package replay_test

import (
	"fmt"
	"time"
)

// on changes the GPU that something happens to.
func on(change func(d *device)) plot {
	return plot{change: func(w *world, _ time.Duration) { change(w.gpu()) }}
}

// event is an XID that a driver with recommendations finds no action for.
func event(code string) plot {
	return plot{change: func(w *world, _ time.Duration) { w.xid(code, 1, 0) }}
}

// gang is a Job of whole GPUs, one for each pod, beside which the first node has no other pods.
func gang(w *world, kind string, size int, each func(i int, p *pod)) {
	w.pods = nil
	for i := range size {
		p := &pod{name: fmt.Sprintf("gang-%d", i), kind: kind, workload: "gang", gpus: []int{i}, busy: 0.99, power: 0.8, sm: 0.7,
			tensor: 0.4, dram: 0.3}
		if each != nil {
			each(i, p)
		}
		w.pods = append(w.pods, p)
	}
}

// hangs is a rank that spins in a collective.
func hangs(p *pod) { p.busy, p.power, p.sm, p.tensor, p.dram = 1, 0.25, 0.02, 0, 0.002 }

// waiting are pods that wait for a GPU each.
func waiting(w *world, resource string, pods, gpus int) {
	for i := range pods {
		w.pods = append(w.pods, &pod{name: fmt.Sprintf("new-%d", i), node: -1, requests: gpus, resource: resource})
	}
}

// full is a cluster without an unallocated GPU.
func full(w *world) {
	w.pods = append(w.pods, &pod{name: "last", kind: "Job", workload: "last", gpus: []int{3}, busy: 0.9, sm: 0.5, tensor: 0.3})
}

// unborn is a node that joins when the story begins.
func unborn(w *world) {
	if w.begin.After(w.now) {
		w.nodes[0].absent = true
		w.drop("serve")
		w.drop("train-0")
	}
}

func plots() map[string]plot {
	all := map[string]plot{}
	for _, part := range []map[string]plot{gpuPlots(), errorPlots(), workPlots(), clusterPlots()} {
		for fault, p := range part {
			all[fault] = p
		}
	}
	return all
}

func gpuPlots() map[string]plot {
	flapping := func(period, lost time.Duration) plot {
		// Losses are counted: a third makes the alert, also before a repair, and the last decides when it ends.
		return plot{fixed: true, after: rebooting, change: func(w *world, since time.Duration) {
			if since%period < lost {
				lose(w, since)
			}
			w.xid("79", uint64(since/period)+1, since/period*period)
		}}
	}
	removed := func(w *world, _ time.Duration) {
		w.gpu().removed = true
		w.nodes[0].offered["nvidia_com_gpu"] = 3
		w.drop("serve")
	}
	return map[string]plot{
		"XID 79, the GPU is lost; reboot after 20m":                    {change: lose, after: rebooting},
		"XID 79, the GPU is lost; the node is replaced after 20m":      {change: lose, after: replaced},
		"a GPU is lost for 3m":                                         {change: func(w *world, _ time.Duration) { w.gpu().lost = true }},
		"XID 79 and a reboot after 3m":                                 {change: lose, after: rebooting},
		"a GPU comes and goes every 4m, with XID 79; reboot after 75m": flapping(4*time.Minute, 2*time.Minute),
		"a GPU is lost for 4m in every 30m; reboot after 90m":          flapping(30*time.Minute, 4*time.Minute),
		"a GPU is missing since a reboot":                              {change: removed, after: rebooting},
		"a new node with 3 GPUs beside six with 4":                     {nodes: 7, before: unborn, change: removed},
		"nodes of 4 GPUs, and two of 1 and 2": {nodes: 8, before: func(w *world) {
			w.pods = nil
			for i, n := range w.nodes[:2] {
				n.devices, n.offered["nvidia_com_gpu"], n.capacity = n.devices[:i+1], i+1, i+1
			}
		}},
		"a GPU is removed for replacement (RMA) on a cordoned node": {after: rebooting,
			change: func(w *world, since time.Duration) { w.nodes[0].cordoned = true; removed(w, since) }},
		"a GPU is given to a virtual machine": {change: func(w *world, since time.Duration) {
			removed(w, since)
			w.nodes[0].detached = 1
		}},
		"a reset is recommended after XID 95": {after: resetting("95"), change: func(w *world, _ time.Duration) {
			d := w.gpu()
			d.recovery, d.reasons["recovery_reset"], d.ecc["uncorrected"] = "reset", "needs_reset", 1
			w.xid("95", 1, 0)
		}},
		"a row remapping waits for a reset, the kubelet takes the GPU away": {after: resetting(),
			change: func(w *world, _ time.Duration) {
				w.gpu().reasons["row_remap_pending"], w.gpu().kubelet = "needs_reset", 0
				w.nodes[0].offered["nvidia_com_gpu"] = 3
				w.xid("63", 1, 0)
			}},
		"row remapping failed, XID 64": {change: func(w *world, _ time.Duration) {
			w.gpu().reasons["row_remap_failed"] = "replace"
			w.xid("64", 1, 0)
		}},
		"the kubelet alone finds a GPU unhealthy": {before: func(w *world) {
			for _, d := range w.nodes[0].devices {
				d.kubelet = 1
			}
		}, change: func(w *world, _ time.Duration) { w.gpu().kubelet, w.nodes[0].offered["nvidia_com_gpu"] = 0, 3 }},
		"the DRA driver alone taints a GPU": on(func(d *device) { d.taint = "NoSchedule" }),
		"a GPU is no longer polled":         {change: func(w *world, since time.Duration) { w.gpu().unread = since }},
		"a GPU of another model on the node has a lower clock": {before: func(w *world) { w.gpu().model, w.gpu().hertz = "L4", 0.9e9 },
			change: func(w *world, _ time.Duration) { w.pod("serve").busy = 0.99 }},
		"a busy GPU has half of the clock of the others, without a reason": {change: func(w *world, _ time.Duration) {
			w.gpu().hertz, w.pod("serve").busy = 0.9e9, 0.99
		}},
		"a fan fails: 30 % of the time in hardware slowdown, 88 °C of 90": on(func(d *device) {
			d.limited["hw_thermal"], d.celsius = 0.3, 88.5
		}),
		"a power supply fails: power brake": {change: func(w *world, _ time.Duration) {
			w.gpu().limited["hw_power_brake"], w.gpu().hertz, w.pod("serve").busy = 0.9, 0.9e9, 0.99
		}},
		"the driver lowers the clock of a GPU at 86 °C of 90 by itself": {change: func(w *world, _ time.Duration) {
			w.gpu().limited["sw_thermal"], w.gpu().celsius, w.gpu().hertz, w.pod("serve").busy = 0.9, 86, 0.9e9, 0.99
		}},
		"a GPU at 89 °C of 90": on(func(d *device) { d.celsius = 89 }),
		"a power cap of half of the limit": {change: func(w *world, _ time.Duration) {
			for _, d := range w.nodes[0].devices {
				d.limited["power_cap"], d.hertz = 0.99, 1.1e9
			}
			gang(w, "Job", 4, func(_ int, p *pod) { p.power, p.tensor = 0.35, 0.2 })
		}, before: func(w *world) { gang(w, "Job", 4, nil) }},
		"a GPU has half of its PCIe lanes": on(func(d *device) { d.width = 8 }),
		"an NVLink with two ends is down, and its route unhealthy": {change: func(w *world, _ time.Duration) {
			for _, d := range w.nodes[0].devices[:2] {
				d.links, d.fabricFault, d.linkErrors = 17, "route_unhealthy", 0.1
				d.reasons["nvlink_down"] = "degraded"
			}
		}},
		"a flood of NVLink errors of four kinds at both ends": {fixed: true, change: func(w *world, _ time.Duration) {
			for _, d := range w.nodes[0].devices[:2] {
				d.linkErrors = 5
			}
		}},
	}
}

func errorPlots() map[string]plot {
	all := map[string]plot{
		"a storm of 3,000 XID 45 within 30m": {change: func(w *world, since time.Duration) {
			s := min(since, 30*time.Minute)
			w.xid("45", 1+uint64(s.Seconds()*3000/1800), s)
		}},
		"XID 119 before R570; reboot after 20m": {after: func(w *world, since time.Duration) {
			w.gpu().recovery = ""
			w.xid("119", 0, -20*time.Minute)
			rebooting(w, since)
		}, before: func(w *world) { w.gpu().recovery = "" }, change: func(w *world, _ time.Duration) { w.xid("119", 1, 0) }},
		"XID 95 before R570": {after: resetting("95"), before: func(w *world) { w.gpu().recovery = "" },
			change: func(w *world, _ time.Duration) { w.xid("95", 1, 0) }},
		"uncorrected memory errors without an XID": on(func(d *device) { d.ecc["uncorrected"] = 2 }),
		"the exporter is restarted every hour, after XIDs of the day before": {change: func(w *world, since time.Duration) {
			w.nodes[0].exporterDown = since%hour < time.Minute
		}, before: func(w *world) {
			w.gpu().xids["79"] = xid{0, time.Unix(w.begin.Unix(), 0).Add(-20 * hour)}
			w.gpu().xids["31"] = xid{0, time.Unix(w.begin.Unix(), 0).Add(-20 * hour)}
		}},
	}
	for _, code := range []string{"13", "31", "43", "45", "48", "63", "64", "74", "94", "119"} {
		all["XID "+code] = event(code)
	}
	for _, code := range []string{"48", "94"} { // the driver counts their memory errors
		all["XID "+code] = plot{change: func(w *world, _ time.Duration) { w.xid(code, 1, 0); w.gpu().ecc["uncorrected"] = 1 }}
	}
	return all
}

func workPlots() map[string]plot {
	quiet := func(p *pod) { p.busy, p.power, p.sm, p.tensor, p.dram = 0, 0.12, 0, 0, 0 }
	return map[string]plot{
		"training with a checkpoint of 4m after every epoch of 25m": {long: true, change: func(w *world, since time.Duration) {
			for i := range 2 {
				if p := w.pods[i]; since%(29*time.Minute) > 25*time.Minute {
					quiet(p)
				}
			}
		}},
		"a service with 0.5 s of work every 3m": {long: true, change: func(w *world, _ time.Duration) {
			quiet(w.pod("serve"))
			w.pod("serve").busy = 0.5 / 180
		}},
		"a forgotten notebook": {long: true, change: func(w *world, _ time.Duration) {
			w.pods = append(w.pods, &pod{name: "notebook", kind: "Notebook", workload: "notebook", gpus: []int{3}})
		}},
		"one of four pods that share a GPU by time slices uses all of it at night": {change: func(w *world, _ time.Duration) {
			w.drop("serve")
			for i := range 4 {
				p := &pod{name: fmt.Sprintf("slice-%d", i), kind: "Deployment", workload: "slices", gpus: []int{faulty}, share: 0.25}
				if i == 0 {
					p.busy = 3.9
				}
				w.pods = append(w.pods, p)
			}
		}},
		"a pod uses 5 of its 8 GPUs": {long: true, gpus: 8, change: func(w *world, _ time.Duration) {
			w.pods = []*pod{{name: "eight", kind: "Job", workload: "eight", gpus: []int{0, 1, 2, 3, 4}, busy: 0.95, sm: 0.5, tensor: 0.3},
				{name: "eight", kind: "Job", workload: "eight", gpus: []int{5, 6, 7}}}
		}},
		"five of 60 GPUs of a namespace are idle": {long: true, gpus: 30, nodes: 2, change: func(w *world, _ time.Duration) {
			w.pods = nil
			for i := range 2 {
				for j := range 30 {
					p := &pod{name: fmt.Sprintf("p-%d-%d", i, j), kind: "Deployment", workload: "web", node: i,
						gpus: []int{j}, busy: 0.5, gap: 0.5, sm: 0.3}
					if i == 0 && j < 5 {
						p.busy, p.gap = 0.002, 0
					}
					w.pods = append(w.pods, p)
				}
			}
		}},
		"a RayCluster of which one actor works": {change: func(w *world, _ time.Duration) {
			gang(w, "RayCluster", 4, func(i int, p *pod) {
				if i > 0 {
					quiet(p)
				}
			})
		}},
		"one rank of a Job hangs, the others wait for it": {before: func(w *world) { gang(w, "Job", 4, nil) },
			change: func(w *world, _ time.Duration) {
				gang(w, "Job", 4, func(i int, p *pod) {
					hangs(p)
					if i == 0 {
						p.busy, p.power, p.sm = 1, 0.3, 0.01
					}
				})
			}},
		"all ranks of a Job hang in a collective": {before: func(w *world) { gang(w, "Job", 4, nil) },
			change: func(w *world, _ time.Duration) { gang(w, "Job", 4, func(_ int, p *pod) { hangs(p) }) }},
		"light decoding: busy, with 30 % of the power and 20 % of the memory bandwidth": {before: func(w *world) {
			gang(w, "Job", 4, func(_ int, p *pod) { p.power, p.tensor, p.dram = 0.3, 0.01, 0.2 })
		}},
		"a Job warms up for 10m at low power": {change: func(w *world, since time.Duration) {
			gang(w, "Job", 4, func(_ int, p *pod) {
				if since < 10*time.Minute {
					hangs(p)
				}
			})
		}},
		"a pod crashes again and again with its GPU": {change: func(w *world, since time.Duration) {
			quiet(w.pod("serve"))
			w.pod("serve").crashing = since%(5*time.Minute) < 3*time.Minute
		}},
		"one rank of a Job waits for a GPU that is taken": {before: full,
			change: func(w *world, _ time.Duration) { waiting(w, "", 1, 1) }},
		"a gang of four pods where one fits": {
			change: func(w *world, _ time.Duration) { waiting(w, "", 4, 1) }},
		"a pod waits although a node has an unallocated GPU": {change: func(w *world, _ time.Duration) { waiting(w, "", 1, 1) }},
		"a pod requests a MIG profile that no node offers": {change: func(w *world, _ time.Duration) {
			waiting(w, "nvidia_com_mig_3g_40gb", 1, 1)
		}},
	}
}

func clusterPlots() map[string]plot {
	driverless := func(w *world, _ time.Duration) { w.nodes[0].driverless = true }
	offers := func(n int) plot {
		return plot{change: func(w *world, _ time.Duration) { w.nodes[0].offered["nvidia_com_gpu"] = n }}
	}
	return map[string]plot{
		"a healthy node":                           {},
		"a reboot of 8m":                           {change: rebooting},
		"a pool is scaled to zero":                 {change: replaced},
		"the driver of a new node comes after 20m": {before: unborn, change: driverless},
		"a rolling upgrade of the driver on a cordoned node": {change: func(w *world, _ time.Duration) {
			w.nodes[0].cordoned, w.nodes[0].driverless = true, true
		}},
		"a rolling upgrade of the driver without cordon, 15m for each node": {nodes: 3, change: func(w *world, since time.Duration) {
			if i := int(since / (5 * time.Minute)); i < 3 {
				w.nodes[i].driverless = true
			}
		}},
		"the driver fails": {change: driverless},
		"the exporter crashes again and again": {change: func(w *world, since time.Duration) {
			w.nodes[0].exporterDown = since%(5*time.Minute) >= time.Minute
		}},
		"an exporter with an address as instance is down on a cordoned node": {before: func(w *world) {
			w.nodes[0].instance = "10.0.0.7:9835"
		}, change: func(w *world, _ time.Duration) { w.nodes[0].exporterDown, w.nodes[0].cordoned = true, true }},
		"four of six exporters are down after a bad rollout": {nodes: 6, change: func(w *world, _ time.Duration) {
			for _, n := range w.nodes[:5] {
				n.exporterDown = true
			}
		}},
		"the exporters of one of two clusters are removed": {change: func(w *world, _ time.Duration) {
			w.nodes[0].absent, w.nodes[0].remains = true, true
		}},
		"no exporter on a new node": {nodes: 2, before: unborn,
			change: func(w *world, _ time.Duration) { w.nodes[0].absent, w.nodes[0].remains = true, true }},
		"the exporters have a cluster label, and kube-state-metrics has none": {nodes: 2, before: func(w *world) {
			w.kubeLabel = map[bool]string{true: w.name, false: ""}[w.begin.After(w.now)]
		}},
		"an exporter is scraped twice": {change: func(w *world, _ time.Duration) { w.twice = true }},
		"labels are not honored":       {change: func(w *world, _ time.Duration) { w.honorless = true }},
		"the kubelet's socket fails": {change: func(w *world, _ time.Duration) {
			w.nodes[0].sourceDown = "podresources"
		}},
		"the device plugin stops": offers(0),
		"the kubelet restarts":    offers(0),
		"six of eight replicas of time-sliced GPUs are no longer offered": {before: func(w *world) {
			w.nodes[0].offered["nvidia_com_gpu"] = 8
		}, change: func(w *world, _ time.Duration) { w.nodes[0].offered["nvidia_com_gpu"] = 2 }},
		"MIG is switched on": {before: func(w *world) { w.drop("serve") }, change: func(w *world, _ time.Duration) {
			w.gpu().mig = true
			w.nodes[0].offered = map[string]int{"nvidia_com_gpu": 3, "nvidia_com_mig_3g_40gb": 2}
		}},
		"fewer replicas are offered on purpose (planned resize)": {before: func(w *world) {
			w.nodes[0].offered["nvidia_com_gpu"] = 16
		}, change: func(w *world, _ time.Duration) { w.nodes[0].offered["nvidia_com_gpu"] = 8 }},
		"NVML is shut down for a MIG change that fails": {change: func(w *world, since time.Duration) {
			w.nodes[0].mode = "mig_change"
			for _, d := range w.nodes[0].devices {
				d.unread = since
			}
		}},
	}
}
