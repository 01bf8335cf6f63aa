package nvml

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"strconv"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// number returns the value as a float64; false where the type is unknown or the value is not finite.
func (v value) number() (float64, bool) {
	b := v.raw[:]
	switch {
	case v.sum:
		return float64(binary.NativeEndian.Uint64(b)), true
	case v.kind == nvml.VALUE_TYPE_DOUBLE:
		f := math.Float64frombits(binary.NativeEndian.Uint64(b))
		return f, !math.IsNaN(f) && !math.IsInf(f, 0)
	case v.kind == nvml.VALUE_TYPE_UNSIGNED_INT:
		return float64(binary.NativeEndian.Uint32(b)), true
	case v.kind == nvml.VALUE_TYPE_UNSIGNED_LONG, v.kind == nvml.VALUE_TYPE_UNSIGNED_LONG_LONG:
		return float64(binary.NativeEndian.Uint64(b)), true
	case v.kind == nvml.VALUE_TYPE_SIGNED_LONG_LONG:
		return float64(int64(binary.NativeEndian.Uint64(b))), true
	case v.kind == nvml.VALUE_TYPE_SIGNED_INT:
		return float64(int32(binary.NativeEndian.Uint32(b))), true
	case v.kind == nvml.VALUE_TYPE_UNSIGNED_SHORT:
		return float64(binary.NativeEndian.Uint16(b)), true
	}
	return 0, false
}

// count returns the value as an exact unsigned number; false for negative values and where number is false.
func (v value) count() (uint64, bool) {
	b := v.raw[:]
	switch {
	case v.sum, v.kind == nvml.VALUE_TYPE_UNSIGNED_LONG, v.kind == nvml.VALUE_TYPE_UNSIGNED_LONG_LONG:
		return binary.NativeEndian.Uint64(b), true
	}
	f, ok := v.number()
	if !ok || f < 0 || f > math.MaxUint64/2 {
		return 0, false
	}
	return uint64(f), true
}

// spell returns the name of the value's type and the number as a text, empty for what is no finite number.
func (v value) spell() (kind, number string) {
	kind = map[nvml.ValueType]string{nvml.VALUE_TYPE_DOUBLE: "double", nvml.VALUE_TYPE_UNSIGNED_INT: "uint",
		nvml.VALUE_TYPE_SIGNED_LONG_LONG: "longlong", nvml.VALUE_TYPE_SIGNED_INT: "int",
		nvml.VALUE_TYPE_UNSIGNED_SHORT: "ushort"}[v.kind]
	kind = cmp.Or(kind, "ulonglong") // an unsigned long is as wide
	n, finite := v.number()
	whole, unsigned := v.count()
	switch {
	case !finite:
		return kind, ""
	case kind == "double":
		return kind, strconv.FormatFloat(n, 'g', -1, 64)
	case unsigned:
		return kind, strconv.FormatUint(whole, 10)
	}
	return kind, strconv.FormatInt(int64(n), 10)
}

// summed returns the value of a sum.
func summed(n uint64) value {
	v := value{sum: true}
	binary.NativeEndian.PutUint64(v.raw[:], n)
	return v
}

// width returns the number of entries that a field row has in a batch.
func (r *row[T]) width() int {
	if r.scope == everyLink {
		return nvml.NVLINK_MAX_LINKS
	}
	return 1
}

