package report_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"tailor/internal/bench"
	"tailor/internal/bench/report"
)

func compiled(t testing.TB) *jsonschema.Schema {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(report.Schema()))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	if err := c.AddResource("schema.json", doc); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("schema.json")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func written(t testing.TB, r *bench.Report) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := report.WriteJSON(&b, r); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func validate(t testing.TB, s *jsonschema.Schema, data []byte) error {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	return s.Validate(doc)
}

// validReports are reports as a benchmark makes them.
func validReports() map[string]*bench.Report {
	minimal := &bench.Report{Schema: bench.SchemaVersion}
	foreign := hostileReports()["all unknown"]()
	foreign.Target, foreign.Replicas = "http://10.0.0.7:8000", 0
	interrupted := synthetic(fivePolicies, []int{1024}, 1, 4)
	interrupted.Interrupted = true
	interrupted.Partial = &bench.Group{Policy: "cost", Runs: []bench.Run{{Requests: 77, Unknown: []string{"tpot_seconds"}}}}
	troubled := synthetic(fivePolicies, []int{1024}, 1, 4)
	troubled.Groups[0].Published = &bench.PublishedCheck{Computed: 5, Hits: 2}
	troubled.Groups[0].Runs[0].Errors = map[string]int64{"HTTP 503": 4}
	troubled.Groups[0].Runs[0].Problems = []string{"the engines counted other things"}
	troubled.Groups[0].Runs[0].Held = 3
	return map[string]*bench.Report{
		"minimal": minimal, "foreign": foreign, "interrupted": interrupted, "troubled": troubled,
		"usual": synthetic(elevenPolicies, []int{512, 1024}, 3, 4),
		"trace": func() *bench.Report {
			r := synthetic(fivePolicies, []int{1024}, 1, 4)
			r.Arrival = bench.Arrival{Kind: "trace", Speed: 4, MaxInFlight: 256}
			return r
		}(),
	}
}

