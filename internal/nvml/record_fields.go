package nvml

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpu-exporter/gpu-exporter/internal/standin/scenario"
)

// fieldAsked is one field value as the poll groups ask for it.
type fieldAsked struct {
	id, scope uint32
	counts    bool // it grows while the GPU works
}

// fieldBatches are the fields of all poll groups, a batch for each poll group: one that the driver refuses as a whole
// shall not take the others with it.
func fieldBatches() [][]fieldAsked {
	limits := []fieldAsked{}
	for _, t := range thresholds {
		if t.offset != 0 {
			limits = append(limits, fieldAsked{id: t.offset})
		}
	}
	return [][]fieldAsked{askedBy(identityRows), askedBy(fastRows), askedBy(mediumRows), append(askedBy(slowRows), limits...)}
}

func askedBy[T any](rows []row[T]) []fieldAsked {
	var list []fieldAsked
	for i := range rows {
		r := &rows[i]
		if r.read != nil {
			continue
		}
		for link := range r.width() {
			f := fieldAsked{id: r.field, scope: r.scope, counts: counting(r.reading)}
			if r.scope == everyLink {
				f.scope = uint32(link)
			}
			list = append(list, f)
		}
	}
	return list
}

// counting reports whether a reading of the fast poll group is a counter of work: a recording tells how fast it grew.
func counting(reading string) bool {
	for _, prefix := range []string{"energy", "limited_", "pcie_transmit", "pcie_receive", "nvlink_transmit", "nvlink_receive"} {
		if strings.HasPrefix(reading, prefix) {
			return true
		}
	}
	return false
}

// fieldAnswer is what one field value held, and when.
type fieldAnswer struct {
	fieldAsked
	code    nvml.Return
	blank   bool
	of      value
	first   uint64 // of a counter, at the first reading
	counted bool
}

// readAllFields asks for every field, a call for each batch. A batch that is refused as a whole leaves its
// code in whole.
func (r *GPURecorder) readAllFields() (answers []fieldAnswer, refused nvml.Return) {
	refused = nvml.SUCCESS
	for _, asked := range fieldBatches() {
		if len(asked) == 0 {
			continue
		}
		batch := make([]nvml.FieldValue, len(asked))
		for i, f := range asked {
			batch[i] = nvml.FieldValue{FieldId: f.id, ScopeId: f.scope}
		}
		ret := r.see(r.dev.call(callFieldValues, func() nvml.Return { return r.dev.handle().GetFieldValues(batch) }))
		if ret != nvml.SUCCESS {
			refused = ret
			continue
		}
		for i, f := range asked {
			v := &batch[i]
			code := nvml.Return(v.NvmlReturn)
			_ = r.see(code)
			a := fieldAnswer{fieldAsked: f, code: code, blank: code == nvml.SUCCESS && v.Timestamp == 0,
				of: value{kind: nvml.ValueType(v.ValueType), raw: v.Value}}
			a.first, a.counted = a.of.count()
			answers = append(answers, a)
		}
	}
	return answers, refused
}

// recordFields writes the fields down. Of a counter that grew since the first reading, the line says how
// fast: the first value and so much a second.
func (r *GPURecorder) recordFields(first []fieldAnswer, over time.Duration) {
	last, refused := r.readAllFields()
	switch {
	case refused != nvml.SUCCESS && len(last) == 0:
		r.set("FieldValues", scenario.Value{}, refused)
		return
	case refused != nvml.SUCCESS:
		r.note("some field values were refused together (" + codeName(refused) + ") and are left out.")
	}
	scoped := map[uint32]bool{}
	for _, f := range last {
		scoped[f.id] = scoped[f.id] || f.scope != 0
	}
	for _, f := range last {
		index := []int64{int64(f.id)}
		if scoped[f.id] {
			index = append(index, int64(f.scope))
		}
		if f.code == nvml.SUCCESS {
			r.field = max(r.field, int(f.id))
		}
		if f.blank {
			r.draft.Answers.Set("Field", scenario.Untouched(), index...)
			continue
		}
		v, ok := f.of.spell()
		if !ok && f.code == nvml.SUCCESS {
			r.draft.Answers.Set("Field", scenario.Code(codeName(nvml.ERROR_NO_DATA)).Noted("the driver gave what is no number"), index...)
			continue
		}
		at := slices.IndexFunc(first, func(o fieldAnswer) bool { return o.fieldAsked == f.fieldAsked })
		if f.counts && at >= 0 && f.code == nvml.SUCCESS && first[at].code == nvml.SUCCESS && !first[at].blank {
			if sum, grew := growing(first[at].first, f.first, over); grew && first[at].counted && f.counted {
				v = scenario.Numbers(sum).Typed(f.of.typeName())
			}
		}
		r.set("Field", v, f.code, index...)
	}
}

// growing spells a counter that went from one value to another.
func growing(from, to uint64, over time.Duration) (sum string, grew bool) {
	const exact = 1 << 53 // sums are of floats
	if to <= from || to >= exact || over <= 0 {
		return "", false
	}
	return fmt.Sprintf("%d + %s*t", from, short(float64(to-from)/over.Seconds())), true
}

// short spells a measured number, to a thousandth.
func short(v float64) string {
	return strconv.FormatFloat(math.Round(v*1000)/1000, 'f', -1, 64)
}

// spell spells a field value for a scenario; false for what is no number.
func (v value) spell() (scenario.Value, bool) {
	if v.kind == nvml.VALUE_TYPE_DOUBLE {
		n, ok := v.number()
		if !ok {
			return scenario.Value{}, false
		}
		text, ok := scenario.Real(n)
		return scenario.Numbers(text).Typed("double"), ok
	}
	if n, ok := v.count(); ok {
		return scenario.Numbers(scenario.Integer(n)).Typed(v.typeName()), true
	}
	n, ok := v.number()
	return scenario.Numbers(scenario.Integer(int64(n))).Typed(v.typeName()), ok
}

// typeName is what a scenario calls the value's type.
func (v value) typeName() string {
	switch v.kind {
	case nvml.VALUE_TYPE_DOUBLE:
		return "double"
	case nvml.VALUE_TYPE_UNSIGNED_INT:
		return "uint"
	case nvml.VALUE_TYPE_SIGNED_LONG_LONG:
		return "longlong"
	case nvml.VALUE_TYPE_SIGNED_INT:
		return "int"
	case nvml.VALUE_TYPE_UNSIGNED_SHORT:
		return "ushort"
	}
	return "ulonglong" // an unsigned long is as wide
}
