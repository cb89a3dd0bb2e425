package kernel

import "testing"

// TestReadAll reads every word once, on any number of threads: the exclusive or is that
// of the words that were written.
func TestReadAll(t *testing.T) {
	forEach(t, func(t *testing.T, o *ops, _ oracle) {
		r := newRand(t)
		m, err := NewMemory(5 << 18)
		if err != nil {
			t.Fatal(err)
		}
		var want uint32
		words := m.take16(2 * (5 << 18))
		for range 1000 {
			i, w := r.IntN(len(words)), uint16(r.Uint32())
			words[i] ^= w
			want ^= uint32(w) << (16 * (i % 2))
		}
		for threads := 1; threads <= 3; threads++ {
			team := newTeam(threads, 1, o)
			if got := team.ReadAll(m); got != want {
				t.Errorf("%d threads: %#x, want %#x", threads, got, want)
			}
			team.Close()
		}
		if m.Bytes() < 5<<20 {
			t.Errorf("%d bytes", m.Bytes())
		}
	})
}

// TestPeak counts operations: two for each product of each chain, on every thread.
func TestPeak(t *testing.T) {
	for threads := 1; threads <= 2; threads++ {
		team := NewTeam(threads, 1)
		for _, p := range Peaks() {
			passes := 0
			one := p
			one.run = func(n int) { passes += n }
			got := 0.0
			if threads == 1 {
				got = team.Peak(one, 2500)
				if passes != 3000 || got != 3000*p.flop {
					t.Errorf("%s: %d passes, %g operations, want 3000 and %g", p.Name, passes, got, 3000*p.flop)
				}
			} else if got = team.Peak(p, 2500); got != 2*3000*p.flop {
				t.Errorf("%s on 2 threads: %g operations, want %g", p.Name, got, 6000*p.flop)
			}
		}
		team.Close()
	}
}
