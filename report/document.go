package report

import "time"

// Schema names the form of the document. It changes when a reader has to.
const Schema = "gpu-report/1"

// Document is a report: what JSON shows as it is, and what the other formats are made from. Hours are GPU-hours: one
// GPU for one hour. What is not known is absent.
type Document struct {
	Schema    string    `json:"schema"`
	Generated time.Time `json:"generated"`
	Window    Span      `json:"window"`
	// Partial says that the report misses something, and Problems what.
	Partial  bool     `json:"partial"`
	Problems []string `json:"problems"`
	Notes    []Note   `json:"notes"`
	Sources  []Source `json:"sources"`
	// Currency is that of the prices; "" without prices.
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
	// Workloads are in descending order of waste.
	Workloads []Workload `json:"workloads"`
	// Advice is in descending order of what it saves.
	Advice []Advice  `json:"advice"`
	WhatIf []Packing `json:"what_if"`
}

// Span is a window.
type Span struct {
	From        time.Time `json:"from"`
	To          time.Time `json:"to"`
	StepSeconds int       `json:"step_seconds"`
	Hours       float64   `json:"hours"`
}

// Note is something that the reader should know.
type Note struct {
	Code string `json:"code"`
	Text string `json:"text"`
}

// Source says where a figure was read.
type Source struct {
	What string `json:"what"`
	// From is rules, series (raw ones) or absent.
	From  string `json:"from"`
	Names string `json:"names"`
	// Hours is how much of the window it speaks of.
	Hours float64 `json:"hours"`
}

// Cells is the partition of GPU-hours. The first six are the ledger's; the last is time that should have been in it.
type Cells struct {
	Useful      float64 `json:"useful"`
	Gap         float64 `json:"gap"`
	Idle        float64 `json:"idle"`
	Unallocated float64 `json:"unallocated"`
	Unavailable float64 `json:"unavailable"`
	Unobserved  float64 `json:"unobserved"`
	NotReported float64 `json:"not_reported"`
}

// Cell is one part of the partition by its place.
type Cell int

// The cells, in the order in which they are shown.
const (
	Useful Cell = iota
	Gap
	Idle
	Unallocated
	Unavailable
	Unobserved
	NotReported
	CellCount
)

// cellNames are the keys of the cells, and cellTitles what a reader sees.
var (
	cellNames  = [CellCount]string{"useful", "gap", "idle", "unallocated", "unavailable", "unobserved", "not_reported"}
	cellTitles = [CellCount]string{"useful", "held, underused", "held, idle", "unallocated", "unavailable", "unobserved", "not reported"}
	cellHelp   = [CellCount]string{
		"At least one kernel ran.",
		"Held by somebody and between work: within 60 s after a kernel ran.",
		"Held by somebody, and without any work for 60 s and longer.",
		"Known to be free.",
		"The GPU was lost, missing, stuck, or needed a reset.",
		"Nobody can tell: activity that the GPU does not show (MIG before Hopper), or an owner that is not known.",
		"Expected and not in the ledger: the node was off, or its exporter was.",
	}
)

// String is the key of the cell.
func (c Cell) String() string { return cellNames[c] }

// Title is the name that a reader sees.
func (c Cell) Title() string { return cellTitles[c] }

// Help explains the cell.
func (c Cell) Help() string { return cellHelp[c] }

// At points at a cell.
func (c *Cells) At(i Cell) *float64 {
	return [...]*float64{&c.Useful, &c.Gap, &c.Idle, &c.Unallocated, &c.Unavailable, &c.Unobserved, &c.NotReported}[i]
}

// Of returns a cell.
func (c Cells) Of(i Cell) float64 { return *c.At(i) }

// Sum adds all cells up.
func (c Cells) Sum() float64 { return c.Ledger() + c.NotReported }

// Ledger adds up what was reported.
func (c Cells) Ledger() float64 {
	return c.Useful + c.Gap + c.Idle + c.Unallocated + c.Unavailable + c.Unobserved
}

func (c *Cells) plus(o Cells) {
	for i := Cell(0); i < CellCount; i++ {
		*c.At(i) += o.Of(i)
	}
}

