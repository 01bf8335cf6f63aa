package source

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
)

// maxName bounds names in bytes.
const maxName = 512

// jsonStream reads JSON value by value, so that of a large file only what is kept of it, and one value, is in memory.
type jsonStream struct {
	decoder *json.Decoder
	in      *budget
}

// newJSONStream reads values of at most limit bytes.
func newJSONStream(r io.Reader, limit int) jsonStream {
	in := &budget{r: r, limit: limit}
	return jsonStream{json.NewDecoder(in), in}
}

// token reads one token; decode reads a whole value.
func (s jsonStream) token() (json.Token, error) {
	s.in.left = s.in.limit
	return s.decoder.Token()
}

func (s jsonStream) decode(to any) error {
	s.in.left = s.in.limit
	return s.decoder.Decode(to)
}

// more reports whether the current list or object continues.
func (s jsonStream) more() bool {
	s.in.left = s.in.limit
	return s.decoder.More()
}

// budget passes so many bytes until it is refilled.
type budget struct {
	r           io.Reader
	left, limit int
}

func (b *budget) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, fmt.Errorf("a value of more than %d MiB", b.limit>>20)
	}
	n, err := b.r.Read(p[:min(len(p), b.left)])
	b.left -= n
	return n, err
}

// value reads a value. It calls field for every key of an object, and element for every element of a list; both read
// what follows, and a nil one skips it. Any other value, null among them, is dropped.
func (s jsonStream) value(field func(key string) error, element func() error) error {
	token, err := s.token()
	if err != nil {
		return err
	}
	open, ok := token.(json.Delim)
	if !ok {
		return nil
	}
	for s.more() {
		name := ""
		if open == '{' {
			key, err := s.token()
			if err != nil {
				return err
			}
			name, _ = key.(string)
		}
		switch {
		case open == '{' && field != nil:
			err = field(name)
		case open == '[' && element != nil:
			err = element()
		default:
			err = s.skip()
		}
		if err != nil {
			return err
		}
	}
	_, err = s.token() // the end of the object or list
	return err
}

func (s jsonStream) object(field func(key string) error) error { return s.value(field, nil) }
func (s jsonStream) array(element func() error) error          { return s.value(nil, element) }

// skip drops a value of any depth.
func (s jsonStream) skip() error {
	for depth := 0; ; {
		token, err := s.token()
		if err != nil {
			return err
		}
		switch token {
		case json.Delim('{'), json.Delim('['):
			depth++
		case json.Delim('}'), json.Delim(']'):
			depth--
		}
		if depth == 0 {
			return nil
		}
	}
}

// text reads a string; null is the empty one.
func (s jsonStream) text() (string, error) {
	token, err := s.token()
	if err != nil {
		return "", err
	}
	switch v := token.(type) {
	case string:
		return v, nil
	case nil:
		return "", nil
	}
	return "", fmt.Errorf("%v instead of a string", token)
}

// name reads a string that is kept, and bounded.
func (s jsonStream) name() (string, error) {
	v, err := s.text()
	if len(v) > maxName {
		return "", fmt.Errorf("a name of %d bytes", len(v))
	}
	return strings.Clone(v), err
}
