package engines

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
)

const (
	// maxList bounds one list: some kilobytes per container, labels and ports with it.
	maxList = 16 << 20
	// maxEngineContainers bounds the containers of a node.
	maxEngineContainers = 4096
	// maxEngineName bounds a name in bytes.
	maxEngineName = 128
)

var (
	fullID    = regexp.MustCompile(`^[0-9a-f]{64}$`)
	validName = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9_.-]*$`)
	// likeID has the form of the name of a container without one: no other name may pass for it.
	likeID = regexp.MustCompile(`^[0-9a-f]{12}$`)
)

// decodeNames decodes a list of containers, as a whole or not at all: names by full ID. A container of the kubelet,
// whose name begins with k8s_, belongs to a pod and has no name here. A name of two containers names neither.
func decodeNames(r io.Reader) (map[string]string, error) {
	limited := &io.LimitedReader{R: r, N: maxList + 1}
	names, err := decodeList(json.NewDecoder(limited))
	switch {
	case limited.N <= 0:
		return nil, fmt.Errorf("response larger than %d MiB", maxList>>20)
	case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
		return nil, errors.New("response truncated")
	case err != nil:
		return nil, err
	}
	uses := map[string]int{}
	for _, name := range names {
		uses[name]++
	}
	for id, name := range names {
		if name == "" || uses[name] > 1 {
			delete(names, id)
		}
	}
	return names, nil
}

func decodeList(in *json.Decoder) (map[string]string, error) {
	first, err := in.Token()
	if err != nil {
		return nil, err
	}
	if first == nil {
		return nil, nil // null: no containers
	}
	if first != json.Delim('[') {
		return nil, errors.New("the response is no list of containers")
	}
	names := map[string]string{}
	for n := 1; in.More(); n++ {
		if n > maxEngineContainers {
			return nil, fmt.Errorf("more than %d containers", maxEngineContainers)
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
			name = "" // two names
		}
		names[strings.Clone(c.ID)] = strings.Clone(name)
	}
	_, err = in.Token()
	return names, err
}

// nameOf is the name among those of a container: Docker writes "/web", and for a link of another container to it
// "/other/alias"; Podman may omit the slash. Empty: none, or several.
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
	if len(found) > maxEngineName || !validName.MatchString(found) || likeID.MatchString(found) ||
		strings.HasPrefix(found, "k8s_") {
		return ""
	}
	return found
}
