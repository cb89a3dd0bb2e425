package speed

import (
	"errors"
	"slices"
	"time"

	"tailor/model"
	"tailor/model/kernel"
)

// ErrTooLong: a test needs more tokens than the model's context has.
var ErrTooLong = errors.New("more tokens than the context")

// Limits are what this machine can do at most with a number of threads: the best of
// several tries each, before the tests and after them.
type Limits struct {
	Threads int `json:"threads"`
	// Peaks are in floating-point operations per second, of every instruction set.
	Peaks []Peak `json:"peaks"`
	// Read is in bytes per second, from where the weights lie: a model that fits a cache is
	// read from there.
	Read float64 `json:"read_bytes_per_second"`
}

// Peak is the arithmetic limit of one instruction set.
type Peak struct {
	Name  string  `json:"name"`
	FLOPS float64 `json:"flop_per_second"`

	pairs bool
}

// effort is how much a limit is measured.
type effort struct {
	tries  int
	passes int // of arithmetic, in each try
	bytes  int // read in each try, at least
}

// full takes half a second, and one more where tiles of AMX are measured.
var full = effort{tries: 7, passes: 4_000_000, bytes: 256 << 20}

// measure raises the limits to what is reached now.
func (l *Limits) measure(m *model.Model, e effort) {
	team := kernel.NewTeam(l.Threads, 1)
	defer team.Close()
	peaks := kernel.Peaks()
	if l.Peaks == nil {
		for _, p := range peaks {
			l.Peaks = append(l.Peaks, Peak{Name: p.Name, pairs: p.Pairs})
		}
	}
	w := m.NewWorkspace(1, l.Threads)
	defer w.Close()
	for range e.tries {
		for i, p := range peaks {
			start := time.Now()
			flop := team.Peak(p, e.passes)
			l.Peaks[i].FLOPS = max(l.Peaks[i].FLOPS, flop/time.Since(start).Seconds())
		}
		start, bytes := time.Now(), 0
		for bytes < e.bytes {
			bytes += w.ReadWeights()
		}
		l.Read = max(l.Read, float64(bytes)/time.Since(start).Seconds())
	}
}

// work is what a test asks of the machine.
type work struct {
	matrix    float64 // operations with weights
	attention float64 // operations with keys and values
	bytes     float64 // read from weights, keys and values
	pairs     bool    // the weights' type allows pairs of bfloat16
}

// share is the time that the tighter limit allows over the time taken.
func (l Limits) share(w work, seconds float64) (share float64, limit string) {
	plain, matrix := l.peak(false), l.peak(w.pairs)
	arithmetic, bandwidth := w.matrix/matrix+w.attention/plain, w.bytes/l.Read
	if arithmetic > bandwidth {
		return arithmetic / seconds, "arithmetic"
	}
	return bandwidth / seconds, "bandwidth"
}

// peak is the limit of the best instructions, of those that multiply pairs if there are any.
func (l Limits) peak(pairs bool) float64 {
	i := slices.IndexFunc(l.Peaks, func(p Peak) bool { return p.pairs == pairs })
	return l.Peaks[max(i, 0)].FLOPS
}

// layerWeights is the number of weights of all layers' matrices.
func layerWeights(cfg model.Config) float64 {
	w := float64(cfg.Width)
	return float64(cfg.Layers) * (4*w*w + 2*w*float64(cfg.Inner))
}

func headWeights(cfg model.Config) float64 { return float64(cfg.Width) * float64(cfg.Vocab) }

// attention is the operations of n tokens that see positions tokens on average.
func attention(cfg model.Config, n, positions float64) float64 {
	return n * 4 * float64(cfg.Layers*cfg.Width) * positions
}

// prefillWork counts one multiplication and one addition for each weight and token; the
// head's only for the last token.
func prefillWork(m *model.Model, tokens int) work {
	cfg, n := m.Config(), float64(tokens)
	return work{
		matrix:    2 * (n*layerWeights(cfg) + headWeights(cfg)),
		attention: attention(cfg, n, (n+1)/2),
		bytes:     float64(m.WeightBytes()),
		pairs:     m.DType() == model.BF16,
	}
}

// decodeWork counts the weights' bytes once a step, and each sequence's keys and values.
func decodeWork(m *model.Model, opt Options, batch int) work {
	cfg, steps := m.Config(), opt.Generate
	n, positions := float64(steps*batch), float64(opt.Depth)+float64(steps+1)/2
	numberBytes := 4
	if opt.KVDType == model.BF16 {
		numberBytes = 2
	}
	return work{
		matrix:    2 * n * (layerWeights(cfg) + headWeights(cfg)),
		attention: attention(cfg, n, positions),
		bytes:     float64(steps)*float64(m.WeightBytes()) + n*positions*float64(2*numberBytes*cfg.Layers*cfg.Width),
		pairs:     m.DType() == model.BF16,
	}
}
