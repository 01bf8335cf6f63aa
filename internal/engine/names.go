package engine

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
)

const (
	// mostBytes bounds one list: some kilobytes per container, labels and ports with it.
	mostBytes = 16 << 20
	// mostContainers bounds the containers of a node.
	mostContainers = 4096
	// longestName bounds a name that is believed.
	longestName = 128
)

var (
	fullID    = regexp.MustCompile(`^[0-9a-f]{64}$`)
	validName = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9_.-]*$`)
	// likeID is what a container without a name is called by: no name may pass for it.
	likeID = regexp.MustCompile(`^[0-9a-f]{12}$`)
)

// readNames reads a list of containers: names by full id. A container of the kubelet's, whose name begins with k8s_,
// is a pod's and gets no name here. A name that two containers bear names none of them. The list is whole or an error.
func readNames(r io.Reader) (map[string]string, error) {
	limited := &io.LimitedReader{R: r, N: mostBytes + 1}
	names, err := decodeNames(json.NewDecoder(limited))
	switch {
	case limited.N <= 0:
		return nil, fmt.Errorf("its answer is larger than %d MiB", mostBytes>>20)
	case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
		return nil, errors.New("its answer ends in the middle")
	case err != nil:
		return nil, err
	}
	bearers := map[string]int{}
	for _, name := range names {
		bearers[name]++
	}
	for id, name := range names {
		if name == "" || bearers[name] > 1 {
			delete(names, id)
		}
	}
	return names, nil
}

func decodeNames(in *json.Decoder) (map[string]string, error) {
	first, err := in.Token()
	if err != nil {
		return nil, err
	}
	if first == nil {
		return nil, nil // null: no containers
	}
	if first != json.Delim('[') {
		return nil, errors.New("its answer is no list of containers")
	}
	names := map[string]string{}
	for n := 1; in.More(); n++ {
		if n > mostContainers {
			return nil, fmt.Errorf("it lists more than %d containers", mostContainers)
		}
		var c struct {
			ID    string `json:"Id"`
			Names []string
		}
		if err := in.Decode(&c); err != nil {
			return nil, err
		}
		if !fullID.MatchString(c.ID) {
			continue
		}
		name := nameOf(c.Names)
		if other, ok := names[c.ID]; ok && other != name {
			name = "" // one id of two names
		}
		names[strings.Clone(c.ID)] = strings.Clone(name)
	}
	_, err = in.Token()
	return names, err
}

// nameOf is the name among those that a container bears: Docker writes "/web", and for a link of another container
// to it "/other/alias"; Podman may leave the slash out. Empty: none, or none for certain.
func nameOf(all []string) string {
	found := ""
	for _, name := range all {
		name = strings.TrimPrefix(name, "/")
		if strings.Contains(name, "/") {
			continue
		}
		if found != "" && found != name {
			return ""
		}
		found = name
	}
	if len(found) > longestName || !validName.MatchString(found) || likeID.MatchString(found) || strings.HasPrefix(found, "k8s_") {
		return ""
	}
	return found
}
