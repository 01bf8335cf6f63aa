package scenario

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/gpu-exporter/gpu-exporter/internal/nvml/calls"
)

// keyRow is what a scenario can set of one NVML function; see the table of calls. A row without components is a call
// of which only the return code can be set.
type keyRow struct {
	name       string
	index      []calls.Arg
	components []string
	optional   int // so many of the last components may be left out, and are 0
	text       bool
	system     bool // concerns no GPU
	override   bool // without a line the driver computes it
}

// ownKeys are what a scenario can set besides the functions: the handle of a GPU, field values and profiling metrics.
var ownKeys = []keyRow{
	{name: "Handle"},
	{name: "Field", components: []string{"value"}, index: []calls.Arg{{Limit: 1024},
		{Names: []string{"gpu", "module", "memory", "gpu_base"}, Limit: 64, All: "4294967295", Optional: true}}},
	{name: "FieldLatency", components: []string{"value"}},
	{name: "Gpm", components: []string{"value"}, index: []calls.Arg{{Limit: 1024}}},
}

// keys are all that the stand-in driver looks up.
var keys = allKeys()

func allKeys() []keyRow {
	list := slices.Clone(ownKeys)
	for i := range calls.Calls {
		if c := &calls.Calls[i]; c.ScenarioKey() != "" {
			list = append(list, keyRow{c.ScenarioKey(), c.Args, c.Values, c.Optional, c.Text, c.System, c.Computed})
		}
	}
	return list
}

func findKey(name string) (keyRow, bool) {
	i := slices.IndexFunc(keys, func(k keyRow) bool { return k.name == name })
	if i < 0 {
		return keyRow{}, false
	}
	return keys[i], true
}

// parseKey reads "Temperature[gpu]" or "NvLinkState[0-17]" and returns its row and the canonical keys,
// "Temperature[0]", of which a range makes many.
func parseKey(text string) (keyRow, []string, error) {
	name, rest, indexed := strings.Cut(text, "[")
	k, known := findKey(name)
	if !known {
		return k, nil, fmt.Errorf("expected the name of an answer like PowerUsage or Temperature[gpu], found %q", text)
	}
	if !indexed {
		if len(k.index) > 0 { // the whole call: only a return code can be set
			k.components = nil
		}
		return k, []string{name}, nil
	}
	inner, closed := strings.CutSuffix(rest, "]")
	words := strings.Split(inner, ",")
	required := len(k.index)
	for required > 1 && k.index[required-1].Optional {
		required--
	}
	if !closed || len(words) > len(k.index) || len(words) < required {
		return k, nil, fmt.Errorf("expected %s, found %q", k.usage(), text)
	}
	all := []string{""}
	for i, w := range words {
		first, last, err := parseArg(k.index[i], w)
		if err != nil {
			return k, nil, fmt.Errorf("expected %s: %w", k.usage(), err)
		}
		if int64(len(all))*(last-first+1) > maxAnswersPerLine {
			return k, nil, fmt.Errorf("expected ranges that make at most %d answers", maxAnswersPerLine)
		}
		var next []string
		for _, prefix := range all {
			for n := first; n <= last; n++ {
				next = append(next, prefix+","+strconv.FormatInt(n, 10))
			}
		}
		all = next
	}
	for i := range all {
		all[i] = name + "[" + all[i][1:] + "]"
	}
	return k, all, nil
}

func (k keyRow) usage() string {
	if len(k.index) == 0 {
		return k.name + " without an index"
	}
	var words []string
	for _, r := range k.index {
		if len(r.Names) > 0 {
			words = append(words, strings.Join(r.Names, "|"))
		} else {
			words = append(words, fmt.Sprintf("0-%d", r.Limit-1))
		}
	}
	return k.name + "[" + strings.Join(words, ",") + "]"
}

// parseArg reads one argument, or a range of them.
func parseArg(r calls.Arg, word string) (first, last int64, err error) {
	if r.All != "" && word == "all" {
		n, err := strconv.ParseInt(r.All, 10, 64)
		return n, n, err
	}
	if i := slices.Index(r.Names, word); i >= 0 {
		return int64(i), int64(i), nil
	}
	limit := max(r.Limit, len(r.Names))
	a, b, err := parseRange(word, limit)
	return int64(a), int64(b), err
}

// fieldType is NVML's type of a field value.
func fieldType(key string) int {
	id, _, _ := strings.Cut(strings.TrimSuffix(strings.TrimPrefix(key, "Field["), "]"), ",")
	n, err := strconv.ParseUint(id, 10, 32)
	if err != nil {
		return typeULongLong
	}
	of, _ := calls.TypeOf(uint32(n))
	return int(of.Value)
}
