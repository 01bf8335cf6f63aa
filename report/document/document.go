// Package document is what a report consists of: accounts, workloads and advice. Package report builds it, package
// render shows it.
package document

import (
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/catalog"
)

// WellUsed is the Busy of measured above which nothing is advised against a workload: it is no waste.
const WellUsed = catalog.WellUsed

// Schema names the form of the document. It changes when a reader has to.
const Schema = "gpu-report/3"

// Document is a report: JSON shows it as it is, and the other formats are made from it. Hours are GPU-hours: one GPU
// for one hour. What is unknown is absent.
type Document struct {
	Schema    string    `json:"schema"`
	Generated time.Time `json:"generated"`
	Period    Span      `json:"period"`
	// Partial is true if the report misses something; PartialReasons lists what.
	Partial        bool     `json:"partial"`
	PartialReasons []string `json:"partial_reasons"`
	Notes          []Note   `json:"notes"`
	Sources        []Source `json:"sources"`
	// Currency is that of the prices; empty without prices.
	Currency string `json:"currency,omitempty"`
	// ProfileTable is the version of the table of MIG profiles.
	ProfileTable string    `json:"mig_profile_table"`
	Fleet        Account   `json:"fleet"`
	Checks       Checks    `json:"checks"`
	Trend        []Bucket  `json:"trend"`
	Clusters     []Account `json:"clusters"`
	Models       []Account `json:"models"`
	NodePools    []Account `json:"node_pools"`
	Nodes        []Account `json:"nodes"`
	Namespaces   []Account `json:"namespaces"`
	// Groups are the parts of the workloads by a label of their pods or namespaces; GroupLabel is its name.
	Groups     []Account `json:"groups,omitempty"`
	GroupLabel string    `json:"group_label,omitempty"`
	// Workloads are in descending order of unused GPU-hours.
	Workloads []Workload `json:"workloads"`
	// Advice is in descending order of what it saves.
	Advice []Advice `json:"advice"`
	// Comparison is with an earlier report.
	Comparison *Comparison `json:"comparison,omitempty"`
	// Past has the reports of --history, this one last; Outcomes what became of their advice.
	Past     []Past    `json:"past,omitempty"`
	Outcomes []Outcome `json:"outcomes,omitempty"`
	// Goal is the share of time that should be busy; Projections are of a month at the rate of the period.
	Goal        *Goal        `json:"goal,omitempty"`
	Projections []Projection `json:"projections,omitempty"`
}

// Span is the period of a report.
type Span struct {
	From        time.Time `json:"from"`
	To          time.Time `json:"to"`
	StepSeconds int       `json:"step_seconds"`
	Hours       float64   `json:"hours"`
	// MonthHours are those of the month that monthly figures are of: of the calendar month whose report it is, or 730.5,
	// the mean.
	MonthHours float64 `json:"month_hours"`
	// Zone is the time zone of hours of the day and of texts; times in JSON are UTC.
	Zone string `json:"time_zone"`
}

// In is a time in the zone of the report.
func (s Span) In(t time.Time) time.Time {
	if zone, err := time.LoadLocation(s.Zone); err == nil {
		return t.In(zone)
	}
	return t.UTC()
}

// Note is something that the reader should know.
type Note struct {
	Code string `json:"code"`
	Text string `json:"text"`
}

// Source is where data was read.
type Source struct {
	Data string `json:"data"`
	// From is rules, series (raw ones) or absent.
	From   string `json:"from"`
	Series string `json:"series"`
	// Hours is how much of the period it covers.
	Hours float64 `json:"hours"`
}

// States are GPU-hours by state. The first six add up to all reported time; NotReported is time that should have been
// in it.
type States struct {
	Busy        float64 `json:"busy"`
	Gap         float64 `json:"gap"`
	Idle        float64 `json:"idle"`
	Unallocated float64 `json:"unallocated"`
	Unavailable float64 `json:"unavailable"`
	Unknown     float64 `json:"unknown"`
	NotReported float64 `json:"not_reported"`
}

// State is one of States.
type State int

