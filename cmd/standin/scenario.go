package main

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/gpu-exporter/gpu-exporter/internal/standin/recording"
)

// maxJournal bounds a journal: journals are what strangers send.
const maxJournal = 128 << 20

// writeScenario writes the scenario that a journal of gpu-exporter record becomes; - is standard input.
func writeScenario(args []string, stdout io.Writer) error {
	if len(args) != 1 {
		return errors.New("usage: standin scenario JOURNAL; - for standard input")
	}
	in := io.Reader(os.Stdin)
	if args[0] != "-" {
		f, err := os.Open(args[0])
		if err != nil {
			return err
		}
		defer f.Close()
		in = f
	}
	text, err := io.ReadAll(io.LimitReader(in, maxJournal+1))
	if err == nil && len(text) > maxJournal {
		err = fmt.Errorf("the journal is larger than %d MiB", maxJournal>>20)
	}
	if err != nil {
		return err
	}
	if text, err = recording.Scenario(text); err != nil {
		return err
	}
	_, err = stdout.Write(text)
	return err
}
