// Package wire reads encoded protobuf messages field by field, for readers that keep little of a large message and
// bound what they keep. The generated code of k8s.io/kubelet decodes the whole message, and links gRPC.
package wire

import (
	"errors"
	"fmt"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
)

// ErrMessage is the error of bytes that are not an encoded message.
var ErrMessage = errors.New("not a protobuf message")

// Fields calls visit for each length-delimited field of an encoded message: strings, bytes and messages. Other fields
// are skipped. Value is part of message.
func Fields(message []byte, visit func(number protowire.Number, value []byte) error) error {
	for len(message) > 0 {
		number, kind, n := protowire.ConsumeTag(message)
		if n < 0 {
			return parseError(n)
		}
		message = message[n:]
		if kind != protowire.BytesType {
			if n = protowire.ConsumeFieldValue(number, kind, message); n < 0 {
				return parseError(n)
			}
			message = message[n:]
			continue
		}
		value, n := protowire.ConsumeBytes(message)
		if n < 0 {
			return parseError(n)
		}
		if err := visit(number, value); err != nil {
			return err
		}
		message = message[n:]
	}
	return nil
}

func parseError(n int) error { return fmt.Errorf("%w: %w", ErrMessage, protowire.ParseError(n)) }

// Text copies a field that is a string.
func Text(value []byte) (string, error) {
	if !utf8.Valid(value) {
		return "", fmt.Errorf("%w: text that is not UTF-8", ErrMessage)
	}
	return string(value), nil
}
