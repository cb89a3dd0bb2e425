package kernel

import "unsafe"

// Peak is arithmetic without memory: multiply-adds of registers, in as many chains as
// hide their latency. No product of the same kind can be faster.
type Peak struct {
	Name string
	// Pairs says that it multiplies pairs of bfloat16, as BFloat16Pairs does.
	Pairs bool
	run   func(passes int)
	flop  float64 // of a pass: two for each product
}

// peakChains is how many chains of registers a pass of the assembly advances by one.
const peakChains = 12

// Peaks are those of every instruction set that runs here, the best first.
func Peaks() []Peak {
	var all []Peak
	for _, o := range available() {
		all = append(all, o.peaks...)
	}
	return all
}

// Peak does a number of passes on every thread, in turns of a thousand, and returns how
// many multiplications and additions they were.
func (t *Team) Peak(p Peak, passes int) (flop float64) {
	const turn = 1000
	units := t.Threads() * ((passes + turn - 1) / turn)
	t.Run(units, taskFunc(func(int, int) { p.run(turn) }))
	return float64(units) * turn * p.flop
}

// streamed is how many bytes a unit of ReadAll reads.
const streamed = 1 << 20

// ReadAll reads all of m once, with all threads, and returns the exclusive or of its
// words: the limit of what decode can do, which reads every weight for every token.
func (t *Team) ReadAll(m *Memory) uint32 {
	words := make([]uint32, t.Threads())
	t.Run((len(m.all)+streamed-1)/streamed, taskFunc(func(thread, unit int) {
		words[thread] ^= t.ops.stream(m.all[unit*streamed : min((unit+1)*streamed, len(m.all))])
	}))
	var all uint32
	for _, w := range words {
		all ^= w
	}
	return all
}

// Bytes is the size of the memory.
func (m *Memory) Bytes() int { return len(m.all) }

// taskFunc is a task that is a function.
type taskFunc func(thread, unit int)

func (f taskFunc) Unit(thread, unit int) { f(thread, unit) }

// scalarChains is how many chains peakScalar has, of one float each.
const scalarChains = 6

func peakScalar(passes int) {
	a0, a1, a2, a3, a4, a5 := float32(1), float32(2), float32(3), float32(4), float32(5), float32(6)
	var b, c0, c1, c2, c3, c4, c5 float32
	for range passes {
		b++ // so that no product is that of the pass before
		c0 = float32(a0*b) + c0
		c1 = float32(a1*b) + c1
		c2 = float32(a2*b) + c2
		c3 = float32(a3*b) + c3
		c4 = float32(a4*b) + c4
		c5 = float32(a5*b) + c5
	}
	if sum := c0 + c1 + c2 + c3 + c4 + c5; sum != sum {
		panic("kernel: a sum of positive numbers is none") // keeps the sums from being left out
	}
}

func streamScalar(b []byte) uint32 {
	var x uint64
	for _, w := range unsafe.Slice((*uint64)(unsafe.Pointer(&b[0])), len(b)/8) {
		x ^= w
	}
	return uint32(x) ^ uint32(x>>32)
}
