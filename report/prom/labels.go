package prom

import "strings"

// Label is a name with its value.
type Label struct{ Name, Value string }

// Labels are the labels of one series in the order in which the server sent them.
type Labels []Label

// Get returns the value of a label, "" when the series does not have it.
func (l Labels) Get(name string) string {
	for i := range l {
		if l[i].Name == name {
			return l[i].Value
		}
	}
	return ""
}

// Name returns the name of the metric, "" when an operation took it away.
func (l Labels) Name() string { return l.Get("__name__") }

// quoting escapes what PromQL's string literals do not take as it is.
var quoting = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`)

// Quote returns a string as a PromQL literal.
func Quote(s string) string { return `"` + quoting.Replace(s) + `"` }