func TestWrittenReportsFollowTheSchema(t *testing.T) {
	s := compiled(t)
	for name, r := range validReports() {
		if err := validate(t, s, written(t, r)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Every change here makes a valid report invalid: the schema says more than "an object".
func TestSchemaRefuses(t *testing.T) {
	s := compiled(t)
	base := written(t, synthetic(fivePolicies, []int{1024}, 1, 4))
	run := func(doc map[string]any) map[string]any {
		return doc["groups"].([]any)[0].(map[string]any)["runs"].([]any)[0].(map[string]any)
	}
	for name, change := range map[string]func(doc map[string]any){
		"another version":           func(doc map[string]any) { doc["schema"] = "tailor-bench/2" },
		"no version":                func(doc map[string]any) { delete(doc, "schema") },
		"a date that is none":       func(doc map[string]any) { doc["created"] = "yesterday" },
		"groups null":               func(doc map[string]any) { doc["groups"] = nil },
		"a policy that is a number": func(doc map[string]any) { doc["groups"].([]any)[0].(map[string]any)["policy"] = 3 },
		"half a token":              func(doc map[string]any) { run(doc)["tokens_computed"] = 1.5 },
		"fewer than no requests":    func(doc map[string]any) { run(doc)["requests"] = -1 },
		"a hit rate above 1":        func(doc map[string]any) { run(doc)["token_hit_rate"] = 1.01 },
		"a figure missing":          func(doc map[string]any) { delete(run(doc), "tokens_reused") },
		"lost missing":              func(doc map[string]any) { delete(run(doc), "lost") },
		"unknown, and yet there":    func(doc map[string]any) { run(doc)["unknown"] = []any{"tokens_reused"} },
		"a cause that is text":      func(doc map[string]any) { run(doc)["lost"] = map[string]any{"cold": "many"} },
		"no p50":                    func(doc map[string]any) { delete(run(doc)["ttft_seconds"].(map[string]any), "p50") },
		"load in halves":            func(doc map[string]any) { run(doc)["load"].([]any)[0].(map[string]any)["in_flight"] = []any{.5} },
		"no machine":                func(doc map[string]any) { delete(doc, "machine") },
		"no verdict":                func(doc map[string]any) { delete(doc, "verdict") },
	} {
		var doc map[string]any
		if err := json.Unmarshal(base, &doc); err != nil {
			t.Fatal(err)
		}
		change(doc)
		data, err := json.Marshal(doc)
		if err != nil {
			t.Fatal(err)
		}
		if validate(t, s, data) == nil {
			t.Errorf("%s: valid", name)
		}
	}
}

// mayBeUnknown are the figures that a run may lack.
var mayBeUnknown = []string{
	"offered_requests_per_second",
	"prompt_tokens", "tokens_computed", "tokens_reused", "tokens_decoded", "request_hits", "blocks_evicted", "token_hit_rate", "request_hit_rate",
	"prefill_cpu_seconds", "decode_cpu_seconds", "ttft_seconds", "ttft_from_sent_seconds", "tpot_seconds", "e2e_seconds",
	"lost", "load_max_requests", "load_mean_requests", "load",
}

// The schema names just the fields that the Go types have, requires those that are always
// there, and gives each its type.
func TestSchemaNamesEveryField(t *testing.T) {
	var root map[string]any
	if err := json.Unmarshal(report.Schema(), &root); err != nil {
		t.Fatal(err)
	}
	defs := root["$defs"].(map[string]any)
	var check func(path string, typ reflect.Type, schema map[string]any)
	check = func(path string, typ reflect.Type, schema map[string]any) {
		if ref, ok := schema["$ref"].(string); ok {
			schema = defs[strings.TrimPrefix(ref, "#/$defs/")].(map[string]any)
		}
		want := ""
		switch {
		case typ == reflect.TypeFor[time.Time](), typ.Kind() == reflect.String:
			want = "string"
		case typ.Kind() == reflect.Pointer:
			check(path, typ.Elem(), schema)
			return
		case typ.Kind() == reflect.Bool:
			want = "boolean"
		case typ.Kind() == reflect.Float64:
			want = "number"
		case typ.Kind() == reflect.Int, typ.Kind() == reflect.Int64, typ.Kind() == reflect.Uint64:
			want = "integer"
		case typ.Kind() == reflect.Slice:
			want = "array"
			check(path+"[]", typ.Elem(), schema["items"].(map[string]any))
		case typ.Kind() == reflect.Map:
			want = "object"
			check(path+"{}", typ.Elem(), schema["additionalProperties"].(map[string]any))
		case typ.Kind() == reflect.Struct:
			want = "object"
			properties := schema["properties"].(map[string]any)
			var required []string
			for i := range typ.NumField() {
				name, options, _ := strings.Cut(typ.Field(i).Tag.Get("json"), ",")
				if name == "-" {
					continue
				}
				property, ok := properties[name].(map[string]any)
				if !ok {
					t.Errorf("%s.%s is not in the schema", path, name)
					continue
				}
				delete(properties, name)
				if !strings.Contains(options, "omitempty") && !(typ == reflect.TypeFor[bench.Run]() && slices.Contains(mayBeUnknown, name)) {
					required = append(required, name)
				}
				if property["const"] == nil {
					check(path+"."+name, typ.Field(i).Type, property)
				}
			}
			for name := range properties {
				t.Errorf("the schema has %s.%s, the type has not", path, name)
			}
			var listed []string
			for _, name := range schema["required"].([]any) {
				listed = append(listed, name.(string))
			}
			slices.Sort(listed)
			slices.Sort(required)
			if !slices.Equal(listed, required) {
				t.Errorf("%s requires %q, always there are %q", path, listed, required)
			}
			// Seen twice, for instance distributions, it has to be whole again.
			for name, v := range cloneProperties(report.Schema(), schema) {
				properties[name] = v
			}
		}
		if got, _ := schema["type"].(string); got != want {
			t.Errorf("%s is of type %q in the schema, %q in Go", path, got, want)
		}
	}
	check("report", reflect.TypeFor[bench.Report](), root)
}

// cloneProperties reads a schema's properties afresh from the source.
func cloneProperties(source []byte, schema map[string]any) map[string]any {
	var root map[string]any
	_ = json.Unmarshal(source, &root)
	same := func(other map[string]any) bool {
		return fmt.Sprint(other["required"]) == fmt.Sprint(schema["required"])
	}
	if same(root) {
		return root["properties"].(map[string]any)
	}
	for _, def := range root["$defs"].(map[string]any) {
		if def := def.(map[string]any); def["properties"] != nil && same(def) {
			return def["properties"].(map[string]any)
		}
	}
	return nil
}

func TestReadGivesBackWhatWasWritten(t *testing.T) {
	for name, r := range validReports() {
		data := written(t, r)
		got, err := report.ReadJSON(bytes.NewReader(data))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if again := written(t, got); !bytes.Equal(again, data) {
			t.Errorf("%s: reading and writing again changes the report", name)
		}
		if len(r.Groups) > 0 && (got.Groups[0].Policy != r.Groups[0].Policy || got.Groups[0].Runs[0].Reused != r.Groups[0].Runs[0].Reused) {
			t.Errorf("%s: the first group came back as %q with %d tokens reused", name, got.Groups[0].Policy, got.Groups[0].Runs[0].Reused)
		}
	}
}

func TestWriteJSONLeavesTheReportAlone(t *testing.T) {
	r := &bench.Report{Groups: []bench.Group{{Runs: []bench.Run{{}}}}}
	written(t, r)
	if r.Command != nil || r.Groups[0].Summary != nil || r.Groups[0].Runs[0].Lost != nil {
		t.Error("writing filled in the caller's report")
	}
}

func TestReadRefuses(t *testing.T) {
	for _, c := range []struct {
		name, data, says string
		version          bool
	}{
		{"another version", `{"schema":"tailor-bench/99","groups":"of another type"}`, `the file has "tailor-bench/99", this program reads "tailor-bench/1"`, true},
		{"no version", `{"results":[]}`, "not a report of this program", true},
		{"a version that is null", `{"schema":null}`, "not a report of this program", true},
		{"no object", `[1]`, "cannot unmarshal array", false},
		{"nothing", ``, "EOF", false},
		{"half a report", `{"schema":"tailor-bench/1"`, "unexpected EOF", false},
		{"two reports", `{"schema":"tailor-bench/1"} {"schema":"tailor-bench/1"}`, "more follows", false},
		{"a wrong type", `{"schema":"tailor-bench/1","groups":[{"runs":[{"requests":"many"}]}]}`, "requests", false},
	} {
		r, err := report.ReadJSON(strings.NewReader(c.data))
		if err == nil || r != nil || errors.Is(err, report.ErrVersion) != c.version || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: report %v, error %v; want one that says %q", c.name, r, err, c.says)
		}
	}
}

func TestWriteJSONRefusesNaN(t *testing.T) {
	r := synthetic(fivePolicies, []int{1024}, 1, 4)
	r.Groups[0].Runs[0].Wall = math.NaN()
	if err := report.WriteJSON(new(bytes.Buffer), r); err == nil {
		t.Error("no error")
	}
}

// FuzzReadJSON: whatever is read can be shown in every form, and read again the same.
func FuzzReadJSON(f *testing.F) {
	for _, r := range validReports() {
		if data := written(f, r); len(data) < 20_000 {
			f.Add(data)
		}
	}
	small := synthetic([]string{"a", "b"}, []int{8, 16}, 1, 1)
	for i := range small.Groups {
		run := &small.Groups[i].Runs[0]
		run.TTFTCurve, run.Load[0].InFlight = run.TTFTCurve[:5], run.Load[0].InFlight[:4]
	}
	f.Add(written(f, small))
	f.Add([]byte(`{"schema":"tailor-bench/1","groups":[{"policy":"a","kv_blocks":-1,"runs":[{"lost":{"cold":-1},"load":[{"step_seconds":1e308,"in_flight":[1,2]}],"ttft_curve_seconds":[1e-320,1e308]}]}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > 1<<16 {
			t.Skip("more than a fuzzer's turn should take")
		}
		r, err := report.ReadJSON(bytes.NewReader(data))
		if err != nil {
			return
		}
		first := written(t, r)
		again, err := report.ReadJSON(bytes.NewReader(first))
		if err != nil {
			t.Fatalf("cannot read what was written: %v", err)
		}
		if !bytes.Equal(written(t, again), first) {
			t.Fatal("writing what was read changes it")
		}
		for _, p := range report.Plots(r) {
			checkDrawing(t, parse(t, p.SVG).children[0])
		}
		var out bytes.Buffer
		if err := errors.Join(report.WriteHTML(&out, r), report.WriteCSV(&out, r)); err != nil {
			t.Fatal(err)
		}
		c, err := report.Compare(r, again)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.WriteText(&out); err != nil {
			t.Fatal(err)
		}
	})
}
