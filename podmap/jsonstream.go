package podmap

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
)

// jsonStream reads JSON value by value, so that of a large file no more is in memory than is kept of it, and one
// value.
type jsonStream struct {
	decoder *json.Decoder
	in      *budget
}

// newJSONStream reads values of which none takes more than most bytes.
func newJSONStream(r io.Reader, most int) jsonStream {
	in := &budget{r: r, most: most}
	return jsonStream{json.NewDecoder(in), in}
}

// token reads one token; decode reads a whole value.
func (s jsonStream) token() (json.Token, error) {
	s.in.left = s.in.most
	return s.decoder.Token()
}

func (s jsonStream) decode(to any) error {
	s.in.left = s.in.most
	return s.decoder.Decode(to)
}

// more tells whether the list or object goes on.
func (s jsonStream) more() bool {
	s.in.left = s.in.most
	return s.decoder.More()
}

// budget lets so many bytes pass until it is filled again.
type budget struct {
	r          io.Reader
	left, most int
}

func (b *budget) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, fmt.Errorf("a value of more than %d MiB", b.most>>20)
	}
	n, err := b.r.Read(p[:min(len(p), b.left)])
	b.left -= n
	return n, err
}

// value reads a value. Of an object every key is given to field, of a list every element to element; both
// read what follows, and a nil one skips it. Any other value, null among them, is read and dropped.
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
		switch {
		case open == '[' && element != nil:
			err = element()
		case open == '[':
			err = s.skip()
		default:
			var key json.Token
			if key, err = s.token(); err != nil {
				return err
			}
			name, _ := key.(string)
			if field != nil {
				err = field(name)
			} else {
				err = s.skip()
			}
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

// skip reads a value however deep, and drops it.
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
	return "", fmt.Errorf("%v where a text should be", token)
}

// name reads a string that is kept, and bounded.
func (s jsonStream) name() (string, error) {
	v, err := s.text()
	if len(v) > maxIDLength {
		return "", fmt.Errorf("a name of %d bytes", len(v))
	}
	return strings.Clone(v), err
}