// Account is the account of a part of the fleet. Which part, the first fields say.
type Account struct {
	Cluster   string `json:"cluster,omitempty"`
	Model     string `json:"model,omitempty"`
	NodePool  string `json:"node_pool,omitempty"`
	Node      string `json:"node,omitempty"`
	Namespace string `json:"namespace,omitempty"`
	// GPUs is the mean number of GPUs over the window: for a namespace, of those that it held.
	GPUs float64 `json:"gpus"`
	// Hours are the GPU-hours that were expected; for a namespace, held.
	Hours float64 `json:"hours"`
	Cells Cells   `json:"cells"`
	// ClosingError is what cells and hours differ by, over hours.
	ClosingError float64 `json:"closing_error"`
	// Reclaimable is the part of idle that came in stretches of 30 minutes and longer.
	Reclaimable float64 `json:"reclaimable_idle"`
	// Beyond is work beyond what its holders hold, part of useful: on time-sliced GPUs a holder may use more
	// than its share. Outside is work of no container.
	Beyond  float64 `json:"beyond_held"`
	Outside float64 `json:"outside_pods"`
	// Lent is of a namespace: held time in which others of the same GPU worked.
	Lent      float64  `json:"lent,omitempty"`
	EnergyKWh *float64 `json:"energy_kwh,omitempty"`
	// Cost is that of all hours whose price is known, CellCost of each cell.
	Cost       *float64 `json:"cost,omitempty"`
	CellCost   *Cells   `json:"cell_cost,omitempty"`
	EnergyCost *float64 `json:"energy_cost,omitempty"`
	// Coverage is the part of the expected hours of which the ledger speaks.
	Coverage float64 `json:"coverage"`
}

// Waste are the hours that advice can get back: held and not used.
func (a *Account) Waste() float64 { return a.Cells.Gap + a.Cells.Idle }

// Checks are sums of the same time from different series; each is a difference over the first one's hours.
type Checks struct {
	// ClosingError is that of the fleet's partition.
	ClosingError float64 `json:"closing_error"`
	// Busy, Idle and Underused compare GPUs with the containers on them and what belongs to none; absent where
	// one side is not recorded.
	Busy *float64 `json:"busy,omitempty"`
	Idle *float64 `json:"idle,omitempty"`
	Gap  *float64 `json:"gap,omitempty"`
	// ExpectedHours are GPU-hours that the nodes' own count of GPUs gives, and LedgerHours those of the GPUs' seconds.
	ExpectedHours float64 `json:"expected_hours"`
	LedgerHours   float64 `json:"ledger_hours"`
}

// Bucket is a part of the trend.
type Bucket struct {
	From  time.Time `json:"from"`
	Hours float64   `json:"hours"`
	Cells Cells     `json:"cells"`
}

