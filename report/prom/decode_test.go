package prom

import (
	"encoding/json"
	"math"
	"reflect"
	"strconv"
	"testing"
)

// plain reads a response as encoding/json does.
func plain(b []byte) (out []Series, ok bool) {
	var a struct {
		Status string
		Data   struct {
			ResultType string
			Result     []struct {
				Metric map[string]string
				Values [][2]any
			}
		}
	}
	if json.Unmarshal(b, &a) != nil || a.Status == "" || a.Data.ResultType != "matrix" {
		return nil, false
	}
	for _, r := range a.Data.Result {
		s := Series{}
		for n, v := range r.Metric {
			s.Labels = append(s.Labels, Label{n, v})
		}
		for _, p := range r.Values {
			at, ok1 := p[0].(float64)
			text, ok2 := p[1].(string)
			v, err := strconv.ParseFloat(text, 64)
			if !ok1 || !ok2 || err != nil {
				return nil, false
			}
			s.At = append(s.At, int64(math.Round(at*1000)))
			s.Value = append(s.Value, v)
		}
		out = append(out, s)
	}
	return out, true
}

// Whatever is read at all is read as encoding/json reads it, and the decoder fails only by
// an error.
func FuzzDecode(f *testing.F) {
	for _, s := range []string{
		`{"status":"success","data":{"resultType":"matrix","result":[{"metric":{"a":"b","c":"d\n\"é"},"values":[[1.5,"2"],[3,"NaN"],` +
			`[1712345678.123,"1e-3"]]}]}}`,
		` { "data" : { "resultType" : "matrix" , "result" : [ ] } , "warnings" : [ "x" ] , "status" : "success" , "isPartial" : false } `,
		`{"status":"error","errorType":"timeout","error":"query timed out"}`,
		`{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"value":[1,"2"]}]}}`,
		`{"status":"success","data":{"resultType":"scalar","result":[1,"2"]}}`,
		`{"status":"success","data":["a","b"]}`, `{"status":"success","data":null,"stats":{"a":[1,{"b":true}]}}`, `{`, `[]`, ``,
		`{"status":"a\`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var got []Series
		_, err := decode(b, func(s *Series) error {
			got = append(got, Series{append(Labels(nil), s.Labels...), append([]int64(nil), s.At...), append([]float64(nil), s.Value...)})
			return nil
		})
		want, ok := plain(b)
		if err != nil || !ok || len(got) != len(want) {
			return
		}
		for i := range want {
			if !reflect.DeepEqual(got[i].At, want[i].At) || len(got[i].Value) != len(want[i].Value) {
				t.Fatalf("%s: %+v, want %+v", b, got[i], want[i])
			}
			for j := range want[i].Value {
				if x, y := got[i].Value[j], want[i].Value[j]; x != y && !(math.IsNaN(x) && math.IsNaN(y)) {
					t.Fatalf("%s: %v, want %v", b, x, y)
				}
			}
		}
	})
}

func BenchmarkDecode(b *testing.B) {
	text := []byte(`{"status":"success","data":{"resultType":"matrix","result":[`)
	for s := range 20 {
		if s > 0 {
			text = append(text, ',')
		}
		text = append(text, `{"metric":{"__name__":"workload:gpu_allocated_seconds:rate5m","cluster":"main","namespace":"n`+strconv.Itoa(s)+
			`"},"values":[`...)
		for i := range 2000 {
			if i > 0 {
				text = append(text, ',')
			}
			text = append(text, `[`+strconv.Itoa(1712345600+300*i)+`,"0.99`+strconv.Itoa(i)+`5"]`...)
		}
		text = append(text, "]}"...)
	}
	text = append(text, "]}}"...)
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		if _, err := decode(text, func(*Series) error { return nil }); err != nil {
			b.Fatal(err)
		}
	}
}
