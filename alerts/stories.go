package alerts

import (
	_ "embed"
	"encoding/csv"
	"fmt"
	"strings"
	"time"
)

// Story is a fault, or what looks like one, with all notifications of all alerts about it: one that is not in its list may
// not come. TestStories simulates each with all rules, scraped and evaluated in several ways.
type Story struct {
	// Fault is what happens, and Lasts the time until it is repaired; 0: it is an event, or stays.
	Fault   string
	Lasts   time.Duration
	Notices []Notice
	// Silent are alerts that one may expect besides, with the reason where it is not plain.
	Silent string
}

// Notice is a notification.
type Notice struct {
	Alert string
	// Own are the labels that tell it from another one of the same alert.
	Own string
	// After is the time from the beginning of the fault to the notification, and Until from its repair to the end; of an event,
	// and of what stays, from the beginning. Stays: it does not end by itself.
	After, Until time.Duration
}

// Stays is the end of a notification that lasts as long as the fault.
const Stays = time.Duration(-1)

// storyFile has a row for each story: fault, lasts, alert, own labels, after, until, silent.
//
//go:embed stories.csv
var storyFile string

// Stories are the faults in the order of the documentation. It fails for a row that is none.
func Stories() ([]Story, error) {
	rows, err := csv.NewReader(strings.NewReader(storyFile)).ReadAll()
	if err != nil {
		return nil, fmt.Errorf("stories.csv: %w", err)
	}
	var out []Story
	for _, r := range rows[1:] {
		duration := func(text string) (d time.Duration) {
			if text == "" {
				return 0
			}
			if d, err = parseDuration(text); err != nil {
				err = fmt.Errorf("stories.csv: %s: %w", r[0], err)
			}
			return d
		}
		s := Story{Fault: r[0], Lasts: duration(r[1]), Silent: r[6]}
		if r[2] != "" {
			n := Notice{Alert: r[2], Own: r[3], After: duration(r[4]), Until: Stays}
			if r[5] != "it is over" {
				n.Until = duration(r[5])
			}
			s.Notices = []Notice{n}
		}
		if err != nil {
			return nil, err
		}
		out = append(out, s)
	}
	return out, nil
}

// storiesTable has a row for each story.
func storiesTable() (string, error) {
	all, err := Stories()
	text := "| fault | lasts | alert | after | until | silent |\n|---|---|---|---|---|---|"
	for _, s := range all {
		lasts := strings.TrimPrefix(FormatDuration(s.Lasts), "0s")
		name, after, until := "none", "", ""
		for _, n := range s.Notices {
			name = fmt.Sprintf("[%s](#%s)", n.Alert, strings.ToLower(n.Alert))
			if n.Own != "" {
				name += " `" + n.Own + "`"
			}
			after, until = FormatDuration(n.After), "it is over"
			if n.Until != Stays {
				until = FormatDuration(n.Until) + map[bool]string{true: " after the repair"}[s.Lasts > 0]
			}
		}
		text += fmt.Sprintf("\n| %s | %s | %s | %s | %s | %s |", s.Fault, lasts, name, after, until, s.Silent)
	}
	return text, err
}