// Workload is one owner's use of one model of GPU.
type Workload struct {
	ID        string `json:"id"`
	Cluster   string `json:"cluster,omitempty"`
	Namespace string `json:"namespace"`
	Kind      string `json:"kind"`
	Name      string `json:"name"`
	// OwnerFrom says how the owner is known: recorded (by the exporter or kube-state-metrics), name (guessed from the pods' names), or
	// pod (nothing is known: the pod stands for itself).
	OwnerFrom string `json:"owner_from"`
	Model     string `json:"model"`
	// Sharing is whole, shared or mig; Profile that of the instances.
	Sharing string `json:"sharing"`
	Profile string `json:"mig_profile,omitempty"`
	Pods    int    `json:"pods,omitempty"`
	// GPUs is the mean number of GPUs held while any was; CardsNow those at the end of the window.
	GPUs        float64 `json:"gpus"`
	GPUsNow     float64 `json:"gpus_now"`
	Held        float64 `json:"held"`
	Useful      float64 `json:"useful"`
	Gap         float64 `json:"gap"`
	Idle        float64 `json:"idle"`
	Unobserved  float64 `json:"unobserved"`
	Lent        float64 `json:"lent"`
	Beyond      float64 `json:"beyond_held"`
	Reclaimable float64 `json:"reclaimable_idle"`
	// Quiet are idle hours with memory in use (a process without work), Empty those without.
	Quiet *float64 `json:"quiet,omitempty"`
	Empty *float64 `json:"empty,omitempty"`
	// LongestIdle is in hours of the clock.
	LongestIdle float64    `json:"longest_idle"`
	LastBusy    *time.Time `json:"last_busy,omitempty"`
	FirstSeen   time.Time  `json:"first_seen"`
	LastSeen    time.Time  `json:"last_seen"`
	// Activity is busy over observed time; absent where nothing was observed. The quantiles are those of the busiest
	// GPU's means over a step, Peak the highest of them.
	Activity *float64 `json:"activity_mean,omitempty"`
	P95      *float64 `json:"activity_p95,omitempty"`
	P99      *float64 `json:"activity_p99,omitempty"`
	Peak     *float64 `json:"activity_peak,omitempty"`
	// Memory is that of one container on one GPU, in bytes.
	MemoryPeak    *float64 `json:"memory_peak_bytes,omitempty"`
	MemoryPlateau *float64 `json:"memory_plateau_bytes,omitempty"`
	MemoryFloor   *float64 `json:"memory_floor_bytes,omitempty"`
	MemoryTotal   *float64 `json:"memory_total_bytes,omitempty"`
	Preallocated  bool     `json:"preallocated,omitempty"`
	EnergyKWh     *float64 `json:"energy_kwh,omitempty"`
	Cost          *float64 `json:"cost,omitempty"`
	Waste         float64  `json:"waste"`
	WasteCost     *float64 `json:"waste_cost,omitempty"`
	// Coverage is the part of the held time of which the work is known.
	Coverage   float64 `json:"coverage"`
	Confidence string  `json:"confidence"`
	// Advice is the code of what is advised, or "" with the reason for saying nothing.
	Advice   string `json:"advice,omitempty"`
	NoAdvice string `json:"no_advice,omitempty"`
	NoReason string `json:"no_advice_reason,omitempty"`
	Plot     *Plot  `json:"plot,omitempty"`
}

// Plot is a workload over time in few points: a value for each of equal parts of the window, -1 where there is none.
type Plot struct {
	Activity []float64 `json:"activity"`
	Peak     []float64 `json:"peak"`
	Memory   []float64 `json:"memory"`
	GPUs     []float64 `json:"gpus"`
}

// Advice is one thing to do.
type Advice struct {
	// Code is what to do, Reason why: both are stable words.
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
	// Why says why not the next smaller size, or what else was considered.
	Why string `json:"why_not_smaller,omitempty"`
	// SavedHours are GPU-hours of the window that would have been free; SavedCards the same as GPUs.
	SavedHours float64  `json:"saved_hours"`
	SavedGPUs  float64  `json:"saved_gpus"`
	SavedCost  *float64 `json:"saved_cost,omitempty"`
	Risk       string   `json:"risk"`
	Confidence string   `json:"confidence"`
	Change     string   `json:"change"`
	// ChangeIn says what the change is made in.
	ChangeIn string   `json:"change_in"`
	HeldOut  *HeldOut `json:"held_out,omitempty"`
}

// HeldOut is the advice taken from the first part of the window, replayed on the rest.
type HeldOut struct {
	// TrainedHours and TestedHours are the clock's.
	TrainedHours float64 `json:"trained_hours"`
	TestedHours  float64 `json:"tested_hours"`
	// Size is what the first part alone would have advised.
	Size string `json:"size"`
	// Exceeded is the part of the steps of the rest in which the demand was higher.
	Exceeded float64 `json:"exceeded"`
}

// Packing is the answer to one "what if" for one model.
type Packing struct {
	Cluster  string `json:"cluster,omitempty"`
	Model    string `json:"model"`
	Scenario string `json:"scenario"`
	Text     string `json:"text"`
	// Items is how many holdings were moved.
	Items int `json:"items"`
	// CardsBefore and CardsAfter are means over the window of the GPUs that the moved items occupy.
	GPUsBefore float64  `json:"gpus_before"`
	GPUsAfter  float64  `json:"gpus_after"`
	FreedHours float64  `json:"freed_hours"`
	FreedCost  *float64 `json:"freed_cost,omitempty"`
	// Overload is the part of the occupied GPU-hours in which the demands on a GPU would add up to more than it has.
	Overload float64 `json:"overload_probability"`
	// Limit is the overload that packing was allowed on each GPU.
	Limit float64 `json:"overload_limit"`
}