// The states, in the order in which they are shown.
const (
	Busy State = iota
	Gap
	Idle
	Unallocated
	Unavailable
	Unknown
	NotReported
	StateCount
)

// Quantity is the word and the definition of the state.
func (s State) Quantity() catalog.Quantity {
	return append(catalog.TimeStates(), catalog.NotReported)[s]
}

// String is the key of the state.
func (s State) String() string {
	if s == NotReported {
		return "not_reported"
	}
	return string(s.Quantity().State)
}

// StatesByLabel are the states by the values of the label state.
func StatesByLabel() map[string]State {
	out := map[string]State{}
	for s := range NotReported {
		out[s.String()] = s
	}
	return out
}

// At points at the hours of a state.
func (s *States) At(i State) *float64 {
	return [...]*float64{&s.Busy, &s.Gap, &s.Idle, &s.Unallocated, &s.Unavailable, &s.Unknown, &s.NotReported}[i]
}

// Of returns the hours of a state.
func (s States) Of(i State) float64 { return *s.At(i) }

// Sum adds up all states, Reported those without NotReported.
func (s States) Sum() float64 { return s.Reported() + s.NotReported }
func (s States) Reported() float64 {
	return s.Busy + s.Gap + s.Idle + s.Unallocated + s.Unavailable + s.Unknown
}

// Unused are gap and idle.
func (s States) Unused() float64 { return s.Gap + s.Idle }

// Plus adds other states, each multiplied by a factor.
func (s *States) Plus(o States, factor float64) {
	for i := range StateCount {
		*s.At(i) += o.Of(i) * factor
	}
}

// Account is the account of a part of the fleet, which the first fields name.
type Account struct {
	Cluster   string `json:"cluster,omitempty"`
	Model     string `json:"model,omitempty"`
	NodePool  string `json:"node_pool,omitempty"`
	Node      string `json:"node,omitempty"`
	Namespace string `json:"namespace,omitempty"`
	Group     string `json:"group,omitempty"`
	// Query is the PromQL of the hours by state; empty if no single query has them.
	Query string `json:"query,omitempty"`
	// GPUs is the mean number of GPUs over the period; of a namespace, of those allocated to it.
	GPUs float64 `json:"gpus"`
	// Hours are the expected GPU-hours; of a namespace, the allocated ones.
	Hours  float64 `json:"hours"`
	States States  `json:"states"`
	// Difference is what the states miss of the hours, as a fraction of them.
	Difference float64 `json:"difference"`
	// Reclaimable is the part of idle in periods of 30 minutes and longer.
	Reclaimable float64 `json:"reclaimable_idle"`
	// ReclaimableCost is that of Reclaimable, at the prices of the nodes.
	ReclaimableCost *float64 `json:"reclaimable_cost,omitempty"`
	// SharedCost is its part of the cost that belongs to no namespace; absent unless it is shared.
	SharedCost *float64 `json:"shared_cost,omitempty"`
	// Beyond is the part of busy beyond the allocation: on time-sliced GPUs a container may use more than its share.
	// Unattributed is busy time of no container.
	Beyond       float64 `json:"beyond_allocation"`
	Unattributed float64 `json:"unattributed"`
	// UsedByOthers is of a namespace: allocated time in which other containers of the same GPU were busy.
	UsedByOthers float64  `json:"used_by_others,omitempty"`
	EnergyKWh    *float64 `json:"energy_kwh,omitempty"`
	// Cost is that of all hours with a known price, StateCost that of each state.
	Cost       *float64 `json:"cost,omitempty"`
	StateCost  *States  `json:"state_cost,omitempty"`
	EnergyCost *float64 `json:"energy_cost,omitempty"`
	// Coverage is the reported and known part of the expected hours.
	Coverage float64 `json:"coverage"`
}

