package catalog

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// Size is how much of the catalog is exported.
type Size int

// The sizes, each with all of the one before. What a family is read by decides (tools/gen): core has what the rules, the
// report and the dashboards above node level read, default what anything shipped reads.
const (
	SizeCore Size = iota + 1
	SizeDefault
	SizeAll
)

// Sizes are the names of the sizes.
func Sizes() []string { return []string{SizeCore.String(), SizeDefault.String(), SizeAll.String()} }

func (s Size) String() string { return [...]string{"", "core", "default", "all"}[s] }

// SizeNamed returns the size of a name in Sizes; SizeDefault for any other.
func SizeNamed(name string) Size {
	if i := slices.Index(Sizes(), name); i >= 0 {
		return Size(i + 1)
	}
	return SizeDefault
}

// readers is what reads a family: the smallest size that has it, and the alerts that need it, by name.
type readers struct {
	size   Size
	alerts string
}

// Size returns the smallest size that has the family.
func (f Family) Size() Size {
	if r, ok := readersOf[f.Name]; ok {
		return r.size
	}
	return SizeAll
}

// Alerts returns the shipped alerts that never fire without the family.
func (f Family) Alerts() []string { return strings.Fields(readersOf[f.Name].alerts) }

// Selection is which families are exported.
type Selection struct {
	Size Size
	// Groups are exported whole, or not at all, by name; the others by Size.
	Groups map[string]bool
	// Allow, if set, selects families by name instead of Size and Groups. Deny excludes families by name. Both match whole
	// names.
	Allow, Deny *Names
}

// Has reports whether a family of a group is exported.
func (s Selection) Has(g Group, f Family) bool {
	if s.Deny != nil && s.Deny.MatchString(f.Name) {
		return false
	}
	if s.Allow != nil {
		return s.Allow.MatchString(f.Name)
	}
	if on, set := s.Groups[g.Name]; set {
		return on
	}
	return f.Size() <= s.Size
}

// Families returns the families that are exported, in the order of the catalog.
func (s Selection) Families() []Family {
	var rows []Family
	for _, g := range Groups() {
		for _, f := range g.Rows {
			if s.Has(g, f) {
				if f.Values != nil && s.Size < SizeAll && s.Allow == nil && !s.Groups[g.Name] {
					f.Read = only(f.Values, f.Read)
				}
				rows = append(rows, f)
			}
		}
	}
	return rows
}

// only reads the series whose last label has one of the values.
func only(values []string, read func(*gpu.View, Emit)) func(*gpu.View, Emit) {
	return func(v *gpu.View, emit Emit) {
		read(v, func(value float64, labels ...string) {
			if slices.Contains(values, labels[len(labels)-1]) {
				emit(value, labels...)
			}
		})
	}
}

// Silenced returns the shipped alerts that cannot fire because a family that they need is not exported, each with these
// families.
func (s Selection) Silenced() map[string][]string {
	out := map[string][]string{}
	for _, g := range Groups() {
		for _, f := range g.Rows {
			if !s.Has(g, f) {
				for _, alert := range f.Alerts() {
					out[alert] = append(out[alert], f.Name)
				}
			}
		}
	}
	return out
}

// Unread returns the readings that no family of the selection needs: their driver calls need not be made.
func (s Selection) Unread() []string {
	needed, unread := map[string]bool{}, map[string]bool{}
	for _, g := range Groups() {
		for _, f := range g.Rows {
			for _, r := range f.Readings {
				if s.Has(g, f) {
					needed[r] = true
				} else {
					unread[r] = true
				}
			}
		}
	}
	maps.DeleteFunc(unread, func(r string, _ bool) bool { return needed[r] })
	return slices.Sorted(maps.Keys(unread))
}

// Names is a regular expression for names of families.
type Names = regexp.Regexp

// ParseNames compiles lists of regular expressions, separated by commas, each of which has to match the whole name of a
// family. No list is nil. The error is an invalid expression; useless are those that match no family.
func ParseNames(lists []string) (names *Names, useless []string, err error) {
	var all []string
	for _, list := range lists {
		for _, expr := range strings.Split(list, ",") {
			if expr = strings.TrimSpace(expr); expr == "" {
				continue
			}
			if _, err := regexp.Compile(expr); err != nil {
				return nil, nil, fmt.Errorf("%q: %w", expr, err)
			}
			one := regexp.MustCompile("^(?:" + expr + ")$")
			if !slices.ContainsFunc(All(), func(f Family) bool { return one.MatchString(f.Name) }) {
				useless = append(useless, expr)
			}
			all = append(all, "(?:"+expr+")")
		}
	}
	if all == nil {
		return nil, nil, nil
	}
	return regexp.MustCompile("^(?:" + strings.Join(all, "|") + ")$"), useless, nil
}
