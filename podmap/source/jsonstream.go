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
type jsonStream struct{ *json.Decoder }

// newJSONStream reads values of at most limit bytes.
func newJSONStream(r io.Reader, limit int) jsonStream {
	in := &bounded{r: r, limit: limit}
	in.decoder = json.NewDecoder(in)
	return jsonStream{in.decoder}
}

// bounded fails when it has read limit bytes past the last value that was decoded.
type bounded struct {
	r       io.Reader
	decoder *json.Decoder
	read    int64
	limit   int
}

func (b *bounded) Read(p []byte) (int, error) {
	left := int64(b.limit) - (b.read - b.decoder.InputOffset())
	if left <= 0 {
		return 0, fmt.Errorf("a value of more than %d MiB", b.limit>>20)
	}
	n, err := b.r.Read(p[:min(int64(len(p)), left)])
	b.read += int64(n)
	return n, err
}

// value reads a value. It calls field for every key of an object, and element for every element of a list; both read
// what follows, and a nil one skips it. Any other value, null among them, is dropped.
func (s jsonStream) value(field func(key string) error, element func() error) error {
	token, err := s.Token()
	if err != nil {
		return err
	}
	open, ok := token.(json.Delim)
	if !ok {
		return nil
	}
	for s.More() {
		name := ""
		if open == '{' {
			key, err := s.Token()
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
	_, err = s.Token() // the end of the object or list
	return err
}

// fields are the keys of an object that are read.
type fields map[string]func() error

func (s jsonStream) object(f fields) error {
	return s.value(func(key string) error {
		if read := f[key]; read != nil {
			return read()
		}
		return s.skip()
	}, nil)
}

func (s jsonStream) array(element func() error) error { return s.value(nil, element) }

// skip drops a value of any depth.
func (s jsonStream) skip() error {
	for depth := 0; ; {
		token, err := s.Token()
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
	token, err := s.Token()
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
func (s jsonStream) name(to *string) func() error {
	return func() error {
		v, err := s.text()
		if len(v) > maxName {
			return fmt.Errorf("a name of %d bytes", len(v))
		}
		*to = strings.Clone(v)
		return err
	}
}