// Checks are sums of the same time from different series; each is a difference as a fraction of the first.
type Checks struct {
	// Difference is that of the fleet's states.
	Difference float64 `json:"difference"`
	// Busy, Idle and Gap compare GPUs with the containers on them and unattributed time; absent if one side is not
	// recorded.
	Busy *float64 `json:"busy,omitempty"`
	Idle *float64 `json:"idle,omitempty"`
	Gap  *float64 `json:"gap,omitempty"`
	// ExpectedHours are GPU-hours by the nodes' own count of GPUs, ReportedHours those of the GPUs' seconds.
	ExpectedHours float64 `json:"expected_hours"`
	ReportedHours float64 `json:"reported_hours"`
}

// Bucket is a part of the trend.
type Bucket struct {
	From   time.Time `json:"from"`
	Hours  float64   `json:"hours"`
	States States    `json:"states"`
}

// Workload is one owner's use of one model of GPU.
type Workload struct {
	ID        string `json:"id"`
	Cluster   string `json:"cluster,omitempty"`
	Namespace string `json:"namespace"`
	Kind      string `json:"kind"`
	Name      string `json:"name"`
	// OwnerFrom is recorded (by the exporter or kube-state-metrics), name (guessed from the pods' names), or pod (the
	// pod stands for itself).
	OwnerFrom string `json:"owner_from"`
	Model     string `json:"model"`
	// Group is the value of the label by which the report groups, of its pods or else of its namespace.
	Group string `json:"group,omitempty"`
	// Query is the PromQL of its hours by state.
	Query string `json:"query,omitempty"`
	// Sharing is whole, shared or mig; Profile that of the MIG devices.
	Sharing string `json:"sharing"`
	Profile string `json:"mig_profile,omitempty"`
	Pods    int    `json:"pods,omitempty"`
	// GPUs is the mean number of GPUs while any was allocated; GPUsNow is the number at the end of the period.
	GPUs         float64 `json:"gpus"`
	GPUsNow      float64 `json:"gpus_now"`
	Allocated    float64 `json:"allocated"`
	Busy         float64 `json:"busy"`
	Gap          float64 `json:"gap"`
	Idle         float64 `json:"idle"`
	Unknown      float64 `json:"unknown"`
	UsedByOthers float64 `json:"used_by_others"`
	Beyond       float64 `json:"beyond_allocation"`
	Reclaimable  float64 `json:"reclaimable_idle"`
	// Hung are allocated hours in which the job hung: its GPUs were busy, and did no work. They are not waste of the states, which
	// are of busy time; absent if it never did.
	Hung *float64 `json:"hung,omitempty"`
	// IdleWithMemory are idle hours with memory in use (a process without work), IdleWithoutMemory those without.
	IdleWithMemory    *float64 `json:"idle_with_memory,omitempty"`
	IdleWithoutMemory *float64 `json:"idle_without_memory,omitempty"`
	// LongestIdle is in wall-clock hours.
	LongestIdle float64    `json:"longest_idle"`
	LastBusy    *time.Time `json:"last_busy,omitempty"`
	FirstSeen   time.Time  `json:"first_seen"`
	LastSeen    time.Time  `json:"last_seen"`
	// BusyMean is busy time over the allocated time whose activity was measured, at most 1; absent if none was. The
	// quantiles are those of the means over a step of the busiest GPU, share or MIG device, BusyPeak the highest of them.
	BusyMean *float64 `json:"busy_mean,omitempty"`
	BusyP95  *float64 `json:"busy_p95,omitempty"`
	BusyP99  *float64 `json:"busy_p99,omitempty"`
	BusyPeak *float64 `json:"busy_peak,omitempty"`
	// Memory is that of one container on one GPU, in bytes.
	MemoryPeak   *float64 `json:"memory_peak_bytes,omitempty"`
	MemoryMedian *float64 `json:"memory_median_bytes,omitempty"`
	MemoryFloor  *float64 `json:"memory_floor_bytes,omitempty"`
	MemoryTotal  *float64 `json:"memory_total_bytes,omitempty"`
	// MemoryBeyond is the most that one container used of a shared GPU's memory beyond its share of the GPU.
	MemoryBeyond *float64 `json:"memory_beyond_allocation_bytes,omitempty"`
	// MemoryKind is needed (it falls again, so that the peak is needed), cache (it only grew) or preallocated. MemoryNeed
	// is what is needed for sure: the peak, or of a cache what it started with; absent if nothing indicates it.
	MemoryKind   string   `json:"memory_kind,omitempty"`
	MemoryNeed   *float64 `json:"memory_need_bytes,omitempty"`
	Preallocated bool     `json:"preallocated,omitempty"`
	// Rhythm is day or week if the demand repeats so; empty if the period does not show it.
	Rhythm     string   `json:"rhythm,omitempty"`
	EnergyKWh  *float64 `json:"energy_kwh,omitempty"`
	Cost       *float64 `json:"cost,omitempty"`
	Unused     float64  `json:"unused"`
	UnusedCost *float64 `json:"unused_cost,omitempty"`
	// Coverage is the part of the allocated time with known activity.
	Coverage   float64 `json:"coverage"`
	Confidence string  `json:"confidence"`
	// Advice is the code of the advice; if empty, NoAdvice is the reason code.
	Advice         string `json:"advice,omitempty"`
	NoAdvice       string `json:"no_advice,omitempty"`
	NoAdviceReason string `json:"no_advice_reason,omitempty"`
	Plot           *Plot  `json:"plot,omitempty"`
}

