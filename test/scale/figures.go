package main

import "time"

// figures are what was measured of one fleet.
type figures struct {
	Nodes, GPUs, Servers int
	// Split says how several servers share the nodes: by cluster, or by node.
	Split string `json:",omitempty"`
	// Scraped is the time until the figures were taken.
	Scraped time.Duration
	// Ended says why the run ended before its time; empty: it did not.
	Ended string `json:",omitempty"`
	// Problems are what could not be measured, and why.
	Problems []string `json:",omitempty"`

	Targets, Up     int
	Scrapes         float64 // in the second half of the time
	Failed, Late    float64 // of them without an answer; because it came too late
	Series          float64
	SeriesPerTarget float64
	Records, Alerts float64
	Created         float64 // new series per minute
	Samples         float64 // per second
	Resident, Peak  float64 // MiB of all Prometheus servers together
	CPU             time.Duration
	Each            []server
	Standin         use
	StandinCPU      time.Duration
	Scrape50        time.Duration
	Scrape99        time.Duration
	ScrapeMost      time.Duration
	Disk            int64
	Groups          []groupTime
	Rules           []ruleTime
	Missed          float64
	Past            int64
	PastTook        time.Duration
	AfterQueries    float64 // MiB peak
	Asked           []asked

	DatabaseUse    use
	DatabaseCPU    time.Duration
	DatabaseRows   float64 // per second
	DatabaseSeries float64
	// AskedDatabase are the boards above node level, asked of the database.
	AskedDatabase []asked
	// Held is what the database was held against.
	Held *held `json:",omitempty"`

	LoadBefore, LoadAfter string
}

// server is one Prometheus of several.
type server struct {
	Name                    string
	Targets                 int
	Series, Samples         float64
	Resident                float64
	CPU                     time.Duration
	Slowest                 time.Duration
	SlowestGroup            string
	RemoteFailed, RemoteLag float64
}

// groupTime is how long a rule group's evaluation takes; ruleTime one rule's.
type groupTime struct {
	Name              string
	Least, Mean, Most time.Duration
	Rules             int
	// Missed are evaluations that did not take place, since the one before was not over.
	Missed float64
}

type ruleTime struct {
	Group, Name string
	Took        time.Duration
	// Failed is why it made nothing; Waits: its group's turn has not come yet.
	Failed string `json:",omitempty"`
	Waits  bool   `json:",omitempty"`
}

// evaluations is what all groups take together: the sum of their fastest, mean and longest evaluations.
func (f *figures) evaluations() (least, mean time.Duration) {
	for _, g := range f.Groups {
		least, mean = least+g.Least, mean+g.Mean
	}
	return least, mean
}

// longest is the group with the longest evaluation.
func (f *figures) longest() groupTime {
	var out groupTime
	for _, g := range f.Groups {
		if g.Most > out.Most {
			out = g
		}
	}
	return out
}

// kept is what a page is written from.
type kept struct {
	// Steps are fleets on one Prometheus, each larger than the one before.
	Steps []figures
	// Several is the step beyond: several servers and one database.
	Several  *figures `json:",omitempty"`
	Interval time.Duration
	Machine  string
	// Cores and MemoryGiB are the machine's.
	Cores     int
	MemoryGiB float64
	// Limit is the longest time that one query of a board may take.
	Limit time.Duration
}

// step finds the figures of a fleet of so many nodes on one server.
func (k *kept) step(nodes, devs int) bool {
	for _, f := range k.Steps {
		if f.Nodes == nodes && f.GPUs == nodes*devs && f.Ended == "" {
			return true
		}
	}
	return false
}
