package alerts

import "time"

// Pair is a label or an annotation. Lists of them keep their order.
type Pair struct{ Name, Value string }

// Rule is one rule as it stands in a file: a record or an alert.
type Rule struct {
	Record, Alert, Expr string
	For, Keep           time.Duration
	Labels, Annotations []Pair
}

// RuleGroup is a group as it stands in a file.
type RuleGroup struct {
	Name string
	// Interval is how often the group is evaluated; 0: as often as the server does by default.
	Interval time.Duration
	Rules    []Rule
}