// Plot is a workload over time in few points: a value for each of equal parts of the period, -1 if there is none.
type Plot struct {
	Busy   []float64 `json:"busy"`
	Peak   []float64 `json:"peak"`
	Memory []float64 `json:"memory"`
	GPUs   []float64 `json:"gpus"`
}

// Advice is one recommendation.
type Advice struct {
	// ID is the same in all reports that give the advice.
	ID string `json:"id"`
	// Code is what to do, Reason its cause: both are stable words.
	Code   string `json:"code"`
	Reason string `json:"reason"`
	// Workload is the ID of the workload; Node, Model and Cluster are of advice about a part of the fleet.
	Workload  string `json:"workload,omitempty"`
	Namespace string `json:"namespace,omitempty"`
	Cluster   string `json:"cluster,omitempty"`
	Node      string `json:"node,omitempty"`
	Model     string `json:"model,omitempty"`
	Title     string `json:"title"`
	Evidence  string `json:"evidence"`
	// Alternatives explains why nothing smaller is recommended, or what else was considered.
	Alternatives string `json:"alternatives,omitempty"`
	// Saving is the kind of what is saved: freed (that others could use; no invoice changes), nodes (given back, which
	// an invoice shows) or queue (waiting pods that would have run). Kinds are never added up.
	Saving string `json:"saving"`
	// SavedHours are GPU-hours of the period; SavedGPUs the same as GPUs, Nodes those returned. Cumulated are the hours of all
	// advice of the kind up to this one, but for that of low confidence, which comes last.
	SavedHours float64  `json:"saved_hours"`
	SavedGPUs  float64  `json:"saved_gpus"`
	Nodes      int      `json:"nodes,omitempty"`
	Cumulated  float64  `json:"cumulated_hours"`
	SavedCost  *float64 `json:"saved_cost,omitempty"`
	// MonthHours and MonthCost are what a month saves from now on.
	MonthHours float64  `json:"saved_hours_per_month"`
	MonthCost  *float64 `json:"saved_cost_per_month,omitempty"`
	// Owner is who can do it: the group or the namespace of the workload, or the cluster administrator. Effort is what the change costs.
	Owner  string `json:"owner,omitempty"`
	Effort string `json:"effort"`
	// Query is the PromQL of the demand, or of the hours, behind it.
	Query      string `json:"query,omitempty"`
	Risk       string `json:"risk"`
	Confidence string `json:"confidence"`
	Change     string `json:"change"`
	// ChangeIn is where the change is made.
	ChangeIn   string      `json:"change_in"`
	Replay     *Replay     `json:"replay,omitempty"`
	Validation *Validation `json:"validation,omitempty"`
}

