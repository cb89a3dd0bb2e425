package speed

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"

	"tailor/model"
)

var tiny = model.Config{
	Layers: 2, Heads: 2, Width: 32, Context: 64, Inner: 64, Vocab: 100,
	Epsilon: 1e-5, ScaleAttn: true, EOS: -1,
}

func newModel(t *testing.T, dtype model.DType, cfg model.Config) *model.Model {
	t.Helper()
	m, err := model.NewAs(dtype, cfg, RandomTensors(cfg))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// quick is enough of an effort to see that limits are measured.
var quick = effort{tries: 3, passes: 50_000, bytes: 1 << 20}

func TestRun(t *testing.T) {
	m := newModel(t, model.BF16, tiny)
	opt := Options{Prompt: 20, Generate: 10, Depth: 5, Threads: []int{1, 2}, Batches: []int{1, 3}, Repeat: 3, KVDType: model.BF16, effort: quick}
	var seen []string
	report, err := Run(context.Background(), m, "tiny", opt, func(l Limits, results []Result) {
		for _, r := range results {
			seen = append(seen, fmt.Sprint(l.Threads, " ", r.Test, " ", r.Threads, " ", r.Batch))
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"1 pp20 1 1", "1 tg10 1 1", "1 tg10 1 3", "2 pp20 2 1", "2 tg10 2 1", "2 tg10 2 3"}
	if !slices.Equal(seen, want) {
		t.Errorf("results %q, want %q", seen, want)
	}
	if report.Model != "tiny" || report.DType != "bf16" || report.KVDType != "bf16" || !slices.Equal(report.Formats, []string{"bfloat16"}) ||
		report.Instructions == "" || report.WeightBytes != m.WeightBytes() || len(report.Limits) != 2 || len(report.Results) != 6 {
		t.Errorf("report %+v", report)
	}
	for _, l := range report.Limits {
		if len(l.Peaks) == 0 || l.Read <= 0 {
			t.Errorf("limits %+v", l)
		}
		for _, p := range l.Peaks {
			if p.FLOPS <= 0 {
				t.Errorf("%s reaches %g", p.Name, p.FLOPS)
			}
		}
	}
	for _, r := range report.Results {
		s := r.TokensPerSecond
		// A model this small is far from any limit.
		if !(0 < s.Min && s.Min <= s.Median && s.Median <= s.Max) || !(0 < r.Share && r.Share < 1) {
			t.Errorf("%s of %d threads, batch %d: %+v", r.Test, r.Threads, r.Batch, r)
		}
	}
}

func TestRunLeavesOut(t *testing.T) {
	m := newModel(t, model.F32, tiny)
	for _, opt := range []Options{{Prompt: 64}, {Generate: 4, Depth: 60}} {
		opt.Threads, opt.Batches, opt.Repeat = []int{1}, []int{1}, 1
		opt.effort = quick
		report, err := Run(context.Background(), m, "tiny", opt, nil)
		if err != nil || len(report.Results) != 1 {
			t.Errorf("%+v: %+v, %v", opt, report, err)
		}
	}
}

func TestRunRefuses(t *testing.T) {
	m := newModel(t, model.F32, tiny)
	for _, opt := range []Options{{Prompt: 65}, {Generate: 5, Depth: 60}} {
		opt.Threads, opt.Batches, opt.Repeat = []int{1}, []int{1}, 1
		opt.effort = quick
		if _, err := Run(context.Background(), m, "tiny", opt, nil); !errors.Is(err, ErrTooLong) {
			t.Errorf("%+v: %v", opt, err)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	opt := Options{Prompt: 4, Threads: []int{1}, Batches: []int{1}, Repeat: 1, effort: quick}
	if _, err := Run(ctx, m, "tiny", opt, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("after the context has ended: %v", err)
	}
}

func TestSpread(t *testing.T) {
	for _, c := range []struct {
		values []float64
		want   Spread
	}{
		{[]float64{3}, Spread{3, 3, 3}},
		{[]float64{5, 1, 3}, Spread{3, 1, 5}},
		{[]float64{8, 1, 4, 2}, Spread{3, 1, 8}},
	} {
		if got := spread(c.values); got != c.want {
			t.Errorf("spread of %v is %+v, want %+v", c.values, got, c.want)
		}
	}
}

// TestWorkOfGPT2 holds the counts to figures worked out apart from this code: 84,934,656
// weights in the layers' matrices, 38,597,376 in the head.
func TestWorkOfGPT2(t *testing.T) {
	const layers, head = 84_934_656, 38_597_376
	if got := layerWeights(GPT2Small); got != layers {
		t.Errorf("%.0f weights in the layers, want %d", got, layers)
	}
	if got := headWeights(GPT2Small); got != head {
		t.Errorf("%.0f weights in the head, want %d", got, head)
	}
	// A query at the average position 256.5 of a prompt of 512, 768 wide, in 12 layers:
	// one multiplication and one addition with each key, and with each value.
	if got, want := attention(GPT2Small, 512, 256.5), 512*12*256.5*768*4; got != want {
		t.Errorf("attention takes %g operations, want %g", got, want)
	}
}

func TestWork(t *testing.T) {
	m := newModel(t, model.BF16, tiny)
	const layers, head = 2 * (32*96 + 32*32 + 2*32*64), 32 * 100
	p := prefillWork(m, 10)
	if p.matrix != 2*(10*layers+head) || p.bytes != float64(m.WeightBytes()) || !p.pairs || p.attention != 10*5.5*2*32*4 {
		t.Errorf("prefill: %+v", p)
	}
	// Two sequences of three steps see 6, 7 and 8 positions.
	for kind, bytes := range map[model.DType]int{model.F32: 4, model.BF16: 2} {
		d := decodeWork(m, Options{Depth: 5, Generate: 3, KVDType: kind}, 2)
		if d.matrix != 2*3*2*(layers+head) || d.attention != 2*(6+7+8)*2*32*4 || d.bytes != float64(3*m.WeightBytes()+2*(6+7+8)*2*2*32*bytes) {
			t.Errorf("decode, KV %v: %+v", kind, d)
		}
	}
}

func TestShare(t *testing.T) {
	l := Limits{Peaks: []Peak{{"pairs", 200, true}, {"wide", 100, false}, {"narrow", 50, false}}, Read: 10}
	for _, c := range []struct {
		work    work
		seconds float64
		share   float64
		limit   string
	}{
		{work{matrix: 400, attention: 100, bytes: 5, pairs: true}, 6, 0.5, "arithmetic"},
		{work{matrix: 400, attention: 100, bytes: 5}, 10, 0.5, "arithmetic"},
		{work{matrix: 400, attention: 100, bytes: 80}, 10, 0.8, "bandwidth"},
	} {
		share, limit := l.share(c.work, c.seconds)
		if math.Abs(share-c.share) > 1e-12 || limit != c.limit {
			t.Errorf("%+v in %g s: %g of %s, want %g of %s", c.work, c.seconds, share, limit, c.share, c.limit)
		}
	}
	l.Peaks = l.Peaks[1:]
	if share, _ := l.share(work{matrix: 400, pairs: true}, 4); share != 1 {
		t.Errorf("without a peak of pairs the best other counts: %g", share)
	}
}

// TestRandomTensors: a model of every shape loads.
func TestRandomTensors(t *testing.T) {
	tied := tiny
	tied.TiedHead = true
	for _, cfg := range []model.Config{tiny, tied} {
		m := newModel(t, model.Auto, cfg)
		w := m.NewWorkspace(3, 1)
		logits := w.Forward([]model.Chunk{{Tokens: []int32{1, 2, 3}, KV: model.NewContiguousKV(cfg, 16, 3), Logits: 1}})
		for i, x := range logits {
			if math.IsNaN(float64(x)) || math.IsInf(float64(x), 0) || x == 0 {
				t.Fatalf("logit %d is %g", i, x)
			}
		}
		w.Close()
	}
	if err := GPT2Small.Validate(); err != nil {
		t.Error(err)
	}
}