// readFields reads the fields of some rows in one call. Each entry has a code of its own. An entry that the driver left
// untouched (time 0: seen for counters whose feature is off) has no value; after blankLimit of them in a row it counts
// as not offered.
func readFields[T any](c *GPU, rows []row[T], states []rowState, which []int, to *T, t *tally) error {
	var batch []nvml.FieldValue
	for _, i := range which {
		r, s := &rows[i], &states[i]
		if s.entries == nil {
			s.entries = make([]entryState, r.width())
		}
		for link := range s.entries {
			if s.entries[link].dropped {
				continue
			}
			scope := r.scope
			if scope == everyLink {
				scope = uint32(link)
			}
			batch = append(batch, nvml.FieldValue{FieldId: r.field, ScopeId: scope})
		}
	}
	if len(batch) == 0 {
		return nil
	}
	ret := c.fieldValues(batch)
	if err := whole(ret); err != nil {
		return fmt.Errorf("read %d fields of %s: %w (%s)", len(batch), c, err, codeName(ret))
	}
	if (notOffered(ret) || ret == nvml.ERROR_INVALID_ARGUMENT) && len(which) > 1 {
		// The driver rejects the batch as a whole, perhaps because of one field.
		for _, i := range which {
			if err := readFields(c, rows, states, []int{i}, to, t); err != nil {
				return err
			}
		}
		return nil
	}
	if ret != nvml.SUCCESS {
		for _, i := range which {
			t.add(ret)
			learn(c, rows[i].reading, &states[i], ret)
		}
		return nil
	}
	at := 0
	for _, i := range which {
		err := takeField(c, &rows[i], &states[i], batch, &at, to, t)
		if err != nil {
			return err
		}
	}
	return nil
}

// fieldValues makes the call; values and codes are set in the batch.
func (c *GPU) fieldValues(batch []nvml.FieldValue) nvml.Return {
	return c.do(request{id: callFieldValues, value: &batch, run: func() nvml.Return { return c.handle().GetFieldValues(batch) }})
}

// takeField takes the entries of one row out of a batch, from *at on, and sets the row's value if every offered entry
// has one. In a sum over links, a link that no longer has a value counts with its last one: the sum neither falls nor
// ends with it.
func takeField[T any](c *GPU, r *row[T], s *rowState, batch []nvml.FieldValue, at *int, to *T, t *tally) error {
	var got value
	var sum uint64
	values, wanted := 0, 0
	result := nvml.ERROR_NOT_SUPPORTED // of the row, if no entry is left
	for link := range s.entries {
		e := &s.entries[link]
		if e.dropped {
			sum += e.count.Or(0)
			continue
		}
		f := &batch[*at]
		*at++
		code := nvml.Return(f.NvmlReturn)
		if err := whole(code); err != nil {
			return fmt.Errorf("read field %d of %s: %w (%s)", f.FieldId, c, err, codeName(code))
		}
		blank := code == nvml.SUCCESS && f.Timestamp == 0
		if blank {
			e.blanks++
			e.dropped = e.blanks >= blankLimit
		} else {
			e.blanks = 0
		}
		switch {
		case code == nvml.SUCCESS && !blank:
			wanted++
			got = value{kind: nvml.ValueType(f.ValueType), raw: f.Value}
			if n, ok := got.count(); ok {
				e.count = gpu.Some(n)
				values++
			} else if _, ok := got.number(); ok && r.scope != everyLink {
				values++
			}
		case notOffered(code), code == nvml.ERROR_INVALID_ARGUMENT && !s.worked:
			e.dropped = true
		case code == nvml.ERROR_NO_PERMISSION:
			e.dropped = true
			result = code
			c.count(callFieldValues, codeName(code))
		default:
			if !e.dropped {
				wanted++
			}
			if !blank && !silent(code) {
				c.count(callFieldValues, codeName(code))
			}
			if !blank {
				result = code
			}
			if e.count.Present() && r.scope == everyLink {
				values++
			}
		}
		sum += e.count.Or(0)
	}
	left := false
	for link := range s.entries {
		left = left || !s.entries[link].dropped
	}
	switch {
	case !left:
		t.add(result)
		learn(c, r.reading, s, result)
	case wanted > 0 && values == wanted:
		t.add(nvml.SUCCESS)
		learn(c, r.reading, s, nvml.SUCCESS)
		if r.scope == everyLink {
			got = summed(sum)
		}
		r.set(to, got)
	case result != nvml.ERROR_NOT_SUPPORTED:
		t.add(result)
		learn(c, r.reading, s, result)
	default:
		t.add(nvml.ERROR_NO_DATA) // blank: no value this time
	}
	return nil
}