// Replay is the period with the advice followed: its pods placed on its nodes again.
type Replay struct {
	Pods int `json:"pods"`
	// Waiting is the number of pods that would have waited, for WaitedHours GPU-hours in all and LongestWait hours. Of advice
	// about a workload it is how many more than without the advice, by how many GPU-hours and by how much the longest.
	Waiting     int     `json:"waiting"`
	WaitedHours float64 `json:"waited_hours"`
	LongestWait float64 `json:"longest_wait_hours"`
	// OccupiedHours are GPU-hours in which a GPU had a pod.
	OccupiedHours float64 `json:"occupied_hours"`
	// Throttled is the fraction of the time in which the demand exceeds what there is, Evicted the number of pods
	// whose memory did not suffice.
	Throttled float64 `json:"throttled"`
	Evicted   int     `json:"evicted"`
	// Unknown is what the placement did not know.
	Unknown string `json:"unknown,omitempty"`
}

// Validation is the advice made from the part of the period before each of some folds, replayed on the fold. It does
// not decide about the advice.
type Validation struct {
	Folds int `json:"folds"`
	// TrainHours are the wall-clock hours before the last fold, TestHours those of all folds.
	TrainHours float64 `json:"train_hours"`
	TestHours  float64 `json:"test_hours"`
	// Size is what the time before the last fold alone would have recommended.
	Size string `json:"size"`
	// Exceeded is the fraction of the tested time in which the demand was higher, Worst that of the worst fold.
	Exceeded float64 `json:"exceeded"`
	Worst    float64 `json:"worst"`
}

// Comparison is what changed since an earlier report.
type Comparison struct {
	Before Span `json:"before"`
	// Changes are those of the fleet, and of each namespace, or group if the report has groups.
	Changes []Change `json:"changes"`
	// Followed lists the titles of earlier advice that is no longer given, New those of advice that was not given then.
	Followed []string `json:"followed"`
	New      []string `json:"new"`
}

// Change is a part of the fleet in two reports. Figures are per day, because periods have different lengths.
type Change struct {
	Name         string  `json:"name"`
	HoursBefore  float64 `json:"hours_per_day_before"`
	Hours        float64 `json:"hours_per_day"`
	UnusedBefore float64 `json:"unused_hours_per_day_before"`
	Unused       float64 `json:"unused_hours_per_day"`
	// Cost is that of all hours, UnusedCost that of gap and idle; absent without prices.
	CostBefore       *float64 `json:"cost_per_day_before,omitempty"`
	Cost             *float64 `json:"cost_per_day,omitempty"`
	UnusedCostBefore *float64 `json:"unused_cost_per_day_before,omitempty"`
	UnusedCost       *float64 `json:"unused_cost_per_day,omitempty"`
}

// Goal is the share of the expected GPU-hours that should be busy.
type Goal struct {
	Busy float64 `json:"busy"`
	// Reached is the share of the period, Met the number of the trend's parts that reached the goal.
	Reached float64 `json:"reached"`
	Met     int     `json:"parts_met"`
}

// Projection is what a month costs at the rate of the period: of the fleet, and of each group or namespace.
type Projection struct {
	Name       string  `json:"name"`
	Cost       float64 `json:"cost_per_month"`
	UnusedCost float64 `json:"unused_cost_per_month"`
	// Saved is what advice saves per month: of the fleet nodes that can be given back, of a part GPU-hours that it frees.
	Saved  float64  `json:"saved_cost_per_month"`
	Budget *float64 `json:"budget_per_month,omitempty"`
}

// Past is what a report of the history had, per day.
type Past struct {
	To         time.Time `json:"to"`
	Hours      float64   `json:"hours_per_day"`
	Unused     float64   `json:"unused_hours_per_day"`
	UnusedCost *float64  `json:"unused_cost_per_day,omitempty"`
	Advice     int       `json:"advice"`
}

// Outcome is what became of advice of past reports: done, ignored (it is still given), refuted by later demand, or withdrawn (it is no
// longer given for other reasons, although nothing was reduced).
type Outcome struct {
	ID      string    `json:"id"`
	Title   string    `json:"title"`
	Outcome string    `json:"outcome"`
	First   time.Time `json:"first"` // end of the first report with it
	Reports int       `json:"reports"`
}
